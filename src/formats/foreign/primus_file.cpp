// Primus' experiments: Megatron's or torchtitan's arguments under `overrides`, over files of Primus' own.
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

const Rows& primus_rows() {
  static const Rows table = {
      {"modules.pre_trainer.framework", kCode, "", nullptr, "megatron, torchtitan"},
      {"modules.pre_trainer.model", kCode, "", nullptr, "a file of Primus' models, or the model of that name"},
      {"modules.pre_trainer.config", kCode, "", nullptr, "a file of Primus' modules, with its values where nothing else says them"},
      {"modules.pre_trainer.overrides.*", kCode, "", nullptr, "Megatron's or torchtitan's arguments"},
      {"modules.post_trainer.*", kCode, "", nullptr, "the same of fine-tuning over megatron"},
      {"stage", kCode, "", nullptr, "sft, which sft_trainer.yaml says, or pretrain"},
      {"trainer_class", kCode, "", nullptr, "Megatron's two trainers; others are refused"},
      {"modules.sft_trainer.*", kRefused, "", nullptr, "fine-tuning under Primus"},
      {"lora", kCode, "", nullptr, "of the stage sft: lora.r, lora.alpha, lora.dropout, lora.target_modules, where it is enabled"},
      {"enable_primus_turbo", kCode, "", nullptr, "whether the keys of turbo count"},
      {"use_turbo_attention", kCode, "", nullptr, "attention: flash, AITER's; goes before attention_backend"},
      {"use_turbo_grouped_gemm", kNothing},
      {"use_turbo_grouped_mlp", kNothing},
      {"turbo_sync_free_moe_stage", kRefused, "0,1", nullptr, "Primus-Turbo's mixture of experts without synchronisation, with room for the worst case of tokens"},
      {"use_sink_attention", kCode, "", nullptr, "told: a learned number per head beside the scores; with a window refused"},
      {"sink_sliding_window", kCode},
      {"moe_use_legacy_grouped_gemm", kCode, "", nullptr,
       "told: experts' products by the grouped_gemm library, played as Transformer Engine's; in 8 bits refused"},
      {"use_turbo_parallel_linear", kRefused, "false", nullptr, "Primus-Turbo's linears"},
      {"use_turbo_deepep", "moe_dispatcher", "true=deepep,false=-", nullptr, "goes before moe_token_dispatcher_type"},
      {"model_type", kCode, "", nullptr, "gpt; a model of another kind is refused"},
      {"torch_compile.enable", kRefused, "false", nullptr, "torch.compile under Primus"},
  };
  return table;
}

/// By its modules, or by the experiments that it extends.
int recognises_primus(const Node& tree) {
  const Node* bases = tree.find("extends");
  const bool extends = bases && bases->is_list() && !bases->members.empty() &&
                       std::all_of(bases->members.begin(), bases->members.end(),
                                   [](const auto& base) { return base.second.is_scalar() && base.second.text.ends_with(".yaml"); });
  return 8 * count_of(tree, {"modules.pre_trainer", "modules.post_trainer"}) + (extends ? 8 : 0) + count_of(tree, {"exp_name", "work_group", "workspace"});
}

