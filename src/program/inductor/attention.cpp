#include "program/inductor/attention.hpp"

#include <utility>

#include "plimsoll/error.hpp"
#include "program/ops/attention_choice.hpp"

namespace plimsoll::program {

namespace {

SdpaBackend backend_of(const CompiledHeads& x, const AttentionArguments& arguments) {
  const SdpaBackend backend = sdpa_backend(x.query, x.key, x.value, x.bias, arguments);
  if (backend == SdpaBackend::math)
    refuse(
        "attention that is written out in products is not modelled under torch.compile: no fused kernel takes these heads on this device",
        "attention", "eager, or without compile");
  return backend;
}

/// With heads within rows, a copy where they lie otherwise (transformers/cuda/attention_backward.cu).
Tensor rows_of_heads(const Tensor& heads) {
  const Dims &sizes = heads.sizes(), &strides = heads.strides();
  return contiguous(heads.tape().view(heads, {sizes[0], sizes[2], sizes[1], sizes[3]}, {strides[0], strides[2], strides[1], strides[3]}));
}

}  // namespace

FlashOutputs compiled_attention_forward(const CompiledHeads& x, const AttentionArguments& arguments) {
  const SdpaBackend backend = backend_of(x, arguments);
  if (backend == SdpaBackend::cudnn) return cudnn_attention_forward(x.query, x.key, x.value, x.bias, arguments);
  if (backend == SdpaBackend::flash) return flash_attention_forward(x.query, x.key, x.value, arguments.causal, arguments.dropout);
  EfficientOutputs all = efficient_attention_forward(x.query, x.key, x.value);
  return {std::move(all.output), std::move(all.log_sum_exp), std::move(all.seed), std::move(all.offset)};
}

FlashGradients compiled_attention_backward(const CompiledHeads& x, const Tensor& gradient, const Tensor& result,
                                           const AttentionArguments& arguments) {
  const SdpaBackend backend = backend_of(x, arguments);
  if (backend == SdpaBackend::cudnn) {
    const Tensor taken = cudnn_gradient(gradient, result);
    return cudnn_attention_backward(x.query, x.key, x.value, x.bias, arguments);
  }
  const Tensor rows = rows_of_heads(gradient), rows_of_result = rows_of_heads(result);
  if (backend == SdpaBackend::flash) return flash_attention_backward(x.query, x.key, x.value, rows, arguments.causal);
  return efficient_attention_backward(x.query, x.key, x.value, rows);
}

}  // namespace plimsoll::program
