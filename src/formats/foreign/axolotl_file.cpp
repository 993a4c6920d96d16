// axolotl's YAML (axolotl/utils/schemas): transformers' Trainer under Accelerate.
#include <algorithm>
#include <cstdlib>

#include "formats/foreign/format.hpp"
#include "formats/foreign/router_loss.hpp"
#include "formats/foreign/schema.hpp"
#include "formats/foreign/trained_modules.hpp"
#include "formats/foreign/trl_trainers.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char *kRelease = "axolotl 0.19", *kTrainer = "transformers 5.23";

const Rows& rows() {
  static const Rows table = {
      {"base_model", "model"},
      {"sequence_len", "seq_len", "", "512"},
      {"sample_packing", "packed"},
      {"micro_batch_size", "micro_batch", "", "1"},
      {"gradient_accumulation_steps", "grad_accum", "", "1"},
      {"batch_size", kNothing, "", nullptr, "gradient_accumulation_steps has a value of its own, 1, and wins"},
      {"bf16", kCode, "", nullptr, "precision bf16; auto: where fp16 is not on; full: pure-bf16"},
      {"fp16", kCode, "", nullptr, "precision fp16, where bf16 is not on"},
      {"bfloat16", kCode, "", nullptr, "precision bf16"},
      {"float16", kRefused, "false", nullptr, "weights in fp16"},
      {"fp8", "precision", "true=fp8,false=-"},
      {"fp8_enable_fsdp_float8_all_gather", kNothing},
      {"tf32", "tf32", "auto=-,*"},
      {"gradient_checkpointing", "recompute", "true=full,false=none,offload=!,offload_disk=!"},
      {"gradient_checkpointing_kwargs.use_reentrant", "recompute_reentrant", "", nullptr, "where there are no kwargs true, with rl false"},
      {"selective_checkpointing", kRefused, "false", nullptr, "selective checkpointing"},
      {"activation_offloading", kCode, "", nullptr, "offload: activations, by TRL"},
      {"layer_offloading", kRefused, "false", nullptr, "offload of layers"},
      {"optimizer", "optimizer",
       "adamw_torch=adamw,adamw_torch_fused=adamw,adamw_hf=adamw,adafactor=adafactor,sgd=sgd,adamw_bnb_8bit=adamw-8bit,adamw_8bit=adamw-"
       "8bit,adamw_torch_8bit=adamw-torch-8bit,adamw_torch_4bit=!torchao's AdamW with states of 4 bits,"
       "paged_adamw_8bit=paged-adamw-8bit,paged_adamw_32bit=paged-adamw,lion_8bit=lion-8bit,lion_32bit=lion-bnb,ademamix=ademamix,"
       "ademamix_8bit=ademamix-8bit,muon=!,optimi_adamw=!,ao_adamw_8bit=!,ao_adamw_4bit=!,ao_adamw_fp8=!,came_pytorch=!,q_galore_adamw8bit="
       "!,dion=!,adopt_adamw=!,adamc=!,sinkgd=!,polora=!,flash_adamw=!,flash_adam=!,flash_sgd=!,flash_sgdw=!,flash_lion=!,dist_muon=!,"
       "lomo=!,adalomo=!,galore_adamw=!,galore_adamw_8bit=!,schedule_free_adamw=!,apollo_adamw=!,stable_adamw=!,*=!",
       "adamw_torch_fused"},
      {"optimizer", "optimizer_impl", "adamw_torch_fused=fused,adamw_torch=foreach,adamw_hf=for-loop,*=-", "adamw_torch_fused"},
      {"max_grad_norm", "clip_grad_norm", "", "1.0"},
      {"attn_implementation", "attention",
       "eager=eager,sdpa=sdpa,flash_attention_2=flash,flash_attention_3=flash-3,flash_attention_4=flash-4,flex_attention=flex,xformers="
       "memory-efficient,*=!"},
      {"flash_attention", "attention", "true=flash,false=-"},
      {"sdp_attention", "attention", "true=sdpa,false=-"},
      {"eager_attention", "attention", "true=eager,false=-"},
      {"flex_attention", "attention", "true=flex,false=-"},
      {"xformers_attention", "attention", "true=memory-efficient,false=-"},
      {"sage_attention", kRefused, "false", nullptr, "SageAttention"},
      {"liger_rope", "liger_rope", "", nullptr, "Liger's keys say nothing where its plugin is not listed; where it is, what is not said is false"},
      {"liger_rms_norm", "liger_rms_norm"},
      {"liger_glu_activation", "liger_glu"},
      {"liger_layer_norm", kNothing, "", nullptr, "models whose layer norms Liger replaces are refused"},
      {"liger_cross_entropy", "loss", "true=liger,false=-"},
      {"liger_fused_linear_cross_entropy", "loss", "true=liger-fused-linear,false=-"},
      {"cut_cross_entropy", kCode, "", nullptr, "loss: cut-cross-entropy, where its plugin is listed and this is not false"},
      {"experts_implementation", kRefused, "grouped_mm", nullptr, "experts by these kernels"},
      {"model_config", kCode, "", nullptr, "output_router_logits: the routers' auxiliary loss; all else refused"},
      {"chunked_cross_entropy", kRefused, "false", nullptr, "axolotl's chunked cross entropy"},
      {"tiled_mlp", kRefused, "false", nullptr, "tiled MLPs"},
      {"plugins", kCode, "", nullptr, "LigerPlugin: liger_kernel, where one of its modules is asked for; CutCrossEntropyPlugin; SwanLabPlugin logs"},
      {"torch_compile", "compile", "auto=true,true=true,true=model,false=false"},
      {"adapter", "task", "lora=lora,qlora=qlora,*=!"},
      {"load_in_4bit", "base_weights", "true=nf4-double-quant,false=-", nullptr, "BitsAndBytesConfig with double quantization"},
      {"load_in_8bit", "base_weights", "true=int8,false=-"},
      {"lora_r", kCode, "", nullptr, "lora.r, where there is an adapter"},
      {"lora_alpha", kCode},
      {"lora_dropout", kCode},
      {"lora_target_modules", kCode, "", nullptr, "lora.target_modules; a text is a regular expression over whole paths"},
      {"lora_target_linear", kCode, "", nullptr, "lora.target_modules: every linear but the head, beside those that are listed"},
      {"lora_modules_to_save", kCode},
      {"peft_use_dora", kCode},
      {"lora_mlp_kernel", kCode, "", nullptr, "lora.mlp_kernel; on by itself since 0.9, and before 0.16 without dropout alone"},
      {"lora_qkv_kernel", kCode, "", nullptr, "lora.qkv_kernel; on by itself since 0.9, and before 0.16 without dropout alone"},
      {"lora_o_kernel", kCode, "", nullptr, "lora.o_kernel; on by itself since 0.9, and before 0.16 without dropout alone"},
      {"lora_embedding_kernel", kNothing, "", nullptr, "adapters of embeddings are refused on their own"},
      {"relora", kRefused, "false", nullptr, "ReLoRA"},
      {"unfrozen_parameters", kCode, "", nullptr,
       "trained_modules: those whose parameters' names an expression matches from their start; beside an adapter it freezes that too, an "
       "error"},
      {"freeze_mm_modules", kCode, "", nullptr, "trained_modules: all but towers and projectors; beside an adapter nothing more"},
      {"rl", kCode, "", nullptr, "dpo and ipo: task dpo; kto, orpo; simpo: task cpo; all others are refused"},
      {"reward_model", kCode, "", nullptr, "task reward"},
      {"num_labels", kCode, "", nullptr, "1, of reward_model; a head of classes is refused"},
      {"cpo_alpha", kCode, "", nullptr, "supervised_term, of simpo"},
      {"precompute_ref_log_probs", "reference", "true=precomputed,false=-"},
      {"rl_adapter_ref_model", kRefused, "false", nullptr, "a model of reference beside adapters"},
      {"rpo_alpha", kRefused, "null", nullptr, "a supervised loss beside DPO's (RPO)"},
      {"dpo_padding_free", kRefused, "false", nullptr, "pairs without padding"},
      {"dpo_use_liger_kernel", kRefused, "false", nullptr, "Liger's losses of preferences"},
      {"dpo_use_logits_to_keep", kRefused, "false", nullptr, "logits of the answers alone"},
      {"dpo_use_weighting", kRefused, "false", nullptr, "weights of pairs (WPO)"},
      {"dpo_generate_during_eval", kRefused, "false", nullptr, "answers written in evaluation"},
      {"qat", kRefused, "null", nullptr, "training that is aware of a quantization"},
      {"qat.*", kRefused, "", nullptr, "training that is aware of a quantization"},
      {"neftune_noise_alpha", kRefused, "null", nullptr, "noise on the embeddings (NEFTune)"},
      {"deepspeed", kCode, "", nullptr, "DeepSpeed's JSON"},
      {"deepspeed.*", kCode},
      {"deepcompile", kRefused, "false", nullptr, "DeepCompile"},
      {"fsdp", kCode, "", nullptr, "full_shard, auto_wrap …"},
      {"fsdp_version", kCode},
      {"fsdp_config", kCode, "", nullptr, "FSDP's keys"},
      {"fsdp_config.*", kCode},
      {"dp_shard_size", "dp_shard"},
      {"dp_replicate_size", "dp_replicate"},
      {"tensor_parallel_size", "tp"},
      {"context_parallel_size", "cp", "", nullptr, "ring attention"},
      {"sequence_parallel_degree", "cp", "", nullptr, "before 0.12"},
      {"expert_parallel_size", kRefused, "1", nullptr, "axolotl's expert parallelism"},
      {"ddp_bucket_cap_mb", "ddp.bucket_cap_mb"},
      {"ddp_find_unused_parameters", "ddp.find_unused_parameters"},
      {"processor_type", kCode, "", nullptr, "a batch's images, of a model that has a tower for them: told beside adapters, else refused"},
      {"device_map", kRefused, "auto", nullptr, "weights placed by hand"},
      {"embeddings_skip_upcast", kNothing},
      {"gc_steps", kNothing},
      {"datasets", kNothing},
      {"datasets.*", kNothing},
      {"test_datasets", kNothing},
      {"special_tokens", kNothing},
      {"special_tokens.*", kNothing},
  };
  return table;
}

