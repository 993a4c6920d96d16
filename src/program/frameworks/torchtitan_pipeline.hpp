/// The pipeline schedules of torch.distributed.pipelining (schedules.py, 2.15) on one rank: when buffers come and go.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "program/frameworks/torchtitan_actions.hpp"
#include "program/frameworks/torchtitan_stage.hpp"

namespace plimsoll::program {

struct PipelineRun {
  TitanPart& part;
  const TitanBatch* batches;
  std::size_t count;  ///< micro-batches
  const Tensor& valid_tokens;
  int stages_from_here;  ///< stages from this one to the last, inclusive
};

/// A rank with several stages: what it does.
struct ChunkedPipelineRun {
  std::vector<std::unique_ptr<TitanPart>>& parts;
  const std::vector<int>& stages;  ///< of the parts
  const std::vector<StageAction>& actions;
  const TitanBatch* batches;
  std::size_t count;
  const Tensor& valid_tokens;
};

/// What the first run does before all else (_initialize_pp_stages), on the stages of a rank in the order of the model.
void infer_metadata(const std::vector<std::unique_ptr<TitanPart>>& parts, const TitanBatch& batch, const Tensor& valid_tokens);

void run_1f1b(const PipelineRun& run);
void run_gpipe(const PipelineRun& run);
/// Several stages per rank, backwards whole or in halves.
void run_chunks(const ChunkedPipelineRun& run);

}  // namespace plimsoll::program
