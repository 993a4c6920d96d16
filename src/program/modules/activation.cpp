// Activation functions by their names in configs: transformers/activations.py.

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/modules/layers.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/unary.hpp"

namespace plimsoll::program {

namespace {

/// torch.erf; its backward is 2/√π · exp(-self²) · grad, whose temporaries all live to the end of the expression.
Tensor erf(const Tensor& x) {
  Op op("erf", {&x});
  op.save(x);
  Tensor y = op.elementwise({&x}, x.dtype());
  return op.done(y, [](BackwardCall& b) {
    const Tensor self = b.saved(0);
    const auto of = [&](const Tensor& t) { return elementwise(b.tape, {&t}, self.dtype()); };
    const Tensor squared = of(self), negated = of(squared), decayed = of(negated), scaled = of(decayed);
    b.give(0, elementwise(b.tape, {&scaled, &b.grad()}, self.dtype()));
  });
}

/// NewGELUActivation, AccurateGELUActivation and GELUTanh in Python: 0.5 * x * (1 + tanh(√(2/π) (x + 0.044715 x³))).
Tensor gelu_new(const Tensor& x) {
  const Tensor half = multiply_scalar(x);
  Tensor inner = power(x, 3);
  inner = multiply_scalar(inner);
  inner = add(x, inner);
  inner = multiply_scalar(inner);
  inner = tanh(inner);
  inner = add_scalar(inner);
  return multiply(half, inner);
}

/// FastGELUActivation: 0.5 * x * (1 + tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))).
Tensor gelu_fast(const Tensor& x) {
  const Tensor half = multiply_scalar(x);
  Tensor scaled = multiply_scalar(x);
  Tensor inner = multiply_scalar(x);
  inner = multiply(inner, x);
  inner = add_scalar(inner);
  inner = multiply(std::exchange(scaled, {}), inner);
  inner = tanh(inner);
  inner = add_scalar(inner);
  return multiply(half, inner);
}

/// GELUActivation in Python: x * 0.5 * (1 + erf(x / √2)).
Tensor gelu_python(const Tensor& x) {
  const Tensor half = multiply_scalar(x);
  Tensor inner = divide_scalar(x);
  inner = erf(inner);
  inner = add_scalar(inner);
  return multiply(half, inner);
}

/// QuickGELUActivation: x * sigmoid(1.702 * x).
Tensor quick_gelu(const Tensor& x) {
  Tensor gate = multiply_scalar(x);
  gate = sigmoid(gate);
  return multiply(x, gate);
}

/// ClippedGELUActivation: clip(gelu(x), -10, 10).
Tensor gelu_clipped(const Tensor& x) {
  const Tensor y = gelu(x);
  return clamp(y);
}

/// LaplaceActivation: 0.5 * (1 + erf((x - μ) / (σ √2))).
Tensor laplace(const Tensor& x) {
  Tensor inner = add_scalar(x);
  inner = divide_scalar(inner);
  inner = erf(inner);
  inner = add_scalar(inner);
  return multiply_scalar(inner);
}

/// ReLUSquaredActivation: square(relu(x)).
Tensor relu_squared(const Tensor& x) {
  const Tensor positive = relu(x);
  return power(positive);
}

Tensor unchanged(const Tensor& x) { return x; }

struct NamedFunction {
  std::string_view name;
  Tensor (*run)(const Tensor&);
};

/// ACT2CLS, but for prelu and xielu, which have parameters, and sqrtsoftplus, a router's.
constexpr NamedFunction kActivations[] = {
    {"gelu", gelu},
    {"gelu_10", gelu_clipped},
    {"gelu_accurate", gelu_new},
    {"gelu_fast", gelu_fast},
    {"gelu_new", gelu_new},
    {"gelu_python", gelu_python},
    {"gelu_python_tanh", gelu_new},
    {"gelu_pytorch_tanh", gelu_by_tanh},
    {"hardswish", [](const Tensor& x) { return unary_saving_input("hardswish", x); }},
    {"laplace", laplace},
    {"leaky_relu", [](const Tensor& x) { return unary_saving_input("leaky_relu", x); }},
    {"linear", unchanged},
    {"mish", [](const Tensor& x) { return unary_saving_input("mish", x); }},
    {"quick_gelu", quick_gelu},
    {"relu", relu},
    {"relu2", relu_squared},
    {"relu6", [](const Tensor& x) { return unary_saving_input("hardtanh", x); }},
    {"sigmoid", sigmoid},
    {"silu", silu},
    {"swish", silu},
    {"tanh", tanh},
};

}  // namespace

ClampedGate clamped_gate(const Tensor& rows) {
  Tensor gate = every_second(rows, 0), up = every_second(rows, 1);
  gate = clamp_one_side(gate);
  up = clamp(up);
  Tensor gated;
  {
    Tensor open = multiply_scalar(gate);
    open = sigmoid(open);
    gated = multiply(gate, open);
  }
  return {gated, up};
}

Tensor activate(std::string_view function, const Tensor& x) {
  const auto found =
      std::find_if(std::begin(kActivations), std::end(kActivations), [&](const NamedFunction& a) { return a.name == function; });
  if (found == std::end(kActivations)) refuse("activation '" + std::string(function) + "' is not modelled");
  return found->run(x);
}

}  // namespace plimsoll::program
