// torchtitan, torchtune and Megatron-LM.
#include <fmt/format.h>

#include "formats/export/writer.hpp"
#include "formats/foreign/torchtitan_flavors.hpp"
#include "framework/torchtitan.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

Node text_node(const std::string& text) { return Node::scalar(text, {}, true); }
Node plain_node(const std::string& text) { return Node::scalar(text, {}); }
Node number_node(std::int64_t value) { return plain_node(std::to_string(value)); }

// ---- torchtitan ------------------------------------------------------------------------------------------------------------

std::string schedule_of(const Writing& w) {
  static const std::pair<const char*, const char*> kNames[] = {{"1f1b", "1F1B"},
                                                               {"gpipe", "GPipe"},
                                                               {"interleaved-1f1b", "Interleaved1F1B"},
                                                               {"interleaved-zero-bubble", "InterleavedZeroBubble"},
                                                               {"zbv", "ZBVZeroBubble"},
                                                               {"dualpipev", "DualPipeV"}};
  for (const auto& [ours, theirs] : kNames)
    if (w.s.pp_schedule == ours) return theirs;
  refuse("torchtitan has no schedule " + w.s.pp_schedule);
}

bool release_0_3(const Writing& w) { return framework::titan_release(w.s).is_0_3(); }

/// Whether the release has the key; rows say which do not.
bool has_key(const Writing& w, const std::string& key) {
  const Row* row = find_row(torchtitan_format().rows(), key);
  return row == nullptr || std::string_view(row->remark) != (release_0_3(w) ? "0.2" : "0.3");
}

Node torchtitan_tree(const Writing& w, const TitanFlavor& flavor) {
  Node tree = Node::table({});
  if (release_0_3(w)) tree.set("release", text_node("0.3"));
  tree.set("model.name", text_node(flavor.family));
  tree.set("model.flavor", text_node(flavor.flavor));
  const std::int64_t local = w.s.pp > 1 ? w.s.micro_batch * w.s.micro_batches_per_run() : w.s.micro_batch;
  tree.set("training.local_batch_size", number_node(local));
  tree.set("training.global_batch_size", number_node(w.s.global_batch));
  const Node rows = write_rows(torchtitan_format().rows(), w.s);
  for (const auto& [section, keys] : rows.members)
    for (const auto& [key, value] : keys.members)
      if (value.is_scalar() && has_key(w, section + "." + key))
        tree.set(section + "." + key, Node::scalar(value.text, {},
                                                   value.text.find_first_not_of("0123456789.-") != std::string::npos &&
                                                       value.text != "true" && value.text != "false"));
  tree.set("compile.enable", plain_node(w.s.compile == Strategy::Compile::blocks ? "true" : "false"));
  if (release_0_3(w) && w.is("async_tp", "true")) tree.set("compile.enable_async_tensor_parallel", plain_node("true"));
  tree.set("training.max_norm", plain_node(*w.s.clip_grad_norm ? "1.0" : "0.0"));
  tree.set("training.mixed_precision_param", text_node(w.s.compute_dtype == DType::fp32 ? "float32" : "bfloat16"));
  if (w.s.dp_shard > 0) tree.set("parallelism.data_parallel_shard_degree", number_node(w.s.dp_shard));
  if (w.s.pp > 1) {
    tree.set("parallelism.pipeline_parallel_schedule", text_node(schedule_of(w)));
    tree.set("parallelism.pipeline_parallel_microbatch_size", number_node(w.s.micro_batch));
  }
  const std::string recompute = w.value("recompute");
  tree.set("activation_checkpoint.mode", text_node(recompute == "none" || recompute == "full" ? recompute : "selective"));
  if (recompute == "selective-ac-op") tree.set("activation_checkpoint.selective_ac_option", text_node("op"));
  if (recompute.rfind("every-", 0) == 0 && release_0_3(w))
    refuse("torchtitan 0.3 recomputes selected operators or whole layers", "recompute", "selective-ac-op or full");
  if (recompute.rfind("every-", 0) == 0)
    tree.set("activation_checkpoint.selective_ac_option", text_node(std::to_string(w.s.recompute.every)));
  if (w.s.low_precision == LowPrecision::fp8) {
    tree.set("model.converters", text_node("float8"));
    tree.set("quantize.linear.float8.recipe_name", text_node(w.value("fp8_recipe")));
  }
  return tree;
}

