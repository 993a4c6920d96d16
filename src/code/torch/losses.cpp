// Losses of torch.nn.functional, and their classes.
#include "program/ops/losses.hpp"

#include <algorithm>

#include "code/torch/arguments.hpp"

namespace plimsoll::code {

using program::LossReduction;
using program::Tensor;

namespace {

LossReduction reduction_of(Interpreter& i, const Value& value) {
  if (!value.is_bound() || value.is_none()) return LossReduction::mean;
  const std::string& name = i.words(value, "reductions");
  if (name == "mean") return LossReduction::mean;
  if (name == "sum") return LossReduction::sum;
  if (name == "none") return LossReduction::none;
  i.raise("ValueError", name + " is not a valid value for reduction");
}

/// The last dimension of classes stands second where there are more than one; targets have the rest.
void check_classes(Interpreter& i, const Tensor& x, const Tensor& target) {
  torch_of(i).check_devices({&x, &target});
  if (x.rank() < 1 || target.dtype() != DType::int64)
    i.unknown("a loss whose target is no tensor of 64-bit class numbers", "class probabilities are not modelled");
  bool fits = target.rank() == x.rank() - 1;
  for (int at = 0; fits && at < target.rank(); ++at) fits = target.size(at) == x.size(at == 0 && x.rank() > 1 ? 0 : at + 1);
  if (fits) return;
  if (x.rank() == 2 && target.rank() == 1)
    torch_of(i).wrong_shape("Expected input batch_size (" + std::to_string(x.size(0)) + ") to match target batch_size (" +
                            std::to_string(target.size(0)) + ").");
  torch_of(i).wrong_shape("the target's shape does not fit the input's, [N, C, ...] and [N, ...]");
}

program::ClassLossArguments class_arguments(Interpreter& i, const Tensor& x, const Value& weight, const Value& reduction) {
  program::ClassLossArguments arguments;
  arguments.reduction = reduction_of(i, reduction);
  arguments.weight = torch_of(i).tensor_or_none(weight, "weight");
  if (arguments.weight) torch_of(i).check_devices({&x, &arguments.weight});
  return arguments;
}

Value cross_entropy(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), target = torch_of(i).tensor_of(a[1], "target");
  check_classes(i, x, target);
  program::ClassLossArguments arguments = class_arguments(i, x, a[2], a[4]);
  arguments.smooths_labels = a.has(5) && i.number(a[5], "label_smoothing") != 0;
  if (arguments.smooths_labels && arguments.weight) i.unknown("cross_entropy with label smoothing and weights of classes");
  if (x.rank() == 2 && !arguments.weight && !arguments.smooths_labels && arguments.reduction == LossReduction::mean)
    return torch_of(i).wrap(program::cross_entropy(x, target));
  return torch_of(i).wrap(program::cross_entropy(x, target, arguments));
}

/// ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity).
Value ctc_loss(Interpreter& i, Bound& a) {
  const Tensor x = torch_of(i).tensor_of(a[0], "log_probs"), targets = torch_of(i).tensor_of(a[1], "targets"),
               inputs = torch_of(i).tensor_of(a[2], "input_lengths"), lengths = torch_of(i).tensor_of(a[3], "target_lengths");
  torch_of(i).check_devices({&x, &targets, &inputs, &lengths});
  if (x.rank() != 3 || targets.rank() != 1) i.unknown("ctc_loss of other than [time, batch, classes] and targets in a row");
  if (x.dtype() != DType::fp32) i.unknown("ctc_loss in other than fp32");
  if (lengths.rank() != 1 || lengths.size(0) != x.size(1) || inputs.sizes() != lengths.sizes())
    torch_of(i).wrong_shape("input_lengths and target_lengths must be of size batch_size");
  const std::vector<double>& known = torch_of(i).values_of(a[3], false);
  double longest = 0, all = 0;
  for (const double each : known) {
    longest = std::max(longest, each);
    all += each;
  }
  if (longest < 1 || all != static_cast<double>(targets.elements())) torch_of(i).wrong_shape("Expected targets as long as target_lengths say");
  return torch_of(i).wrap(
      program::ctc_loss(x, targets, inputs, lengths, static_cast<std::int64_t>(longest), reduction_of(i, a[5]), flag(i, a, 6)));
}

Value nll_loss(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), target = torch_of(i).tensor_of(a[1], "target");
  check_classes(i, x, target);
  return torch_of(i).wrap(program::negative_log_likelihood(x, target, class_arguments(i, x, a[2], a[4])));
}

