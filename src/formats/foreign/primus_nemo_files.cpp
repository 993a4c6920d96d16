// Primus' experiments and NeMo's configurations: Megatron's arguments below sections of their own.
#include <algorithm>
#include <filesystem>

#include "formats/foreign/format.hpp"
#include "formats/foreign/megatron_arguments.hpp"
#include "formats/foreign/schema.hpp"
#include "plimsoll/error.hpp"
#include "units/files.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kPrimus = "Primus, 2026-08";
constexpr const char* kNemo = "NeMo 1";

const Rows& primus_rows() {
  static const Rows table = {
      {"modules.pre_trainer.framework", kCode, "", nullptr, "megatron, torchtitan"},
      {"modules.pre_trainer.model", kCode, "", nullptr, "a file of Primus' models, or the model of that name"},
      {"modules.pre_trainer.overrides.*", kCode, "", nullptr, "Megatron's or torchtitan's arguments"},
      {"modules.sft_trainer.*", kRefused, "", nullptr, "fine-tuning under Primus"},
      {"enable_primus_turbo", kCode, "", nullptr, "whether the keys of turbo count"},
      {"use_turbo_attention", kCode, "", nullptr, "attention: flash, AITER's; goes before attention_backend"},
      {"use_turbo_grouped_gemm", kNothing},
      {"use_turbo_grouped_mlp", kNothing},
      {"turbo_sync_free_moe_stage", kRefused, "0", nullptr, "Primus-Turbo's mixture of experts without synchronisation"},
      {"use_turbo_parallel_linear", kRefused, "false", nullptr, "Primus-Turbo's linears"},
      {"use_turbo_deepep", "moe_dispatcher", "true=deepep,false=-"},
      {"model_type", kRefused, "gpt", nullptr, "a model that is no GPT"},
      {"torch_compile.enable", kRefused, "false", nullptr, "torch.compile under Primus"},
  };
  return table;
}

int recognises_primus(const Node& tree) {
  return 8 * count_of(tree, {"modules.pre_trainer"}) + count_of(tree, {"exp_name", "work_group", "workspace"});
}

/// "llama3.1_8B.yaml" → "llama-3.1-8b"
std::string shipped_name(std::string name) {
  if (const std::size_t end = name.rfind(".yaml"); end != std::string::npos) name.resize(end);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return c == '_' ? '-' : static_cast<char>(std::tolower(c)); });
  if (name.rfind("llama", 0) == 0 && name.size() > 5 && std::isdigit(static_cast<unsigned char>(name[5])) != 0) name.insert(5, "-");
  return name;
}

void add_missing(Node& table, const Node& below) {
  for (const auto& [name, value] : below.members)
    if (!table.find(name)) table.members.emplace_back(name, value);
}

/// A file of Primus' models with those that it `extends`; what stands nearer counts.
Node read_with_bases(const std::string& path, int depth) {
  constexpr int kMostBases = 16;
  if (depth > kMostBases) fail("files extend each other without end", path);
  Node file = parse_yaml_text(read_plain(path), path);
  const Node* bases = file.find("extends");
  if (!bases || !bases->is_list()) return file;
  const Node copy = *bases;
  for (auto base = copy.members.rbegin(); base != copy.members.rend(); ++base) {
    const auto found = std::filesystem::path(path).parent_path() / base->second.word();
    if (files::exists(found.string())) add_missing(file, read_with_bases(found.string(), depth + 1));
  }
  std::erase_if(file.members, [](const auto& member) { return member.first == "extends" || member.first == "bases"; });
  return file;
}

/// Where Primus keeps its models, seen from an experiment: beside it, or in the repository above it.
std::string model_file(const std::string& name, const std::string& where) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(where.substr(0, where.rfind(':'))).parent_path();
  for (int up = 0; up < 8; ++up) {
    for (const char* below : {"", "primus/configs/models/megatron"})
      if (files::exists((folder / below / name).string())) return (folder / below / name).string();
    folder = folder / "..";
  }
  return {};
}

void read_primus_model(Reading& reading, const Node& trainer, Node& arguments) {
  const Node* model = trainer.find("model");
  if (!model || model->is_null()) return;
  const std::string file = model_file(model->word(), model->where);
  if (file.empty()) return reading.say("model", shipped_name(model->word()), "modules.pre_trainer.model", model->where);
  add_missing(arguments, read_with_bases(file, 0));
}

