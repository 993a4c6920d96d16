// ms-swift's training (swift/arguments/sft_args.py of 4.6): TrainingArguments with arguments and defaults of its
// own, as flags of `swift sft` and `swift pt` or in a file.
#include <algorithm>

#include "formats/foreign/format.hpp"
#include "formats/foreign/router_loss.hpp"
#include "formats/foreign/launch.hpp"
#include "formats/foreign/schema.hpp"
#include "formats/foreign/swift.hpp"
#include "formats/foreign/trained_modules.hpp"
#include "formats/shell/unknown.hpp"
#include "model/hub_names.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

/// What it has beside TrainingArguments, and what it takes otherwise.
const Rows& rows() {
  static const Rows table = {
      {"model", "model"},
      {"tuner_type", "task", "lora=lora,full=full,*=!", "lora", "train_type before 4"},
      {"train_type", "task", "lora=lora,full=full,*=!"},
      {"tuner_backend", kRefused, "peft", nullptr, "this backend of adapters (Unsloth)"},
      {"task_type", kRefused, "causal_lm", nullptr, "training of another head"},
      {"experts_impl", kRefused, "grouped_mm", nullptr, "experts by these kernels"},
      {"router_aux_loss_coef", kCode, "", "0.0", "above 0 the routers' auxiliary loss of a mixture"},
      {"torch_dtype", kCode, "", nullptr,
       "param_dtype: the checkpoint's type unless said; fp16 of fp32 and fp16, else bf16 is the precision"},
      {"attn_impl", "attention",
       "eager=eager,sdpa=sdpa,flash_attn=flash,flash_attention_2=flash,flash_attention_3=flash-3,flash_attention_4=flash-4,flex_attention="
       "flex"},
      {"max_length", kCode, "", nullptr, "seq_len; the model's positions unless said"},
      {"packing", "packed", "", "false"},
      {"packing_length", kCode, "", nullptr, "seq_len, where packing"},
      {"padding_free", kNothing, "", nullptr, "every sequence counts as full; of pairs refused"},
      {"loss_scale", kRefused,
       "default,all,last_round,ignore_empty_think,ignore_think_prefix,default+ignore_empty_think,last_round+ignore_empty_think,"
       "all+ignore_empty_think",
       nullptr, "a loss weighted token by token"},
      {"per_device_train_batch_size", "micro_batch", "", "1"},
      {"gradient_accumulation_steps", kCode, "", nullptr, "grad_accum; 16 / (batch · ranks), at least 1, unless said"},
      {"gradient_checkpointing", "recompute", "true=full,false=none", "true"},
      {"gradient_checkpointing_kwargs", kCode},
      {"gradient_checkpointing_kwargs.*", kCode, "", nullptr,
       "recompute_reentrant; unless said false under torchrun without DeepSpeed and FSDP, else true"},
      {"vit_gradient_checkpointing", kNothing, "", nullptr, "of a vision tower"},
      {"freeze_llm", kCode, "", nullptr, "false; of a model of images and text true is refused"},
      {"freeze_vit", kCode, "", nullptr,
       "true: trained_modules, or the adapters' targets, are the language model's; of a model of images and text false is refused"},
      {"freeze_aligner", kCode, "", nullptr, "the same"},
      {"lora_rank", kCode, "", nullptr, "lora.r, 8 unless said"},
      {"lora_alpha", kCode, "", nullptr, "lora.alpha, 32 unless said"},
      {"lora_dropout", kCode, "", nullptr, "lora.dropout, 0.05 unless said"},
      {"lora_dtype", kCode, "", nullptr, "lora.adapter_dtype"},
      {"target_modules", kCode, "", nullptr, "lora.target_modules, all-linear unless said"},
      {"modules_to_save", kCode, "", nullptr, "lora.modules_to_save"},
      {"use_dora", kCode, "", nullptr, "lora.use_dora"},
      {"use_rslora", kNothing},
      {"quant_method", kCode, "", nullptr, "base_weights: bnb with quant_bits"},
      {"quant_bits", kCode, "", nullptr, "4 nf4-double-quant, 8 int8"},
      {"bnb_4bit_use_double_quant", kCode, "", nullptr, "true unless said"},
      {"bnb_4bit_quant_type", kRefused, "nf4,fp4", nullptr, "this type of 4-bit weights"},
      {"deepspeed", kCode, "", nullptr, "DeepSpeed's JSON, or zero0 … zero3_offload"},
      {"deepspeed.*", kCode},
      {"fsdp", kCode, "", nullptr, "fsdp2, or a file"},
  };
  return table;
}

