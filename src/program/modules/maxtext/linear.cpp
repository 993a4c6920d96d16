#include "program/modules/maxtext/linear.hpp"

#include <algorithm>

#include "program/kernels.hpp"

namespace plimsoll::program {

void fusion(Tape& tape, const std::vector<Tensor>& reads, const std::vector<Tensor>& writes) {
  Pointwise kernel{Pointwise::Form::fused, 0, {}};
  for (const Tensor& each : reads) kernel.operands.read(operand(each));
  for (const Tensor& each : writes) kernel.operands.write(operand(each));
  for (const Operand& each : kernel.operands) kernel.elements = std::max(kernel.elements, each.elements);
  tape.kernel({kernel});
}

void read_maximum(Tape& tape, const std::vector<Tensor>& reads) {
  const Tensor maximum = tape.empty({}, DType::fp32);
  Reduction kernel{Reduction::Axis::all, 1, reads.front().elements(), {}};
  for (const Tensor& each : reads) kernel.operands.read(operand(each));
  kernel.operands.write(operand(maximum));
  tape.kernel({kernel});
}

MaxtextLinear::MaxtextLinear(Tape& tape, const std::string& name, std::int64_t in, std::int64_t out, CutDimension cut, bool eight_bits)
    : tape_(tape), label_(tape.intern(name)), in_(in), out_(out), cut_(cut), eight_bits_(eight_bits) {}

Tensor MaxtextLinear::operand(std::int64_t rows) const { return tape_.empty({rows, in_}, operand_type()); }

Tensor MaxtextLinear::backward_operand(std::int64_t rows) const {
  return eight_bits_ ? tape_.empty({in_, rows}, DType::fp8) : tape_.empty({rows, in_}, DType::bf16);
}

namespace {

Matrix plain(std::int64_t rows, std::int64_t columns, DType type) { return {rows, columns, 1, columns, false, type}; }

/// XLA's own scratch lies in its plan, so that no product takes a workspace.
ProductOptions options_of(bool eight_bits, bool accumulates) {
  return {.scaling = eight_bits ? Scaling::tensor : Scaling::none, .accumulates = accumulates, .workspace = false};
}

}  // namespace

/// Hopper's 8-bit products want neighbours along the summed dimension: a weight that was gathered the other way is transposed.
void MaxtextLinear::turn_weight() const {
  const Tensor weight = tape_.empty({in_, out_}, DType::fp8), turned = tape_.empty({out_, in_}, DType::fp8);
  fusion(tape_, {weight}, {turned});
}

void MaxtextLinear::forward(const Tensor& x, const Tensor& y, bool accumulates) const {
  const LabelScope label(tape_, label_);
  const std::int64_t rows = y.elements() / out_;
  if (eight_bits_ && cut_ == CutDimension::in) turn_weight();
  const bool neighbours_in = eight_bits_ || cut_ == CutDimension::out;
  const Matrix weight = neighbours_in ? plain(out_, in_, x.dtype()).t() : plain(in_, out_, x.dtype());
  gemm(tape_, plain(rows, in_, x.dtype()), weight, plain(rows, out_, y.dtype()), options_of(eight_bits_, accumulates));
}

MaxtextLinear::Gradient MaxtextLinear::quantized(const Tensor& gradient) const {
  if (!eight_bits_) return {gradient, gradient};
  const LabelScope label(tape_, label_);
  const std::int64_t rows = gradient.elements() / out_;
  read_maximum(tape_, {gradient});
  Gradient both{tape_.empty({rows, out_}, DType::fp8), tape_.empty({out_, rows}, DType::fp8)};
  fusion(tape_, {gradient}, {both.rows, both.columns});
  return both;
}

void MaxtextLinear::input_gradient(const Gradient& dy, const Tensor& dx, bool accumulates) const {
  const LabelScope label(tape_, label_);
  const std::int64_t rows = dx.elements() / in_;
  const DType type = dy.rows.dtype();
  if (eight_bits_ && cut_ == CutDimension::out) turn_weight();
  const bool neighbours_out = eight_bits_ || cut_ == CutDimension::in;
  const Matrix weight = neighbours_out ? plain(in_, out_, type).t() : plain(out_, in_, type);
  gemm(tape_, plain(rows, out_, type), weight, plain(rows, in_, dx.dtype()), options_of(eight_bits_, accumulates));
}

void MaxtextLinear::weight_gradient(const Tensor& x) const {
  const LabelScope label(tape_, label_);
  const std::int64_t rows = x.elements() / in_;
  const DType type = x.dtype();
  if (eight_bits_)
    gemm(tape_, plain(in_, rows, type), plain(out_, rows, type).t(), plain(in_, out_, DType::bf16), options_of(true, false));
  else
    gemm(tape_, plain(rows, in_, type).t(), plain(rows, out_, type), plain(in_, out_, DType::bf16), options_of(false, false));
}

}  // namespace plimsoll::program
