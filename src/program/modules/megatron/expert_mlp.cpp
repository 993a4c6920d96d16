#include "program/modules/megatron/expert_mlp.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include "program/modules/megatron/ops.hpp"
#include "program/modules/megatron/recompute.hpp"
#include "program/modules/megatron/te.hpp"
#include "program/modules/megatron/te_experts.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

/// WeightedSwiGLUFunction and WeightedQuickGeGLUFunction, compiled: gate(first half) · second half · weight of the row; of one part
/// WeightedSquaredReLUFunction: relu(x)² · weight of the row.
Tensor weighted_activation(const char* name, const Tensor& x, const Tensor& weights, std::int64_t parts) {
  PythonFunction op(name, {&x, &weights});
  op.save(x);
  op.save(weights);
  Dims part = x.sizes();
  part[-1] /= parts;
  Tensor y = op.output(part, x.dtype());
  pointwise(Pointwise::Form::fused, {&x, &weights}, {&y});
  return op.done(y, [](BackwardCall& b) {
    const Tensor input = b.saved(0), scale = b.saved(1);
    const Tensor gradient = b.tape.empty(input.sizes(), input.dtype());
    const Tensor scale_gradient = b.tape.empty(scale.sizes(), scale.dtype());
    pointwise(Pointwise::Form::fused, {&input, &scale, &b.grad()}, {&gradient, &scale_gradient});
    b.give(0, gradient);
    b.give(1, scale_gradient);
    b.drop_gradients();
  });
}

Tensor weighted_gate(const Tensor& x, const Tensor& weights) { return weighted_activation("weighted_gate", x, weights, 2); }

/// weighted_bias_quick_geglu_impl clamps in eager operators before its compiled function: the gate from above, the other half from both
/// sides.
Tensor clamped(const Tensor& x) {
  const std::vector<Tensor> halves = chunk(x, 2, -1);
  const Tensor gate = clamp_one_side(halves[0]), linear = clamp(halves[1]);
  return cat({gate, linear}, -1);
}

/// The probabilities of rows behind an activation that no compiled function covers.
Tensor weighted_rows(const Tensor& active, const Tensor& weights) {
  const Tensor weighted = multiply(active, weights);
  return to(weighted, active.dtype());
}

/// The glu() of bias_act_func with gelu.
Tensor eager_geglu(const Tensor& x) {
  const std::vector<Tensor> halves = chunk(x, 2, -1);
  const Tensor gate = gelu(halves[0]), linear = add_scalar(halves[1]);  // glu_linear_offset
  return multiply(gate, linear);
}

bool gelu_like(const std::string& activation) { return activation.rfind("gelu", 0) == 0; }

/// TEGroupedMLP._apply_bias: expert by expert, weighted as its rows are, then put together.
Tensor add_weighted_biases(const Tensor& rows, const std::vector<Tensor>& biases, const Tensor& weights) {
  if (biases.empty()) return rows;
  const std::vector<std::int64_t> sizes = even_split(rows.size(0), biases.size());
  const std::vector<Tensor> parts = split(rows, sizes, 0), shares = split(weights, sizes, 0);
  std::vector<Tensor> sums;
  for (std::size_t i = 0; i < biases.size(); ++i) {
    const Tensor weighted = multiply(biases[i], shares[i]);
    sums.push_back(add(parts[i], weighted));
  }
  const Tensor whole = cat(sums, 0);
  return to(whole, rows.dtype());
}

std::vector<Tensor> parameters_called(const Module& module, std::string_view prefix) {
  std::vector<Tensor> tensors;
  for (const auto& parameter : module.parameters)
    if (parameter->name.rfind(prefix, 0) == 0) tensors.push_back(parameter->tensor);
  return tensors;
}

/// The output of an experts' linear with what its adapter adds: beside the first linear's columns, or the second's rows.
Tensor with_adapter(MegatronRuntime& runtime, Module& linear, const Tensor& output, const Tensor& x, AdapterPlace place) {
  Module* adapter = linear.find_child("adapter");
  if (adapter == nullptr) return output;
  place.beside = linear.name() == "linear_fc1" ? TeParallel::column : TeParallel::row;
  return adapted(runtime, output, x, *adapter, place);
}

}  // namespace

std::vector<std::int64_t> even_split(std::int64_t rows, std::size_t experts) {
  std::vector<std::int64_t> sizes(experts, rows / static_cast<std::int64_t>(experts));
  sizes.back() += rows % static_cast<std::int64_t>(experts);
  return sizes;
}