/// A table's scalars as arguments of a Python call, a line each.
std::string python_arguments(const Node& table, const std::string& margin) {
  std::string text;
  for (const auto& [key, value] : table.members) {
    const std::string plain = value.text == "true" ? "True" : value.text == "false" ? "False" : value.text;
    text += margin + key + "=" + (value.quoted ? "\"" + value.text + "\"" : plain) + ",\n";
  }
  return text;
}

/// A module for --module, since releases from 0.3 on take Python configurations: what objects say, then plan.toml's sections.
std::string torchtitan_module(const Writing& w, const TitanFlavor& flavor, const Node& tree) {
  if (w.s.low_precision != LowPrecision::none)
    refuse("8-bit products of torchtitan 0.3 are not written", "precision", "--framework-version 0.2.2");
  if (w.s.optimizer_in_backward) refuse("torchtitan 0.3 has no optimizer within backward", "optimizer_in_bwd", "false");
  const std::string recompute = w.value("recompute");
  const char* ac = recompute == "none"   ? "None"
                   : recompute == "full" ? "activation_checkpoint.FullAC.Config()"
                                         : "activation_checkpoint.SelectiveAC.Config()";
  const bool chunked = w.s.loss == LossKernel::chunked;
  std::string text =
      w.head() + fmt::format(R"(from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import default_adamw
from torchtitan.config import configs
from torchtitan.distributed import activation_checkpoint
from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader
from torchtitan.models import {0}
from torchtitan.trainer import Trainer


def plan() -> Trainer.Config:
    spec = {0}.model_registry("{1}"{2})
    loss = CrossEntropyLoss.Config(global_vocab_size=spec.model.vocab_size)
    optimizer = default_adamw(lr=1e-4)
    optimizer.implementation = "{3}"
    return Trainer.Config(
        model_spec=spec,
        hf_assets_path="./assets",
        dataloader=HuggingFaceTextDataLoader.Config(dataset="c4"),
        optimizer=optimizer,
        loss={4},
        activation_checkpoint={5},
)",
                             flavor.family, flavor.flavor, w.is("attention", "flash-varlen") ? ", attn_backend=\"varlen\"" : "",
                             w.value("optimizer_impl"),
                             chunked ? fmt::format("ChunkedLossWrapper.Config(loss_fn=loss, num_chunks={})", w.s.loss_chunks) : "loss", ac);
  const std::string margin(12, ' ');
  for (const auto& [section, call] :
       {std::pair{"training", "TrainingConfig"}, {"parallelism", "ParallelismConfig"}, {"compile", "CompileConfig"}}) {
    const Node* table = tree.find(section);
    if (!table) continue;
    const bool steps = std::string_view(section) == "training";
    text += fmt::format("        {}=configs.{}(\n", section, call) + python_arguments(*table, margin) +
            (steps ? margin + fmt::format("steps={},\n", w.plan.length.steps) + margin + "disable_cuda_graphs=True,\n" : "") + "        ),\n";
  }
  return text + "    )\n";
}

}  // namespace

void write_torchtitan(const Writing& w) {
  const TitanFlavor* flavor = titan_flavor(w.plan.model.name);
  if (flavor == nullptr)
    refuse("torchtitan has no model of the shape of " + w.plan.model.name, {},
           "its flavors are those of Llama 3, Qwen 3, DeepSeek-V3 and gpt-oss");
  const Node tree = torchtitan_tree(w, *flavor);
  w.file("plan.toml", w.head() + toml_of(tree));
  if (!release_0_3(w)) {
    write_script(w, torchrun_of(w) + " -m torchtitan.train --job.config_file plan.toml");
  } else {
    w.file("plan.py", torchtitan_module(w, *flavor, tree));
    write_script(w, "export PYTHONPATH=\"$PWD\"\n" + torchrun_of(w) + " -m torchtitan.train --module plan --config plan");
  }
  w.out.reads = {"plan.toml"};
}

// ---- torchtune ---------------------------------------------------------------------------------------------------------------