int recognises(const Node& tree) {
  return 4 * count_of(tree, {"base_model"}) +
         count_of(tree, {"datasets", "sequence_len", "micro_batch_size", "sample_packing", "dataset_prepared_path"});
}

/// resolve_dtype, and what base.py (_configure_precision_settings) hands to the Trainer: autocast to bf16 for bf16 and bfloat16 alike, none for
/// `full`; fp16 goes before `auto`, and behind a bf16 that is on.
void read_precision(Reading& reading, const Node& tree) {
  if (reading.has("precision")) return;  // fp8
  const Node *bf16 = tree.find("bf16"), *fp16 = tree.find("fp16"), *other = tree.find("bfloat16");
  const bool full = bf16 && bf16->text == "full", automatic = !bf16 || bf16->text == "auto";
  if (full) return reading.say("precision", "pure-bf16", "bf16", bf16->where);
  if (!automatic && is_on(bf16)) return reading.say("precision", "bf16", "bf16", bf16->where);
  if (is_on(fp16) && is_on(other))
    refuse("not modelled: weights in bf16 under autocast to fp16 (bfloat16 beside fp16)", other->where, "one of the two");
  if (is_on(fp16)) return reading.say("precision", "fp16", "fp16", fp16->where);
  if (is_on(other)) return reading.say("precision", "bf16", "bfloat16", other->where);
  if (automatic) return bf16 ? reading.say("precision", "bf16", "bf16", bf16->where) : reading.assume("precision", "bf16", "bf16: auto", kRelease);
  if (is_on(tree.find("load_in_8bit")))
    refuse("not modelled: weights in fp16 without autocast, which axolotl takes for load_in_8bit where bf16 is off", bf16->where,
           "bf16: auto, or fp16: true");
  reading.assume("precision", "fp32", "bf16: false", kRelease);
}