/// PrimusConfig takes these of an experiment; a key of a trainer's beside them changes nothing, whatever it says.
void require_envelope(const Node& tree) {
  static constexpr std::string_view kRead[] = {"work_group", "user_name", "exp_name", "workspace", "platform", "env", "modules", "extends", "bases"};
  for (const auto& [name, value] : tree.members)
    if (std::find(std::begin(kRead), std::end(kRead), name) == std::end(kRead))
      fail(name.substr(0, 60) + " stands beside modules, where Primus reads nothing", value.where, "put it below the trainer's overrides, or leave it out");
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

/// Sections that both have are merged key by key; what stands nearer counts.
void add_missing_below(Node& table, const Node& below) {
  for (const auto& [name, value] : below.members) {
    const auto own = std::find_if(table.members.begin(), table.members.end(), [&, &name = name](const auto& member) { return member.first == name; });
    if (own == table.members.end()) {
      table.members.emplace_back(name, value);
    } else if (own->second.is_table() && value.is_table()) {
      add_missing_below(own->second, value);
    }
  }
}

/// Adds to a tree what the files say that it `extends`; what stands nearer counts. `left`: how many more files may be read.
void add_bases(Node& tree, void (*merge)(Node&, const Node&), int& left) {
  const Node* bases = tree.find("extends");
  if (!bases || !bases->is_list()) return;
  const Node copy = *bases;
  const auto folder = std::filesystem::path(copy.where.substr(0, copy.where.rfind(':'))).parent_path();
  for (auto base = copy.members.rbegin(); base != copy.members.rend(); ++base) {
    const std::string path = (folder / base->second.word()).string();
    if (!files::exists(path))
      fail("the file " + base->second.word().substr(0, 80) + ", which this one extends, is nowhere", base->second.where,
           "keep it beside this file, or write its values here and leave extends out");
    if (left-- == 0) fail("files extend each other without end", copy.where);
    Node file = parse_yaml_text(read_plain(path), path);
    add_bases(file, merge, left);
    merge(tree, file);
  }
  std::erase_if(tree.members, [](const auto& member) { return member.first == "extends" || member.first == "bases"; });
}
void add_bases(Node& tree, void (*merge)(Node&, const Node&)) {
  constexpr int kMostBases = 64;
  int left = kMostBases;
  add_bases(tree, merge, left);
}

/// A file of Primus' own, seen from an experiment: beside it, or in the repository above it (primus/configs/models/megatron). Empty:
/// nowhere.
std::string own_file(const std::string& name, const std::string& where, const std::string& kept) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(where.substr(0, where.rfind(':'))).parent_path();
  for (int up = 0; up < 8; ++up) {
    for (const std::string& below : {std::string(), "primus/configs/" + kept})
      if (files::exists((folder / below / name).string())) return (folder / below / name).string();
    folder = folder / "..";
  }
  return {};
}

/// The file that `key` of a trainer names, with those that it extends; a table of nothing where it is nowhere.
Node base_of(const Node& trainer, const char* key, const std::string& kept) {
  const Node* named = trainer.find(key);
  if (!named || named->is_null()) return Node::table(trainer.where);
  const std::string file = own_file(named->word(), named->where, kept);
  if (file.empty()) return Node::table(named->where);
  Node base = parse_yaml_text(read_plain(file), file);
  add_bases(base, add_missing);
  return base;
}

/// primus/configs/modules/megatron/pre_trainer.yaml, or sft_trainer.yaml, and models/megatron/language_model.yaml, where they are nowhere: what
/// they take that Megatron-LM itself does not.
void add_usual(Node& arguments, bool tunes) {
  for (const auto& [key, value] : {std::pair{"micro_batch_size", tunes ? "1" : "2"},
                                   {"global_batch_size", tunes ? "128" : "16"},
                                   {"seq_length", tunes ? "2048" : "1024"},
                                   {"bf16", "true"},
                                   {"use_distributed_optimizer", "true"},
                                   {"sequence_parallel", "true"},
                                   {"gradient_accumulation_fusion", "true"}})
    if (!arguments.find(key)) arguments.set(key, Node::scalar(value, kPrimus));
}

/// The stage that chooses the trainer (BackendRegistry): sft, which modules/megatron/sft_trainer.yaml says, or pretraining.
bool tunes(const Node& trainer, const Node& arguments) {
  const Node* other = stated(arguments, "trainer_class");
  if (other && other->word() != "MegatronPretrainTrainer" && other->word() != "MegatronSFTTrainer")
    refuse("not modelled: another trainer, found trainer_class: " + other->word().substr(0, 40), other->where, kRehearsal);
  if (const Node* stage = stated(arguments, "stage")) {
    if (stage->word() != "sft" && stage->word() != "pretrain" && stage->word() != "mlperf_pretrain")
      refuse("not modelled: another stage, found stage: " + stage->word().substr(0, 40), stage->where, "pretrain or sft");
    return stage->word() == "sft";
  }
  const Node* module = trainer.find("config");
  return module && module->word() == "sft_trainer.yaml";
}

/// Whether the trainer tunes what is there.
bool read_primus_bases(Reading& reading, const Node& trainer, Node& arguments) {
  const Node* named = trainer.find("model");
  const Node model = base_of(trainer, "model", "models/megatron");
  if (named && !named->is_null() && model.members.empty())
    reading.say("model", shipped_name(named->word()), "modules.pre_trainer.model", named->where);
  add_missing(arguments, model);
  add_missing(arguments, base_of(trainer, "config", "modules/megatron"));
  const bool tuned = tunes(trainer, arguments);
  add_usual(arguments, tuned);
  return tuned;
}

// ---- over torchtitan ----------------------------------------------------------------------------------------------------

