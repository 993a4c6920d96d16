#include "program/ops.hpp"

namespace plimsoll::program {

namespace {

/// nll_loss of log-probabilities [n, classes]: the loss and the total weight, both scalars.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target) {
  Op op("nll_loss", {&log_probabilities});
  op.save(log_probabilities);
  op.save(target);
  Tensor loss = op.output({}, log_probabilities.dtype());
  const Tensor total_weight = op.output({}, log_probabilities.dtype());
  launch(op.tape(), KernelKind::reduction, loss.dtype(), target.size(0) * 12, 8);
  op.save_output(total_weight);
  return op.done(loss, [](BackwardCall& b) {
    const Tensor input = b.saved(0);
    Tensor gradient = zeros(b.tape, input.sizes(), input.dtype());  // zeros_like, then one element per row
    launch(b.tape, KernelKind::gather, input.dtype(), input.size(0) * 8, input.size(0) * 4);
    b.give(0, std::move(gradient));
  });
}

}  // namespace

/// cross_entropy_loss asks for log_softmax in the logits' own type, which autocast leaves alone; nll_loss is on its fp32 list.
Tensor cross_entropy(const Tensor& logits, const Tensor& target) {
  const Tensor log_probabilities = log_softmax(logits, logits.dtype());
  return nll_loss(autocast_fp32(log_probabilities), target);
}

}  // namespace plimsoll::program
