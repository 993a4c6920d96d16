#include "program/wrappers/deepspeed/quantized.hpp"

#include <string>

#include "plimsoll/error.hpp"
#include "program/op.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kTargetGroup = 8'000, kLargestGroup = 16'000;  ///< elements

}  // namespace

std::int64_t quantizer_groups(std::int64_t elements) {
  std::int64_t groups = ceil_div(elements, kTargetGroup);
  while (groups < elements && elements % (8 * groups) != 0) ++groups;
  while (elements % (16 * groups) == 0 && elements > kTargetGroup * groups) groups *= 2;
  if (elements % (8 * groups) != 0 || elements >= kLargestGroup * groups || elements <= groups)
    refuse("DeepSpeed's quantizer finds no groups for a shard of " + std::to_string(elements) + " elements",
           "deepspeed.zero_optimization.zero_quantized_weights", "false, or ranks that leave shards of a multiple of 8 elements");
  return groups;
}

QuantizedWeights quantize_weights(Tape& tape, std::int64_t elements, bool copied) {
  const std::int64_t groups = quantizer_groups(elements);
  Tensor half;
  if (copied) {
    half = tape.empty({elements}, DType::fp16, Category::communication_buffer);
    pointwise(half, {&half});
  }
  QuantizedWeights quantized;
  quantized.scales = tape.empty({groups, 1}, DType::fp32, Category::communication_buffer);
  quantized.values = tape.empty({elements}, DType::int8, Category::communication_buffer);
  row_wise(tape, RowWise::Function::quantize, groups, elements / groups, {packed(elements, DType::fp16)},
           {operand(quantized.values), operand(quantized.scales)});
  return quantized;
}

Tensor dequantize_weights(Tape& tape, std::int64_t elements) {
  Tensor half = tape.empty({elements}, DType::fp16, Category::communication_buffer);
  pointwise(tape, Pointwise::Form::fused, {packed(elements, DType::int8)}, {operand(half)});
  return half;
}

}  // namespace plimsoll::program