void read_adapter(Reading& reading, const Node& tree) {
  const Node* adapter = tree.find("adapter");
  if (!adapter || adapter->is_null()) return;
  static const Rows table = {{"lora_r", "lora.r"},
                             {"lora_alpha", "lora.alpha"},
                             {"lora_dropout", "lora.dropout"},
                             {"lora_target_modules", "lora.target_modules"},
                             {"lora_modules_to_save", "lora.modules_to_save"},
                             {"peft_use_dora", "lora.use_dora"}};
  for (const Row& row : table) {
    const Node* value = tree.find(row.foreign);
    if (value && !value->is_null() && !value->word().empty()) reading.say(std::string(row.ours), value->word(), row.foreign, value->where);
  }
  const Node *linear = tree.find("lora_target_linear"), *targets = stated(tree, "lora_target_modules");
  if (!is_on(linear)) {
    if (targets && targets->is_scalar()) expand_expression(reading);
    return;
  }
  const std::string beside = reading.value("lora.target_modules");
  reading.forget("lora.target_modules");
  reading.say("lora.target_modules", "all-linear", "lora_target_linear", linear->where);
  name_linears(reading, beside);
}

/// Whether axolotl itself turns its kernels for adapters on (utils/schemas/config.py, check_auto_enable_lora_kernels): since 0.9 where none of
/// the switches is said, unless 8-bit weights, remote code or FSDP1, which is for several devices, stand against them.
bool turns_kernels_on(const Reading& reading, const Node& tree) {
  const Node* adapter = stated(tree, "adapter");
  if (!adapter || stated(tree, "rl")) return false;
  for (const char* key : {"lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel", "lora_embedding_kernel"})
    if (stated(tree, key)) return false;
  const std::optional<Release> release = reading.release_of(Package::axolotl);
  if (release && !release->since(0, 9)) return false;
  const bool int8 = adapter->text == "lora" && is_on(tree.find("load_in_8bit"));
  const Node *sharding = tree.find("fsdp_config"), *version = tree.find("fsdp_version"), *inner = tree.find("fsdp_config.fsdp_version");
  const bool second = (version && version->text == "2") || (inner && inner->text == "2");
  if (sharding && !sharding->is_null() && !second) return false;
  return !int8 && !is_on(tree.find("trust_remote_code"));
}

