#include "program/modules/transformers/compiled/attention.hpp"

#include <utility>

#include "program/ops/attention_choice.hpp"

namespace plimsoll::program {

namespace {

/// Else it is flash, or with a bias the memory-efficient kernel.
bool by_cudnn(const CompiledHeads& x, const AttentionArguments& arguments) {
  return sdpa_backend(x.query, x.key, x.value, x.bias, arguments) == SdpaBackend::cudnn;
}

}  // namespace

FlashOutputs compiled_attention_forward(const CompiledHeads& x, const AttentionArguments& arguments) {
  if (by_cudnn(x, arguments)) return cudnn_attention_forward(x.query, x.key, x.value, x.bias, arguments);
  if (!x.bias) return flash_attention_forward(x.query, x.key, x.value, arguments.causal, arguments.dropout);
  EfficientOutputs all = efficient_attention_forward(x.query, x.key, x.value);
  return {std::move(all.output), std::move(all.log_sum_exp), std::move(all.seed), std::move(all.offset)};
}

FlashGradients compiled_attention_backward(const CompiledHeads& x, const Tensor& gradient, const AttentionArguments& arguments) {
  if (by_cudnn(x, arguments)) return cudnn_attention_backward(x.query, x.key, x.value, x.bias, arguments);
  if (!x.bias) return flash_attention_backward(x.query, x.key, x.value, gradient, arguments.causal);
  return efficient_attention_backward(x.query, x.key, x.value, gradient);
}

}  // namespace plimsoll::program
