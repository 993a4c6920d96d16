#include "estimate/saved_tensors.hpp"

#include <algorithm>
#include <set>

namespace plimsoll::estimation {
namespace {

/// Whose output a column-parallel linear or what follows it makes: cut over the tensor-parallel ranks.
bool output_is_cut(const Operator& op) {
  switch (op.kind) {
    case OperatorKind::linear:
      return !op.parameters.empty() && op.parameters.front().cut == Cut::rows;
    case OperatorKind::activation:
    case OperatorKind::multiply:
    case OperatorKind::rope:
    case OperatorKind::attention:
    case OperatorKind::softmax:
      return true;
    default:
      return false;
  }
}

double product(const std::vector<std::int64_t>& shape) {
  double elements = 1;
  for (const std::int64_t extent : shape) elements *= static_cast<double>(extent);
  return elements;
}

/// Walks a block once and collects what each operator keeps.
class Census {
 public:
  Census(const Block& block, double width, const Strategy& strategy, const FrameworkProfile& framework, const flops::Lengths& lengths)
      : block_(block), strategy_(strategy), framework_(framework), width_(width) {
    const std::int64_t cp = block.tokens ? 1 : strategy.cp;
    positions_ = static_cast<double>(flops::positions(block, lengths));
    tokens_ = static_cast<double>(strategy.micro_batch) * positions_ / static_cast<double>(cp);
    element_ = static_cast<double>(size_of(strategy.compute_dtype.value_or(DType::bf16)));
    autocast_ = strategy.precision == Precision::amp_bf16 || strategy.precision == Precision::amp_fp16;
    fused_ = framework.fused_gated_mlp || strategy.compile == Strategy::Compile::blocks;
  }

  /// Bytes kept when no operator is run again; `core_again`: but attention between its projections.
  double kept(bool core_again) {
    core_again_ = core_again;
    storages_.clear();
    extra_ = 0;
    for (std::size_t i = 0; i < block_.operators.size(); ++i) visit(static_cast<int>(i));
    double bytes = extra_;
    for (const int storage : storages_) bytes += bytes_of(storage);
    return bytes;
  }

  /// torchtitan's per-operator selection: the input, attention's output and statistics, the output of every second matrix product.
  double kept_by_selection() const {
    double bytes = input_bytes();
    bool second = false;
    for (std::size_t i = 0; i < block_.operators.size(); ++i) {
      const Operator& op = block_.operators[i];
      if (op.kind == OperatorKind::attention) bytes += bytes_of(static_cast<int>(i)) + row_statistics(op);
      if (op.kind != OperatorKind::linear) continue;
      if (!second) bytes += bytes_of(static_cast<int>(i));
      second = !second;
    }
    return bytes;
  }

  double input_bytes() const { return bytes_of(kBlockInput) * (autocast_ ? 4 / element_ : 1); }

  double widest() const {
    double most = 0;
    for (std::size_t i = 0; i < block_.operators.size(); ++i) most = std::max(most, bytes_of(static_cast<int>(i)));
    return most;
  }

 private:
  double shards(bool cut) const { return cut || strategy_.sequence_parallel.value_or(false) ? strategy_.tp : 1; }

  /// Elements of the output of an operator, or of the block's input.
  double elements(int storage) const {
    if (storage < 0) return tokens_ * width_ / shards(false);
    const Operator& op = block_.operators[static_cast<std::size_t>(storage)];
    const double width =
        op.kind == OperatorKind::rope ? static_cast<double>((op.heads + op.kv_heads) * op.head_dim) : product(op.output_per_token);
    return tokens_ * width / shards(output_is_cut(op));
  }
  double bytes_of(int storage) const { return elements(storage) * element_; }

  template <class Visit>
  void for_inputs(int op, Visit visit_input) const {
    for (const Edge& edge : block_.edges)
      if (edge.to == op) visit_input(edge.from);
  }
  void keep_inputs(int op) {
    for_inputs(op, [&](int from) { storages_.insert(from); });
  }

  void visit(int index) {
    const Operator& op = block_.operators[static_cast<std::size_t>(index)];
    switch (op.kind) {
      case OperatorKind::linear:
      case OperatorKind::router:
      case OperatorKind::convolution:
      case OperatorKind::patch_embedding:
      case OperatorKind::batch_norm:
        return visit_product(index);
      case OperatorKind::experts:
        return visit_experts(index);
      case OperatorKind::rms_norm:
      case OperatorKind::layer_norm:
        return visit_norm(index);
      case OperatorKind::attention:
        return visit_attention(index);
      case OperatorKind::activation:
        return visit_activation(index);
      case OperatorKind::multiply:
        return fused_ ? keep_gate(index) : keep_inputs(index);
      case OperatorKind::modulation:
        return keep_inputs(index);
      case OperatorKind::softmax:
        storages_.insert(index);
        return;
      case OperatorKind::pool:
        keep_inputs(index), extra_ += elements(index) * 8;
        return;  // and int64 indices
      case OperatorKind::dropout:
        extra_ += elements(index);
        return;  // a mask of one byte
      case OperatorKind::embedding:
        extra_ += tokens_ * 8;
        return;
      default:
        return;
    }
  }

  /// A matrix product keeps its input for the weight's gradient. Under autocast every consumer casts an fp32 input for itself.
  void visit_product(int index) {
    const Operator& op = block_.operators[static_cast<std::size_t>(index)];
    const bool frozen = !op.parameters.empty() && !op.parameters.front().trainable;
    if (frozen) return;
    for_inputs(index, [&](int from) {
      if (autocast_ && (from < 0 || is_norm(from)))
        extra_ += bytes_of(from);
      else
        storages_.insert(from);
    });
  }