/// axolotl's autograd functions in the place of adapted linears; before 0.16 none where an adapter has dropout (apply_lora_kernel_patches).
void read_adapter_kernels(Reading& reading, const Node& tree) {
  if (!reading.has("task")) return;  // the switches are idle without an adapter
  const std::optional<Release> release = reading.release_of(Package::axolotl);
  const Node* dropout = stated(tree, "lora_dropout");
  if (release && !release->since(0, 16) && dropout && std::strtod(dropout->text.c_str(), nullptr) > 0) return;
  const bool by_itself = turns_kernels_on(reading, tree);
  static const Rows table = {{"lora_mlp_kernel", "lora.mlp_kernel"}, {"lora_qkv_kernel", "lora.qkv_kernel"}, {"lora_o_kernel", "lora.o_kernel"}};
  for (const Row& row : table) {
    const Node* value = tree.find(row.foreign);
    if (by_itself)
      reading.assume(std::string(row.ours), "true", std::string(row.foreign) + ": true", kRelease);
    else if (is_on(value))
      reading.say(std::string(row.ours), "true", row.foreign, value->where);
  }
}

/// loaders/model.py, _set_quantization_config: 4-bit weights lie in bf16; of some models in fp32, where nothing shards them.
void derive_storage(Reading& reading, const Node& tree) {
  if (!reading.is("task", "qlora") || !reading.has("base_weights")) return;
  const auto said = [&](const char* key) { return tree.find(key) && !tree.find(key)->is_null(); };
  const bool sharded = said("deepspeed") || said("fsdp") || said("fsdp_config");
  reading.when_model_is_known([sharded](Reading& known, const Model& model) {
    const bool in_fp32 = model.model_type == "jamba" || model.model_type == "qwen2_moe" || model.model_type == "nemotron_h";
    known.derive("bnb_4bit_quant_storage", in_fp32 && !sharded ? "fp32" : "bf16", "axolotl's BitsAndBytesConfig");
  });
}

