// TRL's scripts: SFTConfig, DPOConfig, GRPOConfig … with ModelConfig and ScriptArguments (trl/trainer/sft_config.py, model_config.py,
// trl/scripts/sft.py). TrainingArguments with defaults of its own.
#include <algorithm>

#include "formats/foreign/format.hpp"
#include "formats/foreign/launch.hpp"
#include "formats/foreign/schema.hpp"
#include "formats/foreign/trl.hpp"
#include "formats/shell/unknown.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char *kRelease = "TRL 1.16", *kChunkedSince = "1.7", *kFusedSince = "1.15";

/// Where SFTConfig and ModelConfig differ from TrainingArguments; models/releases.json has since when.
const Rows& own_defaults() {
  static const Rows table = {
      {"max_length", "seq_len", "", "1024", "max_seq_length before 0.16"},
      {"gradient_checkpointing", "recompute", "true=full,false=none", "true"},
      {"dtype", "param_dtype", "auto=-,float32=fp32,bfloat16=bf16,float16=fp16", "float32"},
  };
  return table;
}

/// TrainingArguments' rows that these dataclasses have, with TRL's own defaults.
const Rows& rows() {
  static const Rows table = [] {
    const Schema& schema = *Schema::of("transformers");
    Rows known;
    for (const Row& row : training_arguments_format().rows()) {
      const std::string name(row.foreign);
      if (!schema.has(name.substr(0, name.find('.')))) continue;
      const Row* own = find_row(own_defaults(), name);
      known.push_back(own ? *own : row);
    }
    return known;
  }();
  return table;
}

/// Keys of SFTConfig and ScriptArguments that TrainingArguments has not and that scripts of others rarely have.
int marks_of_sft(const Node& tree) {
  return count_of(tree, {"dataset_text_field", "assistant_only_loss", "completion_only_loss", "packing", "packing_strategy", "eval_packing",
                         "padding_free", "dataset_train_split", "dataset_test_split", "chat_template_path", "activation_offloading",
                         "dataset_kwargs", "lora_task_type", "dataset_num_proc", "dataset_mixture"});
}

/// Those, or ModelConfig's use_peft, which scripts of the Trainer's take from it.
int recognises(const Node& tree) {
  const bool own = marks_of_sft(tree) > 0 || tree.find("use_peft") != nullptr;
  const bool trainer = count_of(tree, {"model_name_or_path", "per_device_train_batch_size"}) > 0;
  return own && trainer && training_arguments_format().recognises(tree) > 0 ? training_arguments_format().recognises(tree) + 1 : 0;
}

/// SFTConfig.__post_init__: bf16 unless fp16 is said; before 0.19 TrainingArguments' own.
void take_precision(Reading& reading, const Node& tree) {
  const Node *bf16 = tree.find("bf16"), *fp16 = tree.find("fp16");
  if ((bf16 && !bf16->is_null()) || is_on(fp16)) return;
  const ProgramDefault usual = program_default(reading, "bf16", "not fp16", kRelease);
  if (usual.word == "not fp16") reading.derive("precision", "bf16", usual.release + ": bf16 unless fp16 (SFTConfig.__post_init__)");
}

/// The loss of 1.7 to 1.14 is computed by chunks, that of 1.15 and later by a fused head, of which "chunked_nll" is an old name and "dft" a
/// factor of a token. Of a script that has but TRL's flag for adapters it is the model's own.
void read_loss(Reading& reading, const Node& tree) {
  const std::optional<Release> release = reading.release_of(Package::trl);
  const Node *loss = tree.find("loss_type"), *liger = tree.find("use_liger_kernel");
  constexpr const char* kWhat = "TRL's loss over chunks of tokens, which never holds all logits";
  const bool fused = !release || !(*release < *Release::parse(kFusedSince));
  if (loss && !loss->is_null() && loss->word() != "nll" && loss->word() != "dft" && loss->word() != "chunked_nll")
    fail("expected nll, dft or chunked_nll of SFT, found '" + loss->word().substr(0, 40) + "'", loss->where,
         "a loss of preferences: give the line of its trainer, for example -- trl dpo --config FILE");
  if (loss && !fused && loss->word() == "dft")
    refuse("not modelled: TRL's loss of whole logits weighted by their own likelihood (DFT before 1.15)", loss->where, "loss_type: nll");
  if (loss && !fused && loss->word() == "chunked_nll")
    refuse(std::string("not modelled: ") + kWhat + " (loss_type: chunked_nll)", loss->where, "loss_type: nll");
  if (fused) return reading.derive("task", "trl-sft", std::string("TRL since ") + kFusedSince + ": a fused head, which holds no logits");
  const bool whole = (loss && loss->word() == "nll") || is_on(liger);
  if (*release < *Release::parse(kChunkedSince) || whole) return;
  refuse(std::string("not modelled: ") + kWhat + ", the default of TRL " + kChunkedSince + " to 1.14", {},
         "state another release: --release trl=1.16");
}

