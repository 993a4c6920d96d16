// Megatron-DeepSpeed's GPT under DeepSpeed's PipelineEngine, one pipeline rank: its training schedule instruction by instruction,
// activations and gradients that cross stages cut over the tensor-parallel ranks. With ZeRO-2, which the PipelineEngine asserts not to be
// asked for, under DeepSpeedEngine (--no-pipeline-parallel). Sources: deepspeed/runtime/pipe/{engine,schedule}.py, runtime/engine.py and
// runtime/utils.py (PartitionedTensor) of DeepSpeed 0.8.1, pretrain_gpt.py and megatron/training.py of Megatron-DeepSpeed.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "program/accumulation.hpp"
#include "program/carried.hpp"
#include "program/lower.hpp"
#include "program/modules/megatron/legacy.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/point_to_point.hpp"
#include "program/wrappers/deepspeed/pipeline.hpp"
#include "program/wrappers/deepspeed/zero12.hpp"

namespace plimsoll::program {

namespace {

/// What a step of the schedule does with a micro-batch.
struct Turn {
  std::int64_t micro_batch = 0;
  bool forward = false;
};

/// TrainSchedule: stages of even and odd number go forward in alternate steps.
class TrainSchedule {
 public:
  TrainSchedule(std::int64_t micro_batches, std::int64_t stages, std::int64_t stage)
      : micro_batches_(micro_batches), stages_(stages), stage_(stage) {}

  std::int64_t steps() const { return 2 * (micro_batches_ + stages_ - 1); }
  bool valid(std::int64_t micro_batch) const { return micro_batch >= 0 && micro_batch < micro_batches_; }
  std::size_t buffers() const {
    return static_cast<std::size_t>(std::max<std::int64_t>(2, std::min(stages_ - stage_ + 1, micro_batches_)));
  }

  /// _step_to_micro_batch.
  Turn turn(std::int64_t step) const {
    const bool odd_step = step % 2 != 0, odd_stage = stage_ % 2 != 0;
    const std::int64_t base = step / 2;
    if (odd_step == odd_stage) return {base - stage_ / 2, true};
    return {odd_stage ? base - stages_ + (stage_ + 1) / 2 : base - stages_ + 1 + stage_ / 2, false};
  }

 private:
  std::int64_t micro_batches_, stages_, stage_;
};

/// pipe_buffers: what one micro-batch under way holds.
struct PipeBuffer {
  Tensor input, positions, mask;  ///< received or loaded
  Tensor labels, loss_mask;
  Tensor output, part;  ///< the stage's result, and this rank's part of it where it is cut
};

class PipelineEngine {
 public:
  PipelineEngine(Tape& tape, MegatronRuntime& runtime, LegacyStage& stage, PipelineOptimizer& optimizer, int rank, int ranks)
      : tape_(tape), runtime_(runtime), stage_(stage), optimizer_(optimizer), rank_(rank), transfers_(tape, ranks) {}

  /// train_batch. Rounds of the steady state beyond the recorded ones are `left_out`.
  void train_batch(std::int64_t micro_batches, std::int64_t stages, std::int64_t left_out) {
    const TrainSchedule schedule(micro_batches, stages, rank_);
    const std::int64_t steady = stages - rank_ + 2;  // a micro-batch whose passes alternate with those of earlier ones
    Repeated repeated{.times = 1 + left_out};
    buffers_.resize(schedule.buffers());
    Turn before{-1, false};
    for (std::int64_t step = 0; step < schedule.steps(); ++step) {
      const Turn turn = schedule.turn(step);
      if (turn.forward && turn.micro_batch == steady) repeated.begin = tape_.recorded();
      if (turn.forward && turn.micro_batch == steady + 1) repeated.end = tape_.recorded();
      exchange(schedule, turn, before);
      if (schedule.valid(turn.micro_batch)) turn.forward ? forward_pass(buffer(turn)) : backward_pass(buffer(turn));
      before = turn;
    }
    tape_.program().repeated = repeated;
    tape_.phase(Phase::optimizer);
    const LabelScope label(tape_, tape_.intern("optimizer"));
    optimizer_.reduce();
    optimizer_.step(stage_.collectives());
    tape_.phase(Phase::end);
  }

