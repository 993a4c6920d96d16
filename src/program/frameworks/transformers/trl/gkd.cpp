// GKDTrainer (trl/experimental/gkd/gkd_trainer.py) of texts that are given (`lmbda` 0, no `seq_kd`): student and teacher read the same, and the
// loss is how far their distributions of every next word are apart. The teacher's forward keeps its cache of keys and values (use_cache).
// ms-swift's (swift/rlhf_trainers/gkd_trainer.py, gkd_loss.py) keeps none, takes the answers' logits alone and compares them by 512 tokens.
#include <algorithm>
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

/// Both trainers' two passes over the same texts.
class Distillation : public Network {
 public:
  Distillation(const Strategy& strategy, TrlNetworks networks, Tape& tape) : strategy_(strategy), networks_(std::move(networks)), tape_(tape) {}

  Tensor loss(const Batch& batch) override {
    batch_ = batch;
    return networks_.policy->loss({.input_ids = batch.input_ids, .labels = labels()});
  }

  Tensor criterion(Tensor output) override {
    const Tensor said = networks_.policy->criterion(std::move(output));
    tape_.phase(Phase::loss);
    const Tensor taught = answer_without_graph(*networks_.reference, strategy_, {batch_.input_ids, labels()}, false, tape_);
    const Tensor loss = compared(said, taught);
    batch_ = {};
    return loss;
  }

 protected:
  /// The loss of whole logits, those of the teacher without a graph.
  virtual Tensor compared(const Tensor& said, const Tensor& taught) = 0;

  const Tensor& labels() const { return batch_.conditions[1]; }
  Divergence divergence() const { return strategy_.post_training->divergence; }
  std::int64_t answers() const { return strategy_.micro_batch * answer_length(strategy_); }  ///< tokens that are learnt of

  const Strategy& strategy_;
  TrlNetworks networks_;
  Tape& tape_;
  Batch batch_;
};

/// log(share · teacher + (1 - share) · student), by what the logarithms of both shares are.
Tensor log_mixture(const Tensor& student, const Tensor& rest, const Tensor& teacher, const Tensor& share) {
  const Tensor weighed = add(student, rest), weighed_teacher = add(teacher, share);
  return log_sum_exp(stack({weighed, weighed_teacher}, 0), {0}, false);
}

class GkdNetwork final : public Distillation {
 public:
  GkdNetwork(const Strategy& strategy, TrlNetworks networks, Tape& tape)
      : Distillation(strategy, std::move(networks), tape), release_(strategy.releases.of(Package::trl)) {}

 private:
  Tensor compared(const Tensor& said, const Tensor& taught) override {
    if (networks_.cache->empty())
      refuse("what a teacher of this type keeps of keys and values (use_cache) is not modelled", "teacher",
             "a model of Llama's kind: Llama, Qwen, Mistral …");
    const Tensor loss = distance(shifted(said), shifted(taught));
    networks_.cache->clear();
    tape_.empty_cache();
    return loss;
  }

  /// The logits that labels stand against.
  Tensor shifted(const Tensor& logits) const { return slice(logits, 1, first_compared(), logits.size(1) - 1); }
  std::int64_t first_compared() const { return release_.shifts_distilled_logits() ? 0 : strategy_.post_training->prompt_len - 1; }

  /// generalized_jsd_loss.
  Tensor distance(const Tensor& said, const Tensor& taught) const {
    const Tensor student_logits = divide_scalar(said), teacher_logits = divide_scalar(taught);
    const Tensor student = log_softmax(student_logits, student_logits.dtype()), teacher = log_softmax(teacher_logits, teacher_logits.dtype());
    Mixture mixture;
    Tensor apart;
    if (divergence() == Divergence::mixture)
      apart = from_mixture(student, teacher, mixture);
    else
      apart = divergence() == Divergence::forward ? divergence_from(student, teacher) : divergence_from(teacher, student);
    const Tensor mask = compare(slice(labels(), 1, first_compared() + 1, labels().size(1)), {}, DType::boolean);
    apart = masked_rows(apart, mask, answers());
    const Tensor all = sum(apart, std::vector<int>{}, false);
    if (release_.shifts_distilled_logits()) return divide_scalar(all);
    const Tensor counted = sum(mask, std::vector<int>{}, false);  // what the sum is divided by
    return divide_scalar(all);
  }