namespace {

/// "llama-3.1-8b" → torchtune.models.llama3_1, llama3_1_8b.
std::string torchtune_builder(const std::string& name) {
  static const std::pair<const char*, const char*> kFamilies[] = {
      {"llama-3.1-", "llama3_1"}, {"llama-3.2-", "llama3_2"}, {"llama-3.3-", "llama3_3"},    {"llama-3-", "llama3"},
      {"llama-2-", "llama2"},     {"qwen2.5-", "qwen2_5"},    {"qwen2-", "qwen2"},           {"qwen3-", "qwen3"},
      {"gemma-2-", "gemma2"},     {"gemma-", "gemma"},        {"mistral-7b-v0.1", "mistral"}};
  for (const auto& [front, family] : kFamilies) {
    if (name.rfind(front, 0) != 0) continue;
    std::string rest = name.substr(std::string_view(front).size());
    std::replace(rest.begin(), rest.end(), '.', '_');
    if (std::string_view(family) == "mistral") rest = "7b";
    return fmt::format("torchtune.models.{0}.", family) + "{}" + family + "_" + rest;
  }
  refuse("torchtune has no builder of the shape of " + name);
}

Node names_node(const std::vector<std::string>& names) {
  Node list = Node::table({});
  list.kind = Node::Kind::list;
  for (const std::string& name : names) list.members.emplace_back("", text_node(name));
  return list;
}

void add_torchtune_adapter(const Writing& w, Node& tree) {
  if (!w.s.lora) return;
  std::vector<std::string> attention;
  bool mlp = false;
  for (const std::string& target : w.s.lora->targets) {
    if (target == "w1" || target == "w2" || target == "w3") {
      mlp = true;
    } else {
      attention.push_back(target);
    }
  }
  tree.set("model.lora_attn_modules", names_node(attention));
  tree.set("model.apply_lora_to_mlp", plain_node(mlp ? "true" : "false"));
  tree.set("model.apply_lora_to_output", plain_node("false"));
}

}  // namespace

void write_torchtune(const Writing& w) {
  const bool quantized = w.s.base_weights != BaseWeights::as_trained;
  const std::string builder = torchtune_builder(w.plan.model.name);
  Node tree = Node::table({});
  tree.set("output_dir", text_node("output"));
  tree.set("model._component_", text_node(fmt::format(fmt::runtime(builder), !w.s.lora ? "" : quantized ? "qlora_" : "lora_")));
  add_torchtune_adapter(w, tree);
  const Node rows = write_rows(torchtune_format().rows(), w.s);
  const auto put = [&](const auto& self, const Node& table, const std::string& path) -> void {
    for (const auto& [key, value] : table.members) {
      if (value.is_table()) {
        self(self, value, path + key + ".");
      } else if (path + key != "custom_sharded_layers" && path + key != "model.quantize_base") {
        tree.set(path + key, value);
      }
    }
  };
  put(put, rows, {});
  if (!w.s.fsdp.units.empty() && w.s.data_parallel == DataParallel::fsdp2) tree.set("custom_sharded_layers", names_node(w.s.fsdp.units));
  tree.set("tokenizer._component_", text_node("torchtune.models.llama3.llama3_tokenizer"));
  tree.set("tokenizer.path", text_node("model/original/tokenizer.model"));
  tree.set("dataset._component_", text_node("torchtune.datasets.alpaca_cleaned_dataset"));
  tree.set("dataset.packed", plain_node(w.s.packed ? "true" : "false"));
  tree.set("seed", Node{});
  tree.set("shuffle", plain_node("true"));
  tree.set("checkpointer._component_", text_node("torchtune.training.FullModelHFCheckpointer"));
  tree.set("checkpointer.checkpoint_dir", text_node("model"));
  tree.set("checkpointer.checkpoint_files", names_node({"model.safetensors"}));
  tree.set("checkpointer.output_dir", text_node("output"));
  tree.set("checkpointer.model_type", text_node("LLAMA3"));
  tree.set("resume_from_checkpoint", plain_node("false"));
  tree.set("optimizer._component_", text_node(w.s.optimizer == OptimizerKind::adamw              ? "torch.optim.AdamW"
                                              : w.s.optimizer == OptimizerKind::paged_adamw_8bit ? "bitsandbytes.optim.PagedAdamW8bit"
                                                                                                 : "torch.optim.Adam"));
  tree.set("optimizer.lr", plain_node("2e-5"));
  if (w.s.lora) {
    tree.set("lr_scheduler._component_", text_node("torchtune.training.lr_schedulers.get_cosine_schedule_with_warmup"));
    tree.set("lr_scheduler.num_warmup_steps", plain_node("100"));
  }
  tree.set("loss._component_",
           text_node(w.s.loss == LossKernel::chunked ? "torchtune.modules.loss.CEWithChunkedOutputLoss" : "torch.nn.CrossEntropyLoss"));
  if (w.s.loss == LossKernel::chunked) tree.set("loss.num_output_chunks", number_node(w.s.loss_chunks));
  const bool alone = w.plan.cluster.gpus() == 1, aware = w.s.qat_group_size > 0;
  if (aware && alone)
    refuse("torchtune 0.6 has no recipe of a single device that is aware of a quantization", "qat.group_size", "several devices, or leave it out");
  if (aware) tree.set("quantizer._component_", text_node("torchtune.training.quantization.Int8DynActInt4WeightQATQuantizer"));
  tree.set("epochs", plain_node("1"));
  tree.set("max_steps_per_epoch", number_node(w.plan.length.steps));
  tree.set("clip_grad_norm", *w.s.clip_grad_norm ? plain_node("1.0") : Node{});
  tree.set("compile", plain_node(w.s.compile == Strategy::Compile::blocks ? "true" : "false"));
  tree.set("enable_activation_offloading", plain_node(w.s.offload.activations ? "true" : "false"));
  tree.set("device", text_node("cuda"));
  tree.set("dtype", text_node(w.s.precision == Precision::fp32 ? "fp32" : "bf16"));
  tree.set("metric_logger._component_", text_node("torchtune.training.metric_logging.DiskLogger"));
  tree.set("metric_logger.log_dir", text_node("output/logs"));
  tree.set("log_peak_memory_stats", plain_node("true"));
  w.file("recipe.yaml", w.head() + yaml_of(tree));
  const std::string tunes = aware ? (w.s.lora ? "qat_lora_finetune_" : "qat_") : w.s.lora ? "lora_finetune_" : "full_finetune_";
  const std::string recipe = tunes + (alone ? "single_device" : "distributed");
  write_script(w, alone ? "tune run " + recipe + " --config recipe.yaml"
                        : fmt::format("tune run --nproc_per_node {} --nnodes {} {} --config recipe.yaml", w.per_node(), w.nodes(), recipe));
  w.out.reads = {"recipe.yaml"};
}

