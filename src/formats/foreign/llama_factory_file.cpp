// LLaMA-Factory's YAML (llamafactory/hparams): TrainingArguments with arguments of its own.
#include <algorithm>
#include <string_view>

#include "formats/foreign/format.hpp"
#include "formats/foreign/router_loss.hpp"
#include "formats/foreign/schema.hpp"
#include "formats/foreign/trained_modules.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRelease = "LLaMA-Factory 0.9.4";

/// Model types whose routers' logits it asks for (model/model_utils/moe.py, configure_moe).
constexpr const char* kBalancedTypes = "dbrx,ernie4_5_moe,granitemoe,jamba,jetmoe,llama4,mixtral,olmoe,phimoe,qwen2_moe,qwen3_moe";

/// What it has beside TrainingArguments.
const Rows& rows() {
  static const Rows table = {
      {"model_name_or_path", "model"},
      {"finetuning_type", "task", "lora=lora,full=full,freeze=!,oft=!", "lora"},
      {"moe_aux_loss_coef", kCode, "", nullptr, "the routers' auxiliary loss of a mixture, where it is said"},
      {"stage", kCode, "", nullptr, "sft and pt: the next token; dpo, with pref_loss, and kto: task; rm and ppo are refused"},
      {"pref_loss", kCode, "", nullptr, "stage dpo: orpo and simpo are tasks orpo and cpo, all others dpo"},
      {"ref_model", kRefused, "null", nullptr, "a reference that is another model"},
      {"ref_model_adapters", kRefused, "null", nullptr, "a reference with adapters of its own"},
      {"ref_model_quantization_bit", kRefused, "null", nullptr, "a reference of other weights"},
      {"cutoff_len", "seq_len", "", "2048"},
      {"packing", "packed"},
      {"neat_packing", "packed", "", nullptr, "with flash_attn: fa2 or fa3 alone: masks of blocks are refused"},
      {"flash_attn", "attention", "auto=-,off=eager,disabled=eager,sdpa=sdpa,fa2=flash,fa3=flash-3"},
      {"disable_gradient_checkpointing", "recompute", "true=none,false=full", "false"},
      {"use_reentrant_gc", "recompute_reentrant", "", "true", "under FSDP2 false"},
      {"enable_liger_kernel", "liger_kernel", "", "false"},
      {"liger_kernel_config.*", kNothing, "", nullptr, "of the Trainer's own use_liger_kernel; apply_liger_kernel patches with arguments of LLaMA-Factory's"},
      {"lora_rank", kCode, "", nullptr, "lora.r, 8 unless said"},
      {"lora_alpha", kCode, "", nullptr, "lora.alpha, 2 · rank unless said"},
      {"lora_dropout", kCode},
      {"lora_target", kCode, "", nullptr, "lora.target_modules; all: all-linear"},
      {"additional_target", kCode, "", nullptr, "lora.modules_to_save"},
      {"use_dora", kCode},
      {"use_rslora", kNothing},
      {"quantization_bit", kCode, "", nullptr, "base_weights: 4 nf4, 8 int8"},
      {"double_quantization", kCode, "", nullptr, "base_weights nf4-double-quant; true unless said"},
      {"quantization_type", kRefused, "nf4,fp4", nullptr, "this type of 4-bit weights"},
      {"quantization_method", kRefused, "bitsandbytes,bnb", nullptr, "this quantization"},
      {"pure_bf16", kCode, "", nullptr, "precision pure-bf16"},
      {"upcast_layernorm", kRefused, "false", nullptr, "norms in fp32"},
      {"use_unsloth", kRefused, "false", nullptr, "Unsloth"},
      {"use_unsloth_gc", kRefused, "false", nullptr, "Unsloth's checkpointing"},
      {"use_galore", kRefused, "false", nullptr, "GaLore"},
      {"use_apollo", kRefused, "false", nullptr, "APOLLO"},
      {"use_badam", kRefused, "false", nullptr, "BAdam"},
      {"use_adam_mini", kRefused, "false", nullptr, "Adam-mini"},
      {"use_muon", kRefused, "false", nullptr, "LLaMA-Factory's Muon"},
      {"use_llama_pro", kRefused, "false", nullptr, "block expansion (LLaMA Pro)"},
      {"use_mca", kRefused, "false", nullptr, "Megatron-core's adapter"},
      {"use_megatron_bridge", kRefused, "false", nullptr, "Megatron-Bridge under LLaMA-Factory"},
      {"use_v1_kernels", kCode, "", nullptr, "of a mixture refused: its experts by Triton; on a GPU there are no others"},
      {"use_kt", kRefused, "false", nullptr, "KTransformers"},
      {"mixture_of_depths", kRefused, "null", nullptr, "a mixture of depths"},
      {"shift_attn", kRefused, "false", nullptr, "shifted attention (LongLoRA)"},
      {"fp8", kCode, "", nullptr, "precision fp8, beside bf16"},
      {"fp8_backend", kNothing},
      {"fp8_enable_fsdp_float8_all_gather", kNothing},
      {"template", kNothing},
      {"dataset", kNothing},
      {"dataset_dir", kNothing},
      {"max_samples", kNothing},
      {"overwrite_cache", kNothing},
      {"preprocessing_num_workers", kNothing},
      {"plot_loss", kNothing},
  };
  return table;
}

