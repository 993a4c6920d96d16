#include <algorithm>

#include "framework/megatron.hpp"
#include "framework/resolver.hpp"
#include "strategy/msamp.hpp"
#include "strategy/torch_release.hpp"

namespace plimsoll::framework {
namespace {

bool fp16_family(Precision precision) {
  return precision == Precision::fp16 || precision == Precision::amp_fp16 || precision == Precision::pure_fp16 ||
         precision == Precision::mixed_fp16 || precision == Precision::fsdp_mixed_fp16;
}

/// What plain "bf16" or "fp16" means here: weights without a master are pure; FSDP shards of fp32 are cast when gathered.
Precision concrete(const Resolver& r) {
  const Strategy& s = r.s;
  const bool half = s.precision == Precision::fp16;
  const bool sharded = s.data_parallel == DataParallel::fsdp1 || s.data_parallel == DataParallel::fsdp2;
  if (s.master_weights == false || (sharded && s.fsdp.mixed_precision == false)) return half ? Precision::pure_fp16 : Precision::pure_bf16;
  const Precision usual = half ? r.profile().fp16 : r.profile().bf16;
  if (sharded && (usual == Precision::amp_bf16 || usual == Precision::amp_fp16))
    return half ? Precision::fsdp_mixed_fp16 : Precision::fsdp_mixed_bf16;
  if (!sharded && (usual == Precision::fsdp_mixed_bf16 || usual == Precision::fsdp_mixed_fp16))
    return half ? Precision::amp_fp16 : Precision::amp_bf16;
  return usual;
}

struct Types {
  DType param, compute, grad, reduce, state;
};

/// Types of a recipe before what the strategy says about single ones.
Types usual_types(const Resolver& r) {
  const Strategy& s = r.s;
  const DType half = fp16_family(s.precision) ? DType::fp16 : DType::bf16;
  switch (s.precision) {
    case Precision::fp32:
      return {DType::fp32, DType::fp32, DType::fp32, DType::fp32, DType::fp32};
    case Precision::amp_bf16:
    case Precision::amp_fp16: {
      const DType param = s.param_dtype.value_or(DType::fp32);
      return {param, half, param, param, param};
    }
    case Precision::mixed_bf16:
    case Precision::mixed_fp16: {
      // DeepSpeed reduces and keeps gradients in the weights' type unless told; Megatron and nanotron accumulate in fp32.
      const bool deepspeed = engine_of(s) == Engine::deepspeed;
      // NeMo's recipes for 8-bit products reduce in 16 bits (bf16_with_fp8_mixed with grad_reduce_in_fp32=False, MLPerf's and its own).
      const bool nemo_fp8 = s.framework == "nemo" && s.low_precision == LowPrecision::fp8;
      const bool own_type = nemo_fp8 || !megatron_release(s).core() || engine_of(s) == Engine::fsdp2;
      const DType usual = deepspeed ? s.deepspeed.grad_accum_dtype.value_or(half) : own_type ? half : DType::fp32;
      const DType grad = s.grad_dtype.value_or(usual);
      return {half, half, grad, deepspeed ? half : grad, DType::fp32};
    }
    case Precision::fsdp_mixed_bf16:
    case Precision::fsdp_mixed_fp16: {
      const DType param = s.param_dtype.value_or(DType::fp32);
      return {param, half, param, r.profile().fsdp_reduce, param};
    }
    case Precision::msamp_o1:
    case Precision::msamp_o2:
    case Precision::msamp_o3: {
      // Of all but the linears' weights. Accelerate autocasts to bf16, DeepSpeed does not.
      const DType param = s.param_dtype.value_or(DType::fp32), state = s.precision == Precision::msamp_o1 ? DType::fp32 : DType::fp16;
      return {param, engine_of(s) == Engine::deepspeed ? param : DType::bf16, DType::fp8, DType::fp8, state};
    }
    default:
      return {half, half, half, half, half};
  }
}

bool computes_in(const Accelerator& device, MathType type) {
  return std::any_of(device.rates.begin(), device.rates.end(), [&](const ComputeRate& rate) { return rate.type == type; });
}

void default_type(std::optional<DType>& field, DType usual) {
  if (!field) field = usual;
}

/// Autocast needs no fp32 copy of weights that nothing trains: where nobody says a recipe ("bf16" leaves it open), they stay as checkpoints
/// hold them, which is how transformers 5 (dtype "auto") and diffusers' scripts load them beside LoRA.
void hold_frozen_weights_as_stored(Resolver& r) {
  Strategy& s = r.s;
  const bool autocast = s.precision == Precision::amp_bf16 || s.precision == Precision::amp_fp16;
  if (!autocast || !s.lora || s.base_weights != BaseWeights::as_trained || s.param_dtype) return;
  s.param_dtype = fp16_family(s.precision) ? DType::fp16 : DType::bf16;
  r.assume("param_dtype: " + std::string(name_of(*s.param_dtype)) + " (frozen weights, as checkpoints hold them)");
}

/// Where a loop of its own shards 4-bit weights, they lie in the type of the others, as their authors must say; the Trainer's own default is
/// bitsandbytes' (uint8).
void store_sharded_weights(Resolver& r) {
  Strategy& s = r.s;
  const bool four_bits = s.base_weights == BaseWeights::nf4 || s.base_weights == BaseWeights::nf4_double_quant;
  if (!four_bits || s.quant_storage || !is_fsdp(s.data_parallel) || s.framework != "transformers") return;
  s.quant_storage = s.param_dtype.value_or(fp16_family(s.precision) ? DType::fp16 : DType::bf16);
  r.assume("bnb_4bit_quant_storage: " + std::string(name_of(*s.quant_storage)) + " (FSDP shards no weights that lie in uint8)");
}

/// FSDP flattens, or gathers, 4-bit weights with those beside them: the whole model is loaded in the type that they lie in.
void hold_weights_in_quant_storage(Resolver& r) {
  Strategy& s = r.s;
  if (!s.quant_storage || s.base_weights == BaseWeights::as_trained || !is_fsdp(s.data_parallel) || s.param_dtype) return;
  s.param_dtype = *s.quant_storage;
  r.assume("param_dtype: " + std::string(name_of(*s.param_dtype)) + " (bnb_4bit_quant_storage, as FSDP asks)");
}

}  // namespace

void resolve_precision(Resolver& r) {
  Strategy& s = r.s;
  const bool said = s.precision != Precision::automatic;
  const bool open = !said || ((s.precision == Precision::bf16 || s.precision == Precision::fp16) && s.low_precision == LowPrecision::none);
  if (!said) {
    const bool has_bf16 = computes_in(r.device, MathType::bf16), has_fp16 = computes_in(r.device, MathType::fp16);
    s.precision = has_bf16 || !has_fp16 ? Precision::bf16 : Precision::fp16;
    r.assume(has_bf16 || !has_fp16 ? "precision: bf16" : "precision: fp16, since " + r.device.title + " has no bf16");
  }
  if (s.precision == Precision::bf16 || s.precision == Precision::fp16) {
    const std::string plain(name_of(s.precision));
    s.precision = concrete(r);
    r.assume("precision: " + plain + " as " + std::string(name_of(s.precision)));
  }
  if (open) hold_frozen_weights_as_stored(r);
  store_sharded_weights(r);
  hold_weights_in_quant_storage(r);
  const Types types = usual_types(r);
  const bool pure = s.precision == Precision::pure_bf16 || s.precision == Precision::pure_fp16;
  default_type(s.param_dtype, types.param);
  default_type(s.compute_dtype, types.compute);
  default_type(s.grad_dtype, types.grad);
  default_type(s.reduce_dtype, pure ? *s.param_dtype : types.reduce);
  default_type(s.state_dtype, types.state);
  s.master_weights = s.precision == Precision::mixed_bf16 || s.precision == Precision::mixed_fp16 || s.precision == Precision::msamp_o3;
  if (!s.fsdp.mixed_precision)
    s.fsdp.mixed_precision = s.precision == Precision::fsdp_mixed_bf16 || s.precision == Precision::fsdp_mixed_fp16;
  // Of the backends that are installed Accelerate takes torchao's first.
  if (s.low_precision == LowPrecision::fp8 && s.fp8_scaling == Fp8Scaling::automatic && r.profile().code == ModelCode::transformers) {
    s.fp8_scaling = Fp8Scaling::tensorwise;
    r.assume("fp8_backend: ao");
  }
  if (s.low_precision != LowPrecision::none && s.fp8_scaling == Fp8Scaling::automatic)
    s.fp8_scaling = s.low_precision == LowPrecision::fp8 ? r.profile().fp8_scaling : Fp8Scaling::blockwise;
  if (s.lora && !s.lora->adapter_dtype && r.profile().adapter_dtype) s.lora->adapter_dtype = r.profile().adapter_dtype;
}

void resolve_optimizer(Resolver& r) {
  Strategy& s = r.s;
  if (s.optimizer == OptimizerKind::automatic) {
    s.optimizer = OptimizerKind::adamw;
    r.assume("optimizer: adamw");
  }
  if (s.optimizer_impl == OptimizerImpl::automatic) {
    switch (s.optimizer) {
      case OptimizerKind::adam:
      case OptimizerKind::adamw:
        s.optimizer_impl = s.offload.optimizer ? OptimizerImpl::cpu : r.profile().optimizer_impl;
        if (s.optimizer_impl == OptimizerImpl::foreach && before_torch_2(s)) s.optimizer_impl = OptimizerImpl::for_loop;
        // torchao's 8-bit gathering wraps weights in a class of its own, for which torch.optim takes no lists; on by default
        // (AORecipeKwargs).
        if (s.optimizer_impl == OptimizerImpl::foreach && r.profile().code == ModelCode::transformers &&
            s.low_precision == LowPrecision::fp8 && s.fp8_scaling == Fp8Scaling::tensorwise)
          s.optimizer_impl = OptimizerImpl::for_loop;
        if (is_msamp(s.precision)) s.optimizer_impl = OptimizerImpl::library;  // LBAdamW
        break;
      case OptimizerKind::sgd:
      case OptimizerKind::sgdm:
        s.optimizer_impl = before_torch_2(s) ? OptimizerImpl::for_loop : OptimizerImpl::foreach;
        break;
      default:
        s.optimizer_impl = OptimizerImpl::library;
    }
    r.assume("optimizer_impl: " + std::string(name_of(s.optimizer_impl)));
  }
  if (!s.clip_grad_norm) {
    s.clip_grad_norm = r.profile().clip_grad_norm;
    r.assume(std::string("clip_grad_norm: ") + (*s.clip_grad_norm ? "true" : "false"));
  }
}

}  // namespace plimsoll::framework