int recognises(const Node& tree) {
  const int own = count_of(tree, {"tuner_type", "train_type", "tuner_backend", "quant_bits", "split_dataset_ratio", "freeze_vit"});
  return tree.find("model") && own > 0 ? 10 + own : 0;
}

/// swift/config/*.json of 4.6, without what does not differ from DeepSpeed's defaults or is "auto" in every other of them.
const char* named_deepspeed(const std::string& name) {
  static const char kCommon[] =
      R"("fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}, "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto")";
  static const char kBuckets[] =
      R"("allgather_partitions": true, "allgather_bucket_size": 2e8, "overlap_comm": false, "reduce_scatter": true, "reduce_bucket_size": 2e8, "contiguous_gradients": true)";
  static const char kThird[] =
      R"("overlap_comm": false, "contiguous_gradients": true, "sub_group_size": 1e9, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true)";
  static const auto make = [](const std::string& zero) { return std::string("{") + kCommon + R"(, "zero_optimization": {)" + zero + "}}"; };
  static const std::string kHost = R"({"device": "cpu", "pin_memory": true})";
  static const std::vector<std::pair<std::string, std::string>> all{
      {"zero0", make(std::string(R"("stage": 0, )") + kBuckets)},
      {"zero1", make(std::string(R"("stage": 1, )") + kBuckets)},
      {"zero2", make(std::string(R"("stage": 2, )") + kBuckets)},
      {"zero2_offload", make(R"("stage": 2, "offload_optimizer": )" + kHost + ", " + kBuckets)},
      {"zero3", make(std::string(R"("stage": 3, )") + kThird)},
      {"zero3_offload", make(R"("stage": 3, "offload_optimizer": )" + kHost + R"(, "offload_param": )" + kHost + ", " + kThird)}};
  for (const auto& [known, text] : all)
    if (known == name) return text.c_str();
  return nullptr;
}

/// A name of swift/config in its place; JSON as it stands; a file's path as it is.
void name_configurations(Node& trainer) {
  for (auto& [name, value] : trainer.members) {
    if (name != "deepspeed" || !value.is_scalar()) continue;
    if (const char* text = named_deepspeed(value.text)) {
      const std::string where = value.where;
      value = parse_json_text(text, where);
      relocate(value, where);
    }
  }
}

/// `fsdp`: fsdp2 stands for swift/config/fsdp2.json; a file has `fsdp` and `fsdp_config` (_init_fsdp).
void name_fsdp(const Reading& reading, Node& trainer) {
  const Node* said = trainer.find("fsdp");
  if (!said || said->is_null() || said->word().empty()) return;
  const std::string where = said->where, word = said->word();
  Node config;
  if (word == "fsdp2") {
    config = parse_json_text(R"({"fsdp": "full_shard auto_wrap", "fsdp_config": {"fsdp_version": 2, "reshard_after_forward": true,
      "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "cpu_ram_efficient_loading": true, "state_dict_type": "SHARDED_STATE_DICT",
      "activation_checkpointing": true}})",
                             where);
    relocate(config, where);
  } else if (word.rfind('{', 0) == 0) {
    config = parse_json_text(word, where);
    relocate(config, where);
  } else {
    const std::string path = reading.located(word, *said);
    config = parse_json_text(reading.text_of(path), readable(path));
  }
  const Node *options = config.find("fsdp"), *keys = config.find("fsdp_config");
  Node fsdp = options ? *options : Node::scalar("full_shard auto_wrap", where);
  Node inner = keys ? *keys : Node::table(where);
  if (const Node* offloads = inner.find("activation_cpu_offload"); is_on(offloads))  // ActivationCpuOffloadCallBack
    refuse("not modelled: ms-swift's offload of activations under FSDP, found activation_cpu_offload: true", offloads->where,
           "set it to false");
  std::erase_if(inner.members, [](const auto& member) { return member.first == "activation_cpu_offload"; });
  trainer.set("fsdp", fsdp);
  trainer.set("fsdp_config", inner);
}

/// ModelArguments._init_torch_dtype: the checkpoint's type (bf16 where it is not told), and mixed precision of what it is.
void read_precision(Reading& said, const Node& tree) {
  static const Row types = {"torch_dtype", "param_dtype", "bfloat16=bf16,float16=fp16,float32=fp32"};
  const Node* type = stated(tree, "torch_dtype");
  if (type) said.say("param_dtype", to_ours(types, type->word(), type->where), "torch_dtype", type->where);
  const bool own = stated(tree, "bf16") || stated(tree, "fp16");
  if (type && !own)
    return said.derive("precision", type->word() == "bfloat16" ? "bf16" : "fp16",
                       "ms-swift: mixed precision of torch_dtype (_init_mixed_precision)");
  if (own) return;  // where no type is told, both are decided when the checkpoint is known
  said.derive("precision", "bf16", "ms-swift: torch_dtype of the checkpoint, bfloat16 where it is not told (_init_mixed_precision)");
}