  /// Python variables of generalized_jsd_loss: they live until it returns.
  struct Mixture {
    Tensor share, mixed, of_teacher, of_student;
  };

  static Tensor from_mixture(const Tensor& student, const Tensor& teacher, Mixture& m) {
    m.share = filled(student.tape(), Dims{}, student.dtype());
    {
      const Tensor of_other = negate(m.share);
      const Tensor rest = elementwise(student.tape(), {&of_other}, m.share.dtype());  // log1p
      m.mixed = log_mixture(student, rest, teacher, logarithm(m.share));
    }
    m.of_teacher = divergence_from(m.mixed, teacher);
    m.of_student = divergence_from(m.mixed, student);
    const Tensor first = multiply(m.share, m.of_teacher);
    const Tensor rest = add_scalar(m.share);
    const Tensor second = multiply(rest, m.of_student);
    return add(first, second);
  }

  TrlRelease release_;
};

/// Of the answers' logits, which forward alone made (logits_to_keep).
class SwiftGkd final : public Distillation {
 public:
  using Distillation::Distillation;

 private:
  static constexpr std::int64_t kChunk = 512;  ///< chunk_size of gkd_loss: tokens

  Tensor compared(const Tensor& said, const Tensor& taught) override {
    const Tensor kept = slice(labels(), 1, labels().size(1) - said.size(1), labels().size(1));
    const Tensor of_student = rolled(kept, 1), of_teacher = rolled(kept, 1);
    const Tensor mask = compare(of_student, {}, DType::boolean), teacher_mask = compare(of_teacher, {}, DType::boolean);
    {  // as many tokens of both
      const Tensor counted = sum(mask, std::vector<int>{}, false), counted_of_teacher = sum(teacher_mask, std::vector<int>{}, false);
      compare(counted, counted_of_teacher, DType::boolean);
      tape_.read_back();
    }
    const Tensor student = masked_rows(said, mask, answers()), teacher = masked_rows(taught, teacher_mask, answers());
    const Tensor teacher_labels = masked_rows(of_teacher, teacher_mask, answers());
    const Tensor counted = tape_.empty({}, DType::int64);
    return divide_scalar(total_of(divide_scalar(student), divide_scalar(teacher)));
  }

  /// jsd_loss: each chunk's numbers are Python variables, which live until the next chunk's take their place.
  Tensor total_of(const Tensor& student, const Tensor& teacher) const {
    Tensor total = zeros(tape_, Dims{}, student.dtype()), share, log_share, log_rest;
    if (divergence() == Divergence::mixture) {
      share = filled(tape_, Dims{}, student.dtype());
      log_share = logarithm(share);
      log_rest = elementwise(tape_, {&share}, share.dtype());  // log1p of its negative
    }
    Tensor said, taught, mixed, apart;
    for (std::int64_t first = 0; first < student.size(0); first += kChunk) {
      const std::int64_t end = std::min(first + kChunk, student.size(0));
      said = log_softmax(slice(student, 0, first, end), student.dtype());
      taught = log_softmax(slice(teacher, 0, first, end), teacher.dtype());
      if (divergence() == Divergence::mixture) {
        mixed = log_mixture(said, log_rest, taught, log_share);
        const Tensor of_teacher = multiply(share, row_divergence(mixed, taught)), rest = add_scalar(share);
        apart = add(of_teacher, multiply(rest, row_divergence(mixed, said)));
      } else {
        apart = divergence() == Divergence::forward ? row_divergence(said, taught) : row_divergence(taught, said);
      }
      total = add(total, sum(apart, std::vector<int>{}, false));
    }
    return total;
  }

  /// default_kl_div: (exp(target) · (target - from)).sum(-1).
  static Tensor row_divergence(const Tensor& from, const Tensor& target) { return sum(divergence_from(from, target), {1}, false); }
};

}  // namespace

std::unique_ptr<Network> make_gkd(const Strategy& strategy, TrlNetworks networks, Tape& tape) {
  if (strategy.post_training->program == PostTraining::Program::ms_swift) return std::make_unique<SwiftGkd>(strategy, std::move(networks), tape);
  return std::make_unique<GkdNetwork>(strategy, std::move(networks), tape);
}

}  // namespace plimsoll::program