/// The section of Primus-Turbo (primus/backends/torchtitan/patches/turbo), on with its attention by modules/torchtitan/pre_trainer.yaml.
void read_turbo(Reading& reading, const Node& turbo) {
  const auto is = [&](const char* key, bool usually) { return turbo.find(key) ? is_on(turbo.find(key)) : usually; };
  if (!is("enable_primus_turbo", true)) return;
  const auto refuse_fp8 = [&](const char* key) {
    const Node* said = turbo.find(key);
    refuse(std::string("not modelled: Primus-Turbo in fp8 (") + key + ")", said ? said->where : turbo.where, "set it to false");
  };
  if (is("enable_attention_float8", false)) refuse_fp8("enable_attention_float8");
  const bool grouped = is("use_turbo_grouped_mm", false);
  if (grouped && is("use_moe_fp8", true)) refuse_fp8("use_moe_fp8");
  if (grouped) reading.leave_unknown("use_turbo_grouped_mm: true (the experts' products by Primus-Turbo, not modelled)", turbo.where);
  if (is("use_classic_attention", false))
    refuse("not modelled: DeepSeek's attention by Primus (use_classic_attention)", turbo.where, "set it to false");
  if (is("use_turbo_attention", true))
    reading.leave_unknown("use_turbo_attention: true (attention by Primus-Turbo's kernel, not modelled)", turbo.where);
}

/// "llama3.1_8B.yaml" as models/torchtitan/llama3.1_8B.yaml has it, where that is nowhere.
void name_flavor(Node& tree, const Node& model) {
  const std::string name = model.word().substr(0, model.word().rfind(".yaml"));
  if (name.ends_with("-fp8")) refuse("not modelled: Primus over torchtitan in fp8", model.where, "a model without -fp8");
  const std::size_t cut = name.rfind('_');
  if (cut == std::string::npos) fail("'" + name.substr(0, 60) + "' names no flavor of a model", model.where, "llama3.1_8B.yaml");
  const std::string family = name.rfind("llama3", 0) == 0 ? "llama3" : name.substr(0, cut);
  tree.set("model.name", Node::scalar(family, model.where));
  tree.set("model.flavor", Node::scalar(name.substr(cut + 1), model.where));
}

void erase_below(Node& tree, const std::string& section, const std::string& key) {
  for (auto& [name, table] : tree.members)
    if (name == section) std::erase_if(table.members, [&](const auto& member) { return member.first == key; });
}

/// Primus' converter changes attention alone; with any other, products are in 8 bits by kernels of its own.
void read_converters(Node& tree, const std::string& where) {
  const Node* converters = tree.find("model.converters");
  if (!converters) return;
  for (const auto& [unused, one] : converters->members)
    if (one.word() != "primus_turbo")
      refuse("not modelled: Primus over torchtitan in fp8 (" + one.word().substr(0, 60) + ")", where, "a model without -fp8");
  erase_below(tree, "model", "converters");
}

/// Primus over torchtitan: torchtitan's own sections, over those of the model's file and of the module's.
void read_primus_titan(Reading& reading, const Node& trainer) {
  Node tree = Node::table(trainer.where);
  if (const Node* overrides = trainer.find("overrides"); overrides && overrides->is_table()) tree = *overrides;
  const Node* model = trainer.find("model");
  const Node of_model = base_of(trainer, "model", "models/torchtitan");
  add_missing_below(tree, of_model);
  add_missing_below(tree, base_of(trainer, "config", "modules/torchtitan"));
  read_turbo(reading, tree.find("primus_turbo") ? *tree.find("primus_turbo") : Node::table(trainer.where));
  if (model && !model->is_null()) read_converters(tree, model->where);
  if (model && !model->is_null() && of_model.members.empty()) name_flavor(tree, *model);
  if (const Node* extension = tree.find("experimental.custom_args_module"); extension && extension->word().rfind("primus.", 0) == 0)
    erase_below(tree, "experimental", "custom_args_module");  // the class of the section primus_turbo
  std::erase_if(tree.members, [](const auto& member) {
    return member.first == "primus_turbo" || member.first == "trainable" || member.first.ends_with("sink_level");
  });
  for (const auto& [key, word] : {std::pair{"activation_checkpoint.mode", "none"}, {"compile.enable", "true"}})
    if (!tree.find(key)) tree.set(key, Node::scalar(word, kPrimus));
  reading.note_format("torchtitan");
  find_format("torchtitan").read(reading, tree);
}

// ---- over Megatron ------------------------------------------------------------------------------------------------------

/// Whether a key is Primus' own rather than Megatron-LM's.
bool is_primus_key(const std::string& name) { return find_row(primus_rows(), name) != nullptr || Schema::of("primus")->has(name); }

