/// Programs of further ranks of a pipeline, put together from the passes of one that was recorded.
///
/// Ranks that hold equal stages run the same passes; they differ in how many micro-batches are under way. One rank with a short pipeline
/// behind it is recorded, each of its passes becomes a pattern, and the program of a rank with a longer one is those patterns in that
/// rank's order. Passes of a kind that should repeat are compared before they are taken as patterns.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "plimsoll/program.hpp"

namespace plimsoll::program {

/// What one rank does for one micro-batch, in 1F1B.
enum class PassKind : std::uint8_t {
  receive_input,
  forward,         ///< and what it sends on
  release_output,  ///< the output has been sent: its memory is let go
  receive_gradient,
  backward,  ///< and what it sends back
};
inline constexpr int kPassKinds = 5;

/// Where a pass begins in a part of the program; it ends where the next one begins.
struct PassMark {
  std::size_t at;
  PassKind kind;
  std::int64_t micro_batch;
};

/// The passes of one part, and where the last of them ends.
struct PassMarks {
  std::vector<PassMark> passes;
  std::size_t end = 0;
};

/// A recorded rank of a 1F1B pipeline: `warm_up` micro-batches go forward before the first comes back, `steady` follow.
struct RecordedPipelineRank {
  StepProgram program;
  PassMarks first_step, step;
  std::int64_t warm_up = 0, steady = 0;
};

/// The fewest micro-batches of warm-up and of the steady state from which patterns can be taken: a first, a second, two alike, a last.
inline constexpr std::int64_t kPatternWarmUp = 5, kPatternSteady = 6;
/// The fewest micro-batches of warm-up of a rank that is put together: a first, a second, a last.
inline constexpr std::int64_t kFewestWarmUp = 3;

/// The passes of a recorded rank as patterns.
class PipelinePatterns {
 public:
  explicit PipelinePatterns(RecordedPipelineRank recorded);
  ~PipelinePatterns();
  PipelinePatterns(const PipelinePatterns&) = delete;
  PipelinePatterns& operator=(const PipelinePatterns&) = delete;

  /// The program of a rank with `warm_up` ≥ kFewestWarmUp and `steady` ≥ 4 micro-batches, the middle one of which stands for `left_out`
  /// more. Nothing where the recorded passes do not repeat.
  std::optional<StepProgram> compose(std::int64_t warm_up, std::int64_t steady, std::int64_t left_out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll::program