 private:
  bool first() const { return stage_.plan().embedding; }
  bool last() const { return stage_.plan().head; }
  bool cut() const { return runtime_.tp() > 1; }
  PipeBuffer& buffer(const Turn& turn) { return buffers_[static_cast<std::size_t>(turn.micro_batch) % buffers_.size()]; }

  /// The transfers of a step: before a forward pass the next input comes and the last gradient goes, before a backward pass the reverse.
  void exchange(const TrainSchedule& schedule, const Turn& turn, const Turn& before) {
    const bool now = schedule.valid(turn.micro_batch), earlier = schedule.valid(before.micro_batch);
    if (turn.forward) {
      if (now && !first()) receive_input(buffer(turn));
      if (earlier && !first()) send_gradient(buffer(before));
      if (now) load(buffer(turn));
    } else {
      if (earlier && !last()) transfer(CollectiveKind::send, rank_ + 1, received_elements());
      if (now && !last()) receive_gradient();
    }
  }

  Tensor ids() { return tape_.empty({stage_.plan().micro_batch, stage_.plan().length}, DType::int64, Category::input); }

  /// _exec_load_micro_batch: the first stage's ids and causal mask, the last stage's labels and loss mask.
  void load(PipeBuffer& buffer) {
    const LabelScope label(tape_, tape_.intern("batch"));
    const std::int64_t length = stage_.plan().length;
    if (first()) {
      buffer.input = ids();
      buffer.positions = ids();
      buffer.mask = tape_.empty({1, 1, length, length}, DType::boolean, Category::input);
    }
    if (last()) {
      buffer.labels = ids();
      buffer.loss_mask = tape_.empty({stage_.plan().micro_batch, length}, DType::fp32, Category::input);
    }
  }

  // ---- passes -------------------------------------------------------------------------------------------------------------

  void forward_pass(PipeBuffer& buffer) {
    tape_.phase(Phase::forward);
    {
      const Tensor input = clone(buffer.input.detach());
      if (!first()) {
        buffer.input = cut() ? whole(input) : input;
        buffer.input.set_requires_grad(true);
      }
      const Tensor positions = buffer.positions ? clone(buffer.positions) : Tensor(), mask = buffer.mask ? clone(buffer.mask) : Tensor();
      buffer.output = stage_.forward(first() ? input : buffer.input, positions);
    }
    if (last()) {
      loss_ = stage_.loss(buffer.output, buffer.labels, buffer.loss_mask);
    } else if (cut()) {
      buffer.part = part_of(buffer.output);
      const Tensor nothing = tape_.empty({0}, buffer.output.dtype());  // first_output.data = torch.zeros(1), on the host
      buffer.output.impl()->storage = nothing.impl()->storage;
    }
  }

  void backward_pass(PipeBuffer& buffer) {
    tape_.phase(Phase::backward);
    if (last()) {
      const Tensor mean = divide_scalar(loss_), scaled = optimizer_.scales_loss() ? multiply_scalar(mean) : mean;
      optimizer_.before_backward();
      tape_.backward(scaled);
      optimizer_.after_backward();
      return;
    }
    if (cut()) {
      const Tensor output = whole(buffer.part);
      buffer.output.impl()->storage = output.impl()->storage;
    }
    {
      const Tensor gradient = cut() ? whole(gradient_buffer_) : gradient_buffer_;
      optimizer_.before_backward();
      tape_.backward(buffer.output, gradient);
      optimizer_.after_backward();
    }
    buffer.output.reset();
    buffer.part.reset();
  }

  // ---- tensors that are cut over the tensor-parallel ranks ----------------------------------------------------------------------

  Dims hidden_state() const { return {stage_.plan().length, stage_.plan().micro_batch, stage_.plan().hidden}; }
  std::int64_t received_elements() const { return hidden_state().product() / (cut() ? runtime_.tp() : 1); }

