#include "program/modules/megatron/config.hpp"

#include <algorithm>
#include <iterator>

#include "framework/megatron.hpp"
#include "plimsoll/error.hpp"
#include "program/attention_library.hpp"
#include "program/modules/megatron/ops.hpp"
#include "program/modules/megatron/recompute.hpp"

namespace plimsoll::program {

namespace {

void check_attention(const Block& block, const Strategy& strategy) {
  const bool te = strategy.megatron.layer_spec == "te";
  const auto no = [&](bool unknown, const char* what) {
    if (unknown) refuse(std::string(what) + " is not modelled for Megatron-core", block.name);
  };
  const AttentionSpec& attention = *block.attention;
  if (attention.mla && !te)
    refuse("Megatron-core cannot build latent attention of local layers: their DotProductAttention takes neither k_channels nor v_channels",
           block.name, "use layer_spec te");
  no(attention.qk_norm != AttentionSpec::QkNorm::none && attention.qk_norm != AttentionSpec::QkNorm::per_head,
     "a norm of queries and keys over more than one head");
  no((attention.sliding_window || attention.sinks) && !te, "a sliding window or sinks in local layers");
  no(attention.softcap > 0 || attention.clip > 0 || !attention.causal, "this attention");
  no(attention.positions != Positions::learned && attention.positions != Positions::rope && (attention.positions != Positions::none || !te),
     "this position embedding");
  no(attention.heads % strategy.tp != 0, "a number of heads that the tensor-parallel ranks do not divide");
  no(attention.kv_heads % strategy.tp != 0 && strategy.tp % attention.kv_heads != 0, "this number of key and value heads");
}

/// MambaMixer's own assertions, and what of the mixer is not modelled.
void check_mamba(const MambaSpec& mamba, const Strategy& strategy) {
  if (mamba.heads % strategy.tp != 0 || mamba.groups % strategy.tp != 0)
    fail("the tensor-parallel ranks do not divide the mixers' " + std::to_string(mamba.heads) + " heads and " +
             std::to_string(mamba.groups) + " groups",
         "tp", "choose a divisor of both");
  if (strategy.cp > 1) refuse("context parallelism of Mamba mixers is not modelled for Megatron-core", "cp");
  if (strategy.lora) refuse("adapters beside Mamba mixers are not modelled for Megatron-core", "lora");
}

/// Everything that decides what a layer allocates is known here; what is not modelled is refused by name.
void check_layer(const Block& block, const Strategy& strategy) {
  const auto no = [&](bool unknown, const char* what) {
    if (unknown) refuse(std::string(what) + " is not modelled for Megatron-core", block.name);
  };
  const bool whole = block.attention && (block.mlp || block.moe);
  const bool hybrid = strategy.megatron.layer_spec == "te" && (block.mamba || block.attention || block.mlp || block.moe);
  no((!whole && !hybrid) || block.cross_attention, "this kind of layer");
  no(block.placement != NormPlacement::pre, "a placement of norms other than before the branches");
  const bool te = strategy.megatron.layer_spec == "te";
  // layernorm_zero_centered_gamma: Transformer Engine's kernels add the one; torch's norm refuses it.
  if (block.norm.unit_offset && !te)
    refuse("Megatron-core's local layers have no norm that multiplies by 1 + weight", block.name, "use layer_spec te");
  no((block.norm.unit_offset && block.norm.kind != NormSpec::Kind::layer_norm) || block.norm.decomposed ||
         block.norm.kind == NormSpec::Kind::none,
     "this norm");
  if (block.attention) check_attention(block, strategy);
  if (block.mamba) check_mamba(*block.mamba, strategy);
  if (block.mlp) {
    const bool swiglu = block.mlp->gated && block.mlp->activation == "silu";
    const bool gelu = !block.mlp->gated && block.mlp->activation.rfind("gelu", 0) == 0 && block.mlp->bias;
    const bool squared_relu = !block.mlp->gated && block.mlp->activation == "relu2" && !block.mlp->bias;
    no(!swiglu && !gelu && !squared_relu, "an MLP other than silu-gated, gelu with biases or squared relu without them");
    no(swiglu && !*strategy.megatron.bias_swiglu_fusion && (block.mlp->bias || strategy.fp8_activations),
       "a silu-gated MLP with biases or inputs in 8 bits, without bias_swiglu_fusion,");
    // CheckpointFunction.forward returns the last linear's own bias, of which the checkpoint becomes the gradient function: backward runs
    // the region again, whose bias leads back to the checkpoint.
    if (!te && block.mlp->bias && recomputes(strategy.recompute, "mlp"))
      fail("Megatron-core recomputes a local layer's MLP without end where it has biases: their gradient asks for the same recomputation",
           "recompute_modules", "leave mlp out, or recompute whole layers");
  }
}

[[noreturn]] void refuse_kernel(const char* key, std::string_view kernel, const char* layers) {
  refuse(std::string(key) + " '" + std::string(kernel) + "' is not modelled for " + layers, key);
}

/// Megatron's names of the linears that get an adapter: as it calls them, or MLPerf's phrases.
std::vector<std::string> adapted_linears(const Lora& lora) {
  const std::vector<std::string> usual{"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"};
  const std::vector<std::string> latent{"linear_q_proj", "linear_q_down_proj", "linear_q_up_proj", "linear_kv_down_proj",
                                        "linear_kv_up_proj"};
  const auto holds = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<std::string> linears;
  for (const std::string& target : lora.targets) {
    if (holds(usual, target) || holds(latent, target)) {
      linears.push_back(target);
    } else if (target == "all-linear") {
      linears.insert(linears.end(), usual.begin(), usual.end());
      linears.insert(linears.end(), latent.begin(), latent.end());
    } else if (target == "attention" || target == "attention qkv and proj" || target == "attention (qkv + proj)") {
      linears.insert(linears.end(), {"linear_qkv", "linear_proj"});
    } else {
      refuse("an adapter of '" + target + "' is not modelled for Megatron-core", "lora.target_modules",
             "linear_qkv, linear_proj, linear_fc1, linear_fc2 and those of latent attention are; all-linear means them all");
    }
  }
  return linears;
}

void check_adapters(const Strategy& s) {
  if (s.lora->r % s.tp != 0)
    fail("the tensor-parallel ranks do not divide the adapters' rank " + std::to_string(s.lora->r), "lora.r", "choose a multiple of tp");
  if (s.lora->dora || !s.lora->modules_to_save.empty()) refuse("DoRA and modules_to_save are not modelled for Megatron-core", "lora");
  if (s.base_weights != BaseWeights::as_trained)
    refuse("frozen weights of their own type are not modelled for Megatron-core", "base_weights");
  adapted_linears(*s.lora);
}

void check_local(const Strategy& s) {
  if (s.lora) check_adapters(s);
  if (s.megatron.mtp_num_layers > 0) refuse("multi-token prediction of Megatron-core's local layers is not modelled", "mtp_num_layers");
  constexpr const char* kLayers = "Megatron-core's local layers";
  if (s.cp > 1) refuse("context parallelism is not modelled for Megatron-core's local layers", "cp");
  if (s.low_precision != LowPrecision::none) refuse("8-bit products need Transformer Engine's layers", "low_precision");
  if (*s.megatron.rope_fusion) refuse("fused rotary embedding is not modelled", "rope_fusion");
  if (s.attention != AttentionKernel::unfused && s.attention != AttentionKernel::sdpa && s.attention != AttentionKernel::flash)
    refuse_kernel("attention", name_of(s.attention), kLayers);
  if (s.loss != LossKernel::vocab_parallel && s.loss != LossKernel::fused_vocab_parallel) refuse_kernel("loss", name_of(s.loss), kLayers);
}

void check_transformer_engine(const Strategy& s) {
  constexpr const char* kLayers = "Transformer Engine's layers";
  if (s.precision == Precision::fp32) refuse_kernel("precision", name_of(s.precision), kLayers);
  if (s.lora) check_adapters(s);
  if (!s.megatron.module_precision.empty() && s.fp8_params)
    refuse("single linears in other bits are not modelled beside primary weights in 8 bits", "module_precision");
  if (s.attention != AttentionKernel::te && !is_flash(s.attention)) refuse_kernel("attention", name_of(s.attention), kLayers);
  if (s.loss != LossKernel::vocab_parallel && s.loss != LossKernel::fused_vocab_parallel && s.loss != LossKernel::te)
    refuse_kernel("loss", name_of(s.loss), kLayers);
}

/// What Megatron-FSDP itself refuses (mcore_fsdp_adapter.py), and what of it is not modelled.
void check_fsdp(const Strategy& s) {
  if (s.pp > 1) refuse("Megatron-FSDP runs without a pipeline: its mesh knows data- and tensor-parallel ranks alone", "pp");
  if (s.dp_replicate > 1) refuse("hybrid sharding of Megatron-FSDP is not modelled", "dp_replicate");
  if (s.megatron.sharding == MegatronOptions::Sharding::no_shard && !*s.megatron.overlap_param_gather)
    fail("Megatron-FSDP's no_shard fails without overlap_param_gather: it gathers from a buffer that there is not",
         "data_parallel_sharding_strategy", "set overlap_param_gather, or use ddp");
  if (s.precision == Precision::mixed_fp16)
    fail("Megatron-FSDP fails with loss scaling: it unscales gradients of parts that a rank does not have", "precision", "use bf16");
  if (s.lora) refuse("adapters are not modelled for Megatron-FSDP", "lora");
}

/// What of torch's FSDP2 under Megatron is not modelled; what Megatron-LM itself refuses is said by framework/megatron.cpp.
void check_torch_fsdp2(const Strategy& s, const Model& model) {
  const auto no = [](bool unknown, const char* what, const char* key) {
    if (unknown)
      refuse(std::string(what) + " not modelled under torch's FSDP2 of Megatron-core", key,
             "data_parallel megatron-distopt or megatron-fsdp");
  };
  no(s.precision != Precision::mixed_bf16, "types other than bf16 with fp32 copies are", "precision");
  no(s.low_precision != LowPrecision::none, "8-bit copies of weights that come and go are", "precision");
  no(s.tp > 1, "tensor parallelism, whose norms' gradients are gathered whole, is", "tp");
  no(s.dp_replicate > 1, "replicas of the shards are", "dp_replicate");
  no(s.fsdp.reshard == FsdpOptions::Reshard::number, "weights kept in parts between the passes are", "fsdp.reshard_after_forward");
  no(model.has_experts(), "a mixture of experts is", "data_parallel");
  no(s.lora.has_value(), "adapters are", "lora");
  no(s.megatron.mtp_num_layers > 0, "multi-token prediction is", "mtp_num_layers");
  no(s.offload.any(), "offloading is", "offload");
}

/// TransformerConfig's own checks, and what is not modelled.
void check_recomputed_modules(const Strategy& s) {
  for (const std::string& module : s.recompute.modules) {
    if (module == "core_attn" || module == "mlp" || module == "moe" || module == "shared_experts" || module == "mla_up_proj") continue;
    if (module != "layernorm" && module != "moe_act")
      refuse("there is no selective recomputation of '" + module + "'", "recompute_modules",
             "core_attn, layernorm, mla_up_proj, mlp, moe, moe_act and shared_experts are");
    if (module == "moe_act" && s.megatron.layer_spec != "te")
      refuse("moe_act is recomputed behind grouped products alone, which local layers do not have", "recompute_modules");
  }
}

/// OptimizerConfig's own checks, and what of it is not modelled.
void check_precision_aware(const Strategy& s) {
  constexpr const char* kKey = "precision_aware_optimizer";
  if (s.megatron.layer_spec != "te" && !s.offload.optimizer)
    refuse("the precision-aware optimizer is Transformer Engine's FusedAdam", kKey);
  if (s.data_parallel != DataParallel::megatron_distopt)
    refuse("the precision-aware optimizer is modelled for the distributed optimizer alone, which Megatron asks for", kKey);
  if (s.optimizer != OptimizerKind::adamw && s.optimizer != OptimizerKind::adam)
    refuse("the precision-aware optimizer is Adam's alone", kKey);
  if (s.precision != Precision::mixed_bf16) refuse("the precision-aware optimizer is modelled for bf16 alone", kKey);
}

/// cpu_offloading (transformer_config.py): Transformer Engine's modules mark what leaves.
void check_activation_offload(const Strategy& s) {
  if (s.megatron.layer_spec != "te" || s.offload.activations_by != Offload::By::automatic)
    refuse("Megatron-core's activations are offloaded by Transformer Engine alone", "offload", "use layer_spec te");
}

/// optimizer_cpu_offload (training/arguments.py), and what of offloading is not modelled.
void check_offload(const Strategy& s) {
  if (s.offload.params || s.offload.grads) refuse("offloading of parameters and gradients is not modelled for Megatron-core", "offload");
  if (s.offload.activations) check_activation_offload(s);
  if (!s.offload.optimizer) return;
  if (!s.megatron.precision_aware_optimizer)
    refuse("Megatron's optimizer_cpu_offload needs use_precision_aware_optimizer", "offload", "set precision_aware_optimizer");
  if (s.optimizer_impl != OptimizerImpl::cpu)
    refuse("optimizer_cpu_offload steps on the host: optimizer_impl '" + std::string(name_of(s.optimizer_impl)) + "' is none of it",
           "optimizer_impl", "leave it out");
}

/// What of multi-token prediction is not modelled.
void check_prediction(const Strategy& s) {
  if (s.megatron.mtp_num_layers == 0) return;
  const auto no = [](bool unknown, const char* beside) {
    if (unknown) refuse(std::string("multi-token prediction is not modelled beside ") + beside, "mtp_num_layers");
  };
  no(s.lora.has_value(), "adapters");
  no(s.cp > 1, "context parallelism, whose ranks exchange the ends of their parts");
  no(*s.megatron.defer_embedding_wgrad_compute, "deferred gradients of the output layer's weight");
  no(s.offload.activations, "offloaded activations");
}

/// What is not modelled beside weight gradients that wait for slots of their own.
void check_split_backward(const Strategy& s) {
  if (!framework::splits_backward(s)) return;
  const auto no = [&](bool unknown, const std::string& beside) {
    if (unknown) refuse("Primus' " + s.pp_schedule + ", whose weight gradients wait, is not modelled beside " + beside, "pp_schedule");
  };
  no(s.megatron.layer_spec != "te", "local layers");
  no(s.lora.has_value(), "adapters");
  no(s.megatron.mtp_num_layers > 0, "multi-token prediction");
  no(s.moe.fused_mlp, "fused products of experts");
  no(*s.moe.a2a_overlap, "exchanges that overlap");
  no(*s.megatron.defer_embedding_wgrad_compute, "deferred gradients of the output layer's weight");
  no(s.data_parallel == DataParallel::megatron_fsdp, "Megatron-FSDP");
}

void check_strategy(const Strategy& s) {
  check_prediction(s);
  check_split_backward(s);
  if (s.data_parallel == DataParallel::megatron_fsdp) check_fsdp(s);
  check_offload(s);
  if (s.megatron.precision_aware_optimizer) check_precision_aware(s);
  s.megatron.layer_spec == "te" ? check_transformer_engine(s) : check_local(s);
  if (s.precision != Precision::mixed_bf16 && s.precision != Precision::mixed_fp16 && s.precision != Precision::fp32)
    refuse("precision '" + std::string(name_of(s.precision)) + "' is not modelled for Megatron-core", "precision");
  const Recompute& recompute = s.recompute;
  const bool selective = recompute.kind == Recompute::Kind::selective;
  if (selective) check_recomputed_modules(s);
  if (!selective && recompute.kind != Recompute::Kind::none && recompute.kind != Recompute::Kind::full)
    refuse("this recomputation is not modelled for Megatron-core", "recompute");
  if (recompute.kind == Recompute::Kind::full && recompute.method == Recompute::Method::none)
    refuse("Megatron needs recompute_method uniform or block for full recomputation", "recompute_method");
}

}  // namespace

namespace {

/// persist_ln_hidden_sizes of megatron/model/fused_layer_norm.py.
bool has_persistent_norm(std::int64_t hidden) {
  constexpr std::int64_t kSizes[] = {1024,  1536,  2048,  2304,  3072,  3840,  4096,  5120,  6144,  8192,  10240, 12288,
                                     12800, 15360, 16384, 18432, 20480, 24576, 25600, 30720, 32768, 40960, 49152, 65536};
  return std::find(std::begin(kSizes), std::end(kSizes), hidden) != std::end(kSizes);
}

/// What of Transformer Engine depends on its release.
class TeRelease {
 public:
  explicit TeRelease(const Strategy& strategy) : release_(strategy.releases.of(Package::transformer_engine)) {}

