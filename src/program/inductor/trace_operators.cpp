// What the tape's operators are made of, and their gradients (torch/_decomp/decompositions.py, torch/_refs and derivatives.yaml of PyTorch
// 2.15).
#include <algorithm>
#include <map>
#include <numbers>
#include <string>
#include <string_view>

#include "plimsoll/error.hpp"
#include "plimsoll/units.hpp"
#include "program/inductor/trace.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::program::inductor {

namespace {

constexpr DType kFp32 = DType::fp32, kComplex = DType::complex64;
/// What a norm adds to its mean of squares: nobody tells it, and all norms of a module have the same, so that a kernel of several knows one.
constexpr double kEpsilon = 1e-6;
constexpr double kGeluCubic = 0.044715, kGeluScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // of gelu by the hyperbolic tangent

/// The dimension in which `part` is smaller than `whole`.
int cut_dimension(const Dims& part, const Dims& whole) {
  for (int i = 0; i < whole.rank(); ++i)
    if (part[i] != whole[i]) return i;
  return 0;
}

/// The dimension of `whole` in which `part` is one element.
int missing_dimension(const Tensor& part, const Tensor& whole) {
  int at = 0;
  while (at < part.rank() && part.size(at) == whole.size(at) && part.strides()[at] == whole.strides()[at]) ++at;
  return at;
}

/// The order in which the dimensions of `from` are those of `to`.
Dims order_of(const Tensor& from, const Tensor& to) {
  Dims order;
  std::vector<bool> taken(static_cast<std::size_t>(from.rank()));
  for (int i = 0; i < to.rank(); ++i) {
    const auto fits = [&](int j) {
      return !taken[static_cast<std::size_t>(j)] && from.size(j) == to.size(i) && from.strides()[j] == to.strides()[i];
    };
    int chosen = fits(i) ? i : 0;
    while (!fits(chosen)) ++chosen;
    taken[static_cast<std::size_t>(chosen)] = true;
    order.push_back(chosen);
  }
  return order;
}

Dims inverse_of(const Dims& order) {
  Dims inverse = order;
  for (int i = 0; i < order.rank(); ++i) inverse[static_cast<int>(order[i])] = i;
  return inverse;
}

}  // namespace

// ---- products ---------------------------------------------------------------------------------------------------------

Trace::Ints Trace::linear(const Ran& ran) {
  return ran.in.size() == 2 ? linear_without_bias(ran.in[0], ran.in[1]) : biased_product(ran.in, true);
}

Trace::Ints Trace::linear_without_bias(int x, int weight) {
  const Dims wide = meta(x).sizes();
  const int turned = permute(weight, {1, 0});
  const int flat = wide.rank() == 2 ? x : view(x, {-1, wide[-1]});
  const int y = product(flat, turned);
  Dims sizes = wide;
  sizes[-1] = meta(y).size(1);
  const int result = wide.rank() == 2 ? y : view(y, sizes);
  return record({x, weight}, {result}, [=, this](const Ints& g) {
    const int gradient = wide.rank() == 2 ? g[0] : view(row_major(g[0]), {-1, meta(g[0]).size(-1)});
    Ints all{-1, -1};
    if (needs(weight)) all[1] = product(permute(gradient, {1, 0}), flat);
    if (needs(x)) {
      const int back = product(gradient, permute(turned, {1, 0}));
      all[0] = wide.rank() == 2 ? back : view(back, wide);
    }
    return all;
  });
}

Trace::Ints Trace::addmm(const Ran& ran) { return biased_product(ran.in, false); }

/// addmm of a bias, a matrix and a weight, or its transpose: the gradient of a weight that lies so is computed so (mm_mat2_backward).
Trace::Ints Trace::biased_product(const Ints& in, bool transposed) {
  const int x = in[1], weight = in[2], factor = transposed ? permute(weight, {1, 0}) : weight;
  const int y = add({.op = Aten::addmm, .args = {in[0], x, factor}}, tape_.empty({meta(x).size(0), meta(factor).size(1)}, meta(x).dtype()));
  return record(in, {y}, [=, this](const Ints& g) {
    Ints all{g[0], -1, -1};
    if (needs(x)) all[1] = product(g[0], permute(factor, {1, 0}));
    if (needs(weight)) all[2] = transposed ? product(permute(g[0], {1, 0}), x) : product(permute(x, {1, 0}), g[0]);
    return all;
  });
}

// ---- norms ------------------------------------------------------------------------------------------------------------

/// _fused_rms_norm.
Trace::Ints Trace::rms_norm(const Ran& ran) {
  const int x = ran.in[0], weight = ran.in[1];
  const DType type = meta(x).dtype();
  const int last = meta(x).rank() - 1;
  const int wide = convert(x, kFp32);
  const int square = pointwise(Aten::power, {wide}, std::nullopt, 2);
  const int variance = with_number(Aten::add_number, sum(square, {last}, true, Aten::mean), kEpsilon);
  const int scale = pointwise(Aten::rsqrt, {variance});
  const int normed = pointwise(Aten::multiply, {wide, scale});
  const int result = convert(pointwise(Aten::multiply, {normed, weight}), type);
  return record({x, weight}, {result}, [=, this](const Ints& g) {
    const int gradient = row_major(convert(g[0], kFp32));
    const int input = row_major(convert(x, kFp32));
    const int wide_weight = convert(weight, kFp32);
    const int weighted = pointwise(Aten::multiply, {gradient, wide_weight});
    const int unit = pointwise(Aten::multiply, {input, scale});
    const int total = sum(pointwise(Aten::multiply, {unit, weighted}), {last}, true);
    const int mean = pointwise(Aten::multiply, {pointwise(Aten::divide_by_number, {unit}), total});
    const int of_input = pointwise(Aten::multiply, {pointwise(Aten::subtract, {weighted, mean}), scale});
    const int of_weight = sum(pointwise(Aten::multiply, {gradient, unit}), leading(x), false);
    const int low = convert(of_input, type);
    return Ints{low, convert(of_weight, meta(weight).dtype())};
  });
}

