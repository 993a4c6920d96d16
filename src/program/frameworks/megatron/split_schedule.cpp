#include "program/frameworks/megatron/split_schedule.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "framework/megatron.hpp"
#include "program/frameworks/megatron/schedule_passes.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

using Kind = StageAction::Kind;

/// Turns of as many micro-batches as stages that are recorded: two fill the pipeline, the third stands for those left out, one drains it.
constexpr std::int64_t kTurns = 4, kRepeatedTurn = 2;

Schedule schedule_of(const Strategy& s, std::int64_t micro_batches) {
  return make_schedule(s.pp_schedule, s.pp, static_cast<int>(micro_batches), s.vp);
}

bool computes(Kind kind) {
  return kind == Kind::forward || kind == Kind::backward || kind == Kind::input_gradient || kind == Kind::weight_gradient;
}

/// What a rank holds of a micro-batch on one of its stages.
struct UnderWay {
  Tensor input, output, gradient;
  MegatronRuntime::Deferred weight_gradients;
};

class SplitStep : MegatronPasses {
 public:
  SplitStep(MegatronRank& rank, const Tensor& scale) : MegatronPasses(rank, scale), plan_(*rank.split) {}

  void run() {
    begin();
    const Tensor total_tokens = zeros(tape_, {}, DType::int32);
    for (std::size_t i = 0; i < plan_.actions.size(); ++i) {
      if (i == plan_.repeat_begin) rank_.repeated.begin = tape_.recorded();
      if (i == plan_.repeat_end) rank_.repeated.end = tape_.recorded();
      run(plan_.actions[i]);
    }
    rank_.repeated.times = plan_.repeat_times;
    begin_transfers();
    drop_reports();
    for (std::size_t chunk = 0; chunk < rank_.chunks.size(); ++chunk) synchronize(chunk);
    finalize();
  }

 private:
  static constexpr std::int64_t kActivations = 0, kGradients = 1, kPurposes = 2;

  void run(const StageAction& action) {
    if (computes(action.kind)) transfers_open_ = false;
    switch (action.kind) {
      case Kind::forward:
        return forward(action);
      case Kind::backward:
      case Kind::input_gradient:
        return backward(action);
      case Kind::weight_gradient:
        return weight_gradients(action);
      case Kind::receive_activation:
        return receive(action, kActivations);
      case Kind::receive_gradient:
        return receive(action, kGradients);
      default:
        return;  // Megatron's weights stay where they are, and gradients are reduced behind the last pass
    }
  }

  std::size_t chunk_of(int stage) const {
    return static_cast<std::size_t>(std::find(plan_.stages.begin(), plan_.stages.end(), stage) - plan_.stages.begin());
  }
  bool is_stage(int stage) const { return stage >= 0 && stage < static_cast<int>(plan_.rank_of.size()); }
  bool is_own(int stage) const { return rank_of(stage) == rank_.rank; }
  int rank_of(int stage) const { return plan_.rank_of[static_cast<std::size_t>(stage)]; }
  UnderWay& under_way(int stage, int micro_batch) { return under_way_[{stage, micro_batch}]; }

  void forward(const StageAction& action) {
    UnderWay& own = under_way(action.stage, action.micro_batch);
    await(action.stage, action.stage - 1, kActivations, action.micro_batch);
    own.output = forward_step(chunk_of(action.stage), own.input).output;
    const int next = action.stage + 1;
    if (!is_stage(next)) return;
    if (!is_own(next)) {
      send(next, own.output);
      sent_outputs_.push_back(own.output);
      return;
    }
    Tensor& input = under_way(next, action.micro_batch).input;
    input = own.output.detach();
    input.set_requires_grad(true);
    deallocate(own.output);
  }

  void backward(const StageAction& action) {
    UnderWay& own = under_way(action.stage, action.micro_batch);
    await(action.stage, action.stage + 1, kGradients, action.micro_batch);
    rank_.runtime.defer_weight_gradients(action.kind == Kind::input_gradient ? &own.weight_gradients : nullptr);
    const Tensor of_input = backward_step(chunk_of(action.stage), own.input, own.output, own.gradient);
    rank_.runtime.defer_weight_gradients(nullptr);
    for (Tensor* done : {&own.input, &own.output, &own.gradient}) done->reset();
    if (!of_input) return;
    Tensor gradient = clone(of_input);
    const int before = action.stage - 1;
    if (is_own(before)) {
      under_way(before, action.micro_batch).gradient = std::move(gradient);
      return;
    }
    send(before, gradient);
    sent_gradients_.push_back(std::move(gradient));
  }

  void weight_gradients(const StageAction& action) {
    tape_.phase(Phase::backward);
    MegatronRuntime::Deferred deferred = std::move(under_way(action.stage, action.micro_batch).weight_gradients);
    for (auto& product : deferred) {
      product();
      product = nullptr;  // and what it held
    }
    tape_.operator_name = "schedule";
    under_way_.erase({action.stage, action.micro_batch});
  }