// ---- Megatron-LM ---------------------------------------------------------------------------------------------------------------

namespace {

const Block* decoder_of(const Model& model) {
  for (const Block& block : model.blocks)
    if (block.role == Block::Role::decoder && block.attention) return &block;
  return nullptr;
}

void add_megatron_model(const Writing& w, Node& flags) {
  const Model& model = w.plan.model;
  const Block* block = decoder_of(model);
  if (block == nullptr || (!block->mlp && !block->moe) || block->placement != NormPlacement::pre || block->attention->mla)
    refuse("pretrain_gpt.py builds no network of the shape of " + model.name, {}, "decoders of llama's and gpt2's kind");
  const AttentionSpec& attention = *block->attention;
  const bool rope = attention.positions == Positions::rope;
  flags.set("num_layers", number_node(model.layers));
  flags.set("hidden_size", number_node(model.hidden_size));
  flags.set("ffn_hidden_size", number_node(model.intermediate_size));
  flags.set("num_attention_heads", number_node(model.heads));
  if (model.kv_heads != model.heads) {
    flags.set("group_query_attention", plain_node("true"));
    flags.set("num_query_groups", number_node(model.kv_heads));
  }
  flags.set("kv_channels", number_node(model.head_dim));
  flags.set("position_embedding_type", text_node(rope ? "rope" : "learned_absolute"));
  flags.set("max_position_embeddings", number_node(rope ? w.s.seq_len : std::max(model.max_positions, w.s.seq_len)));
  flags.set("normalization", text_node(block->norm.kind == NormSpec::Kind::rms_norm ? "RMSNorm" : "LayerNorm"));
  const bool gated = block->mlp ? block->mlp->gated : block->moe->gated;
  if (gated) flags.set("swiglu", plain_node("true"));
  if (!(block->mlp && block->mlp->bias)) flags.set("disable_bias_linear", plain_node("true"));
  if (attention.qkv_bias && !attention.output_bias) flags.set("add_qkv_bias", plain_node("true"));
  if (attention.qk_norm == AttentionSpec::QkNorm::per_head) flags.set("qk_layernorm", plain_node("true"));
  if (!model.tied_embeddings) flags.set("untie_embeddings_and_output_weights", plain_node("true"));
  flags.set("attention_dropout", plain_node(fmt::format("{}", attention.dropout)));
  flags.set("hidden_dropout", plain_node(fmt::format("{}", block->hidden_dropout)));
  flags.set("tokenizer_type", text_node("NullTokenizer"));
  flags.set("vocab_size", number_node(model.vocab_size));
  flags.set("make_vocab_size_divisible_by", number_node(w.s.megatron.make_vocab_size_divisible_by));
  if (!block->moe) return;
  flags.set("num_experts", number_node(block->moe->experts));
  flags.set("moe_router_topk", number_node(block->moe->top_k));
  flags.set("moe_ffn_hidden_size", number_node(block->moe->expert_intermediate));
  flags.set("moe_token_dispatcher_type", text_node(w.s.moe.dispatcher == "deepep" ? "flex" : w.s.moe.dispatcher));
}

void add_megatron_ranks(const Writing& w, Node& flags) {
  const auto degree = [&](const char* name, int ranks) { flags.set(name, number_node(ranks)); };
  flags.set("seq_length", number_node(w.s.seq_len));
  flags.set("micro_batch_size", number_node(w.s.micro_batch));
  flags.set("global_batch_size", number_node(w.s.global_batch));
  degree("tensor_model_parallel_size", w.s.tp);
  degree("pipeline_model_parallel_size", w.s.pp);
  if (w.s.vp > 1) degree("num_virtual_stages_per_pipeline_rank", w.s.vp);
  degree("context_parallel_size", w.s.cp);
  if (w.s.ep > 1) degree("expert_model_parallel_size", w.s.ep);
  if (w.s.ep > 1) degree("expert_tensor_parallel_size", w.s.etp);
  if (w.s.sequence_parallel.value_or(false) && w.s.tp > 1) flags.set("sequence_parallel", plain_node("true"));
  if (w.s.cp > 1) flags.set("cp_comm_type", text_node(w.s.megatron.cp_comm_type));
  const std::size_t stages = w.s.pp_layers.size();
  if (stages > 2 && w.s.vp == 1 && (w.s.pp_layers.front() != w.s.pp_layers[1] || w.s.pp_layers.back() != w.s.pp_layers[1])) {
    flags.set("decoder_first_pipeline_num_layers", number_node(w.s.pp_layers.front()));
    flags.set("decoder_last_pipeline_num_layers", number_node(w.s.pp_layers.back()));
  }
}

void add_megatron_training(const Writing& w, Node& flags) {
  const auto on = [&](const char* name, bool given) {
    if (given) flags.set(name, plain_node("true"));
  };
  const auto off = [&](const char* name, const std::optional<bool>& value) { on(name, value == false); };
  on(w.s.precision == Precision::mixed_fp16 ? "fp16" : "bf16",
     w.s.precision == Precision::mixed_fp16 || w.s.precision == Precision::mixed_bf16);
  if (w.s.low_precision == LowPrecision::fp8 || w.s.low_precision == LowPrecision::mxfp8) {
    flags.set("fp8_format", text_node("hybrid"));
    flags.set("fp8_recipe", text_node(w.s.low_precision == LowPrecision::mxfp8 ? "mxfp8" : w.value("fp8_recipe")));
    on("fp8_param_gather", w.s.fp8_params);
  }
  on("use_distributed_optimizer", w.s.data_parallel == DataParallel::megatron_distopt || w.s.data_parallel == DataParallel::megatron_fsdp);
  on("use_megatron_fsdp", w.s.data_parallel == DataParallel::megatron_fsdp);
  on("use_torch_fsdp2", w.s.data_parallel == DataParallel::fsdp2);
  on("torch_fsdp2_no_reshard_after_forward", w.s.data_parallel == DataParallel::fsdp2 && w.s.fsdp.reshard == FsdpOptions::Reshard::never);
  if (w.s.data_parallel == DataParallel::megatron_fsdp)
    flags.set("data_parallel_sharding_strategy", text_node(w.value("data_parallel_sharding_strategy")));
  on("overlap_grad_reduce", w.s.megatron.overlap_grad_reduce.value_or(false));
  on("overlap_param_gather", w.s.megatron.overlap_param_gather.value_or(false));
  on("align_param_gather", w.s.megatron.align_param_gather.value_or(false));
  on("defer_embedding_wgrad_compute", w.s.megatron.defer_embedding_wgrad_compute.value_or(false));
  if (w.s.megatron.wgrad_deferral_limit > 0) flags.set("wgrad_deferral_limit", number_node(w.s.megatron.wgrad_deferral_limit));
  if (w.s.megatron.mtp_num_layers > 0) flags.set("mtp_num_layers", number_node(w.s.megatron.mtp_num_layers));
  on("mtp_use_repeated_layer", w.s.megatron.mtp_use_repeated_layer);
  on("overlap_moe_expert_parallel_comm", w.s.moe.a2a_overlap.value_or(false));
  on("delay_wgrad_compute", w.s.moe.delay_wgrad);
  on("use_transformer_engine_op_fuser", w.s.moe.fused_mlp);
  if (w.s.megatron.ddp_bucket_size > 0) flags.set("ddp_bucket_size", number_node(w.s.megatron.ddp_bucket_size));
  on("grad_reduce_in_bf16", w.s.grad_dtype == DType::bf16 && w.s.data_parallel != DataParallel::fsdp2);
  on("use_precision_aware_optimizer", w.s.megatron.precision_aware_optimizer);
  off("no_gradient_accumulation_fusion", w.s.megatron.gradient_accumulation_fusion);
  off("no_masked_softmax_fusion", w.s.megatron.masked_softmax_fusion);
  off("no_rope_fusion", w.s.megatron.rope_fusion);
  off("no_bias_swiglu_fusion", w.s.megatron.bias_swiglu_fusion);
  flags.set("transformer_impl", text_node(w.s.megatron.layer_spec == "local" ? "local" : "transformer_engine"));
  flags.set("attention_backend", text_node(w.is("attention", "flash") ? "flash" : w.is("attention", "unfused") ? "unfused" : "fused"));
  on("cross_entropy_loss_fusion", w.s.loss == LossKernel::te || w.s.loss == LossKernel::fused_vocab_parallel);
  if (w.s.loss == LossKernel::te) flags.set("cross_entropy_fusion_impl", text_node("te"));
  on("tp_comm_overlap", w.s.async_tp.value_or(false));
  if (w.s.recompute.kind != Recompute::Kind::none) flags.set("recompute_granularity", text_node(w.value("recompute")));
  if (!w.value("recompute_method").empty()) flags.set("recompute_method", text_node(w.value("recompute_method")));
  if (!w.value("recompute_num_layers").empty()) flags.set("recompute_num_layers", plain_node(w.value("recompute_num_layers")));
  if (w.s.recompute.kind == Recompute::Kind::selective) {
    Node modules = Node::table({});
    modules.kind = Node::Kind::list;
    for (const std::string& module : w.s.recompute.modules) modules.members.emplace_back("", text_node(module));
    flags.set("recompute_modules", modules);
  }
  on("optimizer_cpu_offload", w.s.offload.optimizer);
  flags.set("optimizer", text_node(w.s.optimizer == OptimizerKind::sgdm || w.s.optimizer == OptimizerKind::sgd ? "sgd"
                                   : w.s.optimizer == OptimizerKind::muon                                      ? "muon"
                                                                                                               : "adam"));
  flags.set("clip_grad", plain_node(*w.s.clip_grad_norm ? "1.0" : "0.0"));
}

}  // namespace

