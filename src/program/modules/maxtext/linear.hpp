/// MaxText's DenseGeneral as XLA compiles it: products of cuBLASLt between fusions, in 16 bits or over Flax's Fp8DotGeneralOp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// One loop fusion: a kernel that reads `reads` and writes `writes`, whatever element-wise work lies between them.
void fusion(Tape& tape, const std::vector<Tensor>& reads, const std::vector<Tensor>& writes);

/// Which dimension of a kernel [in, out] is cut over the FSDP ranks (the axis called "embed"). The gathered dimension is the slowest in
/// memory, since an all-gather puts rank behind rank.
enum class CutDimension : std::uint8_t { in, out };

/// y[rows, out] = x[rows, in] · W[in, out]. In 8 bits operands are quantized with scales of steps before (delayed scaling): the fusion that
/// makes an operand writes it, and its maximum is read off by a reduction in the backward pass, where the history is updated.
class MaxtextLinear {
 public:
  MaxtextLinear(Tape& tape, const std::string& name, std::int64_t in, std::int64_t out, CutDimension cut, bool eight_bits);

  std::int64_t elements() const { return in_ * out_; }
  std::int64_t in() const { return in_; }
  std::int64_t out() const { return out_; }
  /// The type in which operands lie and weights are gathered.
  DType operand_type() const { return eight_bits_ ? DType::fp8 : DType::bf16; }
  bool eight_bits() const { return eight_bits_; }

  /// What a forward pass multiplies by W: written by the fusion that makes the input.
  Tensor operand(std::int64_t rows) const;
  /// y = x · W, added to what `y` holds where it `accumulates` (beta = 1).
  void forward(const Tensor& x, const Tensor& y, bool accumulates = false) const;

  /// Both forms of a gradient of y that the next two read: in 16 bits it is read as it is.
  struct Gradient {
    Tensor rows, columns;
  };
  Gradient quantized(const Tensor& gradient) const;
  /// dx = dy · Wᵀ.
  void input_gradient(const Gradient& dy, const Tensor& dx, bool accumulates = false) const;
  /// dW = xᵀ · dy, whose operands lie alike, into a buffer of the caller's; `x` is what backward_operand gave.
  void weight_gradient(const Tensor& x) const;
  /// What the gradient of the weight reads of x: in 8 bits Hopper's products take it turned.
  Tensor backward_operand(std::int64_t rows) const;

 private:
  void turn_weight() const;

  Tape& tape_;
  std::uint32_t label_;
  std::int64_t in_, out_;
  CutDimension cut_;
  bool eight_bits_;
};

/// The maximum of what the fusion of `reads` makes, which the history of a scale takes.
void read_maximum(Tape& tape, const std::vector<Tensor>& reads);

}  // namespace plimsoll::program
