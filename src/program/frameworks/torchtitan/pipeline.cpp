#include "program/frameworks/torchtitan/pipeline.hpp"

#include <algorithm>
#include <utility>

namespace plimsoll::program {

void infer_metadata(const std::vector<std::unique_ptr<TitanPart>>& parts, const TitanBatch& batch, const Tensor& valid_tokens) {
  for (const auto& part : parts) part->begin_inference();
  for (const auto& part : parts) part->infer_forward(batch);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) (*part)->infer_backward(batch, valid_tokens);
  for (const auto& part : parts) part->end_inference();
}

std::vector<ScheduledPass> passes_of_1f1b(std::int64_t micro_batches, std::int64_t stages_from_here) {
  std::vector<ScheduledPass> passes;
  const auto add = [&](PassKind kind, std::int64_t micro_batch, bool kept) { passes.push_back({kind, 0, micro_batch, kept}); };
  std::int64_t forwards = 0, backwards = 0;
  const auto forward = [&] {
    add(PassKind::receive_input, forwards, true);
    add(PassKind::forward, forwards++, false);
  };
  while (forwards < std::min(micro_batches, stages_from_here)) {
    forward();
    if (forwards > 1) add(PassKind::release_output, forwards - 2, false);
  }
  while (true) {
    add(PassKind::receive_gradient, backwards, false);
    add(PassKind::release_output, forwards - 1, false);
    add(PassKind::backward, backwards++, false);
    if (forwards == micro_batches) break;
    forward();
  }
  while (backwards < micro_batches) {
    add(PassKind::receive_gradient, backwards, true);
    add(PassKind::backward, backwards++, false);
  }
  add(PassKind::reduce, 0, false);
  return passes;
}

std::vector<ScheduledPass> passes_of_gpipe(std::int64_t micro_batches) {
  std::vector<ScheduledPass> passes;
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    passes.push_back({PassKind::receive_input, 0, i, true});
    passes.push_back({PassKind::forward, 0, i});
  }
  for (std::int64_t i = 0; i < micro_batches; ++i) passes.push_back({PassKind::release_output, 0, i});
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    passes.push_back({PassKind::receive_gradient, 0, i, true});  // the loop's last request holds its buffer
    passes.push_back({PassKind::backward, 0, i, true});
  }
  passes.push_back({PassKind::reduce});
  return passes;
}

namespace {

/// Runs passes on the parts of a rank. What stages of one rank give each other is not sent.
class PassRunner {
 public:
  explicit PassRunner(const PipelineRun& run) : run_(run), gathering_(run.parts.size()) {}

  void run(const ScheduledPass& pass) {
    const auto at = static_cast<std::size_t>(pass.chunk);
    TitanPart& part = *run_.parts[at];
    const auto micro_batch = static_cast<std::size_t>(pass.micro_batch);
    switch (pass.kind) {
      case PassKind::gather:
        part.sharded().unshard_all();
        gathering_[at] = true;
        break;
      case PassKind::reshard:
        part.sharded().reshard_all();
        break;
      case PassKind::receive_input:
        part.receive_activation(micro_batch, pass.kept);
        break;
      case PassKind::receive_gradient:
        part.receive_gradient(micro_batch, pass.kept);
        break;
      case PassKind::release_output:
        part.release_output(micro_batch);
        break;
      case PassKind::reduce:
        part.reduce_gradients();
        break;
      default:
        if (gathering_[at]) part.sharded().wait_for_unshard_all();
        gathering_[at] = false;
        compute(pass, part, micro_batch);
    }
  }

 private:
  /// The part next to that of `chunk` in the model, where it is on this rank.
  TitanPart* neighbour(int chunk, int distance) const {
    const int stage = run_.stages[static_cast<std::size_t>(chunk)] + distance;
    const auto found = std::find(run_.stages.begin(), run_.stages.end(), stage);
    return found == run_.stages.end() ? nullptr : run_.parts[static_cast<std::size_t>(found - run_.stages.begin())].get();
  }

  void compute(const ScheduledPass& pass, TitanPart& part, std::size_t micro_batch) {
    Tensor gradient;
    switch (pass.kind) {
      case PassKind::forward:
        part.forward(micro_batch, run_.batches[micro_batch], run_.valid_tokens);
        if (TitanPart* next = neighbour(pass.chunk, 1)) next->take_activation(micro_batch, part.output(micro_batch));
        return;
      case PassKind::weight_gradient:
        part.backward_weight(micro_batch);
        return;
      case PassKind::input_gradient:
        gradient = part.backward_input(micro_batch);
        break;
      default:
        gradient = part.backward(micro_batch);
    }
    if (TitanPart* before = gradient ? neighbour(pass.chunk, -1) : nullptr) {
      before->take_gradient(micro_batch, std::move(gradient));
    } else if (gradient) {
      part.send_gradient(std::move(gradient));
    }
    if (!pass.kept) part.release_sent_gradients(1);
  }

  const PipelineRun& run_;
  std::vector<bool> gathering_;  ///< by chunk: weights were asked for and not yet waited for
};

/// How each micro-batch goes back through a chunk.
std::vector<TitanPart::WayBack> ways_back(const PipelineRun& run, int chunk) {
  std::vector<TitanPart::WayBack> ways(static_cast<std::size_t>(run.micro_batches), TitanPart::WayBack::whole);
  for (const ScheduledPass& pass : run.passes)
    if (pass.kind == PassKind::weight_gradient && pass.chunk == chunk)
      ways[static_cast<std::size_t>(pass.micro_batch)] = TitanPart::WayBack::in_halves;
  return ways;
}

}  // namespace

PassMarks run_pipeline(Tape& tape, const PipelineRun& run) {
  for (std::size_t chunk = 0; chunk < run.parts.size(); ++chunk)
    run.parts[chunk]->begin_schedule(ways_back(run, static_cast<int>(chunk)), run.all_micro_batches);
  PassRunner runner(run);
  PassMarks marks;
  for (const ScheduledPass& pass : run.passes) {
    marks.at.push_back(tape.recorded());
    runner.run(pass);
  }
  marks.end = tape.recorded();
  for (auto& part : run.parts) part->end_schedule();
  return marks;
}

}  // namespace plimsoll::program
