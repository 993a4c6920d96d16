#include "program/frameworks/torchtitan/trainer.hpp"

#include <algorithm>

#include "plimsoll/framework.hpp"
#include "program/left_behind.hpp"
#include "program/modules/torchtitan/moe.hpp"
#include "program/op.hpp"
#include "program/ops/block_mask.hpp"
#include "program/ops/ops.hpp"
#include "program/optimizers/clipping.hpp"
#include "program/optimizers/host_optimizer.hpp"
#include "program/spare_program.hpp"

namespace plimsoll::program {

namespace {

/// The labels of earlier groups of micro-batches are named until those of the next one are there.
void forget_labels(std::vector<TitanBatch>& batches, std::size_t earlier) {
  for (std::size_t i = 0; i < earlier; ++i) batches[i].labels.reset();
}

}  // namespace

TitanTrainer::TitanTrainer(const Lowering& lowering, const TitanRun& run, const TitanRankPlan& plan, bool calls)
    : strategy_(lowering.strategy),
      release_(framework::titan_release(lowering.strategy)),
      plan_(plan),
      calls_(calls),
      tape_(lowering.device, lowering.torch()),
      transfers_(make_transfers()) {
  tape_.cudnn_attention = run.cudnn_attention;
  for (const TitanStage& stage : plan_.parts)
    parts_.push_back(std::make_unique<TitanPart>(lowering.model, strategy_, run, stage, tape_, transfers_.get(),
                                                 static_cast<std::int64_t>(parts_.size()), calls));
}

/// What is received in advance has events of its own: no more micro-batches than ranks are on their way to a part.
std::unique_ptr<TitanTransfers> TitanTrainer::make_transfers() {
  if (plan_.ranks == 1) return nullptr;
  auto transfers = std::make_unique<TitanTransfers>(TitanTransfers{.groups = {tape_, plan_.ranks}, .pairs = {}, .events = {}});
  transfers->fuses = plan_.sends == TitanRankPlan::Sends::with_next;
  transfers->waits_late = plan_.sends == TitanRankPlan::Sends::in_advance;
  if (!transfers->waits_late) return transfers;
  if (plan_.pairs) transfers->pairs.emplace(tape_, plan_.ranks);
  MicroBatchEvents& events = transfers->events;
  events.period = plan_.ranks;
  events.first = tape_.new_event();
  const auto purposes = static_cast<std::int64_t>(2 * plan_.parts.size());  // activations and gradients of each part
  for (std::int64_t i = 1; i < purposes * events.period; ++i) tape_.new_event();
  events.end = events.first + static_cast<EventId>(purposes * events.period);
  return transfers;
}

StepProgram TitanTrainer::record(StepProgram spare) {
  record_into_memory_of(std::move(spare), tape_);
  tape_.phase(Phase::init);
  for (auto& part : parts_) part->materialize();
  for (auto& part : parts_)
    for (Tensor& shard : part->sharded().shards()) shards_.push_back(shard);
  optimizer_ = strategy_.offload.params
                   ? make_host_optimizer(strategy_, tape_, shards_)
                   : make_optimizer(strategy_.optimizer, strategy_.optimizer_impl, tape_, shards_, strategy_.state_dtype);
  Accumulation accumulation(tape_, std::max<std::int64_t>(strategy_.grad_accum, 1), plan_.every_micro_batch);
  tape_.record_into(Tape::Part::first_step);
  const PassMarks in_first = train_step(accumulation);
  tape_.record_into(Tape::Part::step);
  const PassMarks in_step = train_step(accumulation);
  StepProgram program = tape_.take();
  if (plan_.repeat_times > 1) repeat_passes(program, in_first, in_step);
  accumulation.repeat(program);
  return program;
}

/// The passes of the plan's steady turn stand for those that are left out, in both parts of the program.
void TitanTrainer::repeat_passes(StepProgram& program, const PassMarks& in_first, const PassMarks& in_step) {
  const auto repeated = [&](const PassMarks& marks) {
    return Repeated{marks.at[plan_.repeat_begin], marks.at[plan_.repeat_end], plan_.repeat_times};
  };
  program.repeated = repeated(in_step);
  TensorId next = tape_.take_names(0);
  Repeated of_first = repeated(in_first);
  add_left_behind(program.first_step, of_first, in_first.end, next);
  add_left_behind(program.step, program.repeated, in_step.end, next);
}

TitanBatch TitanTrainer::next_batch() {
  tape_.operator_name = "inputs";
  const Dims sizes{strategy_.micro_batch, strategy_.seq_len};  // whole sequences: ranks of context parallelism cut them on the device
  const auto input = [&] { return tape_.empty(sizes, DType::int64, Category::input); };
  TitanBatch batch{input(), {}, {}, {}, {}};
  if (release_.is_0_3()) batch.positions = input();
  batch.labels = input();
  return batch;
}

/// _HeadTailLoadBalancer: the order in which a sequence is cut.
Tensor TitanTrainer::load_balance() {
  tape_.operator_name = "cp_shard";
  const std::int64_t length = strategy_.seq_len;
  const Tensor indices = tape_.empty({length}, DType::int32);
  // From 2.12 on _HeadTailLoadBalancer puts its indices together on the device; before, on the host.
  if (!tape_.torch.since(2, 12)) return elementwise(tape_, {&indices}, DType::int32);
  const Tensor heads = tape_.empty({strategy_.cp}, DType::int64), tails = tape_.empty({strategy_.cp}, DType::int64);
  const Tensor front = tape_.empty({length / 2}, DType::int32), back = tape_.empty({length / 2}, DType::int32);
  return elementwise(tape_, {&indices}, DType::int32);
}

/// context_parallel(): inputs, labels and rotary tables become this rank's parts in their own memory; the tables' whole values are kept
/// until the passes are over.
void TitanTrainer::shard_in_place(TitanBatch& batch) {
  std::vector<Tensor*> buffers = {&batch.tokens, &batch.labels};
  for (auto& part : parts_)
    for (ModuleBuffer& table : part->decoder().root().buffers) {
      batch.whole_tables.push_back(elementwise(tape_, {&table.tensor}, table.type));
      buffers.push_back(&table.tensor);
    }
  const Tensor order = load_balance();
  std::vector<Tensor> ordered;
  for (const Tensor* buffer : buffers) {
    if (buffer->rank() == 2 && buffer->dtype() != DType::int64) {
      ordered.push_back(elementwise(tape_, {buffer}, buffer->dtype()));
      continue;
    }
    for (std::int64_t row = 0; row < strategy_.micro_batch; ++row) {  // buffer[i] = index_select(buffer[i], …)
      const Tensor one = tape_.empty({strategy_.seq_len}, buffer->dtype());
      in_place(*buffer, {&one});
    }
  }
  for (Tensor* buffer : buffers) {
    Dims sizes = buffer->sizes();
    const int dimension = buffer->dtype() == DType::int64 ? 1 : 0;
    sizes[dimension] /= strategy_.cp;
    const Tensor shard = tape_.empty(sizes, buffer->dtype());
    in_place(*buffer, {&shard});
    if (dimension == 1) *buffer = tape_.view(*buffer, sizes, contiguous_strides(sizes));
  }
}

/// cp_shard: this rank's chunks of the sequences, the n-th from the front and the n-th from the back.
TitanBatch TitanTrainer::context_part(const TitanBatch& batch) {
  if (strategy_.cp == 1) return batch;
  if (!release_.shards_context_itself()) {
    TitanBatch mine = batch;
    shard_in_place(mine);
    return mine;
  }
  const std::int64_t length = strategy_.seq_len;
  const Tensor order = load_balance();
  const auto part = [&](const Tensor& whole) {
    const Tensor reordered = elementwise(tape_, {&whole}, whole.dtype());
    return tape_.empty({whole.size(0), length / strategy_.cp}, whole.dtype(), Category::input);
  };
  TitanBatch mine;
  mine.tokens = part(batch.tokens);
  if (release_.is_0_3()) {
    mine.positions = part(batch.positions);
    mine.labels = part(batch.labels);
    return mine;
  }
  mine.labels = part(batch.labels);
  const Tensor positions = arange(tape_, length, DType::int32);
  mine.positions = part(expand(unsqueeze(positions, 0), batch.tokens.sizes()));
  return mine;
}

/// post_dataloading_process: the mask of flex_attention, and this rank's part of the sequences.
TitanBatch TitanTrainer::prepare(const TitanBatch& whole) {
  TitanBatch batch = context_part(whole);
  if (strategy_.attention == AttentionKernel::flex) batch.mask = mask_of(release_.is_0_3() ? whole.positions : whole.tokens);
  return batch;
}

/// A mask is made of every micro-batch in the same way.
std::vector<Tensor> TitanTrainer::mask_of(const Tensor& positions) {
  if (!calls_) return packed_causal_mask(positions);
  if (masks_.knows_forward()) return masks_.forward({});
  masks_.begin_forward({});
  std::vector<Tensor> mask = packed_causal_mask(positions);
  masks_.end_forward({}, mask);
  return mask;
}

/// dist_sum_tensor(local_valid_tokens.to(device)).
Tensor TitanTrainer::count_tokens() {
  const Tensor local = tape_.empty({}, DType::int64, Category::input);
  return elementwise(tape_, {&local}, DType::int64);
}

/// One step; where its pipeline's passes stand.
PassMarks TitanTrainer::train_step(Accumulation& accumulation) {
  const Tensor valid_tokens = release_.counts_tokens() ? count_tokens() : Tensor();
  std::vector<TitanBatch> batches;  // train_step's list keeps the tokens of all micro-batches of the step
  Tensor loss;
  PassMarks marks;
  accumulation.run([&](bool) {
    if (strategy_.pp > 1) {
      marks = run_schedule(batches, valid_tokens);
    } else {
      batches.push_back(next_batch());
      forget_labels(batches, batches.size() - 1);
      loss = forward_backward(batches.back(), valid_tokens);
    }
  });
  tape_.phase(Phase::optimizer);
  if (strategy_.clip_grad_norm.value_or(true)) {
    const bool sharded = strategy_.fsdp_degree > 1;
    clip_grad_norm(tape_, shards_, sharded ? std::optional(Group::data_shard) : std::nullopt);
    if (strategy_.offload.params) clip_grad_norm_on_host(tape_, shards_);
  }
  for (auto& part : parts_) balance_experts(tape_, part->decoder().mixtures(), strategy_.recompute.kind != Recompute::Kind::none);
  optimizer_->step();
  for (auto& part : parts_) part->end_step();
  optimizer_->zero_grad();
  tape_.phase(Phase::end);
  return marks;
}

Tensor TitanTrainer::forward_backward(const TitanBatch& whole, const Tensor& valid_tokens) {
  TitanPart& part = *parts_.front();
  tape_.phase(Phase::forward);
  const TitanBatch batch = prepare(whole);
  Tensor prediction = part.decoder()(batch.tokens, batch.positions);
  tape_.phase(Phase::loss);
  Tensor loss = part.loss(prediction, batch, valid_tokens);
  prediction.reset();
  tape_.phase(Phase::backward);
  tape_.backward(loss);
  return loss;
}

/// Only a rank with the first stage lists the tokens of its micro-batches, only one with the last stage the labels.
void TitanTrainer::forget_unused(TitanBatch& batch) const {
  const auto any = [&](bool TitanStage::*end) {
    return std::any_of(plan_.parts.begin(), plan_.parts.end(), [end](const TitanStage& part) { return part.*end; });
  };
  if (!any(&TitanStage::embedding)) batch.tokens.reset();
  if (!any(&TitanStage::head)) batch.labels.reset();
}

PassMarks TitanTrainer::run_schedule(std::vector<TitanBatch>& batches, const Tensor& valid_tokens) {
  const auto count = static_cast<std::size_t>(plan_.micro_batches + plan_.left_out);
  const std::size_t from = batches.size();
  for (std::size_t i = 0; i < count; ++i) batches.push_back(next_batch());
  forget_labels(batches, from);
  std::vector<TitanBatch> own;
  for (std::size_t i = 0; i < count; ++i) {
    own.push_back(prepare(batches[from + i]));
    if (i > 0) forget_unused(own[i - 1]);
  }
  if (from == 0 && tape_.part() == Tape::Part::first_step) infer_metadata(parts_, own.front(), valid_tokens);
  return run_pipeline(tape_, {.parts = parts_,
                       .stages = plan_.stages,
                       .passes = plan_.passes,
                       .batches = own.data(),
                       .micro_batches = plan_.micro_batches,
                       .all_micro_batches = plan_.micro_batches + plan_.left_out,
                       .valid_tokens = valid_tokens});
}

}  // namespace plimsoll::program