int recognises(const Node& tree) {
  return 12 * count_of(tree, {"finetuning_type", "cutoff_len", "lora_target"}) +
         count_of(tree, {"stage", "template", "dataset", "model_name_or_path"});
}

void read_adapter(Reading& reading, const Node& tree) {
  if (!reading.is("task", "lora")) return;
  static const Rows table = {{"lora_rank", "lora.r", "", "8"},
                             {"lora_alpha", "lora.alpha"},
                             {"lora_dropout", "lora.dropout", "", "0.0"},
                             {"lora_target", "lora.target_modules", "all=all-linear,*", "all"},
                             {"additional_target", "lora.modules_to_save"},
                             {"use_dora", "lora.use_dora"}};
  read_rows(reading, table, [&] {
    Node own = Node::table(tree.where);
    for (const Row& row : table)
      if (const Node* value = tree.find(row.foreign)) own.members.emplace_back(row.foreign, *value);
    return own;
  }());
  take_defaults(reading, table, kRelease);
  name_linears(reading);  // find_all_linear_modules
  if (!reading.has("lora.alpha")) reading.derive("lora.alpha", std::to_string(2 * reading.count("lora.r")), "lora_alpha: 2 · lora_rank");
}

/// prepare_model_for_training: use_reentrant_gc, but false under FSDP2, which Accelerate's file may tell.
void read_reentrant(Reading& said) {
  said.when_model_is_known([](Reading& reading, const Model&) {
    if (!reading.is("data_parallel", "fsdp2")) return;
    reading.forget("recompute_reentrant");
    reading.derive("recompute_reentrant", "false", "LLaMA-Factory under FSDP2 (prepare_model_for_training)");
  });
}

/// SFTDataCollatorWith4DAttentionMask: a mask of tokens by tokens, unless the kernel of flash-attn takes the sequences' lengths.
void require_no_block_mask(const Reading& reading, const Node& tree) {
  const Node* neat = tree.find("neat_packing");
  if (is_on(neat) && reading.value("attention").rfind("flash", 0) != 0)
    refuse("not modelled: attention under a mask of blocks (neat_packing beside " + reading.value("attention", "sdpa") + ")", neat->where,
           "flash_attn: fa2");
}

/// Without bf16 and fp16 it loads frozen weights in their checkpoint's 16 bits (patcher.py, infer_optim_dtype), and nothing is cast around them.
void require_autocast(Reading& said, const Node& tree) {
  const std::string where = tree.where;
  said.when_model_is_known([where](Reading& reading, const Model&) {
    if (reading.value("precision", "fp32") == "fp32" && reading.is("framework", "accelerate"))
      refuse("not modelled: adapters in fp32 beside weights in 16 bits without autocast, as LLaMA-Factory trains where neither bf16 nor fp16 is on",
             where, "bf16: true");
  });
}

