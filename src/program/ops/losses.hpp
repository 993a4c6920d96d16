/// Losses of torch.nn.functional beside the two in ops.hpp: aten/src/ATen/native/Loss.cpp and LossNLL.cpp.
#pragma once

#include "program/op.hpp"

namespace plimsoll::program {

enum class LossReduction : std::uint8_t { none, mean, sum };

/// apply_loss_reduction.
Tensor reduced_loss(const Tensor& loss, LossReduction reduction);

struct ClassLossArguments {
  LossReduction reduction = LossReduction::mean;
  Tensor weight;                ///< of classes; may be undefined
  bool smooths_labels = false;  ///< label_smoothing is not 0
};
/// F.cross_entropy of logits [n, classes] or [n, classes, …] and targets of classes.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const ClassLossArguments& arguments);
/// F.nll_loss.
Tensor negative_log_likelihood(const Tensor& log_probabilities, const Tensor& target, const ClassLossArguments& arguments);
/// F.binary_cross_entropy_with_logits; weights may be undefined.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight, const Tensor& positive_weight,
                                        LossReduction reduction);
/// F.smooth_l1_loss, F.mse_loss with any reduction, whose target may take a gradient; F.huber_loss.
Tensor pairwise_loss(const char* name, const Tensor& x, const Tensor& target, LossReduction reduction);
Tensor huber_loss(const Tensor& x, const Tensor& target, LossReduction reduction);
/// F.l1_loss.
Tensor absolute_loss(const Tensor& x, const Tensor& target, LossReduction reduction);
/// F.ctc_loss of log_probabilities [time, batch, classes] and targets of all sequences one behind the other; `longest` of them has so many.
Tensor ctc_loss(const Tensor& log_probabilities, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths,
                std::int64_t longest, LossReduction reduction, bool zero_infinity);
/// F.kl_div.
Tensor divergence(const Tensor& x, const Tensor& target, LossReduction reduction, bool log_target);

}  // namespace plimsoll::program