/// loaders/model.py, _configure_embedding_dtypes: embeddings, head and norms are cast to fp32, and back where an adapter, FSDP or the
/// attention's kernel asks for it (attn_needs_dtype_cast). DeepSpeed's engine casts what it is given.
void refuse_mixed_weights(const Reading& reading, const Node& tree) {
  const bool sharded = reading.value("data_parallel").rfind("fsdp", 0) == 0 || reading.is("framework", "deepspeed");
  const std::string attention = reading.value("attention", "sdpa");
  const bool cast_back = (attention != "sdpa" && attention != "eager") || reading.is("loss", "cut-cross-entropy");
  if (stated(tree, "adapter") || sharded || cast_back || reading.is("precision", "fp32")) return;
  refuse("not modelled: embeddings, head and norms in fp32 beside layers in 16 bits, as axolotl leaves them in a full finetune with " +
             attention + " attention",
         tree.where, "attn_implementation: flash_attention_2, or FSDP or DeepSpeed");
}

/// Where checkpointing is on and nothing else is said of it: normalize_config has {"use_reentrant": True}, but not with `rl`, where
/// _configure_gradient_checkpointing takes False; activations that leave in a full finetune have wrappers around the layers (ac_wrap_hf_model),
/// which are torch's own.
void assume_reentrant(Reading& reading, const Node& tree) {
  if (!reading.is("recompute", "full") || stated(tree, "gradient_checkpointing_kwargs")) return;
  const Node* leaves = stated(tree, "activation_offloading");
  const bool wrapped = leaves && leaves->text != "false" && !stated(tree, "adapter");
  const std::string taken = stated(tree, "rl") || stated(tree, "unfrozen_parameters") || wrapped ? "false" : "true";
  reading.assume("recompute_reentrant", taken, "gradient_checkpointing_kwargs: {use_reentrant: " + taken + "}", kRelease);
}

/// Model types in the place of whose layers axolotl puts its own (loaders/patch_manager.py); for those of packed samples it takes the kernels
/// of flash-linear-attention or mamba-ssm.
void refuse_own_layers(Reading& said, const Node& tree) {
  static const std::vector<std::string> always = {"gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text", "voxtral", "apertus"},
                                        packed = {"nemotron_h", "falcon_h1", "granitemoehybrid", "qwen3_next", "qwen3_5", "qwen3_5_moe"};
  const bool packs = is_on(tree.find("sample_packing"));
  const Node* base = tree.find("base_model");
  said.when_model_is_known([packs, where = base ? base->where : tree.where](Reading&, const Model& model) {
    const auto is_of = [&](const std::vector<std::string>& types) { return std::find(types.begin(), types.end(), model.model_type) != types.end(); };
    if (is_of(always)) refuse("not modelled: axolotl's own layers of model type " + model.model_type, where);
    if (packs && is_of(packed))
      refuse("not modelled: axolotl's own layers of model type " + model.model_type + " for packed samples, whose kernels are another package's", where,
             "sample_packing: false");
  });
}

bool has_windows(const Model& model) {
  return std::any_of(model.blocks.begin(), model.blocks.end(),
                     [](const Block& block) { return block.attention && block.attention->sliding_window.has_value(); });
}

