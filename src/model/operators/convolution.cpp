#include "model/operators/convolution.hpp"

#include <fmt/format.h>

#include "model/operators/operators.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::model {
namespace {

double as_double(std::int64_t n) { return static_cast<double>(n); }

Operator on_map(OperatorKind kind, const std::string& name, const FeatureMap& out) {
  Operator op{};
  op.kind = kind;
  op.name = name;
  op.out_features = out.channels;
  op.output_per_token = {out.channels, out.height, out.width};
  return op;
}

FeatureMap behind(const FeatureMap& input, const Window& window, std::int64_t channels, const std::string& name) {
  return {channels, extent_behind(input.height, window, name), extent_behind(input.width, window, name)};
}

void set_window(Operator& op, const Window& window) {
  op.kernel = window.kernel;
  op.stride = window.stride;
  op.padding = window.padding;
}

void check_groups(const std::string& name, std::int64_t groups, std::int64_t in, std::int64_t out) {
  if (in % groups != 0 || out % groups != 0)
    fail(fmt::format("'{}': {} groups do not divide {} input and {} output channels", name, groups, in, out));
}

std::string member(const std::string& module, const std::string& leaf) { return module.empty() ? leaf : module + "." + leaf; }

}  // namespace

std::int64_t extent_behind(std::int64_t size, const Window& window, const std::string& name) {
  const std::int64_t padded = size + 2 * window.padding;
  if (window.kernel > padded)
    fail(fmt::format("'{}': a window of {} does not fit an input of {} padded by {}", name, window.kernel, size, window.padding));
  return (padded - window.kernel) / window.stride + 1;
}

Operator convolution(const std::string& name, const ConvolutionSpec& spec) {
  check_groups(name, spec.groups, spec.input.channels, spec.out_channels);
  const FeatureMap out = behind(spec.input, spec.window, spec.out_channels, name);
  Operator op = on_map(OperatorKind::convolution, name, out);
  set_window(op, spec.window);
  op.in_features = spec.input.channels;
  op.groups = spec.groups;
  const std::int64_t fan_in = spec.input.channels / spec.groups, k = spec.window.kernel;
  op.flops_per_token =
      2 * as_double(out.height) * as_double(out.width) * as_double(out.channels) * as_double(fan_in) * as_double(k) * as_double(k);
  op.parameters.push_back(parameter(member(name, "weight"), {out.channels, fan_in, k, k}));
  if (spec.bias) op.parameters.push_back(parameter(member(name, "bias"), {out.channels}));
  return op;
}

Operator sequence_convolution(const std::string& name, const SequenceConvolutionSpec& spec) {
  check_groups(name, spec.groups, spec.in, spec.out);
  Operator op{};
  op.kind = OperatorKind::convolution;
  op.name = name;
  op.in_features = spec.in;
  op.out_features = spec.out;
  op.kernel = spec.kernel;
  op.groups = spec.groups;
  op.output_per_token = {spec.out};
  const std::int64_t fan_in = spec.in / spec.groups;
  op.flops_per_token = 2 * spec.outputs_per_token * as_double(spec.out) * as_double(fan_in) * as_double(spec.kernel);
  op.parameters.push_back(parameter(member(name, "weight"), {spec.out, fan_in, spec.kernel}));
  if (spec.bias) op.parameters.push_back(parameter(member(name, "bias"), {spec.out}));
  return op;
}

Operator batch_norm(const std::string& name, const FeatureMap& map) {
  Operator op = on_map(OperatorKind::batch_norm, name, map);
  op.in_features = map.channels;
  for (const char* leaf : {"weight", "bias"}) op.parameters.push_back(parameter(member(name, leaf), {map.channels}));
  for (const char* leaf : {"running_mean", "running_var"}) op.buffers.push_back({member(name, leaf), {map.channels}, DType::fp32, true});
  op.buffers.push_back({member(name, "num_batches_tracked"), {}, DType::int64, true});
  return op;
}

Operator pool(const std::string& name, const FeatureMap& map, const Window& window, const std::string& function) {
  Operator op = on_map(OperatorKind::pool, name, behind(map, window, map.channels, name));
  set_window(op, window);
  op.in_features = map.channels;
  op.function = function;
  return op;
}

Operator global_pool(const std::string& name, const FeatureMap& map) {
  Operator op = on_map(OperatorKind::pool, name, {map.channels, 1, 1});
  op.kernel = map.height;
  op.in_features = map.channels;
  op.function = "average";
  op.output_per_token = {map.channels};
  return op;
}

Operator map_elementwise(OperatorKind kind, const std::string& name, const FeatureMap& map, const std::string& function) {
  Operator op = on_map(kind, name, map);
  op.in_features = map.channels;
  op.function = function;
  return op;
}

Operator flatten(const std::string& name, const FeatureMap& map) {
  Operator op = on_map(OperatorKind::reshape, name, map);
  op.in_features = op.out_features = product({map.channels, map.height, map.width});
  op.output_per_token = {op.out_features};
  return op;
}

Operator patch_embedding(const std::string& name, std::int64_t channels, std::int64_t patch, std::int64_t width, bool bias) {
  Operator op{};
  op.kind = OperatorKind::patch_embedding;
  op.name = name;
  op.kernel = op.stride = patch;
  op.in_features = channels;
  op.out_features = width;
  op.output_per_token = {width};
  op.flops_per_token = 2 * as_double(channels) * as_double(patch) * as_double(patch) * as_double(width);
  op.parameters.push_back(parameter(member(name, "weight"), {width, channels, patch, patch}));
  if (bias) op.parameters.push_back(parameter(member(name, "bias"), {width}));
  return op;
}

FeatureMap feature_map(const Operator& op) {
  if (op.output_per_token.size() != 3) throw Error(ErrorCode::internal, "'" + op.name + "' gives no feature map");
  return {op.output_per_token[0], op.output_per_token[1], op.output_per_token[2]};
}

}  // namespace plimsoll::model
