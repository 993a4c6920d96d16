#include "program/frameworks/megatron/schedule_passes.hpp"

#include <algorithm>

#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// x /= other, recorded; `other` may be a number (undefined).
void divide_in_place(Tensor& x, const Tensor& other) {
  Op op("div_", {&x, &other});
  op.save(other);
  in_place(x, {&x});
  Tensor y = x.detach();
  x = op.done(y, [](BackwardCall& b) { b.give(0, elementwise(b.tape, {&b.grad()}, b.grad().dtype())); });
}

}  // namespace

void MegatronPasses::begin() {
  tape_.operator_name = "schedule";
  rank_.repeated = {};
  for (const auto& wrapped : rank_.wrapped) wrapped->set_synchronizing(false);
  if (!rank_.chunks.back()->plan().head) return;
  for (std::int64_t i = 0; i < rank_.left_out; ++i)  // what the micro-batches that are left out would have reported
    reports_.push_back(tape_.empty({2}, DType::fp32));
}

/// The tensors that a data loader puts on the device; stages between the ends need the loss mask alone.
MegatronBatch MegatronPasses::load() {
  const auto tensor = [&](DType type) { return tape_.empty({rank_.micro_batch, rank_.length}, type, Category::input); };
  MegatronBatch batch;
  const LabelScope label(tape_, tape_.intern("batch"));
  const bool at_an_end = std::any_of(rank_.chunks.begin(), rank_.chunks.end(),
                                     [](const auto& chunk) { return chunk->plan().embedding || chunk->plan().head; });
  if (at_an_end) {
    batch.tokens = tensor(DType::int64);
    batch.labels = tensor(DType::int64);
    batch.loss_mask = tensor(DType::fp32);
    batch.positions = tensor(DType::int64);
  } else {
    batch.loss_mask = tensor(DType::fp32);
  }
  return batch;
}

/// The sum of all tokens' losses, averaged over tokens and micro-batches.
MegatronPasses::Passed MegatronPasses::reduced_loss(const Tensor& losses, const Tensor& loss_mask) {
  const LabelScope label(tape_, tape_.intern("loss"));
  Tensor loss, count;
  {
    const Tensor flat = view(losses, {-1}), mask = view(loss_mask, {-1});
    {
      const Tensor masked = multiply(flat, mask);
      loss = sum(masked, {}, false);
    }
    Tensor total = sum(mask, {}, false);
    Tensor copy = clone(total);
    total.reset();
    count = to(copy, DType::int32);
  }
  const Tensor copy = clone(loss.detach());
  reports_.push_back(tape_.empty({2}, DType::fp32));
  const Tensor at_least_one = elementwise(tape_, {&count}, DType::int32);
  divide_in_place(loss, at_least_one);
  divide_in_place(loss, {});
  tape_.read_back();  // validate_result asks whether the loss is a number (check_for_nan_in_loss_and_grad)
  return {loss, count};
}

/// All that the schedule holds of a pass forward.
std::vector<Tensor> MegatronPasses::held_of(const MegatronChunk& chunk, const Passed& passed) const {
  if (!chunk.plan().head) return {passed.output};
  return {passed.output, passed.tokens, reports_.back()};
}

/// The first pass fills caches, behind the last gradients are reduced; where routines serve, the second one is what those between repeat.
MegatronPasses::Passed MegatronPasses::forward_step(std::size_t chunk_index, const Tensor& input) {
  MegatronChunk& chunk = *rank_.chunks[chunk_index];
  Routine* const routine = rank_.routines ? &(*rank_.routines)[chunk_index] : nullptr;
  const std::int64_t number = forwards_[chunk_index]++;
  tape_.phase(Phase::forward);
  chunk.set_input(input);
  if (routine && routine->knows_forward() && number > 0 && number + 1 < rank_.micro_batches) {
    std::vector<Tensor> made = routine->forward(input);
    tape_.operator_name = "schedule";
    if (!chunk.plan().head) return {std::move(made[0]), {}};
    reports_.push_back(std::move(made[2]));
    return {std::move(made[0]), std::move(made[1])};
  }
  if (routine && number > 0) routine->begin_forward(input);
  Passed passed = run_forward(chunk);
  if (routine && number > 0) routine->end_forward(input, held_of(chunk, passed));
  return passed;
}

MegatronPasses::Passed MegatronPasses::run_forward(MegatronChunk& chunk) {
  Tensor output, mask;
  {
    const MegatronBatch batch = load();
    output = chunk.forward(batch);
    mask = batch.loss_mask;
  }
  tape_.operator_name = "schedule";
  Passed passed = chunk.plan().head ? reduced_loss(output, mask) : Passed{output, {}};
  if (rank_.config.routes_tokens) scale_auxiliary_losses();
  return passed;
}

/// forward_step_calc_loss calls MoEAuxLossAutoScaler.set_loss_scale, which keeps the first scale and writes all later ones into it.
void MegatronPasses::scale_auxiliary_losses() {
  Tensor scale, per_micro_batch;
  {
    const Tensor one = tape_.empty({1}, DType::fp32);
    scale = multiply(scale_, one);
  }
  {
    const Tensor over_context = multiply_scalar(scale);
    per_micro_batch = multiply_scalar(over_context);
  }
  if (rank_.auxiliary_loss_scale) return;
  Tape::categorize(per_micro_batch, Category::workspace);
  rank_.auxiliary_loss_scale = std::move(per_micro_batch);
}

Tensor MegatronPasses::backward_step(std::size_t chunk, const Tensor& input, Tensor& output, const Tensor& gradient) {
  Routine* const routine = rank_.routines ? &(*rank_.routines)[chunk] : nullptr;
  const bool shows = routine && backwards_[chunk]++ == 1 && routine->knows_forward() && !routine->knows_backward();
  tape_.phase(Phase::backward);
  if (const NodeRef call = Routine::call_of(output)) {
    routine->backward(call, input, output);
  } else {
    if (shows) routine->begin_backward(input, output);
    run_backward(output, gradient);
    if (shows) routine->end_backward(input, output);
  }
  tape_.operator_name = "schedule";
  return input ? input.grad() : Tensor();
}

void MegatronPasses::run_backward(Tensor& output, const Tensor& gradient) {
  if (!gradient) {
    Tensor scaled = multiply(scale_, output);
    output = std::move(scaled);
  }
  tape_.backward(output, gradient);
}

void MegatronPasses::deallocate(const Tensor& output) {
  if (!output || !rank_.deallocates_outputs) return;
  const Tensor one = tape_.empty({1}, output.dtype());
  output.impl()->storage = one.impl()->storage;
}

void MegatronPasses::finalize() {
  if (defers()) rank_.chunks.back()->finish_weight_gradients();
  for (const auto& wrapped : rank_.wrapped) wrapped->finish_grad_sync();
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < rank_.chunks.size(); ++i)
    for (const Parameter* parameter : rank_.chunks[i]->sequence_partials()) elements += rank_.wrapped[i]->gradient_elements(*parameter);
  if (elements > 0) {
    const DType type = rank_.wrapped.front()->gradient_type();
    const Tensor flat = tape_.empty({elements}, type, Category::communication_buffer);
    rank_.runtime.collective(CollectiveKind::all_reduce, flat.bytes(), type);
  }
}

}  // namespace plimsoll::program
