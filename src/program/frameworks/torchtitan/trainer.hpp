/// TorchTitan's Trainer on one rank, from its first allocation to its steady step.
#pragma once

#include <memory>
#include <vector>

#include "framework/torchtitan.hpp"
#include "plimsoll/strategy.hpp"
#include "program/accumulation.hpp"
#include "program/frameworks/torchtitan/pipeline.hpp"
#include "program/lower.hpp"
#include "program/optimizers/optimizer.hpp"

namespace plimsoll::program {

/// What one rank holds of the model and runs of its pipeline's schedule.
struct TitanRankPlan {
  std::vector<TitanStage> parts;
  std::vector<int> stages;            ///< of the parts, in a pipeline
  int ranks = 1;                      ///< of the pipeline
  enum class Sends : std::uint8_t {
    at_once,     ///< ScheduleGPipe
    with_next,   ///< Schedule1F1B: fused with the receive that follows
    in_advance,  ///< _PipelineScheduleRuntime: and receives are waited for by the passes that need them
  } sends = Sends::at_once;
  bool pairs = false;  ///< of sends and receives in advance: each pair of ranks has a communicator
  std::vector<ScheduledPass> passes;  ///< of one run, in a pipeline
  std::int64_t micro_batches = 1;     ///< of one run, that `passes` run
  std::int64_t left_out = 0;          ///< further ones, for which those of passes [repeat_begin, repeat_end) stand
  std::size_t repeat_begin = 0, repeat_end = 0;
  std::int64_t repeat_times = 1;
  bool every_micro_batch = false;  ///< record those as well that only repeat others, where gradients are accumulated over several runs
};

class TitanTrainer {
 public:
  /// `calls`: passes that only repeat others are called.
  TitanTrainer(const Lowering& lowering, const TitanRun& run, const TitanRankPlan& plan, bool calls);

  /// The program, written into the memory of `spare`. Throws Routine::Differs where a call asks for what was not learnt.
  StepProgram record(StepProgram spare);

 private:
  PassMarks train_step(Accumulation& accumulation);
  std::unique_ptr<TitanTransfers> make_transfers();
  void repeat_passes(StepProgram& program, const PassMarks& in_first, const PassMarks& in_step);
  TitanBatch next_batch();
  TitanBatch context_part(const TitanBatch& batch);
  void shard_in_place(TitanBatch& batch);
  Tensor load_balance();
  TitanBatch prepare(const TitanBatch& whole);
  std::vector<Tensor> mask_of(const Tensor& positions);
  void forget_unused(TitanBatch& batch) const;
  Tensor count_tokens();
  Tensor forward_backward(const TitanBatch& whole, const Tensor& valid_tokens);
  PassMarks run_schedule(std::vector<TitanBatch>& batches, const Tensor& valid_tokens);

  Strategy strategy_;
  framework::TitanRelease release_;
  TitanRankPlan plan_;
  bool calls_;
  Tape tape_;
  Routine masks_{tape_, 0};
  std::unique_ptr<TitanTransfers> transfers_;  ///< in a pipeline
  std::vector<std::unique_ptr<TitanPart>> parts_;
  std::vector<Tensor> shards_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace plimsoll::program
