#include "estimate/block_time.hpp"

#include <algorithm>
#include <cmath>

#include "plimsoll/cost.hpp"

namespace plimsoll::estimation {
namespace {

/// Bytes that a memory-bound operator moves per element of its output, with 2-byte elements (docs/modelling.md, memory-bound operators).
struct Traffic {
  double forward, backward;
};

Traffic norm_traffic(bool fused) { return fused ? Traffic{4, 6} : Traffic{36, 70}; }

Traffic activation_traffic(const Operator& op, bool fused) {
  if (op.function == "gelu_new" && !fused) return {34, 60};  // eight eager kernels
  return {4, 6};
}

Traffic traffic_of(const Operator& op, bool fused_norm, bool fused_pointwise) {
  switch (op.kind) {
    case OperatorKind::rms_norm:
      return norm_traffic(fused_norm);
    case OperatorKind::layer_norm:
    case OperatorKind::batch_norm:
      return {4, 6};
    case OperatorKind::activation:
      return activation_traffic(op, fused_pointwise);
    case OperatorKind::multiply:
      return fused_pointwise ? Traffic{2, 4} : Traffic{6, 12};
    case OperatorKind::add:
      return {6, 6};
    case OperatorKind::rope:
      return fused_pointwise ? Traffic{4, 4} : Traffic{18, 20};
    case OperatorKind::dropout:
      return {5, 5};
    case OperatorKind::softmax:
    case OperatorKind::pool:
    case OperatorKind::scale:
    case OperatorKind::modulation:
      return {4, 6};
    case OperatorKind::embedding:
    case OperatorKind::position_embedding:
      return {4, 6};
    case OperatorKind::cross_entropy:
      return fused_pointwise ? Traffic{6, 4} : Traffic{18, 22};
    default:
      return {0, 0};
  }
}

double elements_of(const std::vector<std::int64_t>& shape) {
  double elements = 1;
  for (const std::int64_t extent : shape) elements *= static_cast<double>(extent);
  return elements;
}

/// Operators whose output tensor parallelism cuts; the others run whole, or on 1/tp of the sequence with sequence parallelism.
bool cut_by_tensor_parallelism(OperatorKind kind) {
  return kind == OperatorKind::activation || kind == OperatorKind::multiply || kind == OperatorKind::rope ||
         kind == OperatorKind::softmax || kind == OperatorKind::cross_entropy;
}

Cut weight_cut(const Operator& op) { return op.parameters.empty() ? Cut::replicated : op.parameters.front().cut; }

bool frozen(const Operator& op) {
  return !op.parameters.empty() &&
         std::none_of(op.parameters.begin(), op.parameters.end(), [](const auto& tensor) { return tensor.trainable; });
}

std::int64_t whole(double value) { return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::llround(value))); }

}  // namespace

BlockPricer::BlockPricer(const Strategy& resolved, const Accelerator& device)
    : strategy_(resolved),
      device_(device),
      framework_(profile_of(resolved)),
      products_(resolved.low_precision == LowPrecision::none ? math_of(resolved.compute_dtype.value_or(DType::bf16)) : MathType::fp8),
      math_(math_of(resolved.compute_dtype.value_or(DType::bf16))),
      element_(static_cast<double>(size_of(resolved.compute_dtype.value_or(DType::bf16)))),
      fused_(resolved.compile == Strategy::Compile::blocks || framework_.fused_gated_mlp) {}

double BlockPricer::tokens(const Block& block, const Operator& op, const flops::Lengths& lengths) const {
  const std::int64_t cp = block.tokens ? 1 : strategy_.cp;
  const std::int64_t side = lengths.second ? lengths.second : lengths.sequence;
  const std::int64_t positions = op.side ? side : flops::positions(block, lengths);
  return static_cast<double>(strategy_.micro_batch) * static_cast<double>(positions) / static_cast<double>(cp);
}

BlockPricer::Pass BlockPricer::linear(const Operator& op, double tokens) const {
  const Cut cut = weight_cut(op);
  const std::int64_t tp = strategy_.tp;
  const std::int64_t in = cut == Cut::columns ? ceil_div(op.in_features, tp) : op.in_features;
  const std::int64_t out = cut == Cut::rows || cut == Cut::vocabulary ? ceil_div(op.out_features, tp) : op.out_features;
  const std::int64_t kernel = std::max<std::int64_t>(1, op.kernel), groups = std::max<std::int64_t>(1, op.groups);
  const std::int64_t width = std::max<std::int64_t>(1, kernel * kernel * in / groups);
  // A convolution's product has as many rows as it has output positions, which its FLOPs tell.
  const double whole_product =
      2.0 * static_cast<double>(op.in_features * op.out_features) * static_cast<double>(kernel * kernel) / static_cast<double>(groups);
  const std::int64_t rows = whole(op.flops_per_token > 0 && whole_product > 0 ? tokens * op.flops_per_token / whole_product : tokens);
  const Seconds input_gradient = gemm_time(device_, products_, rows, width, out);
  const Seconds weight_gradient = frozen(op) ? Seconds(0) : gemm_time(device_, products_, out, width, rows);
  return {gemm_time(device_, products_, rows, out, width), input_gradient + weight_gradient};
}