/// native_layer_norm, with a weight and a bias or neither.
Trace::Ints Trace::layer_norm(const Ran& ran) {
  const int x = ran.in[0], weight = ran.in.size() > 1 ? ran.in[1] : -1, bias = ran.in.size() > 2 ? ran.in[2] : -1;
  const DType type = meta(x).dtype();
  const int last = meta(x).rank() - 1;
  const int wide = row_major(convert(x, kFp32));
  Dims rows = meta(x).sizes();
  rows[-1] = 1;
  const int both = add({.op = Aten::var_mean, .args = {wide}, .dims = {last}}, tape_.empty(rows, kFp32));
  const int variance = add({.op = Aten::getitem, .args = {both}, .number = 0}, tape_.empty(rows, kFp32));
  const int mean = add({.op = Aten::getitem, .args = {both}, .number = 1}, tape_.empty(rows, kFp32));
  const int scale = pointwise(Aten::rsqrt, {pointwise(Aten::add_number, {variance})});
  int y = pointwise(Aten::multiply, {pointwise(Aten::subtract, {wide, mean}), scale});
  if (weight >= 0) y = pointwise(Aten::multiply, {y, weight});
  if (bias >= 0) y = pointwise(Aten::add, {y, bias});
  Ints inputs = ran.in;
  return record(inputs, {convert(y, type)}, [=, this](const Ints& g) {
    const int gradient = row_major(convert(g[0], kFp32)), input = row_major(convert(x, kFp32));
    const int unit = pointwise(Aten::multiply, {pointwise(Aten::subtract, {input, mean}), scale});
    const int weighted = weight < 0 ? gradient : pointwise(Aten::multiply, {gradient, convert(weight, kFp32)});
    const int times = pointwise(Aten::multiply_number, {weighted}), sum_of_gradient = sum(weighted, {last}, true);
    const int sum_of_product = sum(pointwise(Aten::multiply, {weighted, unit}), {last}, true);
    const int along = pointwise(Aten::multiply, {unit, sum_of_product});
    const int inner = pointwise(Aten::subtract, {pointwise(Aten::subtract, {times, sum_of_gradient}), along});
    Ints all{-1};
    if (needs(x)) all[0] = pointwise(Aten::multiply, {pointwise(Aten::divide_by_number, {scale}), inner});
    if (weight >= 0) all.push_back(needs(weight) ? sum(pointwise(Aten::multiply, {gradient, unit}), leading(x), false) : -1);
    if (bias >= 0) all.push_back(needs(bias) ? sum(gradient, leading(x), false) : -1);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i] >= 0) all[i] = convert(all[i], meta(inputs[i]).dtype());
    return all;
  });
}

// ---- activations ------------------------------------------------------------------------------------------------------

Trace::Ints Trace::silu(const Ran& ran) {
  const int x = ran.in[0];
  const DType type = meta(x).dtype();
  const int wide = convert(x, kFp32);
  const int denominator = with_number(Aten::add_number, pointwise(Aten::exp, {pointwise(Aten::negate, {wide})}), 1);
  return record({x}, {convert(pointwise(Aten::divide, {wide, denominator}), type)}, [=, this](const Ints& g) {
    const int gradient = convert(g[0], kFp32), input = convert(x, kFp32);
    const int sigmoid = pointwise(Aten::sigmoid, {input});
    const int scaled = pointwise(Aten::multiply, {gradient, sigmoid});
    const int rest = pointwise(Aten::multiply, {input, with_number(Aten::subtract_from_number, sigmoid, 1)});
    return Ints{convert(pointwise(Aten::multiply, {scaled, with_number(Aten::add_number, rest, 1)}), type)};
  });
}

/// gelu: by the error function, or where the operator told 1 by the hyperbolic tangent.
Trace::Ints Trace::gelu(const Ran& ran) {
  const int x = ran.in[0];
  const bool by_tanh = ran.told.number != 0;
  const DType type = meta(x).dtype();
  const auto times = [this](int a, int b) { return pointwise(Aten::multiply, {a, b}); };
  const auto scaled = [this](int a, double factor) { return with_number(Aten::multiply_number, a, factor); };
  const auto one_more = [this](int a) { return with_number(Aten::add_number, a, 1); };
  const int wide = convert(x, kFp32);
  int inner = wide, half = wide;
  if (by_tanh) {
    const int cube = times(times(wide, wide), wide);
    inner = scaled(pointwise(Aten::add, {wide, scaled(cube, kGeluCubic)}), kGeluScale);
    half = scaled(wide, 0.5);
    inner = pointwise(Aten::tanh, {inner});
  } else {
    half = scaled(wide, 0.5);
    inner = pointwise(Aten::erf, {scaled(wide, std::numbers::sqrt2 / 2)});
  }
  const int result = convert(times(half, one_more(inner)), type);
  return record({x}, {result}, [=, this](const Ints& g) {
    const int gradient = convert(g[0], kFp32), self = convert(x, kFp32);
    if (by_tanh) return Ints{convert(gelu_by_tanh_gradient(gradient, self), type)};
    const int distribution = scaled(one_more(pointwise(Aten::erf, {scaled(self, std::numbers::sqrt2 / 2)})), 0.5);
    const int density = scaled(pointwise(Aten::exp, {scaled(times(self, self), -0.5)}), std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2);
    return Ints{convert(times(gradient, pointwise(Aten::add, {distribution, times(self, density)})), type)};
  });
}