struct Pair {
  Tensor x, target;
};

Pair pair_of(Interpreter& i, const Bound& a) {
  Pair pair{input_of(i, a), torch_of(i).tensor_of(a[1], "target")};
  torch_of(i).check_devices({&pair.x, &pair.target});
  torch_of(i).check_broadcast(pair.x, pair.target);
  return pair;
}

/// Losses whose two tensors have one shape; another would be broadcast, with a warning.
Pair equal_pair_of(Interpreter& i, const Bound& a) {
  Pair pair = pair_of(i, a);
  if (pair.x.sizes() != pair.target.sizes()) i.unknown("a loss of tensors of several shapes");
  return pair;
}

Value binary_cross_entropy(Interpreter& i, Bound& a) {
  const auto [x, target] = equal_pair_of(i, a);
  if (target.requires_grad()) i.unknown("binary_cross_entropy_with_logits with a target that takes a gradient");
  const Tensor weight = torch_of(i).tensor_or_none(a[2], "weight"), positive = torch_of(i).tensor_or_none(a[4], "pos_weight");
  return torch_of(i).wrap(program::binary_cross_entropy_with_logits(x, target, weight, positive, reduction_of(i, a[3])));
}

Value mse_loss(Interpreter& i, Bound& a) {
  const auto [x, target] = equal_pair_of(i, a);
  const LossReduction reduction = reduction_of(i, a[2]);
  if (reduction == LossReduction::mean && !target.requires_grad()) return torch_of(i).wrap(program::mse_loss(x, target));
  return torch_of(i).wrap(program::pairwise_loss("mse_loss", x, target, reduction));
}

Value smooth_l1_loss(Interpreter& i, Bound& a) {
  const auto [x, target] = equal_pair_of(i, a);
  if (a.has(3) && i.number(a[3], "beta") == 0) return torch_of(i).wrap(program::absolute_loss(x, target, reduction_of(i, a[2])));
  return torch_of(i).wrap(program::pairwise_loss("smooth_l1_loss", x, target, reduction_of(i, a[2])));
}

Value huber_loss(Interpreter& i, Bound& a) {
  const auto [x, target] = equal_pair_of(i, a);
  return torch_of(i).wrap(program::huber_loss(x, target, reduction_of(i, a[2])));
}

Value l1_loss(Interpreter& i, Bound& a) {
  const auto [x, target] = equal_pair_of(i, a);
  return torch_of(i).wrap(program::absolute_loss(x, target, reduction_of(i, a[2])));
}

/// "batchmean": the sum, divided by the batch.
Value kl_div(Interpreter& i, Bound& a) {
  const auto [x, target] = equal_pair_of(i, a);
  if (target.requires_grad() && !flag(i, a, 3))
    i.unknown("kl_div with a target that takes a gradient", "log_target=True, or target.detach()");
  const bool by_batch = a.has(2) && i.words(a[2], "reductions") == "batchmean";
  Tensor loss = program::divergence(x, target, by_batch ? LossReduction::sum : reduction_of(i, a[2]), flag(i, a, 3));
  return torch_of(i).wrap(by_batch ? program::divide_scalar(loss) : std::move(loss));
}

constexpr LibraryRow kRows[] = {
    {"cross_entropy", "input, target, weight=, ignore_index=, reduction=, label_smoothing=, size_average=", cross_entropy},
    {"ctc_loss", "log_probs, targets, input_lengths, target_lengths, blank=, reduction=, zero_infinity=", ctc_loss},
    {"nll_loss", "input, target, weight=, ignore_index=, reduction=", nll_loss},
    {"binary_cross_entropy_with_logits", "input, target, weight=, reduction=, pos_weight=", binary_cross_entropy},
    {"mse_loss", "input, target, reduction=", mse_loss},
    {"smooth_l1_loss", "input, target, reduction=, beta=", smooth_l1_loss},
    {"huber_loss", "input, target, reduction=, delta=", huber_loss},
    {"l1_loss", "input, target, reduction=", l1_loss},
    {"kl_div", "input, target, reduction=, log_target=", kl_div},
};

}  // namespace

void define_losses(Interpreter& i, Torch&) {
  NamespaceObject& library = i.library("torch.nn.functional");
  for (const LibraryRow& row : kRows)
    library.attributes[i.symbol(row.name)] = i.native(std::string("torch.nn.functional.") + row.name, row.signature, row.run);
}

}  // namespace plimsoll::code
