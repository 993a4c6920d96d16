// Hugging Face: TrainingArguments with what scripts of transformers and TRL take beside them, a model's config.json, and PEFT's adapters.
#include <fmt/format.h>

#include <algorithm>

#include "formats/foreign/format.hpp"
#include "formats/foreign/schema.hpp"
#include "model/hub_names.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRelease = "transformers 5.23";

/// transformers/training_args.py; the scripts' own arguments are those of examples/pytorch and of TRL's ScriptArguments and ModelConfig.
const Rows& rows() {
  static const Rows table = {
      {"model_name_or_path", kCode, "", nullptr, "model"},
      {"config_name", kCode, "", nullptr, "model"},
      {"config_overrides", kRefused, "null", nullptr, "a config that the line changes (give the config.json that it makes)"},
      {kOwnLoop, kCode, "", nullptr, "framework transformers: train.py of plimsoll export"},
      {"dtype", "param_dtype", "auto=-,float32=fp32,bfloat16=bf16,float16=fp16", nullptr, "of the weights; transformers 4.56"},
      {"torch_dtype", "param_dtype", "auto=-,float32=fp32,bfloat16=bf16,float16=fp16", nullptr, "of the weights"},
      {"attn_implementation", "attention",
       "eager=eager,sdpa=sdpa,flash_attention_2=flash,kernels-community/flash-attn=flash,kernels-community/flash-attn2=flash,"
       "flash_attention_3=flash-3,kernels-community/flash-attn3=flash-3,kernels-community/vllm-flash-attn3=flash-3,"
       "flash_attention_4=flash-4,kernels-community/flash-attn4=flash-4,flex_attention=flex"},
      {"block_size", "seq_len"},
      {"max_seq_length", "seq_len"},
      {"max_seq_len", "seq_len"},
      {"max_length", "seq_len", "", nullptr, "TRL"},
      {"model_max_length", "seq_len"},
      {"packing", "packed", "", nullptr, "TRL"},
      {"per_device_train_batch_size", "micro_batch", "", "8"},
      {"gradient_accumulation_steps", "grad_accum", "", "1"},
      {"bf16", kCode, "", nullptr, "precision bf16"},
      {"fp16", kCode, "", nullptr, "precision fp16"},
      {"tf32", "tf32"},
      {"activation_checkpointing", "recompute", "true=full,false=none", nullptr, "transformers 5.19"},
      {"activation_checkpointing_kwargs.use_reentrant", "recompute_reentrant"},
      {"gradient_checkpointing", "recompute", "true=full,false=none", "false"},
      {"gradient_checkpointing_kwargs.use_reentrant", "recompute_reentrant", "", "false"},
      {"optim", "optimizer",
       "adamw_torch=adamw,adamw_torch_fused=adamw,adamw_hf=adamw,adafactor=adafactor,sgd=sgd,adagrad=adagrad,rmsprop=rmsprop,"
       "adamw_bnb_8bit=adamw-8bit,adamw_8bit=adamw-8bit,paged_adamw_8bit=paged-adamw-8bit,paged_adamw_32bit=paged-adamw,paged_adamw=paged-"
       "adamw,"
       "lion_32bit=lion-bnb,lion_8bit=lion-8bit,paged_lion_32bit=paged-lion,paged_lion_8bit=paged-lion-8bit,rmsprop_bnb=rmsprop-bnb,"
       "rmsprop_bnb_8bit=rmsprop-8bit,ademamix=ademamix,ademamix_8bit=ademamix-8bit,galore_adamw=!,galore_adamw_8bit=!,galore_adafactor=!,"
       "lomo=!,adalomo=!,grokadamw=!,schedule_free_adamw=!,schedule_free_sgd=!,schedule_free_radam=!,apollo_adamw=!,stable_adamw=!,"
       "adamw_anyprecision=!,adamw_torch_4bit=!torchao's AdamW with states of 4 bits,adamw_torch_8bit=adamw-torch-8bit,"
       "adamw_apex_fused=!,adamw_torch_xla=!,adamw_torch_npu_fused=!,rmsprop_bnb_32bit=rmsprop-bnb,paged_ademamix_32bit=!,paged_ademamix_8bit=!,"
       "galore_adamw_layerwise=!,galore_adamw_8bit_layerwise=!,galore_adafactor_layerwise=!,apollo_adamw_layerwise=!",
       "adamw_torch_fused", "adamw_torch before torch 2.8"},
      {"optim", "optimizer_impl", "adamw_torch_fused=fused,adamw_torch=foreach,adamw_hf=for-loop,*=-", "adamw_torch_fused"},
      {"optim_target_modules", kRefused, "null", nullptr, "GaLore and its like"},
      {"max_grad_norm", "clip_grad_norm", "", "1.0"},
      {"use_liger_kernel", "liger_kernel", "", "false"},
      {"use_liger", "liger_kernel", "", nullptr, "TRL before 0.16"},
      {"liger_kernel_config.rope", "liger_rope", "true=-,false=false"},
      {"liger_kernel_config.rms_norm", "liger_rms_norm", "true=-,false=false"},
      {"liger_kernel_config.swiglu", "liger_glu", "true=-,false=false"},
      {"liger_kernel_config.geglu", "liger_glu", "true=-,false=false"},
      {"liger_kernel_config.cross_entropy", kRefused, "false", nullptr, "Liger's loss over whole logits by this key"},
      {"liger_kernel_config.fused_linear_cross_entropy", kRefused, "true", nullptr, "Liger's modules without its loss by this key"},
      {"liger_kernel_config.*", kRefused, "", nullptr, "this choice among Liger's kernels"},
      {"torch_compile", "compile", "true=true,true=model,false=false"},
      {"ddp_find_unused_parameters", "ddp.find_unused_parameters"},
      {"ddp_bucket_cap_mb", "ddp.bucket_cap_mb"},
      {"ddp_static_graph", "ddp.static_graph", "", nullptr, "transformers 5"},
      {"ddp_broadcast_buffers", kNothing},
      {"neftune_noise_alpha", kRefused, "null", nullptr, "noise on the embeddings (NEFTune)"},
      {"label_smoothing_factor", kRefused, "0,0.0", nullptr, "a loss with label smoothing"},
      {"auto_find_batch_size", kRefused, "false", nullptr, "a batch that the run looks for itself"},
      {"torch_empty_cache_steps", kRefused, "null,0", nullptr, "giving the allocator's segments back between steps"},
      {"use_cpu", kRefused, "false", nullptr, "training on the processor"},
      {"deepspeed", kCode, "", nullptr, "DeepSpeed's JSON"},
      {"deepspeed.*", kCode},
      {"fsdp", kCode, "", nullptr, "full_shard, shard_grad_op, hybrid_shard, no_shard, auto_wrap, offload; or true"},
      {"fsdp_config", kCode, "", nullptr, "FSDP's keys"},
      {"fsdp_config.*", kCode},
      {"fsdp_transformer_layer_cls_to_wrap", "fsdp.units"},
      {"use_peft", kCode, "", nullptr, "TRL: adapters"},
      {"lora_r", kCode, "", nullptr, "lora.r, where use_peft"},
      {"lora_alpha", kCode},
      {"lora_dropout", kCode},
      {"lora_target_modules", kCode},
      {"lora_modules_to_save", kCode},
      {"use_dora", kCode},
      {"load_in_4bit", "base_weights", "true=nf4,false=-"},
      {"load_in_8bit", "base_weights", "true=int8,false=-"},
      {"use_bnb_nested_quant", kCode, "", nullptr, "base_weights nf4-double-quant"},
      {"lora_task_type", kNothing},
      {"bnb_4bit_compute_dtype", kNothing},
      {"use_rslora", kNothing},
      {"lora_target_parameters", kRefused, "null", nullptr, "adapters on parameters that are no linear's"},
      {"use_peft_lora", kCode, "", nullptr, "PEFT's examples/sft: use_peft"},
      {"use_4bit_quantization", "base_weights", "true=nf4,false=-", nullptr, "PEFT's examples/sft"},
      {"use_8bit_quantization", "base_weights", "true=int8,false=-", nullptr, "PEFT's examples/sft"},
      {"use_nested_quant", kCode, "", nullptr, "PEFT's examples/sft: base_weights nf4-double-quant"},
      {"use_flash_attn", "attention", "true=flash,false=-", nullptr, "PEFT's examples/sft"},
      {"use_reentrant", "recompute_reentrant", "", nullptr, "PEFT's examples/sft"},
      {"use_unsloth", kRefused, "false", nullptr, "Unsloth"},
      {"bnb_4bit_quant_type", kRefused, "nf4,fp4", nullptr, "this type of 4-bit weights"},
      {"bnb_4bit_quant_storage", "bnb_4bit_quant_storage", "uint8=-,float32=fp32,bfloat16=bf16,float16=fp16"},
      {"bnb_4bit_quant_storage_dtype", "bnb_4bit_quant_storage", "uint8=-,float32=fp32,bfloat16=bf16,float16=fp16", nullptr,
       "PEFT's examples/sft"},
      {"quantization_config", kCode, "", nullptr, "BitsAndBytesConfig"},
      {"quantization_config.*", kCode},
      {"parallelism_config.*", kRefused, "", nullptr, "parallelism_config inside TrainingArguments (give it in Accelerate's file)"},
      {"per_device_eval_batch_size", kNothing},
      {"learning_rate", kNothing},
      {"num_train_epochs", kNothing},
      {"max_steps", kNothing},
      {"output_dir", kNothing},
      {"do_train", kNothing},
      {"report_to", kNothing},
      {"bf16_full_eval", kNothing},
      {"fp16_full_eval", kNothing},
  };
  return table;
}