int Trace::gelu_by_tanh_gradient(int gradient, int x) {
  const auto times = [this](int a, int b) { return pointwise(Aten::multiply, {a, b}); };
  const auto scaled = [this](int a, double factor) { return with_number(Aten::multiply_number, a, factor); };
  const auto one_more = [this](int a) { return with_number(Aten::add_number, a, 1); };
  const int square = times(x, x), cube = times(square, x);
  const int tanh = pointwise(Aten::tanh, {scaled(pointwise(Aten::add, {x, scaled(cube, kGeluCubic)}), kGeluScale)});
  const int left = scaled(x, 0.5), right = one_more(tanh), left_derivative = scaled(right, 0.5);
  const int tanh_derivative = with_number(Aten::subtract_from_number, times(tanh, tanh), 1);
  const int inner_derivative = scaled(one_more(scaled(square, 3 * kGeluCubic)), kGeluScale);
  const int right_derivative = times(times(left, tanh_derivative), inner_derivative);
  return times(gradient, pointwise(Aten::add, {left_derivative, right_derivative}));
}

Trace::Ints Trace::tanh(const Ran& ran) {
  const int y = pointwise(Aten::tanh, {ran.in[0]});
  return record(ran.in, {y}, [=, this](const Ints& g) {
    const int gradient = convert(g[0], kFp32), wide = convert(y, kFp32);
    const int rest = with_number(Aten::subtract_from_number, pointwise(Aten::multiply, {wide, wide}), 1);
    return Ints{convert(pointwise(Aten::multiply, {gradient, rest}), meta(y).dtype())};
  });
}

/// sigmoid_backward: gradient · (result · (1 - result)), in fp32.
Trace::Ints Trace::sigmoid(const Ran& ran) {
  const int y = pointwise(Aten::sigmoid, {ran.in[0]});
  return record(ran.in, {y}, [=, this](const Ints& g) {
    const int gradient = convert(g[0], kFp32), wide = convert(y, kFp32);
    const int slope = pointwise(Aten::multiply, {wide, with_number(Aten::subtract_from_number, wide, 1)});
    return Ints{convert(pointwise(Aten::multiply, {gradient, slope}), meta(y).dtype())};
  });
}

Trace::Ints Trace::exponential(const Ran& ran) {
  const int y = pointwise(Aten::exp, {ran.in[0]});
  return record(ran.in, {y}, [=, this](const Ints& g) { return Ints{pointwise(Aten::multiply, {g[0], y})}; });
}

/// threshold_backward: where(result <= 0, 0, gradient).
Trace::Ints Trace::relu(const Ran& ran) {
  const int y = pointwise(Aten::relu, {ran.in[0]});
  return record(ran.in, {y}, [=, this](const Ints& g) {
    const int dead = with_number(Aten::less_equal_number, y, 0, DType::boolean);
    return Ints{pointwise(Aten::choose, {dead, g[0]}, meta(g[0]).dtype())};
  });
}

// ---- arithmetic -------------------------------------------------------------------------------------------------------

/// pow_backward: gradient · (exponent · self^(exponent - 1)).
Trace::Ints Trace::power(const Ran& ran) {
  const int x = ran.in[0];
  const std::int64_t exponent = ran.told.number;
  return record(ran.in, {pointwise(Aten::power, {x}, std::nullopt, exponent)}, [=, this](const Ints& g) {
    const int scaled =
        with_number(Aten::multiply_number, pointwise(Aten::power, {x}, std::nullopt, exponent - 1), static_cast<double>(exponent));
    return Ints{pointwise(Aten::multiply, {g[0], scaled})};
  });
}

/// -0.5 · gradient · result³.
Trace::Ints Trace::rsqrt(const Ran& ran) {
  const int y = pointwise(Aten::rsqrt, {ran.in[0]});
  return record(ran.in, {y}, [=, this](const Ints& g) {
    const int cube = pointwise(Aten::power, {y}, std::nullopt, 3);
    return Ints{pointwise(Aten::multiply, {with_number(Aten::multiply_number, g[0], -0.5), cube})};
  });
}

/// mean of the last dimension: its gradient is expanded, then divided.
Trace::Ints Trace::mean(const Ran& ran) {
  const int x = ran.in[0];
  if (ran.out.front().rank() != meta(x).rank() || ran.sizes()[-1] != 1)
    refuse("this mean is not modelled under torch.compile", "compile", "false");
  const int y = sum(x, {meta(x).rank() - 1}, true, Aten::mean);
  return record(ran.in, {y}, [=, this](const Ints& g) {
    const int wide = add({.op = Aten::expand, .args = {g[0]}}, expand(meta(g[0]), meta(x).sizes()));
    return Ints{pointwise(Aten::divide_by_number, {wide})};
  });
}

Trace::Ints Trace::multiply(const Ran& ran) {
  if (ran.in.size() == 1) {
    return record(ran.in, {pointwise(Aten::multiply_number, ran.in)},
                  [this](const Ints& g) { return Ints{pointwise(Aten::multiply_number, {g[0]})}; });
  }
  const int a = ran.in[0], b = ran.in[1];
  if (ran.type() == kComplex) return multiply_complex(a, b);
  return record({a, b}, {pointwise(Aten::multiply, {a, b}, ran.type())}, [=, this](const Ints& g) {
    Ints all{-1, -1};
    if (needs(b)) all[1] = pointwise(Aten::multiply, {g[0], a});
    if (needs(a)) all[0] = pointwise(Aten::multiply, {g[0], b});
    return all;
  });
}

/// An operator in place is the one that makes a new tensor, which the target is from then on (functionalization).
Trace::Ints Trace::in_place(const Ran& ran, Operator run) {
  const Tensor& target = *ran.arguments[0];
  if (graph_.at(ran.in[0]).op == Aten::placeholder)
    refuse("a change in place of what a compiled module is given is not modelled", "compile", "false");
  if (rule_of(graph_.at(ran.in[0]).op).lowering == Lowering::view)
    refuse("a change in place through a view is not modelled under torch.compile", "compile", "false");
  Ints results = (this->*run)(ran);
  bind(target, results[0]);
  return results;
}