/// TRL 0.27 on forces re-entrant checkpoints under ZeRO-3 (SFTTrainer.__init__).
void complete(Reading& said) {
  said.when_model_is_known([](Reading& reading, const Model&) {
    const bool adapters = reading.has("lora.r"), zero3 = reading.is("zero_stage", "3") || reading.is("data_parallel", "zero3");
    if (adapters && zero3 && reading.is("recompute", "full")) {
      reading.forget("recompute_reentrant");
      reading.derive("recompute_reentrant", "true", "TRL: PEFT under ZeRO-3 recomputes re-entrantly (SFTTrainer.__init__)");
    }
  });
}

/// Whether a mixture's routers' balance is learnt of: since 1.8, by the config's own weight unless one is said.
void read_router_term(Reading& reading, const Node& tree) {
  const Node* weight = stated(tree, "router_aux_loss_coef");
  if (weight) reading.say("router_loss", is_zero(*weight) ? "false" : "true", "router_aux_loss_coef", weight->where);
}

/// ModelConfig.__post_init__ hands the only one of a list of targets over as it is, and PEFT takes it for an expression.
void read_only_target(Reading& reading, const Node& tree) {
  const Node* targets = stated(tree, "lora_target_modules");
  if (reading.has("lora.target_modules") && targets && (targets->is_scalar() || targets->members.size() == 1)) expand_expression(reading);
}

/// ModelConfig's keys of how a model is loaded.
bool is_of_loading(const std::string& key) {
  return key == "dtype" || key == "torch_dtype" || key == "attn_implementation" || key.starts_with("load_in_") || key.starts_with("bnb_4bit_") ||
         key == "use_bnb_nested_quant";
}

/// Takes away what ModelConfig parses and a script does not hand to from_pretrained.
void drop_keys_of_loading(Reading& reading, Node& tree) {
  for (const auto& [name, value] : tree.members)
    if (is_of_loading(name)) reading.leave_unread(name + " (the script loads the model by its name alone)", value.where);
  std::erase_if(tree.members, [](const auto& member) { return is_of_loading(member.first); });
}

/// Who runs a trainer: a script that is TRL's own or one like it, whether it hands ModelConfig's keys to from_pretrained.
struct TrlCaller {
  bool is_trl = true, loads_by_name = false;
};

void read_with(Reading& reading, const Node& said, Unknown unknown, TrlTrainer trainer, const TrlCaller& caller = {}) {
  const bool by_trl = caller.is_trl;
  Node tree = with_switches_off(reading, said, own_defaults(), *Schema::of("transformers"), kRelease);
  if (caller.loads_by_name) drop_keys_of_loading(reading, tree);
  Node rest = trainer == TrlTrainer::sft ? tree : read_trl_trainer(reading, trainer, tree);
  for (const Row& row : own_defaults())
    if (!caller.loads_by_name || !is_of_loading(row.foreign)) take_default(reading, row, kRelease);
  take_precision(reading, tree);
  const bool supervised = trainer == TrlTrainer::sft && by_trl;
  if (supervised) read_loss(reading, tree);
  if (by_trl) read_router_term(reading, tree);
  std::erase_if(rest.members,
                [&](const auto& member) { return member.first == "loss_type" && (supervised || member.second.text == "nll"); });
  read_training_arguments(reading, rest, unknown == Unknown::own ? training_arguments_format().rows() : rows(), unknown);
  if (by_trl) read_only_target(reading, tree);
  complete(reading);
}

void read(Reading& reading, const Node& tree) { read_with(reading, tree, Unknown::own, TrlTrainer::sft, {.is_trl = marks_of_sft(tree) > 0}); }