int recognises(const Node& tree) {
  const int own =
      count_of(tree, {"per_device_train_batch_size", "per_gpu_train_batch_size", "model_name_or_path", "num_train_epochs", "optim"});
  return own == 0 ? 0 : 2 * own + count_of(tree, {"gradient_accumulation_steps", "learning_rate", "output_dir", "max_grad_norm"});
}

bool is_true(const Node& tree, const char* key) {
  const Node* value = tree.find(key);
  return is_on(value);
}

void read_precision(Reading& reading, const Node& tree) {
  for (const char* type : {"bf16", "fp16"}) {
    const Node* value = tree.find(type);
    if (!value || value->is_null()) continue;
    if (value->text == "true") reading.say("precision", type, type, value->where);
    if (value->text != "true" && value->text != "false") fail("expected true or false for " + std::string(type), value->where);
  }
}

/// "full_shard auto_wrap offload", a list of them, or true.
void read_fsdp_word(Reading& reading, const Node& value) {
  static const Row strategy = {
      "fsdp", "fsdp.strategy",
      "full_shard=FULL_SHARD,shard_grad_op=SHARD_GRAD_OP,no_shard=NO_SHARD,hybrid_shard=HYBRID_SHARD,hybrid_shard_zero2="
      "HYBRID_SHARD_ZERO2,true=-"};
  std::string text = value.word() + " ";
  for (std::size_t at = 0, end = text.find_first_of(" ,"); end != std::string::npos; at = end + 1, end = text.find_first_of(" ,", at)) {
    const std::string word = text.substr(at, end - at);
    if (word.empty()) continue;
    if (word == "auto_wrap") {
      reading.say("auto_wrap", "true", "fsdp", value.where);
      continue;
    }
    if (word == "offload") {
      reading.say("offload", "params+grads+optimizer", "fsdp", value.where);
    } else if (const std::string ours = to_ours(strategy, word, value.where); !ours.empty()) {
      reading.say("fsdp.strategy", ours, "fsdp", value.where);
    }
  }
}

