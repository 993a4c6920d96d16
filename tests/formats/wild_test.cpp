// Files of every format in our own words, of kinds that were misread or refused in the wild: what each must become is told by its program's
// source, named beside it. A case is a file; keys that are not listed are not asserted.
#include <gtest/gtest.h>

#include "wild.hpp"

namespace plimsoll {
namespace {

class WildFiles : public testing::TestWithParam<Wild> {};

TEST_P(WildFiles, AreReadTrulyOrRefused) { expect_read_truly(GetParam()); }

// ---- axolotl (axolotl/utils/schemas of 0.19) ----------------------------------------------------------------------------------
const std::string kAxolotl =
    "base_model: NousResearch/Llama-3.2-1B\nsequence_len: 1024\nmicro_batch_size: 2\nattn_implementation: flash_attention_2\n";

Wild axolotl(const std::string& what, const std::string& more, Keys keys, const std::string& refusal = {}) {
  return {"axolotl, " + what, "a.yml", kAxolotl + more, "", std::move(keys), refusal};
}

// ---- TrainingArguments (transformers/training_args.py of 5.24, TRL 1.16) ------------------------------------------------------
const std::string kArguments = "model_name_or_path: meta-llama/Llama-3.2-1B\nper_device_train_batch_size: 2\nmax_length: 1024\nbf16: true\n";

Wild trainer(const std::string& what, const std::string& more, Keys keys, const std::string& refusal = {}) {
  return {"transformers, " + what, "t.yaml", kArguments + more, "", std::move(keys), refusal};
}

// ---- LLaMA-Factory (llamafactory/hparams of 0.9.5) ----------------------------------------------------------------------------
const std::string kFactory = "model_name_or_path: meta-llama/Llama-3.2-1B\nstage: sft\ncutoff_len: 1024\nper_device_train_batch_size: 2\nbf16: true\n";

Wild factory(const std::string& what, const std::string& more, Keys keys, const std::string& refusal = {}) {
  return {"llama-factory, " + what, "l.yaml", kFactory + more, "", std::move(keys), refusal};
}

// ---- torchtitan's TOML (torchtitan/config/job_config.py of 0.2.2) -------------------------------------------------------------
const std::string kTitan = "[model]\nname = \"llama3\"\nflavor = \"8B\"\n";

Wild titan(const std::string& what, const std::string& more, Keys keys, const std::string& refusal = {}) {
  return {"torchtitan, " + what, "t.toml", kTitan + more, "", std::move(keys), refusal};
}

// ---- torchtune (recipes/full_finetune_distributed.py) -------------------------------------------------------------------------
const std::string kTune =
    "model: {_component_: torchtune.models.llama3_2.llama3_2_1b}\ntokenizer: {_component_: torchtune.models.llama3.llama3_tokenizer, max_seq_len: 1024}\n"
    "optimizer: {_component_: torch.optim.AdamW}\nbatch_size: 2\ndtype: bf16\n";

Wild tune(const std::string& what, const std::string& more, Keys keys, const std::string& refusal = {}) {
  return {"torchtune, " + what, "r.yaml", kTune + more, "", std::move(keys), refusal};
}

// ---- Accelerate (accelerate/commands/config/config_args.py of 1.15) -----------------------------------------------------------
const std::string kAccelerate = "compute_environment: LOCAL_MACHINE\nmixed_precision: bf16\nnum_processes: 8\n";

Wild accelerate(const std::string& what, const std::string& more, Keys keys, const std::string& refusal = {}) {
  return {"accelerate, " + what, "a.yaml", kAccelerate + more, "llama-3.2-1b", std::move(keys), refusal};
}

// ---- DeepSpeed (deepspeed/runtime/config.py of 0.19) --------------------------------------------------------------------------
Wild deepspeed(const std::string& what, const std::string& text, Keys keys, const std::string& refusal = {}) {
  return {"deepspeed, " + what, "d.json", text, "llama-3.2-1b", std::move(keys), refusal};
}

// ---- Primus (primus/configs/modules/megatron of 2026-08) ----------------------------------------------------------------------
Wild primus(const std::string& what, const std::string& more, Keys keys, const std::string& refusal = {}) {
  return {"primus, " + what, "p.yaml",
          "work_group: a\nexp_name: b\nmodules:\n  pre_trainer:\n    framework: megatron\n    model: llama3.1_8B.yaml\n    overrides:\n"
          "      seq_length: 2048\n      micro_batch_size: 1\n      global_batch_size: 8\n" + more,
          "", std::move(keys), refusal};
}

// ---- Megatron-LM (megatron/training/arguments.py of 2026-08) ------------------------------------------------------------------
Wild megatron(const std::string& what, const std::string& more, Keys keys, const std::string& refusal = {}) {
  return {"megatron, " + what, "m.sh",
          "#!/bin/bash\ntorchrun --nproc_per_node 8 pretrain_gpt.py --bf16 --num-layers 4 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024 "
          "--max-position-embeddings 1024 --vocab-size 32000 --micro-batch-size 1 --global-batch-size 8 " + more + "\n",
          "", std::move(keys), refusal};
}

// ---- NeMo 1 (OmegaConf; nemo_launcher's resolvers) ----------------------------------------------------------------------------
Wild nemo(const std::string& what, const std::string& more, Keys keys, const std::string& refusal = {}) {
  return {"nemo, " + what, "n.yaml",
          "trainer: {devices: 8, num_nodes: 1, precision: bf16}\nexp_manager: {explicit_log_dir: \"${base_results_dir}/x\"}\nmodel:\n  micro_batch_size: 1\n"
          "  global_batch_size: 16\n  encoder_seq_length: 1024\n  num_layers: 4\n  hidden_size: 1024\n  num_attention_heads: 8\n  vocab_size: 32000\n"
          "  max_position_embeddings: 1024\n  data: {data_prefix: \"${data_dir}/x\"}\n" + more,
          "gpt2", std::move(keys), refusal};
}

// ---- PEFT and config.json -----------------------------------------------------------------------------------------------------
Wild peft(const std::string& what, const std::string& text, Keys keys, const std::string& refusal = {}) {
  return {"peft, " + what, "adapter_config.json", text, "llama-3.2-1b", std::move(keys), refusal};
}

const std::string kConfig =
    R"("model_type": "llama", "hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 1024)";

Wild config(const std::string& what, const std::string& more, Keys keys, const std::string& refusal = {}) {
  return {"config, " + what, "config.json", "{" + kConfig + more + "}", "", std::move(keys), refusal};
}

const Wild kWild[] = {
    axolotl("adapters under FSDP1, which axolotl's kernels leave alone",
            "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\nfsdp: [full_shard, auto_wrap]\n"
            "fsdp_config: {fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer}\n",
            {{"task", "qlora"}, {"data_parallel", "fsdp1"}, {"bnb_4bit_quant_storage", "bf16"}, {"fsdp.units", "LlamaDecoderLayer"}}),
    axolotl("adapters under FSDP2, which it has kernels for",
            "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_target_linear: true\nfsdp_version: 2\n"
            "fsdp_config: {transformer_layer_cls_to_wrap: LlamaDecoderLayer}\n",
            {{"data_parallel", "fsdp2"}, {"lora.mlp_kernel", "true"}}),
    {"axolotl, embeddings in fp32 beside the layers", "a.yml", "base_model: NousResearch/Llama-3.2-1B\nmicro_batch_size: 2\nsequence_len: 1024\n", "", {},
     "embeddings, head and norms in fp32"},
    {"axolotl, embeddings that DeepSpeed casts", "a.yml",
     "base_model: NousResearch/Llama-3.2-1B\nmicro_batch_size: 2\nsequence_len: 1024\ndeepspeed: {zero_optimization: {stage: 1}, bf16: {enabled: true}}\n", "",
     {{"framework", "deepspeed"}, {"zero_stage", "1"}}, ""},
    axolotl("code of the hub", "trust_remote_code: true\n", {{"seq_len", "1024"}}),
    axolotl("nothing else", "", {{"seq_len", "1024"}, {"micro_batch", "2"}, {"precision", "bf16"}, {"recompute", "none"}, {"optimizer", "adamw"}}),
    axolotl("underscores in numbers", "gradient_accumulation_steps: 1_0\n", {{"grad_accum", "10"}}),
    axolotl("octal numbers", "gradient_accumulation_steps: 010\n", {{"grad_accum", "8"}}),
    axolotl("hexadecimal numbers", "gradient_accumulation_steps: 0x10\n", {{"grad_accum", "16"}}),
    axolotl("re-entrant checkpoints by default", "gradient_checkpointing: true\n", {{"recompute", "full"}, {"recompute_reentrant", "true"}}),
    axolotl("checkpoints told", "gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n", {{"recompute_reentrant",
            "false"}}),
    axolotl("no checkpoints", "gradient_checkpointing: false\n", {{"recompute", "none"}, {"recompute_reentrant", "(nothing)"}}),
    axolotl("a misspelt switch", "gradient_checkpoiting: true\n", {}, "did you mean 'gradient_checkpointing'?"),
    axolotl("a misspelt batch", "micro_batchsize: 4\n", {}, "did you mean 'micro_batch_size'?"),
    axolotl("kernels by default", "adapter: lora\nlora_r: 8\nlora_target_linear: true\n",
            {{"lora.mlp_kernel", "true"}, {"lora.qkv_kernel", "true"}, {"lora.o_kernel", "true"}}),
    axolotl("kernels asked for", "adapter: lora\nlora_r: 8\nlora_qkv_kernel: true\n",
            {{"lora.qkv_kernel", "true"}, {"lora.mlp_kernel", "(nothing)"}}),
    axolotl("kernels off", "adapter: lora\nlora_r: 8\nlora_target_linear: true\nlora_mlp_kernel: false\n",
            {{"lora.r", "8"}, {"task", "lora"}, {"lora.qkv_kernel", "(nothing)"}}),
    axolotl("no kernels with remote code", "adapter: lora\nlora_r: 8\nlora_target_linear: true\ntrust_remote_code: true\n",
            {{"lora.r", "8"}, {"lora.mlp_kernel", "(nothing)"}}),
    axolotl("no kernels with 8-bit weights", "adapter: lora\nload_in_8bit: true\nlora_r: 8\nlora_target_linear: true\n",
            {{"base_weights", "int8"}, {"lora.mlp_kernel", "(nothing)"}}),
    // patch_manager.py: torch's varlen_attn for packed samples with sdpa, where no layer has a window and heads are no wider than 256.
    {"axolotl, packed samples with sdpa", "a.yml",
     "base_model: NousResearch/Llama-3.2-1B\nmicro_batch_size: 2\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nattn_implementation: sdpa\nsample_packing: true\n", "", {},
     "torch's varlen_attn"},
    {"axolotl, packed samples with sdpa as it is", "a.yml",
     "base_model: NousResearch/Llama-3.2-1B\nmicro_batch_size: 2\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nattn_implementation: sdpa\nsample_packing: true\nsdpa_varlen: false\n",
     "", {{"attention", "sdpa"}, {"packed", "true"}}},
    {"axolotl, packed samples with sdpa and windows", "a.yml",
     "base_model: mistralai/Mistral-7B-v0.1\nmicro_batch_size: 2\nadapter: lora\nlora_r: 8\nlora_target_linear: true\nattn_implementation: sdpa\nsample_packing: true\n", "",
     {{"attention", "sdpa"}, {"packed", "true"}}},
    {"axolotl, layers of its own", "a.yml", "base_model: swiss-ai/Apertus-8B-2509\nmicro_batch_size: 2\nattn_implementation: flash_attention_2\n", "", {},
     "axolotl's own layers of model type apertus"},
    {"axolotl, a checkpoint that only code plays", "a.yml", "base_model: Qwen/Qwen3-VL-4B-Instruct\nmicro_batch_size: 2\nattn_implementation: flash_attention_2\n", "", {},
     "is of model type qwen3_vl, which transformers' own code plays (add --code WHEEL"},
    axolotl("kernels without an adapter", "lora_mlp_kernel: true\n", {{"lora.mlp_kernel", "(nothing)"}}),
    axolotl("torchao's 8 bits", "optimizer: adamw_torch_8bit\n", {{"optimizer", "adamw-torch-8bit"}}),
    axolotl("torchao's 4 bits", "optimizer: adamw_torch_4bit\n", {}, "torchao's AdamW with states of 4 bits"),
    axolotl("bitsandbytes' 8 bits", "optimizer: adamw_bnb_8bit\n", {{"optimizer", "adamw-8bit"}}),
    axolotl("an optimizer of its own", "optimizer: flash_adamw\n", {}, "flash_adamw is not modelled"),
    axolotl("preferences", "rl: ipo\nprecompute_ref_log_probs: true\n", {{"task", "dpo"}, {"reference", "precomputed"}, {"releases.trl", "1.9"}}),
    axolotl("preferences under adapters", "rl: kto\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n", {{"task", "kto"}, {"lora.r", "8"}}),
    axolotl("SimPO alone", "rl: simpo\ncpo_alpha: 0\n", {{"task", "cpo"}, {"supervised_term", "false"}}),
    axolotl("ORPO", "rl: orpo\norpo_alpha: 0.1\n", {{"task", "orpo"}, {"supervised_term", "(nothing)"}}),
    axolotl("a reward model", "reward_model: true\n", {{"task", "reward"}}),
    axolotl("classes", "num_labels: 3\n", {}, "a head of classes"),
    axolotl("preferences recompute without re-entrance", "rl: dpo\ngradient_checkpointing: true\n", {{"recompute_reentrant", "false"}}),
    axolotl("activations that leave wrapped layers", "gradient_checkpointing: true\nactivation_offloading: true\n",
            {{"recompute", "full"}, {"activation_offload", "trl"}, {"recompute_reentrant", "false"}}),
    axolotl("activations that leave beside adapters", "adapter: lora\nlora_r: 8\nlora_target_linear: true\nlora_mlp_kernel: false\ngradient_checkpointing: true\nactivation_offloading: true\n",
            {{"recompute", "full"}, {"activation_offload", "trl"}, {"recompute_reentrant", "true"}}),
    axolotl("fp16 goes before auto", "bf16: auto\nfp16: true\n", {{"precision", "fp16"}}),
    axolotl("fp16 stands behind bf16", "bf16: true\nfp16: true\n", {{"precision", "bf16"}}),
    axolotl("bf16 without autocast", "bf16: full\n", {{"precision", "pure-bf16"}}),
    axolotl("8-bit weights without bf16", "adapter: lora\nload_in_8bit: true\nlora_r: 8\nlora_target_linear: true\nbf16: false\n", {}, "weights in fp16 without autocast"),
    axolotl("DDP that looks for nothing", "gradient_checkpointing: false\n", {{"ddp.find_unused_parameters", "false"}}),
    axolotl("weights placed as usual", "device_map: auto\n", {{"seq_len", "1024"}}),
    axolotl("weights placed by hand", "device_map: balanced\n", {}, "weights placed by hand"),
    axolotl("experts by the kernels that transformers chooses", "experts_implementation: grouped_mm\n", {{"seq_len", "1024"}}),
    axolotl("experts one by one", "experts_implementation: eager\n", {}, "experts by these kernels"),
    axolotl("routers' logits", "model_config: {output_router_logits: true}\n", {{"seq_len", "1024"}, {"checkpoint.router_logits", "any"}}),
    axolotl("another configuration", "model_config: {num_hidden_layers: 2}\n", {}, "another configuration of the model, found model_config.num_hidden_layers"),
    axolotl("a vocabulary in steps of 32", "resize_token_embeddings_to_32x: true\n", {{"seq_len", "1024"}}),
    axolotl("an expression that matches norms", "adapter: lora\nlora_r: 8\nlora_target_modules: 'model.layers.0..*'\n", {}, "an adapter of model.layers.0."),
    axolotl("an expression that matches nothing", "adapter: lora\nlora_r: 8\nlora_target_modules: q_proj\n", {}, "no linear's whole path matches"),
    axolotl("an expression that is none", "adapter: lora\nlora_r: 8\nlora_target_modules: 'model.(q'\n", {}, "is no regular expression"),
    axolotl("answers that the model writes", "rl: grpo\n", {}, "axolotl's rl: grpo"),
    axolotl("a reference beside adapters", "rl: dpo\nrl_adapter_ref_model: true\n", {}, "a model of reference beside adapters"),
    axolotl("quantization-aware", "qat: {weight_dtype: int4}\n", {}, "aware of a quantization"),
    // freeze.py matches names from their start, a dot being a dot; Llama 3.2 1B's head is tied, so that no parameter is called after it.
    axolotl("some parameters", "unfrozen_parameters: [\"^lm_head\", \"^model.embed_tokens\", \"model.layers.1[45].\"]\n", {{"trained_modules", "model.embed_tokens,model.layers.14,model.layers.15"}}),
    axolotl("parts of modules", "unfrozen_parameters: [\"model.embed_tokens\", \"model.layers.[0-9]+.mlp.up_proj\", \"model.norm\"]\n", {{"recompute", "none"}}),
    axolotl("the head above frozen layers", "unfrozen_parameters: [\"^lm_head\", \"model.layers.15.\"]\n", {}, "ask for a gradient"),
    axolotl("rows of a parameter", "unfrozen_parameters: [\"^model.embed_tokens.weight$[:32000]\"]\n", {}, "rows of a parameter"),
    axolotl("parameters that it has not", "unfrozen_parameters: [\"transformer.h\", \"embed_tokens\"]\n", {}, "matches no parameter"),
    axolotl("parameters beside an adapter", "adapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\nunfrozen_parameters: [\"^model.\", \"embed_tokens\"]\n", {},
            "freezes the adapter as well"),
    axolotl("cut cross entropy by its plugin", "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\n",
            {{"loss", "cut-cross-entropy"}}),
    axolotl("cut cross entropy that is off",
            "plugins: [axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin]\ncut_cross_entropy: false\n", {{"loss", "(nothing)"}}),
    axolotl("cut cross entropy without its plugin, which axolotl drops", "cut_cross_entropy: true\n", {{"loss", "(nothing)"}}),
    axolotl("Liger's norms without its loss", "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rms_norm: true\n",
            {{"liger_kernel", "true"}, {"liger_rms_norm", "true"}, {"liger_rope", "false"}, {"liger_glu", "false"}, {"loss", "ce"}}),
    axolotl("Liger without its plugin, which axolotl drops", "liger_rms_norm: true\nliger_fused_linear_cross_entropy: true\n",
            {{"liger_kernel", "(nothing)"}, {"liger_rms_norm", "(nothing)"}, {"loss", "(nothing)"}}),
    axolotl("Liger's plugin alone", "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_layer_norm: true\n",
            {{"liger_kernel", "(nothing)"}, {"loss", "(nothing)"}}),
    axolotl("kernels of the hub", "use_kernels: true\n", {}, "kernels of the hub"),
    axolotl("LISA", "lisa_n_layers: 4\n", {}, "which weights are trained"),
    axolotl("towers that it has not, frozen", "freeze_mm_modules: true\n", {{"trained_modules", "(nothing)"}}),
    axolotl("a plugin", "plugins: [axolotl.integrations.spectrum.SpectrumPlugin]\n", {}, "plugin axolotl.integrations.spectrum"),
    axolotl("a plugin that logs", "plugins: [axolotl.integrations.swanlab.SwanLabPlugin]\n", {{"seq_len", "1024"}}),
    axolotl("Liger by plugin", "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_fused_linear_cross_entropy: true\n", {{"loss",
            "liger-fused-linear"}}),
    axolotl("a switch that is off", "flash_attn_fuse_mlp: false\ngptq: false\nuse_kernels: false\n", {{"seq_len", "1024"}}),
    axolotl("gpu_memory_limit", "gpu_memory_limit: 20GiB\n", {}, "weights placed by hand"),
    axolotl("a key that it drops", "my_note: hello\n", {{"seq_len", "1024"}}),
    axolotl("another vocabulary", "tokens: [\"<|a|>\"]\n", {}, "a vocabulary of another size"),
    axolotl("sequence parallel", "context_parallel_size: 2\n", {}, "context parallelism"),

    trainer("nothing else", "", {{"micro_batch", "2"}, {"seq_len", "1024"}, {"precision", "bf16"}, {"param_dtype", "bf16"}}),
    trainer("a misspelt batch", "gradient_accumlation_steps: 4\n", {}, "did you mean 'gradient_accumulation_steps'?"),
    trainer("kwargs as a table", "gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: true}\n", {{"recompute_reentrant",
            "true"}}),
    trainer("kwargs as JSON", "gradient_checkpointing: true\ngradient_checkpointing_kwargs: '{\"use_reentrant\": true}'\n", {{"recompute_reentrant",
            "true"}}),
    trainer("GRPO", "num_generations: 8\nmax_completion_length: 512\n", {}, "preferences or rewards"),
    trainer("DPO", "beta: 0.1\nmax_prompt_length: 512\n", {}, "preferences or rewards"),
    trainer("ORPO and CPO", "cpo_alpha: 1.0\n", {}, "preferences or rewards"),
    trainer("KTO", "desirable_weight: 1.0\n", {}, "preferences or rewards"),
    trainer("RLOO", "rloo_k: 4\n", {}, "preferences or rewards"),
    trainer("distillation", "lmbda: 0.5\n", {}, "preferences or rewards"),
    trainer("vLLM beside", "use_vllm: true\n", {}, "preferences or rewards"),
    trainer("adapters undecided", "lora_r: 8\nlora_alpha: 16\n", {}, "without use_peft"),
    trainer("adapters", "use_peft: true\nlora_r: 8\nlora_target_modules: [q_proj, v_proj]\n", {{"lora.r", "8"}, {"lora.alpha", "32"}}),
    trainer("adapters refused", "use_peft: false\nlora_r: 8\n", {{"lora.r", "(nothing)"}}),
    trainer("what is frozen", "freeze_llm: true\n", {}, "may decide what is trained"),
    trainer("a short name of its own", "lr: 0.0001\n", {{"micro_batch", "2"}}),
    trainer("a slip of a short name", "seeds: 1\n", {}, "did you mean 'seed'?"),
    trainer("nothing frozen", "freeze_llm: false\nfreeze_vision_tower: false\n", {{"micro_batch", "2"}}),
    trainer("its own parallelism", "tensor_parallel_size: 4\n", {}, "may decide tp"),
    trainer("its own precision", "mixed_precision: bf16\n", {}, "may decide"),
    trainer("its own layout", "my_pipeline_parallel: 2\n", {}, "how the run is laid out"),
    trainer("its own data", "data_path: x\nlazy_preprocess: true\n", {{"micro_batch", "2"}}),
    trainer("dynamic compile", "torch_compile: true\ntorch_compile_mode: max-autotune\n", {}, "settings of torch.compile"),
    trainer("padding free", "padding_free: true\n", {}, "sequences without padding"),
    trainer("deterministic", "full_determinism: true\n", {}, "deterministic"),
    trainer("a batch it looks for", "auto_find_batch_size: true\n", {}, "a batch that the run looks for"),
    trainer("emptied caches", "torch_empty_cache_steps: 4\n", {}, "giving the allocator's segments back"),
    trainer("emptied never", "torch_empty_cache_steps: null\n", {{"micro_batch", "2"}}),
    trainer("evaluation and logging", "eval_strategy: steps\neval_steps: 100\nlogging_steps: 5\nsave_total_limit: 2\nwarmup_ratio: 0.1\n",
            {{"micro_batch", "2"}}),
    trainer("FSDP by words", "fsdp: full_shard auto_wrap\n", {{"data_parallel", "fsdp2"}, {"host_loading", "every-rank"}}),
    trainer("one rank loads", "fsdp: full_shard auto_wrap\nfsdp_config:\n  cpu_ram_efficient_loading: true\n", {{"host_loading", "first-rank"}}),
    trainer("NEFTune", "neftune_noise_alpha: 5\n", {}, "NEFTune"),
    trainer("activations to the host", "activation_offloading: true\n", {}, "offload of activations"),
    trainer("a loss of its own", "loss_type: dft\n", {}, "another loss"),
    trainer("the usual loss", "loss_type: nll\n", {{"micro_batch", "2"}}),

    factory("4-bit weights lie in the type that it computes in", "finetuning_type: lora\nlora_target: all\nquantization_bit: 4\n",
            {{"base_weights", "nf4-double-quant"}, {"bnb_4bit_quant_storage", "bf16"}}),
    factory("full", "finetuning_type: full\n", {{"task", "full"}, {"param_dtype", "fp32"}, {"recompute", "full"}, {"recompute_reentrant", "true"}}),
    factory("a mask of blocks that flash attention does without", "finetuning_type: full\nneat_packing: true\nflash_attn: fa2\n", {{"attention", "flash"}, {"packed", "true"}}),
    factory("DDP without recomputation", "finetuning_type: full\ndisable_gradient_checkpointing: true\n", {{"ddp.find_unused_parameters", "true"}}),
    factory("LoRA", "finetuning_type: lora\nlora_rank: 16\n", {{"lora.r", "16"}, {"lora.alpha", "32"}, {"param_dtype", "bf16"}}),
    factory("a misspelt length", "finetuning_type: full\ncutof_length: 512\n", {}, "unknown key 'cutof_length'"),
    factory("a misspelt batch", "finetuning_type: full\nper_device_train_batch_sze: 4\n", {}, "did you mean 'per_device_train_batch_size'?"),
    factory("Megatron's adapter", "finetuning_type: full\ntensor_model_parallel_size: 4\npipeline_model_parallel_size: 2\n", {}, "USE_MCA"),
    factory("Megatron's adapter by name", "finetuning_type: full\nuse_mca: true\n", {}, "Megatron-core's adapter"),
    factory("ASFT", "finetuning_type: full\nuse_asft_loss: true\n", {}, "another loss"),
    factory("DFT", "finetuning_type: full\nuse_dft_loss: true\n", {}, "another loss"),
    factory("freeze", "finetuning_type: freeze\n", {}, "freeze is not modelled"),
    factory("OFT", "finetuning_type: oft\n", {}, "oft is not modelled"),
    factory("GaLore", "finetuning_type: full\nuse_galore: true\n", {}, "GaLore"),
    factory("BAdam", "finetuning_type: full\nuse_badam: true\n", {}, "BAdam"),
    factory("Muon", "finetuning_type: full\nuse_muon: true\n", {}, "Muon"),
    factory("Unsloth", "finetuning_type: lora\nuse_unsloth: true\n", {}, "Unsloth"),
    factory("v1's kernels, of which a dense model has none on a GPU", "finetuning_type: full\nuse_v1_kernels: true\n", {{"seq_len", "1024"}}),
    {"llama-factory, v1's kernels of experts", "l.yaml",
     "model_name_or_path: Qwen/Qwen3-30B-A3B\nstage: sft\ncutoff_len: 1024\nper_device_train_batch_size: 2\nbf16: true\nfinetuning_type: full\nuse_v1_kernels: true\n",
     "", {}, "experts by LLaMA-Factory's own kernels"},
    factory("a grown vocabulary", "finetuning_type: full\nresize_vocab: true\n", {}, "a vocabulary of another size"),
    factory("towers at rest", "finetuning_type: full\nfreeze_vision_tower: true\nimage_max_pixels: 262144\n", {{"task", "full"}}),
    factory("a language model at rest", "finetuning_type: full\nfreeze_language_model: true\n", {}, "a language model that rests"),
    factory("settings of others", "finetuning_type: full\ngalore_rank: 8\nvllm_maxlen: 2048\npref_beta: 0.2\n", {{"task", "full"}}),
    factory("KTransformers", "finetuning_type: lora\nuse_kt: true\n", {}, "KTransformers"),

    titan("nothing else", "[training]\nlocal_batch_size = 2\nseq_len = 2048\n", {{"micro_batch", "2"}, {"seq_len", "2048"}, {"recompute",
          "every-2-layers"}}),
    titan("a misspelt batch", "[training]\nlocal_batchsize = 2\n", {}, "did you mean 'training.local_batch_size'?"),
    titan("a misspelt degree", "[parallelism]\ntensor_parallel_degre = 2\n", {}, "did you mean 'parallelism.tensor_parallel_degree'?"),
    titan("pipelines of 2024", "[training]\nbatch_size = 4\nseq_len = 2048\n[experimental]\npipeline_parallel_degree = 4\n", {{"pp", "4"},
          {"micro_batch", "1"}}),
    titan("other products", "converters = [\"float8\"]\n[quantize.linear.float8]\nfilter_fqns = [\"attention.wk\"]\n", {},
          "which products are in 8 bits"),
    titan("float8 that is off", "[quantize.linear.float8]\nfilter_fqns = [\"attention.wk\"]\n[training]\nseq_len = 2048\n", {{"seq_len", "2048"}}),
    titan("deterministic", "[debug]\ndeterministic = true\n", {}, "deterministic kernels"),
    titan("made-up communication", "[comm]\nmode = \"fake_backend\"\n", {}, "communication that is made up"),
    titan("code of one's own", "[experimental]\ncustom_import = \"mine\"\n", {}, "code of one's own"),
    titan("evaluation", "[validation]\nenable = true\n[training]\nseq_len = 2048\n", {{"seq_len", "2048"}}),
    titan("another compiler", "[compile]\nenable = true\nbackend = \"aot_eager\"\n", {}, "another back end of torch.compile"),

    {"torchtune, a builder that nobody knows", "r.yaml",
     "model: {_component_: torchtune.models.llama4.llama4_scout_17b_16e}\ntokenizer: {max_seq_len: 512}\nbatch_size: 1\ndtype: bf16\n", "", {},
     "the model 'torchtune.models.llama4.llama4_scout_17b_16e' is not known"},
    {"torchtune, such a builder beside MODEL", "r.yaml",
     "model: {_component_: torchtune.models.llama9.llama9_1b}\ntokenizer: {max_seq_len: 512}\nbatch_size: 1\ndtype: bf16\n", "llama-3.2-1b",
     {{"micro_batch", "1"}, {"seq_len", "512"}}, ""},
    tune("nothing else", "", {{"micro_batch", "2"}, {"seq_len", "1024"}, {"precision", "pure-bf16"}}),
    tune("a misspelt batch", "gradient_accumulation_step: 4\n", {}, "did you mean 'gradient_accumulation_steps'?"),
    tune("a teacher", "teacher_model: {_component_: torchtune.models.llama3.llama3_8b}\n", {}, "training from a teacher"),
    tune("GRPO", "inference: {group_size: 16}\ntraining: {batch_size: 16}\n", {}, "preferences or rewards"),
    tune("PPO", "ppo_epochs: 2\n", {}, "preferences or rewards"),
    tune("a reference", "ref_checkpointer: {_component_: x}\n", {}, "preferences or rewards"),
    tune("evaluation", "tasks: [truthfulqa_mc2]\n", {}, "does not train"),
    tune("generation", "prompt: {user: hi}\n", {}, "does not train"),
    tune("quantization-aware", "quantizer: {_component_: torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer, groupsize: 128}\n"
         "fake_quant_after_n_steps: 1000\n", {{"qat.group_size", "128"}}),
    tune("quantization-aware by its defaults", "quantizer: {_component_: torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer}\n",
         {{"qat.group_size", "256"}}),
    tune("DPO of all weights, whose reference is a second model", "loss: {_component_: torchtune.rlhf.loss.DPOLoss, beta: 0.1}\n", {},
         "DPO of all weights"),
    tune("another quantization", "quantizer: {_component_: torchtune.training.quantization.Int4WeightOnlyQATQuantizer}\n", {},
         "aware of a quantization"),
    tune("tensor parallelism", "tensor_parallel_dim: 2\n", {}, "tensor parallelism is not modelled"),
    tune("a key of one's own", "my_note: x\nlog_level: INFO\n", {{"micro_batch", "2"}}),
    tune("several datasets", "datasets: [{_component_: a}, {_component_: b}]\n", {{"micro_batch", "2"}}),
    tune("a folder that matters nothing", "output_dir: ${somewhere}/x\n", {{"micro_batch", "2"}}),
    tune("a size that is nowhere", "gradient_accumulation_steps: ${steps}\n", {}, "there is no value that ${steps}"),
    tune("a vocabulary of another size", "resize_token_embeddings: true\n", {}, "a vocabulary of another size"),
    tune("deterministic", "cudnn_deterministic_mode: true\n", {}, "deterministic kernels"),

    accelerate("DDP", "distributed_type: MULTI_GPU\n", {{"mixed_precision", "bf16"}, {"gpus", "8"}}),
    accelerate("a name of 2023",
               "distributed_type: FSDP\nfsdp_config: {fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_backward_prefetch_policy: BACKWARD_PRE, fsdp_sharding_strategy: 1}\n",
               {{"fsdp.backward_prefetch", "BACKWARD_PRE"}, {"data_parallel", "fsdp1"}}),
    accelerate("DeepSpeed's tables, which it drops",
               "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, zero_optimization: {stage: 3}}\n", {{"zero_stage", "3"}}),
    accelerate("a misspelt stage", "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stag: 3}\n", {}, "did you mean 'zero_stage'?"),
    accelerate("a misspelt key", "distributed_type: MULTI_GPU\nmachine_rnk: 0\n", {}, "machine_rank"),
    accelerate("context parallelism",
               "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nparallelism_config: {parallelism_config_dp_shard_size: 4, parallelism_config_cp_size: 2}\n", {},
               "context parallelism is not modelled"),
    accelerate("FSDP2", "distributed_type: FSDP\nfsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false}\n", {{"data_parallel", "fsdp2"},
               {"fsdp.reshard_after_forward", "never"}}),

    deepspeed("ZeRO-2", R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1})", {{"zero_stage", "2"}}),
    deepspeed("a misspelt table", R"({"zero_optimisation": {"stage": 2}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": 1})", {}, "did you mean 'zero_optimization"),
    deepspeed("a misspelt clipping", R"({"zero_optimization": {"stage": 2}, "gradient_cliping": 1.0, "train_micro_batch_size_per_gpu": 1})", {}, "did you mean 'gradient_clipping'?"),
    deepspeed("a key that it drops", R"({"zero_optimization": {"stage": 1}, "my_remark": "x", "train_micro_batch_size_per_gpu": 1})", {{"zero_stage", "1"}}),

    primus("nothing else", "", {{"framework", "primus"}, {"micro_batch", "1"}, {"precision", "bf16"}}),
    primus("turbo's attention", "      enable_primus_turbo: true\n      use_turbo_attention: true\n      attention_backend: auto\n", {{"attention",
           "flash"}}),
    primus("turbo that is off", "      enable_primus_turbo: false\n      use_turbo_attention: true\n      use_turbo_gemm: true\n", {{"attention",
           "(nothing)"}}),
    primus("turbo's linears", "      enable_primus_turbo: true\n      use_turbo_gemm: true\n", {}, "use_turbo_gemm"),
    {"primus, a tokenizer that is not known", "p.yaml",
     "work_group: a\nexp_name: b\nmodules:\n  pre_trainer:\n    framework: megatron\n    overrides: {num_layers: 2, hidden_size: 1024, num_attention_heads: 8, "
     "swiglu: true, hidden_dropout: 0, attention_dropout: 0, tokenizer_type: Llama4Tokenizer, tokenizer_model: a/b}\n",
     "", {}, "the vocabulary of the tokenizer a/b is not known"},
    primus("sync-free experts", "      enable_primus_turbo: true\n      turbo_sync_free_moe_stage: 2\n", {}, "without synchronisation"),
    primus("FSDP2 of torch", "      use_torch_fsdp2: true\n", {}, "use_torch_fsdp2 beside use_distributed_optimizer"),
    primus("adapters of a pre_trainer", "      lora: {enabled: true, dim: 8}\n", {}, "which Primus' pretraining passes over"),
    primus("a misspelt degree", "      tensor_model_parallel_sise: 2\n", {}, "did you mean 'tensor_model_parallel_size'?"),
    primus("logging", "      stderr_sink_level: DEBUG\n      mlflow_upload_logs: true\n      disable_wandb: true\n", {{"micro_batch", "1"}}),
    primus("zero bubbles", "      patch_zero_bubble: true\n", {}, "patch_zero_bubble"),
    primus("another compiler", "      torch_compile: {enable: true, backend: inductor}\n", {}, "torch.compile under Primus"),
    primus("a compiler that is off", "      torch_compile: {enable: false, backend: inductor}\n", {{"micro_batch", "1"}}),
    primus("switches as numbers", "      enable_primus_turbo: 1\n      use_turbo_attention: 1\n", {{"attention", "flash"}}),
    primus("a switch of Megatron's as a number", "      tensor_model_parallel_size: 2\n      sequence_parallel: 1\n", {{"sequence_parallel", "true"},
           {"tp", "2"}}),
    primus("a key of its patches", "      disable_delayed_scaling_patches: true\n", {{"micro_batch", "1"}}),
    primus("values with defaults", "      enable_primus_turbo: ${TURBO:true}\n      use_turbo_attention: ${ATTENTION:true}\n", {{"attention",
           "flash"}}),
    {"primus, its own defaults", "p.yaml",
     "work_group: a\nexp_name: b\nmodules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n    model: llama3.1_8B.yaml\n"
     "    overrides: {tensor_model_parallel_size: 2}\n",
     "", {{"seq_len", "1024"}, {"micro_batch", "2"}, {"global_batch", "16"}, {"data_parallel", "megatron-distopt"}, {"sequence_parallel", "true"},
          {"gradient_accumulation_fusion", "true"}}, ""},
    {"primus, another trainer", "p.yaml", "work_group: a\nexp_name: b\nmodules:\n  post_trainer:\n    framework: megatron_bridge\n", "gpt2", {},
        "Primus' fine-tuning over megatron_bridge"},

    megatron("dropouts that a gated model does not say are Megatron's own", "--position-embedding-type rope --swiglu --normalization RMSNorm --disable-bias-linear --hidden-dropout 0.05",
             {{"model.attention_dropout", "0.1"}, {"model.hidden_dropout", "0.05"}}),
    megatron("nothing else", "", {{"framework", "megatron-lm"}, {"micro_batch", "1"}}),
    megatron("a misspelt degree", "--tensor-model-parallel-sizes 4", {}, "did you mean 'tensor_model_parallel_size'?"),
    megatron("DeepSpeed's sequences", "--ds-sequence-parallel-size 4", {}, "ds_sequence_parallel_size: 4"),
    megatron("adapters of a fork", "--lora-rank 8", {}, "may decide what is trained"),
    megatron("frozen parts of a fork", "--freeze-LM", {}, "may decide what is trained"),
    megatron("a layout of a fork", "--my-shard-count 2", {}, "how the run is laid out"),
    megatron("a fork's remark", "--my-remark x --log-interval 1 --lr 1e-4 --weight-decay 0.1", {{"micro_batch", "1"}}),
    megatron("graphs part by part", "--cuda-graph-impl local --cuda-graph-scope attn", {}, "CUDA graphs chosen part by part"),
    megatron("parts of graphs that nothing begins", "--cuda-graph-scope attn --data-parallel-sharding-strategy optim", {{"data_parallel", "ddp"}}),
    megatron("flash attention of the models before Megatron-core", "--use-flash-attn", {{"precision", "bf16"}}),
    megatron("rewards", "--perform-rl-step", {}, "preferences and rewards"),
    megatron("frozen layers", "--freeze-all-layers", {}, "which weights are trained"),
    megatron("activations by module", "--fine-grained-activation-offloading", {}, "activations offloaded by module"),
    megatron("what the router calculates in", "--moe-router-dtype fp32", {{"micro_batch", "1"}}),
    megatron("positions in the tokens' place",
             "--position-embedding-type rope --no-position-embedding --swiglu --normalization RMSNorm --disable-bias-linear --attention-dropout 0 --hidden-dropout 0", {{"model.positions", "rope"}}),
    megatron("no positions", "--no-position-embedding", {}, "a model without positions"),

    nemo("folders that matter nothing", "", {{"seq_len", "1024"}, {"micro_batch", "1"}}),
    nemo("products of sizes", "  ffn_hidden_size: ${multiply:4, ${.hidden_size}}\n", {{"model.intermediate_size", "4096"}}),
    nemo("quotients of sizes", "  tensor_model_parallel_size: ${divide_floor:${model.num_attention_heads}, 4}\n", {{"tp", "2"}}),
    nemo("a size that is nowhere", "  tensor_model_parallel_size: ${nowhere}\n", {}, "there is no value that ${nowhere}"),

    peft("LoRA", R"({"peft_type": "LORA", "r": 16, "lora_alpha": 32, "target_modules": ["q_proj"]})", {{"lora.r", "16"}}),
    peft("loftq's start", R"({"peft_type": "LORA", "r": 16, "target_modules": ["q_proj"], "init_lora_weights": "pissa"})", {{"lora.r", "16"}}),
    peft("a misspelt scale", R"({"peft_type": "LORA", "r": 16, "target_modules": ["q_proj"], "lora_alfa": 3})", {}, "did you mean 'lora_alpha'?"),
    peft("quantization-aware", R"({"peft_type": "LORA", "r": 16, "target_modules": ["q_proj"], "use_qalora": true})", {}, "adapters of this kind"),

    config("nothing else", "", {{"checkpoint.dtype", "(nothing)"}}),
    config("its type", R"(, "torch_dtype": "bfloat16")", {{"checkpoint.dtype", "bf16"}}),
    config("numbers of Python", R"(, "time_step_limit": [0.0, Infinity], "x": NaN)", {{"checkpoint.dtype", "(nothing)"}}),
    config("a class of one's own", R"(, "architectures": ["MyLlamaForCausalLM"])", {{"checkpoint.dtype", "(nothing)"}}),
    config("a base model", R"(, "architectures": ["LlamaModel"])", {}, "has no head"),
    config("another quantization", R"(, "quantization_config": {"quant_method": "gptq"})", {}, "this quantization"),
    config("whole numbers with a point", R"(, "num_key_value_heads": 4.0)", {{"checkpoint.dtype", "(nothing)"}}),
    config("labels", R"(, "_num_labels": 3)", {{"checkpoint.dtype", "(nothing)"}}),
};
INSTANTIATE_TEST_SUITE_P(Formats, WildFiles, testing::ValuesIn(kWild));

}  // namespace
}  // namespace plimsoll