std::int64_t padded_rows(const MegatronRuntime& runtime, std::int64_t rows, std::int64_t experts) {
  const Scaling scaling = runtime.quantization().scaling;
  const std::int64_t aligned = scaling == Scaling::mxfp8 || scaling == Scaling::nvfp4 ? 32 : 16;
  return experts * round_up(ceil_div(rows, experts), aligned);
}

bool knows_expert_activation(const MoeSpec& spec) {
  if (!spec.gated) return spec.activation == "relu2" && !spec.expert_bias;
  return spec.activation == "silu" || spec.activation == "clamped_swiglu" || gelu_like(spec.activation);
}

Tensor expert_activation(const MoeSpec& spec, const Tensor& x, const Tensor& weights, bool fuses_swiglu) {
  if (!spec.gated) return weighted_activation("weighted_squared_relu", x, weights, 1);
  if (gelu_like(spec.activation)) return weighted_rows(eager_geglu(x), weights);
  if (spec.activation == "silu" && !fuses_swiglu) return weighted_rows(eager_swiglu(x), weights);
  return weighted_gate(spec.activation == "clamped_swiglu" ? clamped(x) : x, weights);
}

Tensor expert_mlp(MegatronRuntime& runtime, Module& mlp, const MoeSpec& spec, const Tensor& tokens, const Tensor& probabilities,
                  const ExpertLayers& layers) {
  constexpr std::int64_t kOwnLinears = 2;  // Transformer Engine's count their own
  runtime.called(layers.te ? 1 : 1 + kOwnLinears);
  const auto product = [&](const Tensor& x, const char* linear) {
    const Tensor weight = mlp.child(linear).tensor("weight");
    const Tensor output = layers.te ? te_linear(runtime, x, weight, {}, TeParallel::none) : megatron_linear(runtime, x, weight, {}, {});
    return with_adapter(runtime, mlp.child(linear), output, x, layers.adapters);
  };
  Tensor inner = product(tokens, "linear_fc1");
  const Tensor scale = unsqueeze(probabilities, -1);
  // bias_activation_fusion has compiled functions for all gates here (bias_geglu_impl), for grouped products not for this one.
  Tensor active =
      layers.te && gelu_like(spec.activation) ? weighted_gate(inner, scale) : expert_activation(spec, inner, scale, layers.fuses_swiglu);
  inner = std::move(active);
  return product(inner, "linear_fc2");
}

Tensor grouped_expert_mlp(MegatronRuntime& runtime, Module& experts, const MoeSpec& spec, const Tensor& tokens, const Tensor& probabilities,
                          const GroupedExperts& options) {
  Module &up = experts.child("linear_fc1"), &down = experts.child("linear_fc2");
  Tensor rows = tokens, weights = unsqueeze(probabilities, -1);
  if (options.pads) {
    const std::int64_t padded = padded_rows(runtime, tokens.size(0), options.experts);
    rows = te_repadded(rows, padded);
    weights = te_repadded(weights, padded);
  }
  if (options.fused) {
    const TeGroupedMlp weights_of{parameters_called(up, "weight"), parameters_called(up, "bias"), parameters_called(down, "weight"),
                                  parameters_called(down, "bias")};
    return te_grouped_mlp(runtime, rows, weights, weights_of);
  }
  const Tensor inner = with_adapter(
      runtime, up, te_grouped_linear(runtime, rows, parameters_called(up, "weight"), parameters_called(up, "bias")), rows, options.adapters);
  const CheckpointWithoutOutput::Region activation = [&spec, fuses = options.fuses_swiglu](const std::vector<Tensor>& in) {
    return std::vector{expert_activation(spec, in[0], in[1], fuses)};
  };
  CheckpointWithoutOutput again;
  const Tensor active =
      (options.recomputes_activation ? again.run(runtime.tape(), activation, {inner, weights}) : activation({inner, weights})).front();
  // What is recomputed is kept by nobody else: the second products save it as it is, and cast it when it is there again.
  const TeInput saved = options.recomputes_activation && runtime.quantization().enabled ? TeInput::original : TeInput::cast;
  Tensor output =
      with_adapter(runtime, down, te_grouped_linear(runtime, active, parameters_called(down, "weight"), {}, saved), active, options.adapters);
  again.discard(output);
  output = add_weighted_biases(output, parameters_called(down, "bias"), weights);
  return options.pads ? te_repadded(output, tokens.size(0)) : output;
}

}  // namespace plimsoll::program