/// trl/accelerate_configs of 1.16: what --accelerate_config NAME stands for.
Node named_configuration(const std::string& name) {
  static const std::pair<const char*, const char*> all[] = {
      {"single_gpu", "distributed_type: \"NO\"\n"},
      {"multi_gpu", "distributed_type: MULTI_GPU\n"},
      {"fsdp1",
       "distributed_type: FSDP\nfsdp_config: {fsdp_activation_checkpointing: false, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, "
       "fsdp_backward_prefetch: BACKWARD_PRE, fsdp_cpu_ram_efficient_loading: true, fsdp_forward_prefetch: true, fsdp_offload_params: "
       "false, "
       "fsdp_reshard_after_forward: FULL_SHARD, fsdp_state_dict_type: FULL_STATE_DICT, fsdp_sync_module_states: true, "
       "fsdp_use_orig_params: true, "
       "fsdp_version: 1}\n"},
      {"fsdp2",
       "distributed_type: FSDP\nfsdp_config: {fsdp_activation_checkpointing: false, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, "
       "fsdp_cpu_ram_efficient_loading: true, fsdp_offload_params: false, fsdp_reshard_after_forward: true, fsdp_state_dict_type: "
       "FULL_STATE_DICT, fsdp_version: 2}\n"},
      {"zero1", "distributed_type: DEEPSPEED\ndeepspeed_config: {gradient_accumulation_steps: 1, zero3_init_flag: false, zero_stage: 1}\n"},
      {"zero2",
       "distributed_type: DEEPSPEED\ndeepspeed_config: {offload_optimizer_device: none, offload_param_device: none, zero3_init_flag: "
       "false, "
       "zero_stage: 2}\n"},
      {"zero3",
       "distributed_type: DEEPSPEED\ndeepspeed_config: {offload_optimizer_device: none, offload_param_device: none, zero3_init_flag: true, "
       "zero3_save_16bit_model: true, zero_stage: 3}\n"}};
  std::vector<std::string> names;
  for (const auto& [known, text] : all) {
    if (name == known)
      return parse_yaml_text(std::string(text) + "mixed_precision: bf16\nnum_machines: 1\nnum_processes: 8\n",
                             "TRL's accelerate_configs/" + name + ".yaml");
    names.emplace_back(known);
  }
  fail("there is no configuration '" + name.substr(0, 60) + "' of TRL", {}, suggest(name.substr(0, 60), names));
}

/// --config's file with the flags over it (TrlParser.parse_args_and_config).
Node with_config(const Reading& reading, const Node& flags) {
  Node tree = Node::table(flags.where);
  if (const Node* config = flags.find("config"); config && !config->is_null()) {
    const std::string path = reading.located(config->word(), *config);
    tree = parse_yaml_text(reading.text_of(path), readable(path));
    if (!tree.is_table()) fail("expected a table of keys", path);
  }
  for (const auto& [name, value] : flags.members)
    if (name != "config") tree.set(name, value);
  return tree;
}

/// Variables that TrlParser sets by `env`, which is taken out.
void take_environment(Reading& reading, Node& tree) {
  if (const Node* variables = tree.find("env"); variables && variables->is_table())
    for (const auto& [name, value] : variables->members) read_environment(reading, name, value.word(), value.where);
  std::erase_if(tree.members, [](const auto& member) { return member.first == "env"; });
}

/// Its accelerate_configs' by name, or a file's.
void read_launch(Reading& reading, const std::string& file, const Node& flags, const Node& from) {
  if (file.empty() || reading.has_file(reading.located(file, from))) return read_accelerate_options(reading, file, flags, from);
  Node tree = named_configuration(file);
  for (const auto& [name, value] : flags.members) tree.set(name, value);
  read_accelerate_options(reading, {}, tree, from);
}

}  // namespace

void read_trl_script(Reading& reading, const Node& flags, TrlTrainer trainer, const std::string& program) {
  Node tree = with_config(reading, flags);
  take_environment(reading, tree);
  reading.note_format("trl");
  read_with(reading, tree, Unknown::own, trainer, {.loads_by_name = loads_by_name(program)});
}

void read_trl_command(Reading& reading, const Node& flags, TrlTrainer trainer) {
  Node tree = with_config(reading, flags), own = Node::table(flags.where), launch = own;
  take_environment(reading, tree);
  const Schema& schema = *Schema::of("transformers");
  std::string file;
  for (const auto& [name, value] : tree.members) {
    if (name == "accelerate_config" || name == "config_file") {
      file = value.word();
    } else if (find_row(rows(), name) || schema.has(name) || is_key_of(trainer, name) || !is_launch_option(name)) {
      own.members.emplace_back(name, value);
    } else {
      const auto [path, word] = as_in_accelerate_file(name, value.word());
      launch.set(path, Node::scalar(word, value.where));
    }
  }
  read_launch(reading, file, launch, flags);
  reading.note_format("trl");
  read_with(reading, own, Unknown::refused, trainer);
}

Format trl_format() { return {"trl", "TRL's SFT, rewards and preferences: YAML and command line", kRelease, rows, recognises, read}; }

}  // namespace plimsoll::formats