Trace::Ints Trace::multiply_in_place(const Ran& ran) { return in_place(ran, &Trace::multiply); }
Trace::Ints Trace::add_in_place(const Ran& ran) { return in_place(ran, &Trace::sum_of); }

Trace::Ints Trace::sum_of(const Ran& ran) {
  if (ran.in.size() == 1) {
    const int sum = pointwise(Aten::add_number, ran.in);
    if (ran.type() == DType::int64) return ran.in;  // positions behind those that a cache holds, of which training has none (remove_no_ops)
    if (graph_.at(ran.in[0]).op == Aten::mean) graph_.at(sum).constant = kEpsilon;
    return record(ran.in, {sum}, [](const Ints& g) { return g; });
  }
  return record(ran.in, {pointwise(Aten::add, ran.in, ran.type())}, [](const Ints& g) { return Ints{g[0], g[0]}; });
}

Trace::Ints Trace::difference(const Ran& ran) {
  return record(ran.in, {pointwise(Aten::subtract, ran.in, ran.type())},
                [=, this, b = ran.in[1]](const Ints& g) { return Ints{g[0], needs(b) ? pointwise(Aten::negate, {g[0]}) : -1}; });
}

/// By a number.
Trace::Ints Trace::divide(const Ran& ran) {
  if (ran.in.size() != 1) refuse("a quotient of tensors is not modelled under torch.compile", "compile", "false");
  return record(ran.in, {pointwise(Aten::divide_by_number, ran.in)},
                [this](const Ints& g) { return Ints{pointwise(Aten::divide_by_number, {g[0]})}; });
}

Trace::Ints Trace::negate(const Ran& ran) {
  return record(ran.in, {pointwise(Aten::negate, ran.in)}, [this](const Ints& g) { return Ints{pointwise(Aten::negate, {g[0]})}; });
}

Trace::Ints Trace::converted(const Ran& ran) {
  const int x = ran.in[0];
  return record(ran.in, {convert(x, ran.type())}, [=, this](const Ints& g) { return Ints{convert(g[0], meta(x).dtype())}; });
}

// ---- views and copies -------------------------------------------------------------------------------------------------

Trace::Ints Trace::viewed(const Ran& ran) {
  const int x = ran.in[0];
  const int seen = reshaped(x, ran.sizes());
  if (meta(x).sizes() == ran.sizes()) return ran.in;  // which nobody reads then (remove_no_ops)
  return record(ran.in, {seen}, [=, this](const Ints& g) { return Ints{reshaped(g[0], meta(x).sizes())}; });
}

Trace::Ints Trace::squeezed(const Ran& ran) {
  const int x = ran.in[0];
  return record(ran.in, {view(x, ran.sizes(), Aten::squeeze)},
                [=, this](const Ints& g) { return Ints{view(g[0], meta(x).sizes(), Aten::unsqueeze)}; });
}

Trace::Ints Trace::unsqueezed(const Ran& ran) {
  const int x = ran.in[0];
  return record(ran.in, {view(x, ran.sizes(), Aten::unsqueeze)},
                [=, this](const Ints& g) { return Ints{view(g[0], meta(x).sizes(), Aten::squeeze)}; });
}

/// contiguous, which in the traced graph may lie in a row already.
Trace::Ints Trace::packed(const Ran& ran) {
  return record(ran.in, {row_major(ran.in[0])}, [](const Ints& g) { return g; });
}

Trace::Ints Trace::copied(const Ran& ran) {
  const int x = ran.in[0];
  const int result = add({.op = Aten::clone, .args = {x}}, tape_.empty(meta(x).sizes(), meta(x).dtype()));
  return record(ran.in, {result}, [](const Ints& g) { return g; });
}

/// slice: its gradient lies among zeros.
Trace::Ints Trace::sliced(const Ran& ran) {
  const int x = ran.in[0], dimension = cut_dimension(ran.sizes(), meta(x).sizes());
  const std::int64_t start = ran.told.number, step = ran.out.front().strides()[dimension] / ran.arguments[0]->strides()[dimension];
  return record(ran.in, {slice(x, dimension, start, ran.sizes()[dimension], step)}, [=, this](const Ints& g) {
    return Ints{add({.op = Aten::slice_scatter, .args = {g[0]}, .dimension = dimension, .number = start, .step = step},
                    tape_.empty(meta(x).sizes(), meta(x).dtype()))};
  });
}

/// cat: its gradient is sliced. Of one part beside empty ones it is a copy (_inductor/decomposition.py, cat).
Trace::Ints Trace::joined(const Ran& ran) {
  const int dimension = static_cast<int>(ran.told.number);
  Ints parts = ran.in;
  std::erase_if(parts, [&](int part) { return meta(part).size(dimension) == 0; });
  if (parts.size() == 1) {
    const int copy = add({.op = Aten::clone, .args = parts}, elementwise(tape_, {&meta(parts[0])}, meta(parts[0]).dtype()));
    return record(parts, {copy}, [](const Ints& g) { return g; });
  }
  if (std::all_of(parts.begin(), parts.end(), [&](int part) { return part == parts.front(); }) && !needs(parts.front()))
    return {repeated(parts.front(), dimension, static_cast<std::int64_t>(parts.size()))};
  return record(parts, {cat(parts, dimension)}, [=, this](const Ints& g) {
    Ints all;
    std::int64_t start = 0;
    for (const int of : parts) {
      const std::int64_t size = meta(of).size(dimension);
      all.push_back(needs(of) ? slice(g[0], dimension, start, size) : -1);
      start += size;
    }
    return all;
  });
}

