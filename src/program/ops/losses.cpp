#include "program/ops/losses.hpp"

#include "program/ops/choosing.hpp"
#include "program/ops/functions.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/pointwise.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

/// nll_loss, and nll_loss2d where there are places beside the classes.
Tensor nll(const Tensor& x_in, const Tensor& target, const Tensor& weight, LossReduction reduction) {
  const Tensor x = autocast_fp32(x_in);
  const bool map = x.rank() > 2;
  Op op(map ? "nll_loss2d" : "nll_loss", {&x});
  op.save(x);
  op.save(target);
  op.save(weight);
  const Tensor packed_input = contiguous(x.detach());
  Tensor loss = op.output(reduction == LossReduction::none ? target.sizes() : Dims{}, x.dtype());
  const Tensor total_weight = op.output({}, x.dtype());
  gather(Gather::Function::nll_loss, target.elements(), {&target}, {&loss, &total_weight});
  if (map && reduction == LossReduction::mean) pointwise(loss, {&loss, &total_weight});  // nll_loss2d_forward_size_average_kernel
  op.save_output(total_weight);
  return op.done(loss, [](BackwardCall& b) {
    const Tensor input = b.saved(0), labels = b.saved(1);
    Tensor gradient = zeros(b.tape, input.sizes(), input.dtype());
    gather(Gather::Function::nll_loss, labels.elements(), {&labels}, {&labels});
    b.give(0, std::move(gradient));
  });
}

}  // namespace

Tensor reduced_loss(const Tensor& loss, LossReduction reduction) {
  if (reduction == LossReduction::none) return loss;
  return reduction == LossReduction::mean ? mean(loss, std::vector<int>{}, false) : sum(loss, {}, false);
}

/// nll_loss_nd_symint: of three, or more than four dimensions the places are one row.
Tensor negative_log_likelihood(const Tensor& x, const Tensor& target, const ClassLossArguments& arguments) {
  if (x.rank() <= 2 || x.rank() == 4) return nll(x, target, arguments.weight, arguments.reduction);
  const Tensor flat = view(contiguous(x), {x.size(0), x.size(1), 1, -1});
  const Tensor labels = view(contiguous(target), {x.size(0), 1, -1});
  const Tensor loss = nll(flat, labels, arguments.weight, arguments.reduction);
  return arguments.reduction == LossReduction::none ? view(loss, target.sizes()) : loss;
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const ClassLossArguments& arguments) {
  const int classes = logits.rank() == 1 ? 0 : 1;
  const Tensor log_probabilities = softmax_over(logits, classes, logits.dtype(), true);
  const Tensor plain = negative_log_likelihood(log_probabilities, target, arguments);
  if (!arguments.smooths_labels) return plain;
  // cross_entropy_loss_label_smoothing
  Tensor smooth = negate(sum(log_probabilities, {classes}, false));
  const Tensor ignored = compare(target, {}, DType::boolean);
  smooth = masked_fill_into(smooth, ignored);
  Tensor rest;
  if (arguments.reduction == LossReduction::mean) {
    const Tensor counted = compare(ignored, {}, DType::boolean);
    const Tensor total = sum(smooth, {}, false);
    const Tensor count = reduced_to(counted, {}, false, DType::int64);
    rest = divide(total, count);
  } else {
    rest = reduced_loss(smooth, arguments.reduction);
  }
  const Tensor scaled = multiply_scalar(rest);
  return add(multiply_scalar(plain), scaled);
}

