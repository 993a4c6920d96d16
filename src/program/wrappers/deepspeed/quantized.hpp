/// The 8-bit weights of ZeRO++ (zero_quantized_weights) on their way. Sources: CUDAQuantizer in deepspeed/runtime/zero/partition_parameters.py,
/// csrc/quantization/pt_binding.cpp.
#pragma once

#include <cstdint>

#include "program/tape.hpp"

namespace plimsoll::program {

/// Values of one byte and an fp32 scale for each group of them.
struct QuantizedWeights {
  Tensor values, scales;
};

/// The groups that CUDAQuantizer cuts so many elements into: at least one for each 8,000 of them, all of equal length, a multiple of 8.
/// Throws Error (refused) where DeepSpeed finds none.
std::int64_t quantizer_groups(std::int64_t elements);

/// CUDAQuantizer.quantize of `elements` weights. Its kernel reads fp16 on the device: what is neither (`copied`) is copied first.
QuantizedWeights quantize_weights(Tape& tape, std::int64_t elements, bool copied);

/// The kernel's fp16 result, `elements` of it.
Tensor dequantize_weights(Tape& tape, std::int64_t elements);

}  // namespace plimsoll::program
