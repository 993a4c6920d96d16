#include "plimsoll/flops.hpp"

#include <fmt/format.h>

#include "plimsoll/error.hpp"

namespace plimsoll::flops {
namespace {

double as_double(std::int64_t n) { return static_cast<double>(n); }

std::int64_t length_of(Block::Stream stream, const Lengths& lengths) {
  const std::int64_t second = lengths.second ? lengths.second : lengths.sequence;
  switch (stream) {
    case Block::Stream::main:
      return lengths.sequence;
    case Block::Stream::second:
      return second;
    case Block::Stream::joint:
      return lengths.sequence + second;
  }
  return lengths.sequence;
}

Block::Stream other(Block::Stream stream) { return stream == Block::Stream::second ? Block::Stream::main : Block::Stream::second; }

// Positions that an operator with `side` set runs over.
std::int64_t side_positions(const Block& block, const Lengths& lengths) { return length_of(other(block.stream), lengths); }

// The two attention products of one sample.
double attention_of(const Operator& op, const Block& block, std::int64_t own, const Lengths& lengths, Mask mask) {
  const std::int64_t queries = op.joint ? own + side_positions(block, lengths) : own;
  const std::int64_t keys = op.side ? side_positions(block, lengths) : queries;
  const Mask effective = op.causal ? mask : Mask::full;
  const std::int64_t v_dim = op.v_head_dim ? op.v_head_dim : op.head_dim;
  return attention_forward(1, attention_pairs(queries, keys, effective, op.window), op.heads, op.head_dim, v_dim);
}

double products_of(const Operator& op, const Block& block, const Lengths& lengths) {
  if (op.flops_per_token == 0) return 0;
  if (op.kind == OperatorKind::modulation) return op.flops_per_token;   // on the conditioning vector, once per sample
  return op.flops_per_token * as_double(op.side ? side_positions(block, lengths) : positions(block, lengths));
}

// What a layer's forward is made of.
struct Parts {
  double products = 0, attention = 0;
};

Parts parts_of(const Block& block, const Lengths& lengths, Mask mask) {
  const std::int64_t own = positions(block, lengths);
  Parts parts;
  for (const Operator& op : block.operators) {
    parts.products += products_of(op, block, lengths);
    if (op.kind == OperatorKind::attention) parts.attention += attention_of(op, block, own, lengths, mask);
  }
  return parts;
}

// Of one layer that torchtitan's policy runs again, per token: every second matrix product in order of execution (wq saved, wk again, wv
// saved, wo again, w1 saved, w3 again, w2 saved).
double torchtitan_again(const Block& block) {
  double again = 0;
  bool second = false;
  for (const Operator& op : block.operators) {
    if (op.kind != OperatorKind::linear) continue;
    if (second) again += op.flops_per_token;
    second = !second;
  }
  return again;
}

double recomputed(const Block& block, const Parts& parts, const Lengths& lengths, Execution::Recompute recompute) {
  switch (recompute) {
    case Execution::Recompute::none:
      return 0;
    case Execution::Recompute::full:
      return is_layer(block) ? parts.products + parts.attention : 0;
    case Execution::Recompute::selective_core:
      return parts.attention;
    case Execution::Recompute::torchtitan_selective:
      return is_layer(block) ? torchtitan_again(block) * as_double(positions(block, lengths)) : 0;
  }
  return 0;
}

}  // namespace

double attention_pairs(std::int64_t queries, std::int64_t keys, Mask mask, std::optional<std::int64_t> window) {
  const double s = as_double(queries), all = s * as_double(keys);
  const bool windowed = window && *window < keys;
  if ((mask != Mask::full || windowed) && queries != keys)
    fail(fmt::format("causal or windowed attention needs as many keys as queries, here {} and {}", keys, queries));
  if (windowed) {
    // Query i sees min(i, W) keys up to itself: W·s − W(W−1)/2; without a causal mask the same on both sides, itself once.
    const double w = as_double(*window), causal = w * s - w * (w - 1) / 2;
    return mask == Mask::full ? 2 * causal - s : causal;
  }
  if (mask == Mask::full) return all;
  return mask == Mask::causal_half ? all / 2 : s * (s + 1) / 2;
}

double attention_forward(std::int64_t batch, double pairs, std::int64_t heads, std::int64_t qk_dim, std::int64_t v_dim) {
  return 2 * as_double(batch) * pairs * as_double(heads) * as_double(qk_dim + v_dim);
}

double attention_backward(double forward, bool flash) { return forward * (flash ? 2.5 : 2.0); }

std::int64_t positions(const Block& block, const Lengths& lengths) {
  return block.tokens ? block.tokens : length_of(block.stream, lengths);
}

double operator_forward(const Block& block, const Operator& op, const Lengths& lengths, Mask mask) {
  const double products = products_of(op, block, lengths);
  return op.kind == OperatorKind::attention ? products + attention_of(op, block, positions(block, lengths), lengths, mask) : products;
}

double block_forward(const Block& block, const Lengths& lengths, Mask mask) {
  const Parts parts = parts_of(block, lengths, mask);
  return parts.products + parts.attention;
}

double forward(const Model& model, const Lengths& lengths, Mask mask) {
  double total = 0;
  for (const Block& block : model.blocks) total += as_double(block.repeat) * block_forward(block, lengths, mask);
  return total;
}

double weight_products(const Model& model, const Lengths& lengths) {
  double total = 0;
  for (const Block& block : model.blocks) total += as_double(block.repeat) * parts_of(block, lengths, Mask::full).products;
  return total;
}

double hardware(const Model& model, const Lengths& lengths, const Execution& execution) {
  double total = 0;
  for (const Block& block : model.blocks) {
    const Parts parts = parts_of(block, lengths, execution.mask);
    const double once = 3 * parts.products + parts.attention + attention_backward(parts.attention, execution.flash);
    total += as_double(block.repeat) * (once + recomputed(block, parts, lengths, execution.recompute));
  }
  return total;
}

double torchtitan_selective_recompute_per_token(const Model& model) {
  double total = 0;
  for (const Block& block : model.blocks)
    if (is_layer(block)) total += as_double(block.repeat) * torchtitan_again(block);
  return total;
}

double mfu(double tokens_per_second_per_gpu, double flops_per_token, double peak_flops_per_second) {
  if (!(peak_flops_per_second > 0)) fail("an MFU needs a peak above 0 FLOP/s");
  return tokens_per_second_per_gpu * flops_per_token / peak_flops_per_second;
}

}  // namespace plimsoll::flops
