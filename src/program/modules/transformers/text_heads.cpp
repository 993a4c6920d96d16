#include "program/modules/transformers/text_heads.hpp"

#include "program/ops/ops.hpp"

namespace plimsoll::program {

Tensor answer_loss(const Tensor& logits, const Batch& batch, std::vector<Tensor>& outputs) {
  outputs = split(logits, {1, 1}, -1);
  for (Tensor& each : outputs) each = contiguous(squeeze(each, -1));
  logits.tape().phase(Phase::loss);
  const Tensor first = clamp(batch.labels), last = clamp(batch.conditions.front());
  const Tensor first_loss = cross_entropy(outputs[0], first), last_loss = cross_entropy(outputs[1], last);
  const Tensor sum = add(first_loss, last_loss);
  return divide_scalar(sum);
}

double head_dropout(const Model& model) {
  constexpr double kAnyRate = 0.5;
  for (const Block& block : model.blocks) {
    if (block.role != Block::Role::head) continue;
    for (const Operator& op : block.operators)
      if (op.kind == OperatorKind::dropout) return kAnyRate;
  }
  return 0;
}

Tensor label_loss(const Tensor& logits, const Tensor& labels) {
  if (logits.size(-1) == 1) return mse_loss(view(logits, {-1}), view(labels, {-1}));
  return cross_entropy(view(logits, {-1, logits.size(-1)}), view(labels, {-1}));
}

}  // namespace plimsoll::program