void read_quantization(Reading& reading, const Node& tree) {
  const Node *bits = tree.find("quantization_bit"), *twice = tree.find("double_quantization");
  if (!bits || bits->is_null()) return;
  const bool single = twice && twice->text == "false";
  if (bits->text != "4" && bits->text != "8")
    refuse("weights of " + bits->text.substr(0, 20) + " bits are not modelled", bits->where, "4 or 8");
  reading.say("base_weights", bits->text == "8" ? "int8" : single ? "nf4" : "nf4-double-quant", "quantization_bit", bits->where);
}

/// Files for `chat`, `api` and `export` have the same keys of a model, and none of a training.
void require_training(const Node& tree) {
  const Node* trains = tree.find("do_train");
  for (const char* other : {"do_predict", "do_eval"})
    if (const Node* value = tree.find(other); is_on(value) && !is_on(trains))
      fail(std::string("a file with ") + other + " and without do_train does not train", value->where, "do_train: true");
  if (count_of(tree, {"stage", "do_train", "dataset", "tokenized_path", "per_device_train_batch_size", "learning_rate", "num_train_epochs", "max_steps",
                      "cutoff_len"}) > 0)
    return;
  for (const char* other : {"export_dir", "infer_backend", "infer_dtype"})
    if (const Node* value = tree.find(other)) fail(std::string("a file with ") + other + " and without stage and dataset does not train", value->where);
  fail("says nothing of a training: neither stage nor dataset", tree.where, "give the file that trains");
}

/// CustomDPOTrainer learns by ORPO and SimPO, too.
std::string task_of_pairs(const Node& tree) {
  static constexpr std::string_view kCompared[] = {"sigmoid", "hinge", "ipo", "kto_pair"};
  const Node* loss = stated(tree, "pref_loss");
  const std::string word = loss ? loss->word() : "sigmoid";
  if (word == "orpo") return "orpo";
  if (word == "simpo") return "cpo";
  if (std::find(std::begin(kCompared), std::end(kCompared), word) == std::end(kCompared))
    fail("expected sigmoid, hinge, ipo, kto_pair, orpo or simpo, found '" + word.substr(0, 40) + "'", loss->where);
  return "dpo";
}

/// The task of preferences takes the place of the one that finetuning_type said, which adapters have told by now.
void read_stage(Reading& reading, const Node& tree) {
  const Node* stage = stated(tree, "stage");
  const std::string word = stage ? stage->word() : "sft";
  if (word == "sft" || word == "pt") return;
  if (word == "rm") refuse("not modelled: LLaMA-Factory's reward model, whose value head stands beside the language model's", stage->where, "stage: dpo or kto");
  if (word == "ppo") refuse("not modelled: training by rewards while answers are written (stage: ppo)", stage->where, "stage: dpo or kto");
  if (word != "dpo" && word != "kto") fail("expected pt, sft, rm, ppo, dpo or kto, found '" + word.substr(0, 40) + "'", stage->where);
  reading.forget("task");
  reading.say("task", word == "kto" ? word : task_of_pairs(tree), "stage", stage->where);
  reading.derive("trainer", "llama-factory", "LLaMA-Factory's own forward (train/dpo/trainer.py, train/kto/trainer.py)");
}

/// FinetuningArguments: freeze_vision_tower and freeze_multi_modal_projector are on.
TowerKeys tower_keys(const Node& tree) {
  for (const char* key : {"freeze_vision_tower", "freeze_multi_modal_projector"})
    if (const Node* value = stated(tree, key); value && !is_on(value)) return {std::string(key) + ": false", value->where};
  return {{}, tree.where};
}