/// Primus over torchtitan: torchtitan's own sections, with what primus/configs/modules/torchtitan/pre_trainer.yaml takes otherwise.
void read_primus_titan(Reading& reading, const Node& trainer) {
  Node tree = Node::table(trainer.where);
  if (const Node* overrides = trainer.find("overrides"); overrides && overrides->is_table()) tree = *overrides;
  const Node turbo = tree.find("primus_turbo") ? *tree.find("primus_turbo") : Node();
  for (const char* low : {"enable_attention_float8", "use_moe_fp8"})
    if (const Node* value = turbo.find(low); value && value->text == "true")
      refuse(std::string("not modelled: Primus-Turbo in fp8 (") + low + ")", value->where, "set it to false");
  std::erase_if(tree.members, [](const auto& member) { return member.first == "primus_turbo" || member.first.ends_with("sink_level"); });
  for (const auto& [key, word] : {std::pair{"activation_checkpoint.mode", "none"}, {"compile.enable", "true"}})
    if (!tree.find(key)) tree.set(key, Node::scalar(word, kPrimus));
  const Node* model = trainer.find("model");
  if (model && !model->is_null()) {
    std::string name = model->word().substr(0, model->word().rfind(".yaml"));
    if (name.ends_with("-fp8")) refuse("not modelled: Primus over torchtitan in fp8", model->where, "a model without -fp8");
    const std::size_t cut = name.rfind('_');
    if (cut == std::string::npos) fail("'" + name.substr(0, 60) + "' names no flavor of a model", model->where, "llama3.1_8B.yaml");
    const std::string family = name.rfind("llama3", 0) == 0 ? "llama3" : name.substr(0, cut);
    tree.set("model.name", Node::scalar(family, model->where));
    tree.set("model.flavor", Node::scalar(name.substr(cut + 1), model->where));
  }
  reading.note_format("torchtitan");
  find_format("torchtitan").read(reading, tree);
}

/// Whether a key is Primus' own rather than Megatron-LM's.
bool is_primus_key(const std::string& name) { return find_row(primus_rows(), name) != nullptr || Schema::of("primus")->has(name); }

/// Primus' own keys, taken out of `arguments`. Its turbo kernels are there where enable_primus_turbo is on
/// (primus/backends/megatron/patches/turbo/te_spec_provider_patches.py), and PrimusTurboSpecProvider.core_attention asks for no backend.
void read_primus_keys(Reading& reading, Node& arguments) {
  const bool turbo = is_on(arguments.find("enable_primus_turbo"));
  Node own = Node::table(arguments.where);
  for (const auto& [name, value] : arguments.members) {
    if (!is_primus_key(name)) continue;
    if (!turbo && name.find("turbo") != std::string::npos) {
      reading.leave_unread(name, value.where);
    } else {
      own.members.emplace_back(name, value);
    }
  }
  read_rows(reading, primus_rows(), *Schema::of("primus"), own);
  const Node* attention = arguments.find("use_turbo_attention");
  const bool flash = turbo && is_on(attention);
  if (flash) reading.say("attention", "flash", "use_turbo_attention", attention->where);
  std::erase_if(arguments.members, [&](const auto& member) {
    return is_primus_key(member.first) || (flash && (member.first == "attention_backend" || member.first == "use_flash_attn"));
  });
}

void read_primus(Reading& reading, const Node& said) {
  Node tree = said;
  resolve_references(tree);
  const Node* trainer = tree.find("modules.pre_trainer");
  const Node* modules = tree.find("modules");
  if (!trainer && modules && modules->is_table() && !modules->members.empty())
    refuse("not modelled: Primus' " + modules->members.front().first.substr(0, 40), modules->members.front().second.where,
           "modules.pre_trainer is read");
  if (!trainer || !trainer->is_table()) fail("there is no modules.pre_trainer", tree.where);
  const Node* framework = trainer->find("framework");
  if (framework && framework->word() == "torchtitan") return read_primus_titan(reading, *trainer);
  if (framework && framework->word() != "megatron")
    refuse("Primus over " + framework->word().substr(0, 40) + " is not read from its files", framework->where, "megatron or torchtitan");
  reading.say("framework", "primus", "modules.pre_trainer", trainer->where);
  Node arguments = trainer->find("overrides") ? *trainer->find("overrides") : Node::table(trainer->where);
  read_primus_model(reading, *trainer, arguments);
  read_primus_keys(reading, arguments);
  if (!arguments.find("bf16")) arguments.set("bf16", Node::scalar("true", kPrimus));
  if (reading.has("model")) {  // the shipped model has these
    for (const auto& [key, value] :
         {std::pair{"swiglu", "true"}, {"hidden_dropout", "0"}, {"attention_dropout", "0"}, {"normalization", "RMSNorm"}})
      if (!arguments.find(key)) arguments.set(key, Node::scalar(value, kPrimus));
  }
  read_megatron(reading, arguments, kPrimus, Unknown::own);  // its patches read arguments of their own
  if (!reading.has("model")) return;
  const std::vector<ForeignKey> keys = reading.keys();
  for (const ForeignKey& key : keys)
    if (key.key.rfind("model.", 0) == 0) reading.forget(key.key);  // the shipped model's own
}

