/// The pipeline schedules of torch.distributed.pipelining (schedules.py, 2.15) on one rank: when buffers come and go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "program/frameworks/torchtitan/stage.hpp"

namespace plimsoll::program {

/// What one rank does for one micro-batch.
enum class PassKind : std::uint8_t {
  gather,   ///< a chunk's weights, where the schedule says when
  reshard,  ///< the same let go
  receive_input,
  forward,         ///< and what it sends on
  release_output,  ///< the output has been sent: its memory is let go
  receive_gradient,
  backward,  ///< and what it sends back
  input_gradient,
  weight_gradient,
  reduce,  ///< what a chunk's micro-batches accumulated
};

struct ScheduledPass {
  PassKind kind;
  int chunk = 0;  ///< of the rank
  std::int64_t micro_batch = 0;
  bool kept = false;  ///< the schedule's list of operations still names what it received or sent when the next one comes
};

/// Where the passes of a part of a program stand: each begins, and the last ends.
struct PassMarks {
  std::vector<std::size_t> at;
  std::size_t end = 0;
};

/// Schedule1F1B._step_microbatches of a rank with `stages_from_here` stages to the last, inclusive.
std::vector<ScheduledPass> passes_of_1f1b(std::int64_t micro_batches, std::int64_t stages_from_here);
/// ScheduleGPipe._step_microbatches.
std::vector<ScheduledPass> passes_of_gpipe(std::int64_t micro_batches);

/// One run of a rank's passes over its parts of the model.
struct PipelineRun {
  std::vector<std::unique_ptr<TitanPart>>& parts;
  const std::vector<int>& stages;  ///< of the parts
  const std::vector<ScheduledPass>& passes;
  const TitanBatch* batches;
  std::int64_t micro_batches = 0;  ///< that are run
  std::int64_t all_micro_batches = 0;  ///< with those that they stand for
  const Tensor& valid_tokens;
};

/// What the first run does before all else (_initialize_pp_stages), on the stages of a rank in the order of the model.
void infer_metadata(const std::vector<std::unique_ptr<TitanPart>>& parts, const TitanBatch& batch, const Tensor& valid_tokens);

PassMarks run_pipeline(Tape& tape, const PipelineRun& run);

}  // namespace plimsoll::program