/// Before the Trainer's own completion, which takes what transformers' from_pretrained would.
void complete_dtype(Reading& said) {
  said.when_model_is_known([](Reading& reading, const Model& model) {
    if (reading.has("param_dtype")) return;
    const auto shipped = model::checkpoint_dtype_of(model.name);
    const std::string type = reading.value("checkpoint.dtype", shipped ? shipped->type : "bf16");
    if (type != "bf16" && reading.is("precision", "bf16"))
      refuse("the checkpoint's type " + type + " decides the precision under ms-swift, and is not what it takes where it is not told", {},
             "say --torch_dtype bfloat16, float16 or float32");
    reading.derive("param_dtype", type, "ms-swift: the checkpoint's type (ModelInfo.torch_dtype)");
  });
}

/// tuners/peft.py keeps the type that lora_dtype says, which PEFT would upcast; played is PEFT's own but for quantised weights.
void require_usual_adapters(const Reading& reading, const Node& tree) {
  const Node* type = stated(tree, "lora_dtype");
  if (type && type->word() != "float32" && !reading.has("base_weights") && !stated(tree, "deepspeed"))
    refuse("not modelled: adapters of " + type->word().substr(0, 20) + " over weights that are not quantised, found lora_dtype", type->where,
           "leave it out: they are float32");
}

void read_adapter(Reading& reading, const Node& tree) {
  if (!reading.is("task", "lora")) return;
  static const Rows table = {{"lora_rank", "lora.r", "", "8"},
                             {"lora_alpha", "lora.alpha", "", "32"},
                             {"lora_dropout", "lora.dropout", "", "0.05"},
                             {"lora_dtype", "lora.adapter_dtype", "bfloat16=bf16,float16=fp16,float32=fp32"},
                             {"target_modules", "lora.target_modules", "", "all-linear"},
                             {"modules_to_save", "lora.modules_to_save"},
                             {"use_dora", "lora.use_dora"}};
  Node own = Node::table(tree.where);
  for (const Row& row : table)
    if (const Node* value = tree.find(row.foreign)) own.members.emplace_back(row.foreign, *value);
  read_rows(reading, table, own);
  take_defaults(reading, table, kSwiftRelease);
  name_linears(reading);  // find_all_linears
}

void read_quantization(Reading& reading, const Node& tree) {
  const Node *method = stated(tree, "quant_method"), *bits = stated(tree, "quant_bits"), *twice = stated(tree, "bnb_4bit_use_double_quant");
  if (!method) return;
  if (method->word() != "bnb") refuse("quant_method: " + method->word().substr(0, 40) + " is not modelled", method->where, "bnb");
  if (!bits || (bits->word() != "4" && bits->word() != "8")) fail("quant_method: bnb needs quant_bits 4 or 8", method->where);
  const bool single = twice && !is_on(twice);
  reading.say("base_weights", bits->word() == "8" ? "int8" : single ? "nf4" : "nf4-double-quant", "quant_bits", bits->where);
}

/// packing_length, or max_length, or the model's positions.
void read_length(Reading& said, const Node& tree) {
  const Node *length = stated(tree, "max_length"), *packed = stated(tree, "packing_length");
  const bool packs = is_on(tree.find("packing")) && packed;
  if (packs) return said.say("seq_len", packed->word(), "packing_length", packed->where);
  if (length) return said.say("seq_len", length->word(), "max_length", length->where);
  said.when_model_is_known([](Reading& reading, const Model& model) {
    if (model.max_positions > 0)
      reading.derive("seq_len", std::to_string(model.max_positions), "ms-swift: max_length is the model's positions");
  });
}

/// TrainArgumentsMixin.__post_init__: 16 sequences of all ranks a step.
void read_accumulation(Reading& reading, const Node& tree) {
  const Node* steps = stated(tree, "gradient_accumulation_steps");
  if (steps) return reading.say("grad_accum", steps->word(), "gradient_accumulation_steps", steps->where);
  const std::int64_t nodes = std::max<std::int64_t>(1, reading.count("cluster.nodes"));
  const std::int64_t world = reading.has("gpus") ? reading.count("gpus") : nodes * reading.count("cluster.gpus_per_node");
  if (world == 0)
    fail("gradient_accumulation_steps is 16 / (batch · ranks) unless it is said, and how many ranks there are is not known", tree.where,
         "say gradient_accumulation_steps, or NPROC_PER_NODE");
  constexpr std::int64_t kWanted = 16;
  const std::int64_t ranks = world * reading.count("micro_batch");
  reading.derive("grad_accum", std::to_string(std::max<std::int64_t>(1, (kWanted + ranks - 1) / ranks)),
                 "ms-swift: 16 sequences a step (TrainArgumentsMixin.__post_init__)");
}

