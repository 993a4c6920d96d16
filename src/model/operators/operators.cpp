#include "model/operators/operators.hpp"

#include <utility>

#include "plimsoll/error.hpp"

namespace plimsoll::model {
namespace {

double matrix_flops(std::int64_t in, std::int64_t out) { return 2.0 * static_cast<double>(in) * static_cast<double>(out); }

/// "q_proj" and "weight" → "q_proj.weight"; of an operator that is the block itself: "weight".
std::string member(const std::string& name, const std::string& leaf) { return name.empty() ? leaf : name + "." + leaf; }

Operator named(OperatorKind kind, const std::string& name) {
  Operator op{};
  op.kind = kind;
  op.name = name;
  return op;
}

Operator elementwise(OperatorKind kind, const std::string& name, std::int64_t width) {
  Operator op = named(kind, name);
  op.in_features = op.out_features = width;
  op.output_per_token = {width};
  return op;
}

}  // namespace

std::int64_t product(const std::vector<std::int64_t>& factors) {
  std::int64_t result = 1;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(result, factor, &result)) fail("the model's dimensions multiply to more than 2^63 elements");
  return result;
}

ParameterTensor parameter(const std::string& name, std::vector<std::int64_t> shape, Cut cut) {
  ParameterTensor tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  tensor.cut = cut;
  return tensor;
}

Operator linear(const std::string& name, const LinearSpec& spec) {
  Operator op = named(OperatorKind::linear, name);
  op.in_features = spec.in;
  op.out_features = spec.out;
  op.flops_per_token = matrix_flops(spec.in, spec.out);
  op.output_per_token = {spec.out};
  const bool column = spec.parallel == Parallel::column, row = spec.parallel == Parallel::row;
  const Cut out_cut = spec.transposed ? Cut::columns : Cut::rows, in_cut = spec.transposed ? Cut::rows : Cut::columns;
  auto shape = spec.transposed ? std::vector{spec.in, spec.out} : std::vector{spec.out, spec.in};
  op.parameters.push_back(parameter(member(name, "weight"), std::move(shape), column ? out_cut : row ? in_cut : Cut::replicated));
  // A row-parallel linear adds its bias after the all-reduce: every rank holds it whole.
  if (spec.bias) op.parameters.push_back(parameter(member(name, "bias"), {spec.out}, column ? Cut::rows : Cut::replicated));
  return op;
}

Operator embedding(const std::string& name, std::int64_t rows, std::int64_t width, bool vocabulary) {
  Operator op = named(OperatorKind::embedding, name);
  op.in_features = rows;
  op.out_features = width;
  op.output_per_token = {width};
  op.parameters.push_back(parameter(member(name, "weight"), {rows, width}, vocabulary ? Cut::vocabulary : Cut::replicated));
  return op;
}

Operator position_embedding(const std::string& name, std::int64_t rows, std::int64_t width) {
  Operator op = embedding(name, rows, width, false);
  op.kind = OperatorKind::position_embedding;
  return op;
}

Operator norm(const std::string& name, const NormSpec& spec) {
  const bool layer_norm = spec.kind == NormSpec::Kind::layer_norm;
  Operator op = elementwise(layer_norm ? OperatorKind::layer_norm : OperatorKind::rms_norm, name, spec.width);
  if (spec.weight) op.parameters.push_back(parameter(member(name, "weight"), {spec.width}));
  if (spec.bias) op.parameters.push_back(parameter(member(name, "bias"), {spec.width}));
  return op;
}

Operator rope(const std::string& name, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
  Operator op = elementwise(OperatorKind::rope, name, (heads + kv_heads) * head_dim);
  op.heads = heads;
  op.kv_heads = kv_heads;
  op.head_dim = head_dim;
  return op;
}

Operator attention(const std::string& name, const AttentionSpec& spec) {
  Operator op = named(OperatorKind::attention, name);
  op.heads = spec.heads;
  op.kv_heads = spec.kv_heads;
  op.head_dim = spec.head_dim;
  op.v_head_dim = spec.mla ? spec.mla->v_head_dim : spec.head_dim;
  op.window = spec.sliding_window;
  op.causal = spec.causal;
  op.in_features = spec.heads * spec.head_dim;
  op.out_features = spec.heads * op.v_head_dim;
  op.output_per_token = {op.out_features};
  if (spec.sinks) op.parameters.push_back(parameter(member(name, "sinks"), {spec.heads}, Cut::rows));
  return op;
}

Operator activation(const std::string& name, const std::string& function, std::int64_t width) {
  Operator op = elementwise(OperatorKind::activation, name, width);
  op.function = function;
  if (function == "xielu") {  // XIELUActivation: two slopes to learn, two constants
    for (const char* slope : {"alpha_p", "alpha_n"}) op.parameters.push_back(parameter(member(name, slope), {1}, Cut::replicated));
    for (const char* constant : {"beta", "eps"}) op.buffers.push_back({member(name, constant), {}, DType::fp32, true});
  }
  return op;
}

Operator multiply(const std::string& name, std::int64_t width) { return elementwise(OperatorKind::multiply, name, width); }
Operator add(const std::string& name, std::int64_t width) { return elementwise(OperatorKind::add, name, width); }
Operator scale(const std::string& name, std::int64_t width) { return elementwise(OperatorKind::scale, name, width); }
Operator dropout(const std::string& name, std::int64_t width) { return elementwise(OperatorKind::dropout, name, width); }
Operator softmax(const std::string& name, std::int64_t width) { return elementwise(OperatorKind::softmax, name, width); }

Operator router(const std::string& name, std::int64_t hidden, std::int64_t experts, std::int64_t top_k, bool bias) {
  Operator op = linear(name, {.in = hidden, .out = experts, .bias = bias});
  op.kind = OperatorKind::router;
  op.experts = experts;
  op.top_k = top_k;
  return op;
}

Operator experts(const std::string& name, const ExpertsSpec& spec) {
  Operator op = named(OperatorKind::experts, name);
  op.in_features = spec.hidden;
  op.out_features = spec.hidden;
  op.experts = spec.experts;
  op.top_k = spec.top_k;
  op.function = spec.activation;
  op.output_per_token = {spec.hidden};
  const std::int64_t up = (spec.gated ? 2 : 1) * spec.intermediate;
  op.flops_per_token = static_cast<double>(spec.top_k) * (matrix_flops(spec.hidden, up) + matrix_flops(spec.intermediate, spec.hidden));
  const auto add_pair = [&](const std::string& pair_name, std::int64_t in, std::int64_t out, bool column) {
    auto shape = spec.transposed ? std::vector{spec.experts, in, out} : std::vector{spec.experts, out, in};
    op.parameters.push_back(parameter(member(name, pair_name), std::move(shape), column != spec.transposed ? Cut::rows : Cut::columns));
    if (spec.bias)
      op.parameters.push_back(parameter(member(name, pair_name + "_bias"), {spec.experts, out}, column ? Cut::rows : Cut::replicated));
  };
  add_pair(spec.up_name, spec.hidden, up, true);
  add_pair(spec.down_name, spec.intermediate, spec.hidden, false);
  for (auto& tensor : op.parameters) tensor.expert = true;
  return op;
}

}  // namespace plimsoll::model