  /// PartitionedTensor(tensor): a copy of this rank's part.
  Tensor part_of(const Tensor& tensor) {
    Tensor part = tape_.empty({received_elements()}, tensor.dtype(), Category::activation);
    pointwise(part, {&tensor});
    return part;
  }

  /// PartitionedTensor.full(): gathered by a list, for which the process group has a flat tensor of its own, and cloned. The sizes come
  /// from the device first (meta.tolist()): by then the device has done all that was asked of it.
  Tensor whole(const Tensor& part) {
    const LabelScope label(tape_, tape_.intern("gathered over tensor-parallel ranks"));
    tape_.wait(kComputeStream, stage_.collectives());
    tape_.synchronize();
    const Tensor flat = zeros(tape_, {hidden_state().product()}, part.dtype());
    {
      const Tensor own = tape_.empty(flat.sizes(), flat.dtype(), Category::communication_buffer);
      runtime_.collective(CollectiveKind::all_gather, own.bytes(), own.dtype());
      in_place(flat, {&own});
      tape_.record_stream(own, stage_.collectives());
    }
    return clone(view(flat, hidden_state()));
  }

  // ---- point to point -----------------------------------------------------------------------------------------------------------

  Tensor transfer_buffer() {
    const LabelScope label(tape_, tape_.intern("pipeline transfer"));
    return tape_.empty(cut() ? Dims{received_elements()} : hidden_state(), stage_.plan().type, Category::communication_buffer);
  }

  void receive_input(PipeBuffer& buffer) {
    if (!input_buffer_) input_buffer_ = transfer_buffer();
    transfer(CollectiveKind::receive, rank_ - 1, received_elements());
    buffer.input = clone(input_buffer_);
  }

  void receive_gradient() {
    if (!gradient_buffer_) gradient_buffer_ = transfer_buffer();
    transfer(CollectiveKind::receive, rank_ + 1, received_elements());
  }

  void send_gradient(PipeBuffer& buffer) {
    {
      const Tensor part = cut() ? part_of(buffer.input.grad()) : buffer.input.grad();
      transfer(CollectiveKind::send, rank_ - 1, part.elements());
    }
    buffer.input.reset();
  }

  /// torch.distributed.send and recv, waited for at once.
  void transfer(CollectiveKind kind, int peer, std::int64_t elements) {
    const DType type = stage_.plan().type;
    tape_.wait(kComputeStream, transfers_.issue(kind, peer, {elements * size_of(type), type}));
  }

  Tape& tape_;
  MegatronRuntime& runtime_;
  LegacyStage& stage_;
  PipelineOptimizer& optimizer_;
  int rank_;
  PairedTransfers transfers_;
  std::vector<PipeBuffer> buffers_;
  Tensor input_buffer_, gradient_buffer_, loss_;
};

DeepSpeedSettings settings_of(const Strategy& strategy) {
  DeepSpeedSettings settings;
  settings.json = strategy.deepspeed;
  settings.release = DeepSpeedRelease(Release(0, 16, 9));
  settings.clips = strategy.clip_grad_norm.value_or(true);
  settings.ranks = std::max(strategy.dp, 1);
  settings.rank = strategy.rank.value_or(0);
  settings.micro_batches = strategy.micro_batches;
  settings.optimizer = strategy.optimizer;
  settings.implementation = strategy.optimizer_impl;
  return settings;
}

/// The engine has neither for stage 1 (_configure_zero_optimizer), and FP16_Optimizer is the wrapper of apex's FusedAdam.
DeepSpeedSettings pipeline_settings_of(const Strategy& strategy) {
  DeepSpeedSettings settings = settings_of(strategy);
  settings.stage = strategy.data_parallel == DataParallel::zero1 ? 1 : 0;
  settings.json.contiguous_gradients = false;
  settings.json.overlap_comm = false;
  settings.json.wrapper = "FP16_Optimizer";
  return settings;
}

/// What every rank of Megatron-DeepSpeed has: its part of the model.
struct LegacyRank {
  LegacyRank(const LegacyStagePlan& plan, const Lowering& run)
      : tape(run.device, run.torch()), runtime(tape, {.tensor_parallel = run.strategy.tp, .quantization = {}}) {
    tape.record_into(Tape::Part::init);
    tape.phase(Phase::init);
    stage.emplace(runtime, plan);
  }

