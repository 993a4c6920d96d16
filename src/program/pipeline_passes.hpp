/// Programs of further ranks of a pipeline, put together from the passes of one that was recorded.
///
/// Ranks that hold equal stages run the same passes in another order: they differ in how many micro-batches are under way. One such rank is
/// recorded, each of its passes becomes a pattern, and the program of another is those patterns in that rank's order. What a pass does may
/// depend on what its stage did just before; recorded passes with the same past are compared before they are taken as patterns.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "plimsoll/program.hpp"

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
inline constexpr int kPassKinds = 10;

struct PipelinePass {
  PassKind kind;
  int chunk = 0;  ///< of the rank
  std::int64_t micro_batch = 0;

  friend bool operator==(const PipelinePass& a, const PipelinePass& b) {
    return a.kind == b.kind && a.chunk == b.chunk && a.micro_batch == b.micro_batch;
  }
};

/// The passes of one part of a program, in order: where each begins, up to the next one's begin; and where the last of them ends.
struct PassMarks {
  std::vector<PipelinePass> passes;
  std::vector<std::size_t> at;
  std::size_t end = 0;

  void mark(std::size_t begin, const PipelinePass& pass) {
    passes.push_back(pass);
    at.push_back(begin);
  }
};

/// Events that a pass records for a later one of the same micro-batch: those of a purpose go round with the micro-batches, `period` of
/// them, one purpose's behind another's.
struct MicroBatchEvents {
  EventId first = 0, end = 0;
  std::int64_t period = 1;

  EventId at(std::int64_t purpose, std::int64_t micro_batch) const {
    return first + static_cast<EventId>(purpose * period + micro_batch % period);
  }
};

/// A recorded rank: both parts hold the same passes.
struct RecordedPipelineRank {
  StepProgram program;
  PassMarks first_step, step;
  MicroBatchEvents events;
};

/// Passes of a rank of which those in [begin, end) stand for `times` as many.
struct PassOrder {
  std::vector<PipelinePass> passes;
  std::size_t begin = 0, end = 0;
  std::int64_t times = 1;
  bool leaves_alike = true;  ///< what one run of them leaves alive the others leave as well; else it is of the last micro-batch alone
};

/// Turns the peers of all sends and receives `by` ranks further in a pipeline of `ranks`: a program put together for another rank than the
/// recorded one.
void move_peers(StepProgram& program, int by, int ranks);

/// The passes of a recorded rank as patterns.
class PipelinePatterns {
 public:
  explicit PipelinePatterns(RecordedPipelineRank recorded);
  ~PipelinePatterns();
  PipelinePatterns(const PipelinePatterns&) = delete;
  PipelinePatterns& operator=(const PipelinePatterns&) = delete;

  /// The program of a rank that runs these passes on chunks equal to the recorded ones. Nothing where the recorded passes do not repeat, or
  /// where one is wanted that they do not show. It is written into the memory of `spare`, a program that nobody needs any more.
  std::optional<StepProgram> compose(const PassOrder& wanted, StepProgram spare = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll::program