Tensor binary_cross_entropy_with_logits(const Tensor& x_in, const Tensor& target_in, const Tensor& weight, const Tensor& positive_weight,
                                        LossReduction reduction) {
  const Tensor target = autocast_fp32(target_in), x = autocast_fp32(x_in);
  Op op("binary_cross_entropy_with_logits", {&x});
  op.save(x);
  op.save(target);
  op.save(weight);
  op.save(positive_weight);
  Tape& tape = op.tape();
  Tensor y;
  {
    const Tensor log_sigmoid = elementwise(tape, {&x}, x.dtype());
    if (positive_weight) {  // log_sigmoid.mul_((pos_weight - 1).mul(target).add_(1))
      const Tensor less = elementwise(tape, {&positive_weight}, x.dtype());
      const Tensor log_weight = elementwise(tape, {&less, &target}, x.dtype());
      in_place(log_weight, {&log_weight});
      in_place(log_sigmoid, {&log_sigmoid, &log_weight});
    }
    const Tensor loss = filled(tape, target.sizes(), x.dtype());  // (1 - target).mul_(input).sub_(log_sigmoid_input)
    in_place(loss, {&loss, &target});
    in_place(loss, {&loss, &x});
    in_place(loss, {&loss, &log_sigmoid});
    if (weight) in_place(loss, {&loss, &weight});
    y = reduction == LossReduction::none
            ? loss
            : reduce(loss, std::vector<bool>(static_cast<std::size_t>(loss.rank()), true), false, loss.dtype());
  }
  return op.done(y, [reduction](BackwardCall& b) {
    const Tensor input = b.saved(0), wanted = b.saved(1), scale = b.saved(2), positive = b.saved(3);
    Tensor gradient;
    if (positive) {  // t = pos_weight.mul(target); t.add(1).sub_(target).mul_(sigmoid).sub_(t).mul_(grad)
      const Tensor weighted = elementwise(b.tape, {&positive, &wanted}, input.dtype());
      gradient = elementwise(b.tape, {&weighted}, input.dtype());
      in_place(gradient, {&gradient, &wanted});
      const Tensor sigmoid_input = elementwise(b.tape, {&input}, input.dtype());
      in_place(gradient, {&gradient, &sigmoid_input});
      in_place(gradient, {&gradient, &weighted});
      in_place(gradient, {&gradient, &b.grad()});
    } else {
      gradient = elementwise(b.tape, {&input}, input.dtype());  // sigmoid(input).sub_(target).mul_(grad)
      in_place(gradient, {&gradient, &wanted});
      in_place(gradient, {&gradient, &b.grad()});
    }
    if (scale) in_place(gradient, {&gradient, &scale});
    if (reduction == LossReduction::mean) in_place(gradient, {&gradient});
    b.give(0, std::move(gradient));
  });
}

namespace {

/// smooth_l1_loss_backward, huber_loss_backward: written into zeros, of what was predicted and of what was wanted.
void into_zeros_backward(BackwardCall& b) {
  const Tensor input = b.saved(0), wanted = b.saved(1);
  for (const std::size_t side : {std::size_t{0}, std::size_t{1}}) {
    if (!b.needs(side)) continue;
    const Tensor& own = side == 0 ? input : wanted;
    Tensor gradient = zeros(b.tape, own.sizes(), own.dtype());
    in_place(gradient, {&input, &wanted, &b.grad()});
    b.give(side, std::move(gradient));
  }
}

}  // namespace

Tensor pairwise_loss(const char* name, const Tensor& x_in, const Tensor& target_in, LossReduction reduction) {
  const Tensor target = autocast_fp32(target_in), x = autocast_fp32(x_in);
  Op op(name, {&x, &target});
  op.save(x);
  op.save(target);
  const Dims sizes = broadcast_sizes({&x, &target});
  Tensor loss;
  if (reduction == LossReduction::none) {
    loss = op.elementwise({&x, &target}, x.dtype());
  } else {
    loss = op.output(sizes, x.dtype());  // made for no reduction, then resized: its storage stays
    loss.impl()->sizes = loss.impl()->strides = {};
    const Tensor each = elementwise(op.tape(), {&x, &target}, x.dtype());
    reduce_into(loss, each, std::vector<bool>(static_cast<std::size_t>(each.rank()), true));
  }
  return op.done(loss, into_zeros_backward);
}

Tensor huber_loss(const Tensor& x_in, const Tensor& target_in, LossReduction reduction) {
  const Tensor target = autocast_fp32(target_in), x = autocast_fp32(x_in);
  Op op("huber_loss", {&x, &target});
  op.save(x);
  op.save(target);
  Tensor y;
  {
    const Tensor each = elementwise(op.tape(), {&x, &target}, x.dtype());
    y = reduction == LossReduction::none ? each
                                         : reduce(each, std::vector<bool>(static_cast<std::size_t>(each.rank()), true), false, x.dtype());
  }
  return op.done(y, into_zeros_backward);
}

Tensor absolute_loss(const Tensor& x_in, const Tensor& target_in, LossReduction reduction) {
  const Tensor target = autocast_fp32(target_in), x = autocast_fp32(x_in);
  const Tensor each = absolute(subtract(x, target));
  return reduced_loss(each, reduction);
}

Tensor divergence(const Tensor& x_in, const Tensor& target_in, LossReduction reduction, bool log_target) {
  const Tensor target = autocast_fp32(target_in), x = autocast_fp32(x_in);
  Tensor each;
  if (log_target) {  // exp(target) * (target - input)
    const Tensor difference = subtract(target, x);
    const Tensor probability = exponential(target);
    each = multiply(probability, difference);
  } else {  // xlogy(target, target) - target * input
    const Tensor product = multiply(target, x);
    const Tensor entropy = Op("xlogy", {&target}).elementwise({&target}, target.dtype());
    each = subtract(entropy, product);
  }
  return reduced_loss(each, reduction);
}

}  // namespace plimsoll::program
