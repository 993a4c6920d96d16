// GKDTrainer (trl/experimental/gkd/gkd_trainer.py) of texts that are given (`lmbda` 0, no `seq_kd`): student and teacher read the same, and the
// loss is how far their distributions of every next word are apart. The teacher's forward keeps its cache of keys and values (use_cache).
#include <utility>

#include "plimsoll/error.hpp"
#include "program/frameworks/transformers/trl/networks.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"
#include "program/ops/pointwise.hpp"
#include "program/trl_release.hpp"

namespace plimsoll::program {

namespace {

using Divergence = PostTraining::Divergence;

/// F.kl_div(from, target, reduction="none", log_target=True).
Tensor divergence_from(const Tensor& from, const Tensor& target) {
  const Tensor likely = exponential(target), apart = subtract(target, from);
  return multiply(likely, apart);
}

class GkdNetwork final : public Network {
 public:
  GkdNetwork(const Strategy& strategy, TrlNetworks networks, Tape& tape)
      : strategy_(strategy), release_(strategy.releases.of(Package::trl)), networks_(std::move(networks)), tape_(tape) {}

  Tensor loss(const Batch& batch) override {
    batch_ = batch;
    return networks_.policy->loss({.input_ids = batch.input_ids, .labels = batch.conditions[1]});
  }

  Tensor criterion(Tensor output) override {
    const Tensor said = networks_.policy->criterion(std::move(output));
    tape_.phase(Phase::loss);
    const Tensor taught = answer_without_graph(*networks_.reference, strategy_, {batch_.input_ids, batch_.conditions[1]}, false, tape_);
    if (networks_.cache->empty())
      refuse("what a teacher of this type keeps of keys and values (use_cache) is not modelled", "teacher", "a model of Llama's kind: Llama, Qwen, Mistral …");
    const Tensor loss = compared(shifted(said), shifted(taught));
    networks_.cache->clear();
    tape_.empty_cache();
    batch_ = {};
    return loss;
  }

 private:
  /// The logits that labels stand against.
  Tensor shifted(const Tensor& logits) const { return slice(logits, 1, first(), logits.size(1) - 1); }
  std::int64_t first() const { return release_.shifts_distilled_logits() ? 0 : strategy_.post_training->prompt_len - 1; }

  /// generalized_jsd_loss.
  Tensor compared(const Tensor& said, const Tensor& taught) const {
    const Tensor student_logits = divide_scalar(said), teacher_logits = divide_scalar(taught);
    const Tensor student = log_softmax(student_logits, student_logits.dtype()), teacher = log_softmax(teacher_logits, teacher_logits.dtype());
    Tensor share, mixed, of_teacher, of_student;  // Python variables: they live until the function returns
    Tensor apart = strategy_.post_training->divergence == Divergence::mixture ? from_mixture(student, teacher, share, mixed, of_teacher, of_student)
                   : strategy_.post_training->divergence == Divergence::forward ? divergence_from(student, teacher)
                                                                                : divergence_from(teacher, student);
    const Tensor& labels = batch_.conditions[1];
    const Tensor mask = compare(slice(labels, 1, first() + 1, labels.size(1)), {}, DType::boolean);
    apart = masked_rows(apart, mask, strategy_.micro_batch * answer_length(strategy_));
    const Tensor all = sum(apart, std::vector<int>{}, false);
    if (release_.shifts_distilled_logits()) return divide_scalar(all);
    const Tensor counted = sum(mask, std::vector<int>{}, false);
    return divide_scalar(all);
  }

  static Tensor from_mixture(const Tensor& student, const Tensor& teacher, Tensor& share, Tensor& mixed, Tensor& of_teacher, Tensor& of_student) {
    share = filled(student.tape(), Dims{}, student.dtype());
    {
      const Tensor of_other = negate(share);
      const Tensor rest = elementwise(student.tape(), {&of_other}, share.dtype());  // log1p
      const Tensor weighed = add(student, rest);
      const Tensor part = logarithm(share);
      const Tensor weighed_teacher = add(teacher, part);
      mixed = log_sum_exp(stack({weighed, weighed_teacher}, 0), {0}, false);
    }
    of_teacher = divergence_from(mixed, teacher);
    of_student = divergence_from(mixed, student);
    const Tensor first = multiply(share, of_teacher);
    const Tensor rest = add_scalar(share);
    const Tensor second = multiply(rest, of_student);
    return add(first, second);
  }

  const Strategy& strategy_;
  TrlRelease release_;
  TrlNetworks networks_;
  Tape& tape_;
  Batch batch_;
};

}  // namespace

std::unique_ptr<Network> make_gkd(const Strategy& strategy, TrlNetworks networks, Tape& tape) {
  return std::make_unique<GkdNetwork>(strategy, std::move(networks), tape);
}

}  // namespace plimsoll::program