void read_sharding(Reading& reading, const Node& tree) {
  const Node *fsdp = tree.find("fsdp"), *config = tree.find("fsdp_config");
  const bool given = fsdp && !fsdp->is_null() && fsdp->word() != "false" && !fsdp->word().empty();
  if (!given) return;
  read_fsdp_word(reading, *fsdp);
  Node empty;
  if (config && config->is_scalar()) {
    reading.include(config->text, *config, "fsdp_config");
  } else {
    read_fsdp(reading, config ? *config : empty, "fsdp_config.", 2, kRelease);
  }
  reading.assume("host_loading", "every-rank", "fsdp_config.cpu_ram_efficient_loading: false", kRelease);
}

/// BitsAndBytesConfig, or what a config.json keeps of it.
void read_quantization(Reading& reading, const Node& value) {
  static const Rows table = {
      {"load_in_4bit", "base_weights", "true=nf4,false=-"},
      {"load_in_8bit", "base_weights", "true=int8,false=-"},
      {"bnb_4bit_use_double_quant", kCode},
      {"bnb_4bit_quant_type", kRefused, "nf4,fp4", nullptr, "this type of 4-bit weights"},
      {"bnb_4bit_quant_storage", "bnb_4bit_quant_storage", "uint8=-,float32=fp32,bfloat16=bf16,float16=fp16"},
      {"bnb_4bit_compute_dtype", kNothing},
      {"quant_method", kRefused, "bitsandbytes", nullptr, "this quantization"},
      {"llm_int8_enable_fp32_cpu_offload", kRefused, "false", nullptr, "8-bit weights on the host"},
  };
  read_rows(reading, table, value, "quantization_config.");
  const Node* nested = value.find("bnb_4bit_use_double_quant");
  if (is_on(nested) && reading.is("base_weights", "nf4")) {
    reading.forget("base_weights");
    reading.say("base_weights", "nf4-double-quant", "quantization_config.bnb_4bit_use_double_quant", nested->where);
  }
}