/// apply_default_kernels: those that are registered for the accelerator; on a GPU cuda_fused_moe alone, which leaves dense models as they
/// are.
void refuse_fused_experts(Reading& said, const Node& tree) {
  const Node* kernels = tree.find("use_v1_kernels");
  if (!kernels || kernels->is_null() || kernels->word() == "false") return;
  said.when_model_is_known([where = kernels->where](Reading&, const Model& model) {
    if (model.has_experts()) refuse("not modelled: experts by LLaMA-Factory's own kernels, found use_v1_kernels", where, "set it to false");
  });
}

/// _setup_full_tuning upcasts what is trained alone; DeepSpeed's engine casts all to one type.
void refuse_mixed_towers(Reading& said, const Node& tree) {
  said.when_model_is_known([where = tree.where](Reading& reading, const Model& model) {
    const bool upcast = reading.is("framework", "accelerate") && reading.is("param_dtype", "fp32") && !reading.has("lora.r");
    if (sees_images(model) && upcast)
      refuse("not modelled: a frozen vision tower in 16 bits beside a language model in fp32, as LLaMA-Factory trains without DeepSpeed",
             where, "deepspeed, or pure_bf16: true");
  });
}

void read(Reading& reading, const Node& tree) {
  require_training(tree);
  train_language_alone(reading, "LLaMA-Factory", tower_keys(tree));
  const auto [own, rest] = split_own(tree, rows(), "llama-factory");
  read_rows(reading, rows(), *Schema::of("llama-factory"), own);
  take_defaults(reading, rows(), kRelease);
  read_router_loss(reading, own.find("moe_aux_loss_coef"), "moe_aux_loss_coef", kBalancedTypes);
  read_adapter(reading, tree);
  read_quantization(reading, tree);
  if (const Node* low = tree.find("fp8"); is_on(low))
    reading.overriding([&] { reading.say("precision", "fp8", "fp8", low->where); });
  // Beside bf16 it leaves the weights in 16 bits, and Accelerate autocasts all the same.
  if (const Node* pure = tree.find("pure_bf16"); is_on(pure))
    is_on(tree.find("bf16")) ? reading.say("param_dtype", "bf16", "pure_bf16", pure->where)
                             : reading.say("precision", "pure-bf16", "pure_bf16", pure->where);
  read_training_arguments(reading, rest);
  read_reentrant(reading);
  require_no_block_mask(reading, tree);
  if (reading.is("task", "lora")) {
    require_autocast(reading, tree);
    reading.assume("ddp.find_unused_parameters", "false", "ddp_find_unused_parameters: false with LoRA", kRelease);
  }
  const bool half = reading.is("precision", "bf16") || reading.is("precision", "fp16") || reading.is("precision", "pure-bf16");
  if (reading.value("base_weights").rfind("nf4", 0) == 0 && half)
    reading.derive("bnb_4bit_quant_storage", reading.is("precision", "fp16") ? "fp16" : "bf16",
                   "LLaMA-Factory's BitsAndBytesConfig (model/model_utils/quantization.py): the type it computes in");
  const bool adapters = reading.is("task", "lora"), alone = reading.is("framework", "accelerate");
  if (!adapters && alone && !reading.is("precision", "pure-bf16"))
    reading.derive("param_dtype", "fp32", "LLaMA-Factory upcasts what is trained (model/adapter.py, cast_trainable_params_to_fp32)");
  if (adapters && alone && (reading.is("precision", "bf16") || reading.is("precision", "fp16")))
    reading.derive("param_dtype", reading.value("precision"), "LLaMA-Factory loads frozen weights in the type it trains in");
  refuse_fused_experts(reading, tree);
  refuse_mixed_towers(reading, tree);
  reading.derive("checkpoint.auto_class", "AutoModelForImageTextToText,AutoModelForCausalLM", "LLaMA-Factory's loader (model/loader.py)");
  read_stage(reading, tree);
}

}  // namespace

Format llama_factory_format() { return {"llama-factory", "LLaMA-Factory's YAML", kRelease, rows, recognises, read}; }

}  // namespace plimsoll::formats
