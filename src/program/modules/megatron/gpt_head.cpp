// The output layer of a model chunk, and the loss.
#include "program/modules/megatron/gpt.hpp"
#include "program/modules/megatron/ops.hpp"
#include "program/modules/megatron/vocabulary.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

Tensor MegatronChunk::token_losses(const Tensor& logits, const Tensor& target) const {
  if (config_.loss == LossKernel::te) return te_cross_entropy(runtime_, logits, target);
  if (config_.loss == LossKernel::fused_vocab_parallel) return fused_vocab_parallel_cross_entropy(runtime_, logits, target);
  return vocab_parallel_cross_entropy(runtime_, logits, target);
}

/// That of the output layer, or the embedding's, which it shares.
const Tensor& MegatronChunk::output_weight() {
  Module* head = root_->find_child("output_layer");
  return head ? head->tensor("weight") : root_->child("embedding").child("word_embeddings").tensor("weight");
}

void MegatronChunk::defer_weight_gradients(const DeferredMicroBatches& micro_batches, const Dims& input) {
  Tape& tape = runtime_.tape();
  const Tensor& weight = output_weight();
  deferred_.most = static_cast<std::size_t>(micro_batches.recorded);
  deferred_.unrecorded = static_cast<std::size_t>(micro_batches.repeated);
  held_for_others_.clear();
  const std::int64_t rows = input.product() / input[-1] * (runtime_.sequence_parallel() ? runtime_.tp() : 1);
  for (std::int64_t i = 0; i < micro_batches.held; ++i) {
    held_for_others_.push_back(tape.empty(input, weight.dtype()));
    held_for_others_.push_back(tape.empty({rows, weight.size(0)}, weight.dtype()));
  }
}

void MegatronChunk::finish_weight_gradients() {
  const LabelScope label(runtime_.tape(), runtime_.tape().intern("output_layer"));
  compute_deferred(runtime_, output_weight(), deferred_);
  held_for_others_.clear();
}

/// The output layer and the loss of every token.
Tensor MegatronChunk::loss(const Tensor& decoded, const Tensor& labels) {
  Tape& tape = runtime_.tape();
  Tensor hidden = decoded;
  tape.phase(Phase::loss);
  Module* head = root_->find_child("output_layer");
  ModuleCall call(head ? *head : root_->child("embedding"), tape, {&hidden});
  const bool parallel = runtime_.tp() > 1, sequence = runtime_.sequence_parallel();
  const Tensor logits = call.done(megatron_linear(
      runtime_, hidden, output_weight(), {},
      {.gather_input = sequence, .reduce_gradient = parallel && !sequence, .deferred = deferred_.most > 0 ? &deferred_ : nullptr}));
  const Tensor target = contiguous(transpose(labels, 0, 1));
  Tensor losses = token_losses(logits, target);
  losses = contiguous(transpose(losses, 0, 1));
  return losses;
}

}  // namespace plimsoll::program