/// cat of a tensor with itself is expanded and copied (_inductor/decomposition.py).
int Trace::repeated(int x, int dimension, std::int64_t times) {
  Dims single, wide;
  for (int i = 0; i < meta(x).rank(); ++i) {
    if (i == dimension) single.push_back(1), wide.push_back(times);
    single.push_back(meta(x).size(i)), wide.push_back(meta(x).size(i));
  }
  const int apart = view(x, single, Aten::unsqueeze);
  const int copy = row_major(add({.op = Aten::expand, .args = {apart}}, expand(meta(apart), wide)));
  Dims sizes = meta(x).sizes();
  sizes[dimension] *= times;
  return view(copy, sizes);
}

/// The gradient of a stack is unbound.
Trace::Ints Trace::stacked(const Ran& ran) {
  const int at = static_cast<int>(ran.told.number);
  return record(ran.in, {stack(ran.in, at)}, [=, this, parts = ran.in](const Ints& g) {
    Ints all;
    for (std::size_t i = 0; i < parts.size(); ++i) all.push_back(needs(parts[i]) ? select(g[0], at, static_cast<std::int64_t>(i)) : -1);
    return all;
  });
}

/// select: its gradient lies among zeros.
Trace::Ints Trace::selected(const Ran& ran) {
  const int x = ran.in[0], dimension = missing_dimension(ran.out.front(), *ran.arguments[0]);
  const std::int64_t index = ran.told.number;
  return record(ran.in, {select(x, dimension, index)}, [=, this](const Ints& g) {
    return Ints{add({.op = Aten::select_scatter, .args = {g[0]}, .dimension = dimension, .number = index},
                    tape_.empty(meta(x).sizes(), meta(x).dtype()))};
  });
}

/// unbind: every element is selected. Its gradient is a stack.
Trace::Ints Trace::unbound(const Ran& ran) {
  const int x = ran.in[0], dimension = missing_dimension(ran.out.front(), *ran.arguments[0]);
  Ints items;
  for (std::size_t i = 0; i < ran.out.size(); ++i) items.push_back(select(x, dimension, static_cast<std::int64_t>(i)));
  return record(ran.in, items, [=, this](const Ints& g) {
    if (std::find(g.begin(), g.end(), -1) != g.end())
      refuse("an element of unbind() that takes no gradient is not modelled under torch.compile");
    return Ints{stack(g, dimension)};
  });
}

Trace::Ints Trace::turned(const Ran& ran) {
  const Dims order = order_of(*ran.arguments[0], ran.out.front());
  return record(ran.in, {permute(ran.in[0], order)}, [=, this](const Ints& g) { return Ints{permute(g[0], inverse_of(order))}; });
}

/// expand: the engine sums its gradient.
Trace::Ints Trace::expanded(const Ran& ran) {
  const int y = add({.op = Aten::expand, .args = ran.in}, expand(meta(ran.in[0]), ran.sizes()));
  return record(ran.in, {y}, [](const Ints& g) { return g; });
}

Trace::Ints Trace::split(const Ran& ran) {
  const int x = ran.in[0];
  const int dimension = cut_dimension(ran.sizes(), meta(x).sizes());
  const int all = add({.op = Aten::split, .args = {x}, .dimension = dimension}, meta(x));
  Ints items;
  std::int64_t start = 0;
  for (const Tensor& part : ran.out) {
    items.push_back(add({.op = Aten::getitem, .args = {all}, .dimension = dimension, .number = start}, part));
    start += part.size(dimension);
  }
  return record({x}, items, [=, this](const Ints& g) {
    if (std::find(g.begin(), g.end(), -1) != g.end())
      refuse("a part of a split that takes no gradient is not modelled under torch.compile");
    return Ints{cat(g, dimension)};
  });
}

Trace::Ints Trace::same(const Ran& ran) { return ran.in; }

// ---- dropout ----------------------------------------------------------------------------------------------------------

/// native_dropout by seeds of its own (replace_random_passes): all of a graph are drawn at once, in front of the first.
Trace::Ints Trace::dropout(const Ran& ran) {
  const int x = ran.in[0];
  const DType type = meta(x).dtype();
  if (seeds_ < 0) seeds_ = add({.op = Aten::seeds}, tape_.empty({0}, DType::int64));
  FxNode& all = graph_.at(seeds_);
  const std::int64_t number = all.sizes[0]++;
  const int seed = add({.op = Aten::seed, .args = {seeds_}, .number = number}, tape_.empty({}, DType::int64));
  const int random = convert(add({.op = Aten::random, .args = {seed}}, tape_.empty(meta(x).sizes(), kFp32)), type);
  const int kept = pointwise(Aten::greater_number, {random}, DType::boolean);
  const int result = pointwise(Aten::multiply_number, {pointwise(Aten::multiply, {kept, x}, type)});
  return record(ran.in, {result}, [=, this](const Ints& g) {
    const int scale = pointwise(Aten::multiply_number, {convert(kept, meta(g[0]).dtype())});
    return Ints{pointwise(Aten::multiply, {g[0], scale})};
  });
}

// ---- attention --------------------------------------------------------------------------------------------------------

/// convert_boolean_attn_mask: where(mask, 0, -inf).
Trace::Ints Trace::score_bias(const Ran& ran) { return {pointwise(Aten::choose_number, ran.in, ran.type())}; }

Trace::Ints Trace::flash_attention(const Ran& ran) { return attention(ran, AttentionKernels::flash); }
Trace::Ints Trace::efficient_attention(const Ran& ran) { return attention(ran, AttentionKernels::efficient); }
Trace::Ints Trace::cudnn_attention(const Ran& ran) { return attention(ran, AttentionKernels::cudnn); }

