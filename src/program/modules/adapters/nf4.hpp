/// torchao's NF4Tensor: weights of four bits, with scales that are themselves quantised to eight bits (double quantisation).
#pragma once

#include <cstdint>

#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// Gives `module` the parts of an NF4 weight [out, in] as frozen parameters: two elements a byte, a scale of eight bits per 64 elements, a
/// factor per 256 scales, the mean of the scales and the 16 values.
void add_nf4_weight(Module& module, std::int64_t out, std::int64_t in, DType type);

/// to_nf4(weight), 16- or 32-bit: makes the parts.
void quantize_nf4(Module& module, const Tensor& weight);

/// load_state_dict: the weight is copied to the device, quantised, and its parts are copied.
void load_nf4(Module& module, Tape& tape, std::int64_t out, std::int64_t in, DType type);

/// NF4Tensor.get_original_weight: the weight [out, in] in the type it had.
Tensor dequantized(Module& module, Tape& tape, std::int64_t out, std::int64_t in, DType type);

/// linear_nf4(x, weight): only the quantised weight is kept for the backward, which dequantises it again.
Tensor linear_nf4(const Tensor& x, Module& module, Tape& tape, std::int64_t out, std::int64_t in);

}  // namespace plimsoll::program
