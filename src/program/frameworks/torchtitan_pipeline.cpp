#include "program/frameworks/torchtitan_pipeline.hpp"

#include <algorithm>

#include "program/frameworks/torchtitan_actions.hpp"

namespace plimsoll::program {

namespace {

void send_back(TitanPart& part, Tensor gradient) {
  if (gradient) part.send_gradient(std::move(gradient));
}

}  // namespace

void infer_metadata(const std::vector<std::unique_ptr<TitanPart>>& parts, const TitanBatch& batch, const Tensor& valid_tokens) {
  for (const auto& part : parts) part->begin_inference();
  for (const auto& part : parts) part->infer_forward(batch);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) (*part)->infer_backward(batch, valid_tokens);
  for (const auto& part : parts) part->end_inference();
}

// Schedule1F1B._step_microbatches.
void run_1f1b(const PipelineRun& run) {
  TitanPart& part = run.part;
  part.begin_schedule(run.count);
  const std::size_t warmup = std::min(run.count, static_cast<std::size_t>(run.stages_from_here));
  std::size_t forwards = 0, backwards = 0;
  const auto forward = [&] {
    part.forward(forwards, run.batches[forwards], run.valid_tokens);
    ++forwards;
  };
  while (forwards < warmup) {
    part.receive_activation(forwards, true);
    forward();
    if (forwards > 1) part.release_output(forwards - 2);
  }
  while (true) {
    part.receive_gradient(backwards);
    part.release_output(forwards - 1);
    send_back(part, part.backward(backwards++));
    part.release_sent_gradients(1);
    if (forwards == run.count) break;
    part.receive_activation(forwards, true);
    forward();
  }
  while (backwards < run.count) {
    part.receive_gradient(backwards, true);
    send_back(part, part.backward(backwards++));
    part.release_sent_gradients(1);
  }
  part.reduce_gradients();
  part.end_schedule();
}

// ScheduleGPipe._step_microbatches.
void run_gpipe(const PipelineRun& run) {
  TitanPart& part = run.part;
  part.begin_schedule(run.count);
  for (std::size_t i = 0; i < run.count; ++i) {
    part.receive_activation(i, true);
    part.forward(i, run.batches[i], run.valid_tokens);
  }
  for (std::size_t i = 0; i < run.count; ++i) part.release_output(i);
  for (std::size_t i = 0; i < run.count; ++i) {
    part.receive_gradient(i);
    send_back(part, part.backward(i));
  }
  part.reduce_gradients();
  part.end_schedule();
}

namespace {

/// _PipelineScheduleRuntime: the actions of a rank on its stages. What stages of one rank give each other is not sent.
class ActionRunner {
 public:
  explicit ActionRunner(const ChunkedPipelineRun& run) : run_(run), waited_(run.parts.size()) {}

  void run(const StageAction& action) {
    const std::size_t at = chunk_of(action.stage);
    TitanPart& part = *run_.parts[at];
    const auto micro_batch = static_cast<std::size_t>(action.micro_batch);
    switch (action.kind) {
      case StageAction::Kind::unshard:
        part.sharded().unshard_all();
        waited_[at] = false;
        break;
      case StageAction::Kind::reshard:
        part.sharded().reshard_all();
        break;
      case StageAction::Kind::receive_activation:
        part.receive_activation(micro_batch);
        break;
      case StageAction::Kind::receive_gradient:
        part.receive_gradient(micro_batch);
        break;
      case StageAction::Kind::reduce:
        part.reduce_gradients();
        break;
      default:
        wait_for_weights(at);
        compute(action, part, micro_batch);
    }
  }

 private:
  std::size_t chunk_of(int stage) const {
    return static_cast<std::size_t>(std::find(run_.stages.begin(), run_.stages.end(), stage) - run_.stages.begin());
  }
  /// The part that holds `stage`, where it is on this rank.
  TitanPart* part_of(int stage) const {
    const std::size_t at = chunk_of(stage);
    return at < run_.parts.size() ? run_.parts[at].get() : nullptr;
  }

  void wait_for_weights(std::size_t at) {
    if (waited_[at]) return;
    waited_[at] = true;
    run_.parts[at]->sharded().wait_for_unshard_all();
  }

  void compute(const StageAction& action, TitanPart& part, std::size_t micro_batch) {
    Tensor gradient;
    switch (action.kind) {
      case StageAction::Kind::forward:
        part.forward(micro_batch, run_.batches[micro_batch], run_.valid_tokens);
        if (TitanPart* next = part_of(action.stage + 1)) next->take_activation(micro_batch, part.output(micro_batch));
        return;
      case StageAction::Kind::weight_gradient:
        part.backward_weight(micro_batch);
        return;
      case StageAction::Kind::input_gradient:
        gradient = part.backward_input(micro_batch);
        break;
      default:
        gradient = part.backward(micro_batch);
    }
    if (!gradient) return;
    if (TitanPart* before = part_of(action.stage - 1)) {
      before->take_gradient(micro_batch, std::move(gradient));
    } else {
      part.send_gradient(std::move(gradient));
    }
  }

  const ChunkedPipelineRun& run_;
  std::vector<bool> waited_;
};

}  // namespace

void run_chunks(const ChunkedPipelineRun& run) {
  for (auto& part : run.parts) part->begin_schedule(run.count);
  ActionRunner runner(run);
  for (const StageAction& action : run.actions) runner.run(action);
  for (auto& part : run.parts) part->end_schedule();
}

}  // namespace plimsoll::program