// ---- NeMo -------------------------------------------------------------------------------------------------------------

const Rows& nemo_rows() {
  static const Rows table = {
      {"trainer.devices", "cluster.gpus_per_node"},
      {"trainer.num_nodes", "cluster.nodes"},
      {"trainer.precision", "precision", "bf16=bf16,bf16-mixed=bf16,16=fp16,16-mixed=fp16,32=fp32,32-true=fp32"},
      {"trainer.gradient_clip_val", "clip_grad_norm"},
      {"trainer.*", kNothing},
      {"exp_manager.*", kNothing},
      {"model.optim.name", "optimizer", "distributed_fused_adam=adamw,fused_adam=adamw,mcore_distributed_optim=adamw,adamw=adamw"},
      {"model.*", kCode, "", nullptr, "Megatron's arguments"},
  };
  return table;
}

int recognises_nemo(const Node& tree) {
  return 4 * count_of(tree, {"trainer.num_nodes", "model.tensor_model_parallel_size", "model.megatron_amp_O2", "model.mcore_gpt"});
}

/// NeMo's own names of Megatron's arguments, and what it has beside them.
Node megatron_names(const Node& model) {
  static const std::pair<const char*, const char*> kNames[] = {{"encoder_seq_length", "seq_length"},
                                                               {"activations_checkpoint_granularity", "recompute_granularity"},
                                                               {"activations_checkpoint_method", "recompute_method"},
                                                               {"activations_checkpoint_num_layers", "recompute_num_layers"},
                                                               {"ub_tp_comm_overlap", "tp_comm_overlap"},
                                                               {"fp8_params", "fp8_param_gather"}};
  Node arguments = Node::table(model.where);
  for (const auto& [name, value] : model.members) {
    std::string key = name;
    for (const auto& [theirs, megatron] : kNames)
      if (key == theirs) key = megatron;
    if (key == "fp8" && value.text == "false") continue;
    if (value.is_table()) continue;
    arguments.members.emplace_back(key, value);
  }
  for (const auto& [theirs, megatron] : {std::pair{"tokenizer.type", "tokenizer_type"}, {"tokenizer.model", "tokenizer_model"}})
    if (const Node* value = model.find(theirs); value && !value->is_null()) arguments.set(megatron, *value);
  const auto words = [&](const char* key, const char* word, const char* flag) {
    const Node* value = model.find(key);
    if (value && value->text == word) arguments.set(flag, Node::scalar("true", value->where));
  };
  words("activation", "fast-swiglu", "swiglu");
  words("activation", "swiglu", "swiglu");
  words("activation", "squared-relu", "squared_relu");
  words("bias", "false", "disable_bias_linear");
  words("share_embeddings_and_output_weights", "false", "untie_embeddings_and_output_weights");
  const Node* norm = model.find("normalization");
  if (norm && norm->text == "rmsnorm") arguments.set("normalization", Node::scalar("RMSNorm", norm->where));
  if (norm && (norm->text == "layernorm" || norm->text == "layernorm1p"))
    arguments.set("normalization", Node::scalar("LayerNorm", norm->where));
  if (norm && norm->text == "layernorm1p") arguments.set("apply_layernorm_1p", Node::scalar("true", norm->where));
  if (const Node* groups = model.find("num_query_groups"); groups && !groups->is_null())
    arguments.set("group_query_attention", Node::scalar("true", groups->where));
  if (model.find("fp8") && model.find("fp8")->text == "true") arguments.set("fp8_format", Node::scalar("hybrid", model.find("fp8")->where));
  return arguments;
}

void read_nemo(Reading& reading, const Node& said) {
  Node tree = said;
  resolve_references(tree);
  reading.say("framework", "nemo", "trainer", tree.where);
  read_rows(reading, nemo_rows(), tree);
  const Node* model = tree.find("model");
  if (!model || !model->is_table()) fail("there is no model", tree.where);
  if (tree.find("inference") && !model->find("optim"))
    fail("does not train: it generates", tree.where, "give a configuration that has model.optim");
  Node arguments = megatron_names(*model);
  std::erase_if(arguments.members, [](const auto& member) {
    return member.first == "activation" || member.first == "bias" || member.first == "share_embeddings_and_output_weights" ||
           member.first == "fp8";
  });
  read_megatron(reading, arguments, kNemo, Unknown::unread);  // among NeMo's own keys
}

}  // namespace

Format primus_format() {
  return {"primus", "Primus' experiments (Megatron backend)", kPrimus, primus_rows, recognises_primus, read_primus};
}
Format nemo_format() { return {"nemo", "NeMo 1's YAML", kNemo, nemo_rows, recognises_nemo, read_nemo}; }

}  // namespace plimsoll::formats