/// A second quantization of the 4-bit weights' scales.
void read_nested(Reading& reading, const Node& tree) {
  for (const char* key : {"use_bnb_nested_quant", "use_nested_quant"}) {
    if (!is_true(tree, key) || !reading.is("base_weights", "nf4")) continue;
    reading.forget("base_weights");
    reading.say("base_weights", "nf4-double-quant", key, tree.find(key)->where);
  }
}

/// Sizes of adapters without a word on whether there are any: TRL's scripts train all weights then, those of others adapters.
void refuse_undecided_adapters(const Node& tree) {
  if (tree.find("use_peft") || tree.find("use_peft_lora")) return;
  for (const char* key : {"lora_r", "lora_alpha", "lora_target_modules"})
    if (const Node* value = tree.find(key); value && !value->is_null())
      refuse(std::string(key) + " without use_peft does not tell whether adapters are trained, or all weights", value->where,
             "say use_peft: true, or false");
}

/// JSON given in the place of a table, as TrainingArguments takes it (_VALID_DICT_FIELDS, with TRL's: json.loads of what begins with a brace).
Node with_tables(const Node& said) {
  static const std::vector<std::string_view> fields{"accelerator_config", "fsdp_config", "deepspeed", "gradient_checkpointing_kwargs",
                                                    "activation_checkpointing_kwargs", "lr_scheduler_kwargs", "model_init_kwargs",
                                                    "dataset_kwargs", "parallelism_config", "liger_kernel_config", "quantization_config"};
  Node tree = said;
  for (auto& [name, value] : tree.members)
    if (std::find(fields.begin(), fields.end(), name) != fields.end() && value.is_scalar() && value.text.rfind('{', 0) == 0) {
      const std::string where = value.where;
      value = parse_json_text(value.text, where + " " + name);
      relocate(value, where);
    }
  return tree;
}

void read_adapter_flags(Reading& reading, const Node& tree) {
  if (!is_true(tree, "use_peft") && !is_true(tree, "use_peft_lora")) return;
  static const Rows table = {{"lora_r", "lora.r", "", "16"},
                             {"lora_alpha", "lora.alpha", "", "32"},
                             {"lora_dropout", "lora.dropout", "", "0.05"},
                             {"lora_target_modules", "lora.target_modules"},
                             {"lora_modules_to_save", "lora.modules_to_save"},
                             {"use_dora", "lora.use_dora"}};
  for (const Row& row : table) {
    const Node* value = tree.find(row.foreign);
    if (value && !value->is_null()) reading.say(std::string(row.ours), value->word(), row.foreign, value->where);
  }
  take_defaults(reading, table, "TRL 0.24");
}