BlockPricer::Pass BlockPricer::experts(const Block& block, const Operator& op, double tokens) const {
  if (!block.moe) return linear(op, tokens);
  const MoeSpec& moe = *block.moe;
  const std::int64_t local = std::max<std::int64_t>(1, moe.experts / std::max(1, strategy_.ep));
  const double per_expert = tokens * static_cast<double>(moe.top_k) * static_cast<double>(std::max(1, strategy_.ep)) *
                            strategy_.moe.imbalance / static_cast<double>(moe.experts);
  const std::int64_t rows = whole(per_expert), f = ceil_div(moe.expert_intermediate, std::max(1, strategy_.etp));
  const std::int64_t up = moe.gated ? 2 * f : f, h = moe.hidden;
  const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k) { return gemm_time(device_, products_, m, n, k, local); };
  const Seconds forward = product(rows, up, h) + product(rows, h, f);
  const Seconds backward = product(rows, h, up) + product(up, h, rows) + product(rows, f, h) + product(h, f, rows);
  const auto moved = Bytes(static_cast<std::int64_t>(static_cast<double>(rows * local) * element_ * static_cast<double>(3 * f + 2 * h)));
  return {forward + memory_bound_time(device_, moved), backward + memory_bound_time(device_, 2 * moved)};
}

BlockPricer::Pass BlockPricer::attention(const Block& block, const Operator& op, const flops::Lengths& lengths) const {
  const double share = static_cast<double>(strategy_.micro_batch) / static_cast<double>(strategy_.tp * (block.tokens ? 1 : strategy_.cp));
  const bool flash = strategy_.attention != AttentionKernel::eager && strategy_.attention != AttentionKernel::unfused;
  const auto mask = flash ? flops::Mask::causal_exact : flops::Mask::full;  // eager attention computes the masked half too
  const Flops forward(flops::operator_forward(block, op, lengths, mask) * share);
  const Flops backward(flops::attention_backward(forward.value, flash));
  if (flash)
    return {attention_time(device_, math_, forward, false, op.head_dim), attention_time(device_, math_, backward, true, op.head_dim)};
  // Scores are written, scaled, masked, cast and read: 26 bytes each forward, 30 backward.
  const double scores = forward.value / (2.0 * static_cast<double>(op.head_dim + (op.v_head_dim ? op.v_head_dim : op.head_dim)));
  const FlopsPerSecond rate = device_.sustained(math_);
  return {forward / rate + memory_bound_time(device_, Bytes(static_cast<std::int64_t>(26 * scores))),
          backward / rate + memory_bound_time(device_, Bytes(static_cast<std::int64_t>(30 * scores)))};
}

BlockPricer::Pass BlockPricer::memory_bound(const Operator& op, double tokens) const {
  const Traffic traffic = traffic_of(op, fused_ || framework_.fused_rms_norm, fused_);
  if (traffic.forward == 0) return {};
  const bool cut = cut_by_tensor_parallelism(op.kind) || strategy_.sequence_parallel.value_or(false);
  const double width =
      op.kind == OperatorKind::rope ? static_cast<double>((op.heads + op.kv_heads) * op.head_dim) : elements_of(op.output_per_token);
  const double elements = tokens * width / static_cast<double>(cut ? strategy_.tp : 1);
  const auto time = [&](double per_element) {
    return memory_bound_time(device_, Bytes(static_cast<std::int64_t>(elements * per_element * element_ / 2)));
  };
  return {time(traffic.forward), time(traffic.backward)};
}

bool BlockPricer::recomputed(const Block& block, const Operator& op, int linears_before) const {
  if (block.role != Block::Role::decoder && block.role != Block::Role::encoder) return false;
  switch (strategy_.recompute.kind) {
    case Recompute::Kind::full:
      return true;
    case Recompute::Kind::operators:
      return op.kind == OperatorKind::linear ? linears_before % 2 == 1 : op.kind != OperatorKind::attention;
    case Recompute::Kind::selective:
      return op.kind == OperatorKind::attention;
    default:
      return false;
  }
}

BlockTime BlockPricer::price(const Block& block, const flops::Lengths& lengths) const {
  BlockTime time;
  int linears = 0;
  for (const Operator& op : block.operators) {
    const double here = tokens(block, op, lengths);
    Pass pass;
    switch (op.kind) {
      case OperatorKind::linear:
      case OperatorKind::router:
      case OperatorKind::convolution:
      case OperatorKind::patch_embedding:
        pass = linear(op, here);
        break;
      case OperatorKind::experts:
        pass = experts(block, op, here);
        break;
      case OperatorKind::attention:
        pass = attention(block, op, lengths);
        break;
      default:
        pass = memory_bound(op, here);
    }
    time.forward += pass.forward;
    time.backward += pass.backward;
    if (op.kind == OperatorKind::attention) time.attention += pass.forward;
    if (op.kind == OperatorKind::linear) time.weight_gradient += pass.backward / 2;
    if (recomputed(block, op, linears)) time.recompute += pass.forward;
    linears += op.kind == OperatorKind::linear;
  }
  if (strategy_.recompute.kind == Recompute::Kind::alternate && strategy_.recompute.every > 0 && block.repeat > 1)
    time.recompute = time.forward / strategy_.recompute.every;
  return time;
}

}  // namespace plimsoll::estimation
