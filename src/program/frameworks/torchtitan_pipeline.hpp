/// The pipeline schedules of torch.distributed.pipelining (schedules.py, 2.15) on one rank: when buffers come and go.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "plimsoll/schedule.hpp"
#include "program/frameworks/torchtitan_stage.hpp"

namespace plimsoll::program {

struct PipelineRun {
  TitanPart& part;
  const TitanBatch* batches;
  std::size_t count;  ///< micro-batches
  const Tensor& valid_tokens;
  int stages_from_here;  ///< stages from this one to the last, inclusive
};

/// A rank with several chunks: the slots of its schedule.
struct ChunkedPipelineRun {
  std::vector<std::unique_ptr<TitanPart>>& parts;
  const std::vector<Slot>& slots;
  const TitanBatch* batches;
  std::size_t count;
  const Tensor& valid_tokens;
};

void run_1f1b(const PipelineRun& run);
void run_gpipe(const PipelineRun& run);
/// Forwards and whole backwards of several chunks. Throws Error (refused): a schedule that splits the backward.
void run_chunks(const ChunkedPipelineRun& run);

}  // namespace plimsoll::program