/// The type of a checkpoint that a config.json tells ("dtype", before transformers 4.56 "torch_dtype"); an empty type: it tells none.
struct ToldType {
  std::string type, key, where;
};

ToldType type_told_by(const Node& config) {
  static const Row types = {"torch_dtype", "checkpoint.dtype", "float32=fp32,bfloat16=bf16,float16=fp16,*=-"};
  for (const char* key : {"torch_dtype", "dtype"}) {
    const Node* value = config.find(key);
    if (!value || !value->is_scalar()) continue;
    if (std::string type = to_ours(types, value->text, value->where); !type.empty()) return {std::move(type), key, value->where};
  }
  return {};
}

/// Weights come in fp32, from 5.0 on in the type of their checkpoint, which a config.json tells. Where a half is computed in, FSDP's shards are
/// upcast and DeepSpeed casts; where none is, all stays in that type.
void assume_weights(Reading& said) {
  said.when_model_is_known([](Reading& reading, const Model& model) {
    const auto casts = [&](const char* key, const char* not_at_all) { return reading.has(key) && !reading.is(key, not_at_all); };
    const bool half = casts("precision", "fp32") || casts("mixed_precision", "no");
    const bool sharded = reading.value("data_parallel").rfind("fsdp", 0) == 0;
    if (half && reading.is("framework", "deepspeed") && !reading.has("deepspeed.torch_autocast"))
      return reading.forget("param_dtype");  // the engine casts what was loaded (DeepSpeedEngine._configure_distributed_model)
    if (half && (sharded || reading.is("framework", "deepspeed"))) return;
    const ProgramDefault usual = program_default(reading, "from_pretrained.dtype", nullptr, kRelease);
    if (!reading.has("checkpoint.dtype") && model.config) {
      const ToldType told = type_told_by(parse_json_text(model.config->text, model.config->where));
      if (!told.type.empty()) reading.derive("checkpoint.dtype", told.type, told.key + " of its config.json");
    }
    if (const auto type = model::checkpoint_dtype_of(model.name); type && !reading.has("checkpoint.dtype"))
      reading.derive("checkpoint.dtype", type->type, "the checkpoint of " + model.name + " on the hub (" + type->told_by + ")");
    const bool of_checkpoint = usual.word == "auto" && reading.has("checkpoint.dtype");
    if (!half && (!of_checkpoint || reading.is("checkpoint.dtype", "fp32"))) return;  // fp32 is what is computed in
    if (!half) reading.forget("precision");  // all is in the weights' type: settled once more
    reading.assume("param_dtype", of_checkpoint ? reading.value("checkpoint.dtype") : "fp32",
                   usual.told + (usual.word != "auto" ? ""
                                 : of_checkpoint      ? ", the checkpoint's type"
                                                      : ", a checkpoint whose type is not told"),
                   usual.release);
  });
}

void read_arguments(Reading& reading, const Node& tree) { read_training_arguments(reading, tree, rows(), Unknown::own); }

}  // namespace

void read_training_arguments(Reading& reading, const Node& said, const Rows& known, Unknown unknown) {
  const Node tree = with_tables(with_switches_off(reading, said, known, *Schema::of("transformers"), kRelease));
  for (const char* key : {"config_name", "model_name_or_path"})
    if (const Node* value = tree.find(key); value && !value->is_null() && !reading.has("model")) say_model(reading, *value, key);
  const Node* deepspeed = tree.find("deepspeed");
  const bool sharded_by_deepspeed = deepspeed && !deepspeed->is_null() && deepspeed->text != "false";
  const Node* loop = tree.find(kOwnLoop);
  const bool own_loop = is_on(loop);
  reading.assume("framework",
                 sharded_by_deepspeed || reading.has_format("deepspeed") ? "deepspeed"
                 : own_loop                                              ? "transformers"
                                                                         : "accelerate",
                 own_loop ? "a loop of its own" : "the Trainer", kRelease);
  read_rows(reading, known, *Schema::of("transformers"), tree, unknown);
  read_precision(reading, tree);
  read_sharding(reading, tree);
  read_nested(reading, tree);
  refuse_undecided_adapters(tree);
  read_adapter_flags(reading, tree);
  if (const Node* value = tree.find("quantization_config"); value && value->is_table()) read_quantization(reading, *value);
  if (sharded_by_deepspeed) read_deepspeed_reference(reading, *deepspeed);
  take_defaults(reading, rows(), kRelease);
  assume_weights(reading);
  complete_trainer(reading);
}