/// TrainerMixin._fix_gradient_checkpointing, by the Trainer's accelerator, whose DeepSpeed or FSDP may be accelerate's own configuration.
void read_reentrant(Reading& reading, const Node& tree, bool distributed) {
  const Node* kwargs = tree.find("gradient_checkpointing_kwargs");
  Node made;
  if (kwargs && kwargs->is_scalar() && kwargs->text.rfind('{', 0) == 0) {
    made = parse_json_text(kwargs->text, kwargs->where);
    relocate(made, kwargs->where);
    kwargs = &made;
  }
  if (const Node* said = kwargs && kwargs->is_table() ? stated(*kwargs, "use_reentrant") : nullptr)
    return reading.say("recompute_reentrant", said->word(), "gradient_checkpointing_kwargs.use_reentrant", said->where);
  const bool sharded = stated(tree, "deepspeed") || stated(tree, "fsdp") || reading.is("framework", "deepspeed") ||
                       reading.value("data_parallel").rfind("fsdp", 0) == 0;
  reading.derive("recompute_reentrant", distributed && !sharded ? "false" : "true", "ms-swift (TrainerMixin._fix_gradient_checkpointing)");
}

/// freeze_vit and freeze_aligner are on, freeze_llm is off (TunerArguments).
TowerKeys tower_keys(const Node& tree) {
  for (const auto& [key, usually] : {std::pair{"freeze_llm", false}, {"freeze_vit", true}, {"freeze_aligner", true}})
    if (const Node* value = stated(tree, key); value && is_on(value) != usually)
      return {std::string(key) + ": " + value->word(), value->where};
  return {{}, tree.where};
}

void read_with(Reading& reading, const Node& said, bool distributed) {
  const bool preferences = said.find("rlhf_type") != nullptr;
  const SwiftPreferences split = preferences ? split_swift_preferences(said) : SwiftPreferences{{}, said};
  const Node& tree = split.rest;
  auto [own, trainer] = split_own(tree, rows(), "ms-swift");
  for (const char* shared : {"deepspeed", "fsdp"})
    if (const Node* value = own.find(shared)) trainer.set(shared, *value);
  name_configurations(trainer);
  const bool sharded = stated(trainer, "fsdp") != nullptr;
  name_fsdp(reading, trainer);
  read_rows(reading, rows(), *Schema::of("ms-swift"), own);
  take_defaults(reading, rows(), kSwiftRelease);
  const Node* inner = trainer.find("fsdp_config.activation_checkpointing");
  if (sharded && is_on(inner) && reading.is("recompute", "full")) reading.forget("recompute");  // _check_fsdp2_compatibility turns it off
  if (sharded && is_on(inner)) reading.derive("recompute", "full", "ms-swift: activation_checkpointing of fsdp_config");
  read_router_loss(reading, own.find("router_aux_loss_coef"), "router_aux_loss_coef");
  read_adapter(reading, tree);
  read_quantization(reading, tree);
  require_usual_adapters(reading, tree);
  if (!preferences || !read_answer_lengths(reading, split)) read_length(reading, tree);
  read_precision(reading, tree);
  train_language_alone(reading, "ms-swift", tower_keys(tree));
  complete_dtype(reading);
  read_accumulation(reading, tree);
  read_reentrant(reading, tree, distributed);
  read_training_arguments(reading, trainer);
  if (preferences) read_swift_preferences(reading, split.own, tree.find("model"));
}

void read(Reading& reading, const Node& tree) { read_with(reading, tree, reading.has_format("torchrun")); }

/// is_mp and get_default_device_map: where a node's processes are fewer than the devices that they see, each process has its weights dealt
/// over its share of these (device_map: auto); a count that does not divide them fails ms-swift's assertion. Megatron's processes take one
/// device.
void refuse_dealt_weights(const Reading& reading, const Node& tree) {
  const std::int64_t seen = visible_devices(reading), processes = reading.count("cluster.gpus_per_node");
  if (seen == 0 || processes == 0 || seen == processes) return;
  const std::string counts = std::to_string(processes) + " processes and " + std::to_string(seen) + " devices that they see";
  if (seen % processes != 0)
    fail("ms-swift asserts that a node's processes divide its devices (swift/utils/env.py): " + counts, tree.where,
         "NPROC_PER_NODE=" + std::to_string(seen));
  if (stated(tree, "deepspeed"))
    fail("ms-swift raises that DeepSpeed is not compatible with device_map, which it takes of " + counts, tree.where,
         "NPROC_PER_NODE=" + std::to_string(seen));
  refuse("not modelled: weights that each process deals over " + std::to_string(seen / processes) + " devices (device_map: auto), of " +
             counts,
         tree.where, "NPROC_PER_NODE=" + std::to_string(seen));
}