/// loaders/patch_manager.py, _apply_sdpa_varlen_patch: rows that hold several samples go through torch's varlen_attn where sdpa was asked
/// for, the heads are narrow enough and no layer has a window.
void refuse_varlen(Reading& said, const Node& tree) {
  const Node *own = tree.find("sdpa_varlen"), *packing = tree.find("sample_packing");
  if (!said.is("attention", "sdpa") || !is_on(packing) || (own && own->text == "false")) return;
  said.when_model_is_known([where = packing->where](Reading&, const Model& model) {
    constexpr std::int64_t kWidestHead = 256;
    if (model.head_dim > kWidestHead || has_windows(model)) return;
    refuse("not modelled: torch's varlen_attn, which axolotl takes for packed samples with sdpa", where,
           "attn_implementation: flash_attention_2, or sdpa_varlen: false");
  });
}

/// With a processor a batch has images, which go through the tower. Beside adapters of the language model it is frozen and keeps nothing.
void read_images(Reading& said, const Node& tree) {
  const Node* processor = stated(tree, "processor_type");
  if (!processor) return;
  const bool towers = is_on(tree.find("freeze_mm_modules"));
  said.when_model_is_known([where = processor->where, name = processor->word().substr(0, 40), towers](Reading& reading,
                                                                                                      const Model& model) {
    if (!sees_images(model)) return;
    if (!reading.has("lora.r") && !towers)
      refuse("not modelled: images in training of all weights, the tower's too (processor_type: " + name + ")", where, "leave it out: text alone is played");
    reading.leave_unknown("processor_type: " + name + " (a batch's images, and the frozen tower that reads them, not modelled)", where);
  });
}

/// train.py: freeze_layers_except, then freeze_mm_modules. Where a list names the head or the embeddings, enable_input_require_grads makes
/// the embeddings' output a leaf, which is one anyway where the embeddings are trained.
void read_frozen(Reading& reading, const Node& tree) {
  const Node *list = stated(tree, "unfrozen_parameters"), *towers = tree.find("freeze_mm_modules");
  if (list) {
    std::vector<std::string> patterns;
    bool asks = false, embeddings = false;
    const auto add = [&](const std::string& pattern) {
      patterns.push_back(pattern);
      asks = asks || pattern.find("lm_head") != std::string::npos;
      const auto has = [&](const char* part) { return pattern.find(part) != std::string::npos; };
      embeddings = embeddings || has("embed_tokens") || (!has("layers") && !has("lm_head"));
    };
    if (list->is_list()) {
      for (const auto& [unused, pattern] : list->members) add(pattern.word());
    } else {
      add(list->word());
    }
    if (asks && !embeddings)
      refuse(
          "not modelled: layers below the first that is trained, whose activations stay because axolotl makes the embeddings' output ask "
          "for a gradient",
          list->where, "a list without lm_head, or with embed_tokens");
    train_matched(reading, patterns, "unfrozen_parameters", list->where);
  }
  if (is_on(towers) && !stated(tree, "adapter") && !list) train_language_alone(reading, "axolotl", {{}, towers->where});
}

/// overrides_of_model_config: of a mixture the routers' auxiliary loss; what else it says makes another model.
void read_model_config(Reading& reading, const Node& tree) {
  const Node* config = stated(tree, "model_config");
  if (!config || !config->is_table()) return;
  for (const auto& [name, value] : config->members) {
    if (name != "output_router_logits")
      refuse("not modelled: another configuration of the model, found model_config." + name.substr(0, 40), value.where,
             "leave it out, or give the model's config.json");
    read_router_loss(reading, &value, "model_config.output_router_logits");
  }
}

/// core/builders/causal.py tells DDP itself whether it looks for unused parameters; that of preferences leaves it to the Trainer.
void assume_unused_parameters(Reading& reading, const Node& tree) {
  const std::string kind = reading.value("data_parallel");
  if (!stated(tree, "rl") && (kind.empty() || kind == "ddp"))
    reading.assume("ddp.find_unused_parameters", "false", "ddp_find_unused_parameters: false", kRelease);
}

