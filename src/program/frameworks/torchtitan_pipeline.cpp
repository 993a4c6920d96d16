#include "program/frameworks/torchtitan_pipeline.hpp"

#include <algorithm>

namespace plimsoll::program {

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
    part.receive_activation(forwards);
    forward();
    if (forwards > 1) part.release_output(forwards - 2);
  }
  while (true) {
    part.receive_gradient(backwards);
    part.release_output(forwards - 1);
    part.backward(backwards++);
    part.release_sent_gradients(1);
    if (forwards == run.count) break;
    part.receive_activation(forwards);
    forward();
  }
  while (backwards < run.count) {
    part.receive_gradient(backwards, true);
    part.backward(backwards++);
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
    part.receive_activation(i);
    part.forward(i, run.batches[i], run.valid_tokens);
  }
  for (std::size_t i = 0; i < run.count; ++i) part.release_output(i);
  for (std::size_t i = 0; i < run.count; ++i) {
    part.receive_gradient(i);
    part.backward(i);
  }
  part.reduce_gradients();
  part.end_schedule();
}

}  // namespace plimsoll::program