  bool is_norm(int index) const {
    const OperatorKind kind = block_.operators[static_cast<std::size_t>(index)].kind;
    return kind == OperatorKind::rms_norm || kind == OperatorKind::layer_norm;
  }

  /// Fused: the input and statistics of each row. The eager RMSNorm of transformers: an fp32 copy, the statistic, the normalised rows.
  void visit_norm(int index) {
    const Operator& op = block_.operators[static_cast<std::size_t>(index)];
    const bool fused = op.kind == OperatorKind::layer_norm || framework_.fused_rms_norm || fused_;
    const double rows = elements(index) / std::max(1.0, product(op.output_per_token));
    extra_ += rows * (op.kind == OperatorKind::layer_norm ? 8 : 4);
    if (autocast_)
      extra_ += elements(index) * 8;  // the fp32 residual stream and the fp32 rows
    else if (fused)
      keep_inputs(index);
    else
      extra_ += elements(index) * (4 + (element_ < 4 ? element_ : 0));
  }

  void visit_attention(int index) {
    const Operator& op = block_.operators[static_cast<std::size_t>(index)];
    const double heads = static_cast<double>(op.heads) / strategy_.tp;
    const double qkv =
        static_cast<double>((op.heads + op.kv_heads) * op.head_dim + op.kv_heads * (op.v_head_dim ? op.v_head_dim : op.head_dim));
    extra_ += tokens_ * qkv / strategy_.tp * element_;
    storages_.insert(index);
    if (core_again_) return;
    if (strategy_.attention == AttentionKernel::eager || strategy_.attention == AttentionKernel::unfused) {
      const double repeated = 2.0 * static_cast<double>((op.heads - op.kv_heads) * op.head_dim) / strategy_.tp;
      extra_ += tokens_ * (heads * positions_ * (element_ < 4 ? 6 : 4) + repeated * element_);  // probabilities in fp32 and cast
    } else {
      extra_ += row_statistics(op);
    }
  }

  /// The logsumexp of each row and head, fp32.
  double row_statistics(const Operator& op) const { return tokens_ * static_cast<double>(op.heads) / strategy_.tp * 4; }

  void visit_activation(int index) {
    const Operator& op = block_.operators[static_cast<std::size_t>(index)];
    if (op.function.rfind("relu", 0) == 0) {
      storages_.insert(index);
      return;
    }
    keep_inputs(index);
    if (op.function == "gelu_new" && !fused_) extra_ += 3 * elements(index) * element_;  // 0.5x, tanh, 1 + tanh
  }

  /// A fused gated activation keeps gate and up, not the activated gate.
  void keep_gate(int index) {
    for_inputs(index, [&](int from) {
      if (from >= 0 && block_.operators[static_cast<std::size_t>(from)].kind == OperatorKind::activation)
        keep_inputs(from);
      else
        storages_.insert(from);
    });
  }

  /// Tokens after dispatch, top-k of them: inputs, gate and up, activated product; the eager path keeps the activated gate too.
  void visit_experts(int index) {
    if (!block_.moe) return visit_product(index);
    const MoeSpec& moe = *block_.moe;
    const double dispatched = tokens_ * static_cast<double>(moe.top_k) * strategy_.moe.imbalance / shards(false);
    const double f = static_cast<double>(moe.expert_intermediate) / std::max(1, strategy_.etp);
    const double widths = static_cast<double>(2 * moe.hidden) + f * (moe.gated ? (fused_ ? 3 : 4) : 2);
    extra_ += dispatched * widths * element_;
  }

  const Block& block_;
  const Strategy& strategy_;
  const FrameworkProfile& framework_;
  double width_ = 0, positions_ = 0, tokens_ = 0, element_ = 2, extra_ = 0;
  bool autocast_ = false, fused_ = false, core_again_ = false;
  std::set<int> storages_;
};

}  // namespace

double input_width(const Model& model, const Block& block) {
  if (block.input) return product(model.blocks[static_cast<std::size_t>(*block.input)].operators.back().output_per_token);
  for (const Block* before = &block; before-- != model.blocks.data();)
    if (before->role != Block::Role::rotary && !before->operators.empty()) return product(before->operators.back().output_per_token);
  return std::max(1.0, static_cast<double>(model.channels * model.image_size * model.image_size));
}

SavedBytes saved_bytes(const Block& block, double width, const Strategy& resolved, const FrameworkProfile& framework,
                       const flops::Lengths& lengths) {
  Census census(block, width, resolved, framework, lengths);
  SavedBytes saved;
  const double all = census.kept(false);
  saved.widest = census.widest();
  saved.kept = all;
  if (!is_layer(block)) return saved;
  switch (resolved.recompute.kind) {
    case Recompute::Kind::full:
      saved.kept = census.input_bytes();
      break;
    case Recompute::Kind::alternate:
      saved.kept = all + (census.input_bytes() - all) / resolved.recompute.every;
      break;
    case Recompute::Kind::operators:
      saved.kept = census.kept_by_selection();
      break;
    case Recompute::Kind::selective:
      saved.kept = census.kept(true);
      break;
    default:
      break;
  }
  saved.recomputed = std::max(0.0, all - saved.kept);
  return saved;
}

}  // namespace plimsoll::estimation