/// The process count that swift/cli/main.py hands to torchrun; without it a single process runs, with the weights dealt over all it sees.
bool say_ranks_of_swift(Reading& reading, const std::string& where) {
  const std::string per_node = reading.value("env.nproc_per_node"), nodes = reading.value("env.nnodes");
  if (!per_node.empty() || !nodes.empty()) {
    say_ranks(reading,
              {nodes.empty() ? 1 : reading.count("env.nnodes"), per_node.empty() ? 1 : reading.count("env.nproc_per_node"), "swift"},
              where);
    return true;
  }
  if (const std::int64_t seen = visible_devices(reading); seen > 1)
    refuse("not modelled: a single process whose weights are dealt over " + std::to_string(seen) + " devices (device_map: auto)", where,
           "NPROC_PER_NODE=" + std::to_string(seen) + " in front of swift");
  say_ranks(reading, {1, 1, "swift"}, where);
  return false;
}

}  // namespace

namespace {

/// Whether another launcher starts the processes of a script: the command itself starts its own.
bool is_launched(const Reading& reading) {
  static const std::vector<std::string> launchers{"torchrun", kDeepSpeedLauncher, "accelerate", "mpirun"};
  return std::any_of(launchers.begin(), launchers.end(), [&](const std::string& launcher) { return reading.has_format(launcher); });
}

/// What stands behind the verb: a file as the first word (parse_yaml_args), whose ENV sets variables, with the flags over it.
Node arguments_of(Reading& reading, const std::vector<Node>& words) {
  const std::string where = words.empty() ? std::string() : words.front().where;
  std::vector<Node> positional;
  const Node flags = table_of_flags(words, positional);
  Node tree = Node::table(where);
  if (!positional.empty()) {  // parse_yaml_args: the first word
    const Node& file = positional.front();
    const std::string path = reading.located(file.word(), file);
    const bool json = path.size() > 5 && path.compare(path.size() - 5, 5, ".json") == 0;
    tree = json ? parse_json_text(reading.text_of(path), readable(path)) : parse_yaml_text(reading.text_of(path), readable(path));
    if (!tree.is_table()) fail("expected a table of keys", path);
    if (const Node* variables = tree.find("ENV"); variables && variables->is_table())
      for (const auto& [name, value] : variables->members) read_environment(reading, name, value.word(), value.where);
    std::erase_if(tree.members, [](const auto& member) { return member.first == "ENV"; });
  }
  for (const auto& [name, value] : flags.members) tree.set(name, value);
  return tree;
}

}  // namespace

std::optional<SwiftCommand> swift_script_of(const std::string& program) {
  const bool module = program.rfind("swift.cli.", 0) == 0, file = program.find("swift/cli/") != std::string::npos;
  const bool megatron = program.rfind("swift.cli._megatron.", 0) == 0 || program.find("swift/cli/_megatron/") != std::string::npos;
  for (const std::string verb : {"sft", "pt", "rlhf"})
    if ((module && program.ends_with("." + verb)) || (file && program.ends_with("/" + verb + ".py"))) {
      if (megatron && verb == "rlhf") return {};
      return SwiftCommand{verb, megatron, true};
    }
  return {};
}

void read_swift_command(Reading& reading, const SwiftCommand& command, const std::vector<Node>& words) {
  Node tree = arguments_of(reading, words);
  const std::string& where = tree.where;
  const bool distributed = (command.script && is_launched(reading)) || say_ranks_of_swift(reading, where);
  if (command.verb == "rlhf" && !tree.find("rlhf_type")) tree.set("rlhf_type", Node::scalar("dpo", where));
  if (command.megatron) {
    reading.note_format("megatron-swift");
    return swift_megatron_format().read(reading, tree);
  }
  refuse_dealt_weights(reading, tree);
  if (command.verb == "pt" && !tree.find("loss_scale")) tree.set("loss_scale", Node::scalar("all", where));
  reading.note_format("ms-swift");
  read_with(reading, tree, distributed);
}

Format swift_format() { return {"ms-swift", "ms-swift's arguments", kSwiftRelease, rows, recognises, read}; }

}  // namespace plimsoll::formats