constexpr std::pair<const char*, const char*> kLigerModules[] = {
    {"liger_rope", "liger_rope"}, {"liger_rms_norm", "liger_rms_norm"}, {"liger_glu", "liger_glu_activation"}};

/// LigerPlugin.pre_model_load: what its configuration does not say is none of it, the loss neither.
void read_liger(Reading& reading, const std::string& where) {
  const bool any = std::any_of(std::begin(kLigerModules), std::end(kLigerModules), [&](const auto& each) { return reading.is(each.first, "true"); });
  for (const auto& [key, foreign] : kLigerModules)
    if (!any)
      reading.forget(key);
    else if (!reading.has(key))
      reading.assume(key, "false", std::string(foreign) + ": null", kRelease);
  if (!any) return;
  reading.say("liger_kernel", "true", "plugins", where);
  if (!reading.has("loss")) reading.assume("loss", "ce", "liger_fused_linear_cross_entropy: null", kRelease);
}

/// axolotl's own schema has no keys of Liger's: it drops them.
void drop_liger(Reading& reading, const Node& tree) {
  const auto drop = [&](const char* foreign) {
    if (const Node* value = tree.find(foreign); is_on(value)) reading.leave_unread(std::string(foreign) + " (its plugin is not listed)", value->where);
  };
  for (const auto& [key, foreign] : kLigerModules) {
    reading.forget(key);
    drop(foreign);
  }
  if (reading.is("loss", "liger") || reading.is("loss", "liger-fused-linear")) reading.forget("loss");
  for (const char* loss : {"liger_cross_entropy", "liger_fused_linear_cross_entropy"}) drop(loss);
}

/// Cut cross entropy is on where its plugin is there and nobody says no; SwanLab, like Weights & Biases, keeps what was logged.
void read_plugins(Reading& reading, const Node& tree) {
  const Node* plugins = tree.find("plugins");
  const auto is = [](const Node& plugin, const char* name) { return plugin.word().find(name) != std::string::npos; };
  std::optional<std::string> liger;
  if (plugins != nullptr)
    for (const auto& [unused, plugin] : plugins->members) {
      if (is(plugin, "SwanLabPlugin")) continue;
      if (is(plugin, "LigerPlugin")) {
        liger = plugin.where;
      } else if (is(plugin, "CutCrossEntropyPlugin")) {
        const Node* on = tree.find("cut_cross_entropy");
        if (!on || is_on(on)) reading.say("loss", "cut-cross-entropy", "plugins", plugin.where);
      } else {
        refuse("axolotl's plugin " + plugin.word().substr(0, 100) + " is not modelled", plugin.where);
      }
    }
  if (liger)
    read_liger(reading, *liger);
  else
    drop_liger(reading, tree);
}

void read_sharding(Reading& reading, const Node& tree) {
  const Node *fsdp = tree.find("fsdp"), *config = tree.find("fsdp_config"), *version = tree.find("fsdp_version"),
             *deepspeed = tree.find("deepspeed");
  if (deepspeed && !deepspeed->is_null()) {
    reading.assume("framework", "deepspeed", "deepspeed", kRelease);
    return read_deepspeed_reference(reading, *deepspeed);
  }
  reading.assume("framework", "accelerate", "transformers' Trainer", kRelease);
  if ((!fsdp || fsdp->is_null()) && (!config || config->is_null())) return;
  const bool second = version && version->text == "2";
  if (!version || version->is_null()) reading.assume("data_parallel", "fsdp1", "fsdp_version: 1", kRelease);
  if (version && !version->is_null()) reading.say("data_parallel", second ? "fsdp2" : "fsdp1", "fsdp_version", version->where);
  if (fsdp && fsdp->is_list())
    for (const auto& [unused, word] : fsdp->members)
      if (word.text == "offload") reading.say("offload", "params+grads+optimizer", "fsdp", word.where);
  if (!fsdp || fsdp->is_null() || fsdp->word().find("auto_wrap") != std::string::npos)  // without the list it hands over `fsdp: true`
    reading.derive("auto_wrap", "true", "axolotl's fsdp");
  read_fsdp(reading, config ? *config : Node{}, "fsdp_config.", 1, kTrainer);
}

