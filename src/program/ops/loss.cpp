#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

/// nll_loss of log-probabilities [n, classes]: the loss and the total weight, both scalars.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target) {
  Op op("nll_loss", {&log_probabilities, &target});
  op.save(log_probabilities);
  op.save(target);
  Tensor loss = op.output({}, log_probabilities.dtype());
  const Tensor total_weight = op.output({}, log_probabilities.dtype());
  gather(Gather::Function::nll_loss, target.elements(), {&target}, {&loss, &total_weight});
  op.save_output(total_weight);
  return op.done(loss, [](BackwardCall& b) {
    const Tensor input = b.saved(0), labels = b.saved(1);
    Tensor gradient = zeros(b.tape, input.sizes(), input.dtype());  // zeros_like, then one element per row
    gather(Gather::Function::nll_loss, labels.elements(), {&labels}, {&labels});
    b.give(0, std::move(gradient));
  });
}

}  // namespace

/// cross_entropy_loss asks for log_softmax in the logits' own type, which autocast leaves alone; nll_loss is on its fp32 list.
Tensor cross_entropy(const Tensor& logits, const Tensor& target) {
  const Tensor log_probabilities = log_softmax(logits, logits.dtype());
  return nll_loss(autocast_fp32(log_probabilities), target);
}

Tensor mse_loss(const Tensor& x_in, const Tensor& target_in) {
  const Tensor target = autocast_fp32(target_in), x = autocast_fp32(x_in);
  Op op("mse_loss", {&x, &target});
  op.save(x);
  op.save(target);
  Tensor loss = op.output(x.sizes(), x.dtype());  // the structured kernel allocates for no reduction, then resizes: its storage stays
  loss.impl()->sizes = loss.impl()->strides = {};
  {
    const Tensor squares = elementwise(op.tape(), {&x, &target}, x.dtype());
    reduce_into(loss, squares, std::vector<bool>(static_cast<std::size_t>(x.rank()), true));
  }
  return op.done(loss, [](BackwardCall& b) {  // zeros_like, then one kernel into it
    const Tensor input = b.saved(0), wanted = b.saved(1);
    Tensor gradient = zeros(b.tape, input.sizes(), input.dtype());
    in_place(gradient, {&input, &wanted, &b.grad()});
    b.give(0, std::move(gradient));
  });
}

}  // namespace plimsoll::program
