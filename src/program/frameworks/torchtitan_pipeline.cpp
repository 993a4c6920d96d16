#include "program/frameworks/torchtitan_pipeline.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"

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

// PipelineScheduleMulti._step_microbatches: outputs stay until their chunk's backward, sent gradients until the end.
void run_chunks(const ChunkedPipelineRun& run) {
  for (auto& part : run.parts) part->begin_schedule(run.count);
  for (const Slot& slot : run.slots) {
    TitanPart& part = *run.parts[static_cast<std::size_t>(slot.chunk)];
    const auto micro_batch = static_cast<std::size_t>(slot.micro_batch);
    if (slot.pass == Pass::forward) {
      part.receive_activation(micro_batch);
      part.forward(micro_batch, run.batches[micro_batch], run.valid_tokens);
    } else if (slot.pass == Pass::backward) {
      part.receive_gradient(micro_batch);
      part.backward(micro_batch);
    } else {
      refuse("backward passes that are split into input and weight gradients are not modelled for TorchTitan", "pp_schedule");
    }
  }
  for (auto& part : run.parts) part->reduce_gradients();
  for (auto& part : run.parts) part->end_schedule();
}

}  // namespace plimsoll::program