  /// A dummy gradient serves all weights of its shape for ever (module/base.py, get_dummy_wgrad).
  bool keeps_dummies() const { return release_.since(2, 3); }
  /// _Linear.backward asks for the gradient's transposed copy where the weight is frozen as well; _LayerNormLinear still does in 2.20.
  bool turns_frozen() const { return !release_.since(2, 7); }
  /// Linears whose input others save keep it as it is, and cast it again in backward.
  bool shares_inputs() const { return release_.since(2, 6); }
  /// NVFP4BlockScaling's transforms. What the containers of MLPerf had before that recipe is not public; their one step is that of plain
  /// casts.
  bool transforms() const { return release_.since(2, 8); }
  /// nvte_quantize_with_hadamard_transform: rows and transformed columns in 4 bits by one kernel (pull request 2555).
  bool casts_both_ways() const { return release_.since(2, 14); }
  /// Attention in 8 bits has windows and sinks (get_attention_backend; on Blackwell, by cuDNN 9.21).
  bool scores_in_eight_bits(const TargetDevice& device) const { return release_.since(2, 15) && device.from(100); }

 private:
  Release release_;
};

}  // namespace

namespace {

/// is_non_tn_fp8_gemm_supported: products of 8 bits take matrices of any layout on data-centre Blackwell; Hopper's and the smaller
/// Blackwells' need transposed copies.
bool multiplies_untransposed_fp8(const TargetDevice& device) { return device.from(100) && (!device.from(120) || device.from(130)); }

/// NeMo's containers up to 24.07: their attention goes at the pace of flash-attention 2, whose share of a step shows at up to a million
/// tokens (NeMo's table of long sequences, 24.03).
bool runs_before_cudnn_attention(const Strategy& strategy) {
  return strategy.framework == "nemo" && !strategy.releases.of(Package::nemo_container).since(24, 8);
}

/// Transformer Engine's choice where nothing is asked for (get_attention_backend): where both can run, cuDNN's attention before
/// flash-attention from Hopper on, behind it before; on AMD its fused attention is Composable Kernel's.
AttentionLibrary te_attention_library(const Strategy& strategy, const TargetDevice& device) {
  if (device.amd()) return AttentionLibrary::composable_kernel;
  if (strategy.attention == AttentionKernel::flash3 || strategy.attention == AttentionKernel::flash4)
    return packaged_flash(device, strategy.attention);
  const bool asked = strategy.attention == AttentionKernel::flash || runs_before_cudnn_attention(strategy);
  return device.from(90) && !asked ? AttentionLibrary::cudnn : AttentionLibrary::flash2;
}

}  // namespace

TeQuantization te_quantization(const Strategy& s, const TargetDevice& device) {
  constexpr std::int64_t kScaled = 32;  // elements per byte of scales: mxfp8 has one byte for 32, blockwise scaling four for 128
  constexpr std::int64_t kFourBitsScaled = 16;
  TeQuantization quantization;
  quantization.enabled = s.low_precision != LowPrecision::none;
  quantization.primary = s.fp8_params;
  if (!quantization.enabled) return quantization;
  const bool mxfp8 = s.low_precision == LowPrecision::mxfp8;
  const bool blockwise = s.low_precision == LowPrecision::fp8 && s.fp8_scaling == Fp8Scaling::blockwise;
  const bool nvfp4 = s.low_precision == LowPrecision::nvfp4;
  if (s.fp8_scaling == Fp8Scaling::rowwise && !nvfp4)
    refuse("this recipe of low precision is not modelled for Transformer Engine's layers", "low_precision");
  if ((mxfp8 || nvfp4) && s.fp8_params && s.data_parallel == DataParallel::megatron_fsdp)
    refuse("primary weights in mxfp8 or nvfp4 are not modelled beside Megatron-FSDP", "fp8_params", "leave fp8_params out");
  quantization.scaling = nvfp4 ? Scaling::nvfp4 : mxfp8 ? Scaling::mxfp8 : blockwise ? Scaling::block : Scaling::tensor;
  quantization.turned = nvfp4 || (!mxfp8 && !multiplies_untransposed_fp8(device));
  quantization.block = nvfp4 ? kFourBitsScaled : mxfp8 || blockwise ? kScaled : 0;
  quantization.measured = nvfp4 || (!mxfp8 && s.fp8_scaling == Fp8Scaling::tensorwise);
  quantization.transposes = quantization.block > 0 || !multiplies_untransposed_fp8(device);
  quantization.fused_norm = mxfp8 || s.fp8_scaling == Fp8Scaling::delayed;
  const bool delayed = quantization.scaling == Scaling::tensor && !quantization.measured;
  quantization.transforms = nvfp4 && TeRelease(s).transforms();
  quantization.casts_both_ways = nvfp4 && TeRelease(s).casts_both_ways();
  quantization.turns_frozen = TeRelease(s).turns_frozen();
  quantization.shares_inputs = !delayed && TeRelease(s).shares_inputs();
  return quantization;
}

namespace {

/// "*.linear_qkv=bf16".
ModuleRecipe module_recipe(const std::string& text, const Strategy& strategy, const TargetDevice& device) {
  const auto at = text.rfind('=');
  const std::string recipe = at == std::string::npos ? "" : text.substr(at + 1);
  if (at == 0 || (recipe != "bf16" && recipe != "mxfp8"))
    fail("'" + text + "' is no recipe of a module", "module_precision", "write pattern=bf16 or pattern=mxfp8");
  if (recipe == "bf16") return {text.substr(0, at), {}};
  Strategy other = strategy;
  other.low_precision = LowPrecision::mxfp8;
  return {text.substr(0, at), te_quantization(other, device)};
}

/// fnmatch, of * alone.
bool fits(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return path.empty();
  if (pattern.front() != '*') return !path.empty() && pattern.front() == path.front() && fits(pattern.substr(1), path.substr(1));
  for (std::size_t skipped = 0; skipped <= path.size(); ++skipped)
    if (fits(pattern.substr(1), path.substr(skipped))) return true;
  return false;
}

/// get_mtp_layer_spec: the model's own pattern of layers, or a layer like the last.
PredictionConfig prediction_config(const Model& model, const Strategy& strategy, const std::vector<const Block*>& layers) {
  PredictionConfig prediction{strategy.megatron.mtp_num_layers, strategy.megatron.mtp_use_repeated_layer, {}};
  if (prediction.depth == 0) return prediction;
  for (const int block : model.prediction_blocks) prediction.layers.push_back(&model.blocks[static_cast<std::size_t>(block)]);
  if (prediction.layers.empty()) prediction.layers.push_back(layers.back());
  return prediction;
}

}  // namespace

const TeQuantization* MegatronConfig::own_recipe(std::string_view path, std::int64_t layer) const {
  if (!quantization.enabled) return nullptr;
  if (layer >= 0 && layer >= static_cast<std::int64_t>(layers.size()) - sixteen_bit_tail) return &sixteen_bits;
  for (const ModuleRecipe& each : recipes)
    if (fits(each.pattern, path)) return &each.recipe;
  return nullptr;
}

MegatronConfig megatron_config(const Model& model, const Strategy& strategy, const TargetDevice& device) {
  check_strategy(strategy);
  if (strategy.data_parallel == DataParallel::fsdp2) check_torch_fsdp2(strategy, model);
  if (model.task != Model::Task::causal_lm) refuse("Megatron's GPTModel is lowered alone; this model is no causal decoder");
  MegatronConfig config;
  config.type = *strategy.param_dtype;
  config.hidden = model.hidden_size;
  config.vocabulary = round_up(model.vocab_size, static_cast<std::int64_t>(strategy.megatron.make_vocab_size_divisible_by) * strategy.tp);
  config.flash = strategy.attention != AttentionKernel::unfused;
  config.fused_softmax = *strategy.megatron.masked_softmax_fusion && has_fused_softmax(strategy.seq_len, config.type);
  const framework::MegatronRelease release = framework::megatron_release(strategy);
  config.persistent_norm = !release.core() && release.persists_norms() && has_persistent_norm(config.hidden);
  config.te = strategy.megatron.layer_spec == "te";
  config.quantization = te_quantization(strategy, device);
  for (const std::string& text : strategy.megatron.module_precision) config.recipes.push_back(module_recipe(text, strategy, device));
  config.sixteen_bit_tail = strategy.bf16_tail_layers;
  config.eight_bit_activations = strategy.fp8_activations;
  config.fused_rotary = *strategy.megatron.rope_fusion;
  config.fuses_swiglu = *strategy.megatron.bias_swiglu_fusion;
  config.keeps_dummies = TeRelease(strategy).keeps_dummies();
  config.attention_library = te_attention_library(strategy, device);
  config.attention = {.exchange = strategy.megatron.cp_comm_type,
                      .in_eight_bits = strategy.fp8_attention,
                      .scores_in_eight_bits = TeRelease(strategy).scores_in_eight_bits(device)};
  config.lora = strategy.lora;
  if (config.lora) config.adapted = adapted_linears(*config.lora);
  config.loss = strategy.loss;
  config.tied = model.tied_embeddings;
  config.pipeline = strategy.pp;
  config.recompute = strategy.recompute;
  if (strategy.offload.activations) {
    // TransformerConfig asks for fewer than all.
    const std::int64_t named = strategy.offload.activation_layers, most = std::max<std::int64_t>(model.layers - 1, 1);
    config.offloaded_layers = named > 0 ? std::min(named, most) : most;
  }
  for (const Block& block : model.blocks) {
    if (block.role != Block::Role::decoder) continue;
    check_layer(block, strategy);
    if (block.moe) config.experts = expert_options(*block.moe, strategy, device.fast_domain);
    config.routes_tokens |= block.moe.has_value();
    config.fuses_dropout &= !block.moe || !block.moe->expert_bias;
    if (block.attention) {
      config.latent = block.attention->mla.has_value();
      if (block.attention->positions == Positions::rope && !config.latent) config.rotary = block.attention->rotary_dim;
      if (block.attention->positions == Positions::learned) config.positions = model.max_positions;
    }
    config.norm = block.norm;
    config.hidden_dropout = block.hidden_dropout;
    for (std::int64_t i = 0; i < block.repeat; ++i) config.layers.push_back(&block);
  }
  config.prediction = prediction_config(model, strategy, config.layers);
  return config;
}

}  // namespace plimsoll::program