namespace {

// ---- config.json ------------------------------------------------------------------------------------------------------

const Rows& no_rows() {
  static const Rows none;
  return none;
}

/// A config's sizes are called as Megatron's arguments are; programs that have a `model_type` as well name a model beside it.
int recognises_config(const Node& tree) {
  const bool beside = count_of(tree, {"base_model", "model_name_or_path", "modules", "trainer", "training"}) > 0;
  return (beside ? 3 : 9) * count_of(tree, {"model_type", "architectures", "_class_name"});
}

std::string json_of(const Node& node) {
  if (node.is_null()) return "null";
  std::string text;
  if (node.is_scalar()) {
    if (!node.quoted) return node.text;
    text = "\"";
    for (char c : node.text) {
      if (c == '"' || c == '\\') text += '\\';
      if (static_cast<unsigned char>(c) < 0x20) {
        text += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
      } else {
        text += c;
      }
    }
    return text + "\"";
  }
  for (const auto& [name, value] : node.members)
    text += (text.empty() ? "" : ",") + (node.is_table() ? json_of(Node::scalar(name, {}, true)) + ":" : std::string()) + json_of(value);
  return node.is_table() ? "{" + text + "}" : "[" + text + "]";
}

void read_config(Reading& reading, const Node& tree) {
  reading.set_model_config(json_of(tree), tree.where.substr(0, tree.where.find('#')));
  if (const ToldType told = type_told_by(tree); !told.type.empty() && !reading.has("checkpoint.dtype"))
    reading.say("checkpoint.dtype", told.type, told.key, told.where);
  const Node* quantization = tree.find("quantization_config");
  if (quantization && quantization->is_table()) read_quantization(reading, *quantization);
}

// ---- PEFT -------------------------------------------------------------------------------------------------------------

const Rows& peft_rows() {
  static const Rows table = {
      {"base_model_name_or_path", kCode, "", nullptr, "model"},
      {"peft_type", "task",
       "LORA=lora,IA3=ia3,LN_TUNING=ln_tuning,PROMPT_TUNING=prompt_tuning,P_TUNING=p_tuning,PREFIX_TUNING=prefix_tuning", "LORA"},
      {"r", "lora.r", "", "8"},
      {"lora_alpha", "lora.alpha"},
      {"lora_dropout", "lora.dropout"},
      {"target_modules", kCode, "", nullptr, "lora.target_modules or peft.target_modules"},
      {"feedforward_modules", "peft.feedforward_modules"},
      {"modules_to_save", "lora.modules_to_save"},
      {"num_virtual_tokens", "peft.num_virtual_tokens"},
      {"encoder_hidden_size", "peft.encoder_hidden_size"},
      {"use_dora", "lora.use_dora"},
      {"use_rslora", kNothing},
      {"bias", kRefused, "none", nullptr, "biases trained beside adapters"},
      {"layers_to_transform", kRefused, "null", nullptr, "adapters on some layers alone"},
      {"layers_pattern", kRefused, "null", nullptr, "adapters on some layers alone"},
      {"rank_pattern.*", kRefused, "", nullptr, "ranks that differ by module"},
      {"target_parameters", kRefused, "null", nullptr, "adapters on parameters that are no linear's"},
      {"exclude_modules", kRefused, "null", nullptr, "modules taken out of the adapters' targets"},
      {"trainable_token_indices", kRefused, "null", nullptr, "single trained tokens"},
      {"layer_replication", kRefused, "null", nullptr, "replicated layers"},
      {"lora_bias", kRefused, "false", nullptr, "adapters with biases"},
      {"alpha_pattern.*", kNothing},
  };
  return table;
}

int recognises_peft(const Node& tree) { return 5 * count_of(tree, {"peft_type"}) + count_of(tree, {"target_modules", "lora_alpha", "r"}); }

void read_peft(Reading& reading, const Node& tree) {
  if (const Node* value = tree.find("base_model_name_or_path"); value && !value->is_null() && !reading.has("model"))
    say_model(reading, *value, "base_model_name_or_path");
  const bool lora = !tree.find("peft_type") || tree.find("peft_type")->text == "LORA";
  Node plain = tree;
  if (!lora)
    std::erase_if(plain.members, [](const auto& member) {
      return member.first == "r" || member.first == "modules_to_save";  // of LoRA's table
    });
  read_rows(reading, peft_rows(), *Schema::of("peft"), plain, Unknown::dropped);  // PeftConfig.from_peft_type drops them
  if (const Node* targets = tree.find("target_modules"); targets && !targets->is_null())
    reading.say(lora ? "lora.target_modules" : "peft.target_modules", targets->word(), "target_modules", targets->where);
  if (lora) take_defaults(reading, peft_rows(), "PEFT 0.21");
}

}  // namespace