/// What stage 1 of the mixture without synchronisation sets, whatever else says of it (rocm_arg_validation.py, _get_sync_free_moe_options).
void expand_sync_free_stage(Node& arguments) {
  const Node* stage = stated(arguments, "turbo_sync_free_moe_stage");
  if (!stage || stage->word() != "1") return;
  const std::string where = stage->where;
  const auto low = [&](const char* key) {
    const Node* format = stated(arguments, key);
    return format && format->word() != "false";
  };
  const bool quantized = low("fp8") || low("fp4");
  for (const char* key : {"moe_use_fused_router_with_aux_score", "moe_permute_fusion"}) arguments.set(key, Node::scalar("true", where));
  arguments.set("moe_router_padding_for_quantization", Node::scalar(quantized ? "true" : "false", where));
}

/// PrimusTurboAttention has the sinks, not Transformer Engine's attention; beside them it keeps to a window, which is not played.
void tell_sinks(Reading& reading, const Node& arguments) {
  const Node *sinks = arguments.find("use_sink_attention"), *window = stated(arguments, "sink_sliding_window");
  if (!is_on(sinks) || !is_on(arguments.find("use_turbo_attention"))) return;
  if (window && window->word() != "0")
    refuse("not modelled: attention within windows, found sink_sliding_window: " + window->word().substr(0, 20), window->where, "set it to 0");
  reading.leave_unknown("use_sink_attention: true (a learned number per head beside the scores, not modelled)", sinks->where);
}

/// DeprecatedGroupedMLP: two weights for all experts of a rank, whose products, activation and gradients have the sizes of Transformer Engine's.
/// It multiplies in 16 bits whatever fp8 says, and has no linears that adapters could be of.
void tell_legacy_experts(Reading& reading, const Node& arguments) {
  const Node* legacy = arguments.find("moe_use_legacy_grouped_gemm");
  if (!is_on(legacy)) return;
  const Node* low = stated(arguments, "fp8");
  if (low && low->word() != "false")
    refuse("not modelled: experts in 16 bits beside 8-bit products, found moe_use_legacy_grouped_gemm: true", legacy->where, "set it to false");
  if (reading.has("lora.r"))
    refuse("not modelled: adapters beside experts of the grouped_gemm library, found moe_use_legacy_grouped_gemm: true", legacy->where,
           "set it to false");
  reading.leave_unknown("moe_use_legacy_grouped_gemm: true (experts' products by the grouped_gemm library, played as Transformer Engine's)",
                        legacy->where);
}

/// Primus' own keys, taken out of `arguments`. Its turbo kernels are there where enable_primus_turbo is on
/// (primus/backends/megatron/patches/turbo/te_spec_provider_patches.py), and PrimusTurboSpecProvider.core_attention asks for no backend.
void read_primus_keys(Reading& reading, Node& arguments) {
  const bool turbo = is_on(arguments.find("enable_primus_turbo"));
  if (turbo) expand_sync_free_stage(arguments);
  Node own = Node::table(arguments.where);
  for (const auto& [name, value] : arguments.members) {
    if (!is_primus_key(name)) continue;
    if (!turbo && name.find("turbo") != std::string::npos) {
      reading.leave_unread(name, value.where);
    } else {
      own.members.emplace_back(name, value);
    }
  }
  if (const Node* kind = stated(arguments, "model_type"); kind && kind->word() != "gpt")
    refuse("not modelled: a model that is no GPT, found model_type: " + kind->word().substr(0, 40), kind->where, kRehearsal);
  read_rows(reading, primus_rows(), *Schema::of("primus"), own);
  tell_legacy_experts(reading, arguments);
  if (turbo) tell_sinks(reading, arguments);
  const Node* attention = arguments.find("use_turbo_attention");
  const bool flash = turbo && is_on(attention);
  if (flash) reading.say("attention", "flash", "use_turbo_attention", attention->where);
  const bool deepep = turbo && is_on(arguments.find("use_turbo_deepep"));  // moe_dispatcher_patches.py sets both
  std::erase_if(arguments.members, [&](const auto& member) {
    return is_primus_key(member.first) || (deepep && (member.first == "moe_token_dispatcher_type" || member.first == "moe_enable_deepep")) ||
           (flash && (member.first == "attention_backend" || member.first == "use_flash_attn"));
  });
}