/// Flash attention's and cuDNN's results lie as their queries, keys and values do, the memory-efficient kernels' with heads within rows
/// (meta_registrations.py).
Trace::Ints Trace::attention(const Ran& ran, AttentionKernels kernels) {
  const Ints heads(ran.in.begin(), ran.in.begin() + 3);
  Ints arguments = heads;
  const Dims sizes = meta(heads[0]).sizes(), key_sizes = meta(heads[1]).sizes(), value_sizes = meta(heads[2]).sizes();
  const DType type = meta(heads[0]).dtype();
  const ToldNumbers told = ran.told;
  constexpr std::int64_t kWholeRows = 32;  // of the memory-efficient kernels' statistics
  const bool efficient = kernels == AttentionKernels::efficient, biased = ran.in.size() > 3;
  if (biased && efficient) {
    const Dims all{sizes[0], sizes[1], sizes[2], key_sizes[2]};
    arguments.push_back(add({.op = Aten::expand, .args = {ran.in[3]}}, expand(meta(ran.in[3]), all)));
  } else if (biased) {
    arguments.push_back(ran.in[3]);
  }
  const std::int64_t rows = efficient ? round_up(sizes[2], kWholeRows) : sizes[2];
  const Ints items = several(Aten::attention, arguments,
                             {{sizes, type},
                              {{sizes[0], sizes[1], rows}, kFp32},
                              {{kernels == AttentionKernels::flash ? 2 : 1}, DType::int64},
                              {{1}, DType::int64}},
                             told.number, told.rate);
  attend_by(items[0], kernels);
  const auto lies = [=, this](int node, int as) { return efficient ? lies_in_rows(node) : lies_as(node, as); };
  lies(items[0], heads[0]);
  return record(heads, {items[0]}, [=, this](const Ints& g) {
    Ints args{g[0]};
    args.insert(args.end(), arguments.begin(), arguments.end());
    args.insert(args.end(), items.begin(), items.end());
    const Ints gradients =
        several(Aten::attention_backward, args, {{sizes, type}, {key_sizes, type}, {value_sizes, type}}, told.number, told.rate);
    attend_by(gradients[0], kernels);
    for (std::size_t i = 0; i < gradients.size(); ++i) lies(gradients[i], heads[i]);
    return gradients;
  });
}

Trace::Ints Trace::flex_attention(const Ran& ran) {
  const Ints heads = ran.in;
  const Dims sizes = meta(heads[0]).sizes(), slim = meta(heads[1]).sizes();
  const DType type = meta(heads[0]).dtype();
  const Ints items = several(Aten::flex_attention, heads, {{sizes, type}, {{sizes[0], sizes[1], sizes[2]}, kFp32}});
  lies_as(items[0], heads[0]);
  return record(heads, {items[0]}, [=, this](const Ints& g) {
    const Ints gradients = several(Aten::flex_attention_backward, {heads[0], heads[1], heads[2], items[0], items[1], g[0]},
                                   {{sizes, type}, {slim, type}, {slim, type}});
    for (std::size_t i = 0; i < gradients.size(); ++i) lies_as(gradients[i], heads[i]);
    return gradients;
  });
}

// ---- tables and complex numbers ---------------------------------------------------------------------------------------

Trace::Ints Trace::table_rows(const Ran& ran) {
  const bool of_a_table = ran.in.size() == 2 && !needs(ran.in[0]);  // experts' tokens are indexed with gradients
  if (!of_a_table || meta(ran.in[1]).size(0) != 1) refuse("rows of a table by several lists are not modelled under torch.compile", "compile", "false");
  return {call(Aten::table_rows, {ran.in[0], view(ran.in[1], {-1})}, ran.sizes(), ran.type())};
}

Trace::Ints Trace::gather_rows(const Ran& ran) { return {call(Aten::gather_rows, ran.in, ran.sizes(), ran.type())}; }

Trace::Ints Trace::as_complex(const Ran& ran) { return {real_as_complex(ran.in[0])}; }
Trace::Ints Trace::as_real(const Ran& ran) { return {complex_as_real(ran.in[0])}; }

int Trace::real_as_complex(int x) {
  const int y = add({.op = Aten::view_as_complex, .args = {x}}, program::view_as_complex(meta(x)));
  record({x}, {y}, [this](const Ints& g) { return Ints{complex_as_real(g[0])}; });
  return y;
}

int Trace::complex_as_real(int x) {
  const int y = add({.op = Aten::view_as_real, .args = {x}}, program::view_as_real(meta(x)));
  record({x}, {y}, [this](const Ints& g) { return Ints{real_as_complex(row_major(g[0]))}; });
  return y;
}

Trace::Ints Trace::multiply_complex(int a, int b) {
  const int result = add({.op = Aten::multiply_complex, .args = {a, b}}, elementwise(tape_, {&meta(a), &meta(b)}, kComplex));
  return record({a, b}, {result}, [=, this](const Ints& g) {
    Ints all{-1, -1};
    for (const std::size_t i : {1U, 0U}) {
      if (!needs(i == 0 ? a : b)) continue;
      const int other = i == 0 ? b : a;
      const int conjugate = call(Aten::conjugate, {other}, meta(other).sizes(), kComplex);
      const int copy = call(Aten::clone_complex, {conjugate}, meta(other).sizes(), kComplex);
      all[i] = add({.op = Aten::multiply_complex, .args = {g[0], copy}}, elementwise(tape_, {&meta(g[0]), &meta(copy)}, kComplex));
    }
    return all;
  });
}

// ---- collectives ------------------------------------------------------------------------------------------------------

Trace::Ints Trace::gather_sequence(const Ran& ran) {
  const std::int64_t ranks = ran.sizes()[1] / meta(ran.in[0]).size(1);
  return record(ran.in, {gathered(ran.in[0], ranks)}, [=, this](const Ints& g) { return Ints{scattered(g[0], ranks)}; });
}

Trace::Ints Trace::scatter_sequence(const Ran& ran) {
  const std::int64_t ranks = meta(ran.in[0]).size(1) / ran.sizes()[1];
  return record(ran.in, {scattered(ran.in[0], ranks)}, [=, this](const Ints& g) { return Ints{gathered(g[0], ranks)}; });
}