void write_megatron(const Writing& w) {
  const bool alone = w.s.framework == "megatron-core";  // without Megatron-LM around it
  Node flags = Node::table({});
  flags.set(alone ? kOwnLoop : "use_mcore_models", plain_node("true"));
  add_megatron_model(w, flags);
  add_megatron_ranks(w, flags);
  add_megatron_training(w, flags);
  for (const auto& [name, value] : {std::pair{"lr", "1e-4"}, {"min_lr", "1e-5"}}) flags.set(name, plain_node(value));
  flags.set("train_iters", number_node(w.plan.length.steps));
  if (w.plan.length.save_every > 0 && !alone) {
    flags.set("save", text_node("checkpoints"));
    flags.set("save_interval", number_node(w.plan.length.save_every));
  }
  if (!alone)
    for (const auto& [name, value] : {std::pair{"mock_data", "true"}, {"split", "99,1,0"}, {"log_interval", "1"}, {"eval_iters", "0"}})
      flags.set(name, plain_node(value));
  if (alone) w.file("train.py", program_text("megatron.py"));
  write_script(w, torchrun_of(w) + (alone ? " train.py" : " \"${MEGATRON_LM:-.}/pretrain_gpt.py\"") + flags_of(flags));
  w.out.reads = {"run.sh"};
}

}  // namespace plimsoll::formats