  Tape tape;
  MegatronRuntime runtime;
  std::optional<LegacyStage> stage;
};

StepProgram lower_pipeline(const LegacyStagePlan& plan, const Lowering& run, int pipeline_rank) {
  const Strategy& strategy = run.strategy;
  constexpr std::int64_t kSteady = 8;  // further micro-batches find the allocator as these do
  const std::int64_t recorded = std::min<std::int64_t>(strategy.micro_batches, strategy.pp - pipeline_rank + kSteady);
  LegacyRank rank(plan, run);
  const auto optimizer = make_pipeline_optimizer(rank.tape, rank.stage->parameter_groups(), pipeline_settings_of(strategy));
  PipelineEngine engine(rank.tape, rank.runtime, *rank.stage, *optimizer, pipeline_rank, strategy.pp);
  for (const Tape::Part part : {Tape::Part::first_step, Tape::Part::step}) {
    rank.tape.record_into(part);
    engine.train_batch(recorded, strategy.pp, strategy.micro_batches - recorded);
  }
  return rank.tape.take();
}

/// train_step under DeepSpeedEngine: forward_step, engine.backward and engine.step of every micro-batch.
StepProgram lower_engine(const LegacyStagePlan& plan, const Lowering& run) {
  LegacyRank rank(plan, run);
  DeepSpeedSettings settings = settings_of(run.strategy);
  settings.stage = 2;
  std::vector<std::shared_ptr<Parameter>> parameters;
  for (const auto& group : rank.stage->parameter_groups()) parameters.insert(parameters.end(), group.begin(), group.end());
  ZeroStage12 optimizer(rank.tape, ParameterGroups{parameters}, settings);
  Accumulation accumulation(rank.tape, settings.micro_batches, false);
  const auto ids = [&] { return rank.tape.empty({plan.micro_batch, plan.length}, DType::int64, Category::input); };
  for (const Tape::Part part : {Tape::Part::first_step, Tape::Part::step}) {
    rank.tape.record_into(part);
    accumulation.run([&](bool last) {
      rank.tape.phase(Phase::forward);
      const Tensor tokens = ids(), positions = ids(), labels = ids();
      const Tensor mask = rank.tape.empty({plan.micro_batch, plan.length}, DType::fp32, Category::input);
      const Tensor causal = rank.tape.empty({1, 1, plan.length, plan.length}, DType::boolean, Category::input);
      const Tensor logits = rank.stage->forward(tokens, positions), loss = rank.stage->loss(logits, labels, mask);
      rank.tape.phase(Phase::backward);
      const Tensor mean = divide_scalar(loss), scaled = optimizer.scales_loss() ? multiply_scalar(mean) : mean;
      optimizer.before_backward(last);
      rank.tape.backward(scaled);
      optimizer.after_backward();
    });
    rank.tape.phase(Phase::optimizer);
    const LabelScope label(rank.tape, rank.tape.intern("optimizer"));
    optimizer.step();
    rank.tape.phase(Phase::end);
  }
  StepProgram program = rank.tape.take();
  accumulation.repeat(program);
  return program;
}

}  // namespace

StepProgram lower_megatron_deepspeed(const Lowering& run, const Rank& rank) {
  const LegacyStagePlan plan = legacy_stage_plan(run.model, run.strategy, rank.pipeline);
  StepProgram program =
      run.strategy.data_parallel == DataParallel::zero2 ? lower_engine(plan, run) : lower_pipeline(plan, run, rank.pipeline);
  carry_across_steps(program);
  return program;
}

}  // namespace plimsoll::program