// ---- numbers and comparisons ------------------------------------------------------------------------------------------

Trace::Ints Trace::range(const Ran& ran) { return {add({.op = Aten::iota}, tape_.empty(ran.sizes(), ran.type()))}; }

Trace::Ints Trace::multiply_by_one(const Ran& ran) {
  (void)pointwise(Aten::multiply_number, ran.in);  // nobody reads it (remove_no_ops)
  return ran.in;
}

Trace::Ints Trace::less_a_number(const Ran& ran) { return {with_number(Aten::subtract_from_number, ran.in[0], 1)}; }
Trace::Ints Trace::unequal(const Ran& ran) { return {with_number(Aten::not_equal_number, ran.in[0], 1, DType::boolean)}; }
Trace::Ints Trace::equal(const Ran& ran) { return {pointwise(Aten::equal, ran.in, DType::boolean)}; }
Trace::Ints Trace::less_equal(const Ran& ran) { return {pointwise(Aten::less_equal, ran.in, DType::boolean)}; }
Trace::Ints Trace::both(const Ran& ran) { return {pointwise(Aten::both, ran.in, DType::boolean)}; }
/// x[samples, rows] of [batch, length], whose indices are ranges that broadcast: rows go along the one dimension that has them.
Trace::Ints Trace::indexed(const Ran& ran) {
  const int y = call(Aten::index, ran.in, ran.sizes(), ran.type());
  const Dims& rows = meta(ran.in[2]).sizes();
  graph_.at(y).dimension = rows[2] != 1 ? 2 : 3;
  return {y};
}

Trace::Ints Trace::filled_with_true(const Ran& ran) { return {add({.op = Aten::full, .constant = 1}, tape_.empty(ran.sizes(), ran.type()))}; }
Trace::Ints Trace::running_sum(const Ran& ran) { return {call(Aten::cumsum, ran.in, ran.sizes(), ran.type())}; }
Trace::Ints Trace::cosine(const Ran& ran) { return {pointwise(Aten::cos, ran.in)}; }
Trace::Ints Trace::sine(const Ran& ran) { return {pointwise(Aten::sin, ran.in)}; }

/// constant_pad_nd behind the last dimension, of what takes no gradient.
Trace::Ints Trace::padded(const Ran& ran) {
  if (needs(ran.in[0])) refuse("the gradient of a padded tensor is not modelled under torch.compile", "compile", "false");
  const int y = call(Aten::pad, ran.in, ran.sizes(), ran.type());
  graph_.at(y).dimension = ran.sizes().rank() - 1;
  return {y};
}

// ---- embeddings and their loss ----------------------------------------------------------------------------------------

/// embedding; embedding_dense_backward adds rows up in fp32.
Trace::Ints Trace::embedding(const Ran& ran) {
  const int table = ran.in[0], ids = ran.in[1];
  const DType type = meta(table).dtype();
  const int rows = call(Aten::embedding, {table, ids}, ran.sizes(), type);
  return record({table}, {rows}, [=, this](const Ints& g) {
    const int gradient = convert(g[0], kFp32);
    const auto compare = [&](Aten op, double number) { return with_number(op, ids, number, DType::boolean); };
    const int first = compare(Aten::greater_equal_number, 0), last = compare(Aten::less_number, static_cast<double>(meta(table).size(0)));
    const int valid = pointwise(Aten::both, {first, last}, DType::boolean);
    const int counted = pointwise(Aten::both, {valid, compare(Aten::not_equal_number, -1)}, DType::boolean);
    Dims wide = meta(ids).sizes();
    wide.push_back(1);
    const int mask = view(counted, wide, Aten::unsqueeze);
    const int none = add({.op = Aten::full, .constant = 0}, tape_.empty(meta(table).sizes(), kFp32));
    const int sum = call(Aten::index_put, {none, mask, ids, gradient}, meta(table).sizes(), kFp32);
    return Ints{convert(sum, type)};
  });
}

Trace::Ints Trace::log_softmax(const Ran& ran) {
  const int x = ran.in[0];
  if (meta(x).dtype() != kFp32) refuse("log_softmax of 16-bit numbers is not modelled under torch.compile", "compile", "false");
  const int last = meta(x).rank() - 1;
  const int shifted = pointwise(Aten::subtract, {x, sum(x, {last}, true, Aten::amax)});
  const int total = sum(pointwise(Aten::exp, {shifted}), {last}, true);
  const int result = pointwise(Aten::subtract, {shifted, pointwise(Aten::log, {total})});
  return record({x}, {result}, [=, this](const Ints& g) {  // _log_softmax_backward_data
    const int share = pointwise(Aten::exp, {result});
    const int scaled = pointwise(Aten::multiply, {share, sum(g[0], {last}, true)});
    return Ints{pointwise(Aten::subtract, {g[0], scaled})};
  });
}