  // ---- transfers --------------------------------------------------------------------------------------------------------------

  /// Those between two passes begin together, once those before have gone.
  void begin_transfers() {
    if (std::exchange(transfers_open_, true)) return;
    rank_.paired->await_sends();
    for (const Tensor& output : sent_outputs_) deallocate(output);
    sent_outputs_.clear();
    sent_gradients_.clear();
  }

  void send(int to_stage, const Tensor& tensor) {
    begin_transfers();
    rank_.paired->issue(CollectiveKind::send, rank_of(to_stage), message_of(tensor));
  }

  void receive(const StageAction& action, std::int64_t purpose) {
    begin_transfers();
    Tensor buffer;
    {
      const LabelScope label(tape_, tape_.intern("pipeline receive"));
      const std::int64_t cut = rank_.runtime.sequence_parallel() ? rank_.runtime.tp() : 1;
      buffer = tape_.empty({rank_.length / cut, rank_.micro_batch, rank_.config.hidden}, rank_.config.type, Category::communication_buffer);
    }
    const int from = action.stage + (purpose == kActivations ? -1 : 1);
    const StreamId stream = rank_.paired->issue(CollectiveKind::receive, rank_of(from), message_of(buffer));
    tape_.record_event(event(action.stage, purpose, action.micro_batch), stream);
    UnderWay& own = under_way(action.stage, action.micro_batch);
    if (purpose == kActivations) buffer.set_requires_grad(true);
    (purpose == kActivations ? own.input : own.gradient) = std::move(buffer);
  }

  void await(int stage, int from, std::int64_t purpose, int micro_batch) {
    if (is_stage(from) && !is_own(from)) tape_.wait_event(kComputeStream, event(stage, purpose, micro_batch));
  }

  EventId event(int stage, std::int64_t purpose, int micro_batch) const {
    return plan_.received.at(kPurposes * static_cast<std::int64_t>(chunk_of(stage)) + purpose, micro_batch);
  }

  const SplitPlan& plan_;
  std::map<std::pair<int, int>, UnderWay> under_way_;  ///< by stage and micro-batch
  std::vector<Tensor> sent_outputs_, sent_gradients_;
  bool transfers_open_ = false;  ///< between this pass and the next
};

std::size_t forward_of(const SplitPlan& plan, std::int64_t micro_batch) {
  const auto found = std::find_if(plan.actions.begin(), plan.actions.end(), [&](const StageAction& action) {
    return action.kind == Kind::forward && action.stage == plan.stages.front() && action.micro_batch == micro_batch;
  });
  return static_cast<std::size_t>(found - plan.actions.begin());
}

}  // namespace

std::vector<int> stages_of_rank(const Strategy& strategy, int pipeline_rank) {
  const bool v_shaped = framework::splits_backward(strategy) && strategy.vp == 2;
  std::vector<int> stages;
  for (int chunk = 0; chunk < strategy.vp; ++chunk)
    stages.push_back(v_shaped && chunk == 1 ? 2 * strategy.pp - 1 - pipeline_rank : chunk * strategy.pp + pipeline_rank);
  return stages;
}

std::int64_t split_micro_batches(const Strategy& strategy) {
  const std::int64_t all = strategy.micro_batches;
  return all % strategy.pp == 0 ? std::min(all, kTurns * strategy.pp) : all;
}

SplitPlan split_plan(const Strategy& strategy, int pipeline_rank, std::int64_t micro_batches, Tape& tape) {
  const Schedule schedule = schedule_of(strategy, micro_batches);
  SplitPlan plan;
  plan.actions = actions_of(schedule)[static_cast<std::size_t>(pipeline_rank)];
  plan.stages = stages_of_rank(strategy, pipeline_rank);
  plan.rank_of.resize(static_cast<std::size_t>(strategy.pp) * strategy.vp);
  for (int rank = 0; rank < strategy.pp; ++rank)
    for (const int stage : stages_of_rank(strategy, rank)) plan.rank_of[static_cast<std::size_t>(stage)] = rank;
  if (const std::int64_t left_out = strategy.micro_batches - micro_batches; left_out > 0) {
    plan.repeat_begin = forward_of(plan, kRepeatedTurn * strategy.pp);
    plan.repeat_end = forward_of(plan, (kRepeatedTurn + 1) * strategy.pp);
    plan.repeat_times = 1 + left_out / strategy.pp;
  }
  // No more micro-batches than stages are on their way to one.
  plan.received.period = strategy.pp;
  plan.received.first = tape.new_event();
  const std::int64_t events = 2 * strategy.vp * plan.received.period;
  for (std::int64_t i = 1; i < events; ++i) tape.new_event();
  plan.received.end = plan.received.first + static_cast<EventId>(events);
  return plan;
}

void run_split_schedule(MegatronRank& rank, const Tensor& scale) { SplitStep(rank, scale).run(); }

}  // namespace plimsoll::program