void say_model(Reading& reading, const Node& value, const std::string& foreign) {
  reading.say("model", value.word(), foreign, value.where);
}

namespace {

/// Whether Trainer is handed a PeftModel, which is no PreTrainedModel (_build_accelerator_args asks).
bool is_peft_model(const Reading& reading) {
  static const std::vector<std::string> tasks{"lora", "qlora", "ia3", "ln_tuning", "prompt_tuning", "p_tuning", "prefix_tuning"};
  return reading.has("lora.r") || std::find(tasks.begin(), tasks.end(), reading.value("task")) != tasks.end();
}

}  // namespace

void complete_trainer(Reading& said) {
  said.when_model_is_known([](Reading& reading, const Model&) {
    const std::string kind = reading.value("data_parallel");
    const bool of_deepspeed = reading.is("framework", "deepspeed");
    if (of_deepspeed && !reading.has("deepspeed.optimizer.type"))
      reading.derive("trainer_optimizer", "true", "Trainer.create_optimizer: norms and biases are a group of their own");
    if (!of_deepspeed)  // also where only a change accumulates
      reading.derive(kind.rfind("fsdp", 0) == 0 ? "fsdp.no_sync" : "ddp.no_sync", "true",
                     "Trainer reduces gradients in the last accumulation step alone");
    if ((kind.empty() || kind == "ddp") && !reading.has("ddp.find_unused_parameters"))
      reading.derive("ddp.find_unused_parameters", reading.is("recompute", "full") && !is_peft_model(reading) ? "false" : "true",
                     "Trainer looks for unused parameters with adapters, and unless it recomputes activations");
  });
}

OwnAndTrainers split_own(const Node& tree, const Rows& own_rows, const std::string& format) {
  const Schema &own = *Schema::of(format), &trainer = *Schema::of("transformers");
  const auto is_own = [&](const std::string& name) {
    if (find_row(own_rows, name) || own.mark(name).kind != KeyMark::Kind::absent) return true;
    if (find_row(rows(), name) || trainer.has(name)) return false;
    return slip_of(name, trainer.keys()).empty();
  };
  OwnAndTrainers parts{Node::table(tree.where), Node::table(tree.where)};
  for (const auto& [name, value] : tree.members) (is_own(name) ? parts.own : parts.trainer).members.emplace_back(name, value);
  return parts;
}

void read_training_arguments(Reading& reading, const Node& tree) { read_training_arguments(reading, tree, rows(), Unknown::refused); }

Format training_arguments_format() {
  return {"transformers", "Hugging Face TrainingArguments", kRelease, rows, recognises, read_arguments};
}
Format transformers_config_format() {
  return {"config", "a model's config.json of Hugging Face", kRelease, no_rows, recognises_config, read_config};
}
Format peft_format() { return {"peft", "PEFT's adapter_config.json", "PEFT 0.21", peft_rows, recognises_peft, read_peft}; }

}  // namespace plimsoll::formats