/// Its trainers are TRL's (core/builders/rl.py): of 0.19 those of TRL 1.9.
void read_preferences(Reading& reading, const Node& tree) {
  const Node *rl = stated(tree, "rl"), *reward = tree.find("reward_model");
  const bool rewards = is_on(reward);
  const Node* labels = stated(tree, "num_labels");
  if (labels && !(rewards && labels->word() == "1"))
    refuse("not modelled: a head of classes, found num_labels: " + labels->word().substr(0, 20), labels->where,
           "reward_model: true with num_labels: 1");
  if (!rl && !rewards) return;
  static const std::pair<const char*, const char*> tasks[] = {{"dpo", "dpo"}, {"ipo", "dpo"}, {"kto", "kto"}, {"orpo", "orpo"}, {"simpo", "cpo"}};
  const std::string word = rewards ? "reward" : rl->word(), where = rewards ? reward->where : rl->where;
  std::string task = rewards ? "reward" : "";
  for (const auto& [theirs, ours] : tasks)
    if (word == theirs) task = ours;
  if (task.empty()) refuse("not modelled: training by preferences or rewards as axolotl's rl: " + word.substr(0, 40), where, "dpo, ipo, kto, orpo or simpo");
  reading.forget("task");
  reading.say("task", task, rewards ? "reward_model" : "rl", where);
  if (task == "cpo") read_supervised_term(reading, tree);
  const std::optional<Release> release = reading.release_of(Package::axolotl);
  const bool read_one = !release || release->since(0, 19);
  if (read_one && !reading.release_of(Package::trl)) reading.derive("releases.trl", "1.9", "what axolotl 0.19 requires");
}

void read(Reading& reading, const Node& tree) {
  read_rows(reading, rows(), *Schema::of("axolotl"), tree, Unknown::dropped);  // pydantic ignores what it does not know
  read_plugins(reading, tree);
  read_model_config(reading, tree);
  assume_reentrant(reading, tree);
  read_precision(reading, tree);
  read_adapter(reading, tree);
  read_adapter_kernels(reading, tree);
  read_images(reading, tree);
  refuse_own_layers(reading, tree);
  refuse_varlen(reading, tree);
  read_frozen(reading, tree);
  derive_storage(reading, tree);
  read_sharding(reading, tree);
  refuse_mixed_weights(reading, tree);
  if (const Node* offloading = tree.find("activation_offloading"); offloading && !offloading->is_null() && offloading->text != "false") {
    if (offloading->text != "true")
      refuse("activation_offloading: " + offloading->word().substr(0, 40) + " is not modelled", offloading->where, "true");
    reading.say("activation_offload", "trl", "activation_offloading", offloading->where);
  }
  const bool sharded = reading.value("data_parallel").rfind("fsdp", 0) == 0;
  if (!sharded && reading.is("framework", "accelerate") && (reading.is("precision", "bf16") || reading.is("precision", "fp16")))
    reading.derive("param_dtype", reading.value("precision"), "axolotl loads the weights in the type it trains in");
  reading.derive("checkpoint.auto_class", "AutoModelForImageTextToText,AutoModelForCausalLM", "axolotl's loader (is_multimodal)");
  take_defaults(reading, rows(), kRelease);
  if (!reading.has("recompute")) reading.assume("recompute", "none", "gradient_checkpointing: false", kRelease);
  read_preferences(reading, tree);
  assume_unused_parameters(reading, tree);
  complete_trainer(reading);
}

}  // namespace

Format axolotl_format() { return {"axolotl", "axolotl's YAML", kRelease, rows, recognises, read}; }

}  // namespace plimsoll::formats