/// The mean of the labels' log-probabilities [rows, classes]; -100 marks a label that does not count. In the gradient what scatter would
/// put among zeros is chosen by comparing classes with labels (fx_passes/post_grad.py, scatter_upon_const_tensor).
Trace::Ints Trace::nll_loss(const Ran& ran) {
  constexpr double kIgnored = -100;
  const int x = ran.in[0], labels = ran.in[1];
  const Dims whole = meta(x).sizes(), rows{whole[0], 1};
  const auto counts = [=, this](int of) { return with_number(Aten::not_equal_number, of, kIgnored, DType::boolean); };
  const auto or_zero = [=, this](int mask, int of) { return pointwise(Aten::choose, {mask, of}, meta(of).dtype()); };
  const int counted = counts(labels);
  const int safe = view(or_zero(counted, labels), rows, Aten::unsqueeze);
  const int picked = view(call(Aten::gather_element, {x, safe}, rows, kFp32), {whole[0]}, Aten::squeeze);
  const int each = or_zero(counted, pointwise(Aten::negate, {picked}));
  const int weight = convert(sum(counts(labels), {0}, false, Aten::sum, DType::int64), kFp32);
  const int loss = pointwise(Aten::divide, {sum(each, {0}, false), weight});
  return record({x}, {loss}, [=, this](const Ints& g) {
    const int share = pointwise(Aten::divide, {g[0], weight});
    const int column = view(labels, rows, Aten::unsqueeze), valid = counts(column);
    const int wanted = add({.op = Aten::expand, .args = {or_zero(valid, column)}}, expand(meta(column), whole));
    const int classes = view(add({.op = Aten::iota}, tape_.empty({whole[1]}, DType::int64)), {1, whole[1]});
    const int chosen = pointwise(Aten::choose_number, {pointwise(Aten::equal, {wanted, classes}, DType::boolean)}, kFp32);
    const int scale = pointwise(Aten::choose, {valid, share}, kFp32);
    return Ints{pointwise(Aten::multiply, {chosen, scale})};
  });
}

// ---- by name ----------------------------------------------------------------------------------------------------------

/// Throws Error (refused): an operator without a decomposition here.
Trace::Operator Trace::operator_of(std::string_view name) {
  static const std::map<std::string_view, Operator> kOperators = {
      {"linear", &Trace::linear},
      {"addmm", &Trace::addmm},
      {"rms_norm", &Trace::rms_norm},
      {"layer_norm", &Trace::layer_norm},
      {"silu", &Trace::silu},
      {"gelu", &Trace::gelu},
      {"tanh", &Trace::tanh},
      {"sigmoid", &Trace::sigmoid},
      {"exp", &Trace::exponential},
      {"relu", &Trace::relu},
      {"pow", &Trace::power},
      {"rsqrt", &Trace::rsqrt},
      {"mean", &Trace::mean},
      {"mul", &Trace::multiply},
      {"mul_", &Trace::multiply_in_place},
      {"add_", &Trace::add_in_place},
      {"add", &Trace::sum_of},
      {"sub", &Trace::difference},
      {"div", &Trace::divide},
      {"neg", &Trace::negate},
      {"to", &Trace::converted},
      {"view", &Trace::viewed},
      {"unsafe_view", &Trace::viewed},
      {"squeeze", &Trace::squeezed},
      {"unsqueeze", &Trace::unsqueezed},
      {"reshape", &Trace::packed},
      {"contiguous", &Trace::packed},
      {"clone", &Trace::copied},
      {"transpose", &Trace::turned},
      {"permute", &Trace::turned},
      {"expand", &Trace::expanded},
      {"split", &Trace::split},
      {"alias", &Trace::same},
      {"slice", &Trace::sliced},
      {"cat", &Trace::joined},
      {"stack", &Trace::stacked},
      {"select", &Trace::selected},
      {"unbind", &Trace::unbound},
      {"dropout", &Trace::dropout},
      {"attention_bias", &Trace::score_bias},
      {"flash_attention", &Trace::flash_attention},
      {"cudnn_attention", &Trace::cudnn_attention},
      {"efficient_attention", &Trace::efficient_attention},
      {"flex_attention", &Trace::flex_attention},
      {"index", &Trace::table_rows},
      {"gather", &Trace::gather_rows},
      {"view_as_complex", &Trace::as_complex},
      {"view_as_real", &Trace::as_real},
      {"arange", &Trace::range},
      {"mul_by_one", &Trace::multiply_by_one},
      {"sub_number", &Trace::less_a_number},
      {"ne_number", &Trace::unequal},
      {"eq", &Trace::equal},
      {"le", &Trace::less_equal},
      {"bitwise_and", &Trace::both},
      {"index_pairs", &Trace::indexed},
      {"full_true", &Trace::filled_with_true},
      {"cumsum", &Trace::running_sum},
      {"cos", &Trace::cosine},
      {"sin", &Trace::sine},
      {"pad", &Trace::padded},
      {"mask_numbers", &Trace::score_bias},
      {"embedding", &Trace::embedding},
      {"log_softmax", &Trace::log_softmax},
      {"nll_loss", &Trace::nll_loss},
      {"all_gather", &Trace::gather_sequence},
      {"reduce_scatter", &Trace::scatter_sequence},
  };
  const auto found = kOperators.find(name);
  if (found == kOperators.end())
    refuse("torch.compile of modules with the operator '" + std::string(name) + "' is not modelled", "compile", "false");
  return found->second;
}

void Trace::ran(const char* name, const List<const Tensor*>& arguments, const ToldNumbers& told, const std::vector<Tensor>& outputs) {
  const std::size_t first = graph_.nodes.size();
  OperatorTrace* const trace = std::exchange(tape_.trace, nullptr);  // metas are made by operators too
  const GradMode no_grad(tape_, false);
  Ints in;
  for (const Tensor* argument : arguments)
    if (argument->defined()) in.push_back(input(*argument));
  const Operator run = operator_of(name);
  Ints taken = in;
  // F.linear(x, weight, bias); a layer's argument that nobody has looked at is taken up when layer_norm is called, a checkpoint's at once.
  const bool rotated = (run == &Trace::linear && in.size() > 2) || (run == &Trace::layer_norm && !recomputes);
  if (run == &Trace::embedding) std::reverse(taken.begin(), taken.end());  // F.embedding(input, weight)
  if (rotated) std::rotate(taken.begin(), taken.begin() + 1, taken.end());
  if (run != &Trace::converted) take_up(taken);
  const Ints results = (this->*run)({std::move(in), arguments, told, outputs});
  tag(name, first);
  tape_.trace = trace;
  for (std::size_t i = 0; i < outputs.size(); ++i) bind(outputs[i], results[i]);
}

}  // namespace plimsoll::program::inductor
