#include "program/wrappers/deepspeed/norm.hpp"

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

Tensor scalar(const Tensor& x, DType type) { return elementwise(x.tape(), {&x}, type); }
Tensor scalar(const Tensor& x) { return scalar(x, x.dtype()); }

void all_reduce(const Tensor& x) {
  x.tape().collective({.kind = CollectiveKind::all_reduce, .group = Group::data_shard, .bytes = x.bytes(), .type = x.dtype()},
                      x.tape().stream);
}

}  // namespace

Tensor is_finite(const Tensor& x) {
  Tensor bounded;
  {
    const Tensor magnitude = scalar(x);
    bounded = scalar(magnitude, DType::boolean);
  }
  const Tensor number = scalar(x, DType::boolean);
  return elementwise(x.tape(), {&bounded, &number}, DType::boolean);
}

Tensor has_inf_or_nan(const Tensor& gradient) {
  const Tensor flat = gradient.tape().view(gradient, {gradient.elements()}, {1});
  const auto extreme_is_finite = [&] { return is_finite(reduce(flat, {true}, false, flat.dtype(), size_of(flat.dtype()))); };
  Tensor both;
  {
    const Tensor largest = extreme_is_finite(), smallest = extreme_is_finite();
    both = elementwise(gradient.tape(), {&largest, &smallest}, DType::boolean);
  }
  return scalar(both);
}

void check_overflow(Tape& tape, const std::vector<Tensor>& gradients, const DeepSpeedSettings& settings) {
  const Tensor count = zeros(tape, {1}, DType::fp32);
  for (const Tensor& gradient : gradients) {
    const Tensor bad = check_finite(gradient, settings);
    in_place(count, {&count, &bad});
  }
  const Tensor any = scalar(count, DType::boolean);
  const Tensor sent = scalar(any, DType::uint8);
  all_reduce(sent);
  tape.copy({Copy::Direction::device_to_host, sent.bytes()}, tape.stream);
  tape.synchronize();
}

Tensor with_square(const Tensor& sum, const Tensor& norm) {
  const Tensor square = scalar(norm);
  return sum ? elementwise(norm.tape(), {&sum, &square}, norm.dtype()) : scalar(square);
}

Tensor root_over_ranks(Tensor total) {
  Tape& tape = total.tape();
  all_reduce(total);
  const Tensor norm = scalar(total);
  total.reset();
  const Tensor infinite = scalar(scalar(norm), DType::boolean), not_a_number = scalar(norm, DType::boolean);
  const Tensor invalid = elementwise(tape, {&not_a_number, &infinite}, DType::boolean);
  const Tensor mark = tape.empty({}, DType::fp32);
  tape.copy({Copy::Direction::host_to_device, mark.bytes()}, tape.stream);
  in_place(norm, {&norm, &invalid, &mark});
  return norm;
}

Tensor norm_over_ranks(Tape& tape, const std::vector<Tensor>& norms, DType sent) {
  Tensor total;
  if (norms.empty()) {
    total = tape.empty({}, sent);
    tape.copy({Copy::Direction::host_to_device, total.bytes()}, tape.stream);
  } else {
    std::vector<Tensor> rows;
    for (const Tensor& norm : norms) rows.push_back(tape.view(norm, {1}, {1}));
    const Tensor squares = scalar(cat(rows, 0));
    const Tensor sum = reduce(squares, {true}, false, squares.dtype(), size_of(squares.dtype()));
    total = sum.dtype() == sent ? sum : scalar(sum, sent);
  }
  return root_over_ranks(std::move(total));
}

Tensor combined_norm(const std::vector<Tensor>& groups, const DeepSpeedRelease& release) {
  Tape& tape = groups.front().tape();
  std::vector<Tensor> rows;
  for (const Tensor& group : groups) rows.push_back(tape.view(group, {1}, {1}));
  const Tensor stacked = cat(rows, 0);
  if (!release.combines_invalid_norms()) return reduce(stacked, {true}, false, stacked.dtype(), size_of(stacked.dtype()));
  Tensor invalid;
  {
    const Tensor infinite = scalar(is_finite(stacked)), negative = scalar(stacked, DType::boolean);
    invalid = elementwise(tape, {&infinite, &negative}, DType::boolean);
  }
  // any() of one element is a copy, vector_norm its magnitude.
  const bool one = groups.size() == 1;
  const Tensor any = one ? clone(invalid) : reduce(invalid, {true}, false, DType::boolean, 1);
  const Tensor combined = one ? scalar(stacked) : reduce(stacked, {true}, false, stacked.dtype(), size_of(stacked.dtype()));
  Tensor safe;
  {
    const Tensor infinity = tape.empty({}, DType::fp32);
    pointwise(infinity, {});
    safe = elementwise(tape, {&any, &infinity, &combined}, combined.dtype());
  }
  return scalar(safe);
}

void unscale_and_clip(const Tensor& norm, const Tensor& gradient) {
  // ((norm / scale) + 1e-6) / clip, at least 1, times the scale; the gradient times its inverse.
  Tensor factor = norm;
  for (int operation = 0; operation < 7; ++operation) factor = scalar(factor);
  in_place(gradient, {&gradient, &factor});
}

}  // namespace plimsoll::program