/// Data that are made up have Megatron's NullTokenizer, whatever tokenizer the files name, of vocab_size tokens or of 131,072
/// (primus/backends/megatron/patches/args/mock_data_patches.py).
bool takes_null_tokenizer(Node& arguments) {
  const Node* mock = arguments.find("mock_data");
  if (!is_on(mock)) return false;
  const std::string where = mock->where;
  arguments.set("tokenizer_type", Node::scalar("NullTokenizer", where));
  const Node* tokens = stated(arguments, "vocab_size");
  if (!tokens || tokens->word() == "None") arguments.set("vocab_size", Node::scalar("131072", where));
  return true;
}

/// Adapters of the stage sft: Megatron-Bridge's LoRA, of which Primus has a copy (primus/backends/megatron/peft/lora.py).
void read_lora(Reading& reading, const Node* lora, bool tuned) {
  if (!lora || !lora->is_table() || !is_on(lora->find("enabled"))) return;
  if (!tuned) fail("lora.enabled: true, which Primus' pretraining passes over", lora->where, "config: sft_trainer.yaml, or set it to false");
  static const Rows table = {{"enabled", kCode},
                             {"dim", "lora.r", "", "32"},
                             {"alpha", "lora.alpha", "", "32"},
                             {"dropout", "lora.dropout", "", "0.0"},
                             {"dropout_position", kRefused, "pre", nullptr, "dropout behind an adapter"},
                             {"target_modules", "lora.target_modules", "", "linear_qkv,linear_proj,linear_fc1,linear_fc2"},
                             {"lora_A_init_method", kNothing},
                             {"lora_B_init_method", kNothing}};
  read_rows(reading, table, *lora, "lora.", Unknown::refused);
  take_defaults(reading, table, kPrimus, "lora.");
  reading.say("task", "lora", "lora.enabled", lora->where);
}

/// MegatronPretrainTrainer's section, or MegatronSFTTrainer's, which runs the same step over samples that are padded, or packed, to the
/// length. Throws Error: there is neither.
const Node& trainer_of(const Node& tree) {
  const Node *first = tree.find("modules.pre_trainer"), *second = tree.find("modules.post_trainer"), *modules = tree.find("modules");
  const Node* trainer = first ? first : second;
  if (!trainer && modules && modules->is_table() && !modules->members.empty())
    refuse("not modelled: Primus' " + modules->members.front().first.substr(0, 40), modules->members.front().second.where,
           "modules.pre_trainer and modules.post_trainer are read");
  if (!trainer || !trainer->is_table()) fail("there is no modules.pre_trainer", tree.where);
  return *trainer;
}

void read_primus(Reading& reading, const Node& said) {
  Node tree = said;
  add_bases(tree, add_missing_below);
  resolve_references(tree);
  const Node* trainer = &trainer_of(tree);
  const bool post = tree.find("modules.pre_trainer") == nullptr;
  const Node* framework = trainer->find("framework");
  const std::string backend = framework ? framework->word() : "megatron";
  if (backend != "megatron" && (backend != "torchtitan" || post))
    refuse("Primus' " + std::string(post ? "fine-tuning" : "training") + " over " + backend.substr(0, 40) + " is not read from its files",
           framework->where, kRehearsal);
  require_envelope(said);
  if (backend == "torchtitan") return read_primus_titan(reading, *trainer);
  reading.say("framework", "primus", post ? "modules.post_trainer" : "modules.pre_trainer", trainer->where);
  Node arguments = trainer->find("overrides") ? *trainer->find("overrides") : Node::table(trainer->where);
  const bool tuned = read_primus_bases(reading, *trainer, arguments);
  read_lora(reading, arguments.find("lora"), tuned);
  read_primus_keys(reading, arguments);
  const bool null = takes_null_tokenizer(arguments);
  if (reading.has("model")) {  // the shipped model has these
    for (const auto& [key, value] :
         {std::pair{"swiglu", "true"}, {"hidden_dropout", "0"}, {"attention_dropout", "0"}, {"normalization", "RMSNorm"}})
      if (!arguments.find(key)) arguments.set(key, Node::scalar(value, kPrimus));
  }
  read_megatron(reading, arguments, kPrimus, Unknown::own);  // its patches read arguments of their own
  if (!reading.has("model")) return;
  const std::vector<ForeignKey> keys = reading.keys();
  for (const ForeignKey& key : keys)
    if (key.key.rfind("model.", 0) == 0 && !(null && key.key == "model.vocab_size")) reading.forget(key.key);  // the shipped model's own
}

}  // namespace

Format primus_format() {
  return {"primus", "Primus' experiments (Megatron backend)", kPrimus, primus_rows, recognises_primus, read_primus};
}

}  // namespace plimsoll::formats
