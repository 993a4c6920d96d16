/// The pipeline schedules of torch.distributed.pipelining (schedules.py, 2.15) on one rank: when buffers come and go.
#pragma once

#include <cstddef>

#include "program/frameworks/torchtitan_stage.hpp"

namespace plimsoll::program {

struct PipelineRun {
  TitanPart& part;
  const TitanBatch* batches;
  std::size_t count;  ///< micro-batches
  const Tensor& valid_tokens;
  int stages_from_here;  ///< stages from this one to the last, inclusive
};

void run_1f1b(const PipelineRun& run);
void run_gpipe(const PipelineRun& run);

}  // namespace plimsoll::program
