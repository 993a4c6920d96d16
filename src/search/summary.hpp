// Summaries of blocks: what one layer, one micro-batch and one stage more cost in time and memory, read off estimates of small instances of
// the same model on the same kind of cluster. Instances are whole estimates, lowered and priced like any other; a plan is composed of them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "search/layout.hpp"

namespace plimsoll::searching {

/// A quantity of a rank by its chunks of the model and the layers of each.
struct Line {
  double at_none = 0, per_chunk = 0, per_layer = 0;

  double at(double layers, double chunks = 1) const { return at_none + chunks * (per_chunk + per_layer * layers); }
};

/// Peak of a rank: what lies there once, and what each forward pass of a chunk adds whose activations are held.
struct RankLine {
  Line once, per_pass;

  double at(double layers, double chunks, double passes) const { return once.at(layers, chunks) + passes * per_pass.at(layers); }
};

/// Of one row of layouts under one setting.
struct Summary {
  bool known = false;       ///< else a plan of it must be estimated
  bool played = false;      ///< its instances' programs were; else closed forms, which are not compared with what was played
  Line micro_batch;         ///< seconds of the busiest stage for one micro-batch
  Line step;                ///< seconds of a step besides: what filling and draining takes at its ends, the step's end
  Line stage;               ///< seconds of filling and draining that each stage but the last adds, by the layers of one chunk
  double cache = 0;         ///< bytes that the instances' allocators held beyond their peaks, at most
  std::array<RankLine, 3> ranks;  ///< bytes that the first, an inner and the last rank need, without that (one stage: the first)
};

/// What a row's instances lack of a layout with more data-parallel ranks.
struct Tail {
  bool known = true;
  Line step;                    ///< seconds
  std::array<Line, 3> states;   ///< bytes between steps, by rank as above
};

/// Seconds of a step of a layout.
inline double composed_seconds(const Summary& s, const Tail& tail, const Layout& layout) {
  const auto micro_batches = static_cast<double>(layout.micro_batches), chunks = static_cast<double>(layout.chunks);
  if (layout.stages == 1) return micro_batches * s.micro_batch.at(layout.last) + s.step.at(layout.last) + tail.step.at(layout.last);
  // The last stage has the head, unless an inner one has so many layers more that it is busier.
  const double busiest = std::max(s.micro_batch.at(layout.last, chunks), chunks * s.micro_batch.per_layer * std::max(layout.first, layout.inner));
  return micro_batches * busiest + s.step.at(layout.first, chunks) + (layout.stages - 1) * s.stage.at(layout.usual) +
         tail.step.at(layout.inner, chunks);
}

/// Bytes that the allocator of its fullest rank must hold, and what lies outside of it.
inline double composed_bytes(const Summary& s, const Tail& tail, const Layout& layout) {
  const auto chunks = static_cast<double>(layout.chunks);
  const double first = s.ranks[0].at(layout.first, chunks, layout.in_flight) + tail.states[0].at(layout.first, chunks);
  if (layout.stages == 1) return first;
  const double last = s.ranks[2].at(layout.last, chunks, 1) + tail.states[2].at(layout.last, chunks);
  if (layout.stages == 2) return std::max(first, last);
  return std::max({first, last, s.ranks[1].at(layout.inner, chunks, layout.inner_in_flight) + tail.states[1].at(layout.inner, chunks)});
}

/// Runs the instances of a row or a tail.
class Summarizer {
 public:
  Summarizer(const Space& space, const SearchRequest& request);

  /// Whether instances with fewer layers stand for the model: it is one stack of equal layers.
  bool can() const { return layers_ != nullptr; }
  /// Nothing known where an instance is refused, or fills no whole nodes.
  Summary summary(const Row& row, std::uint64_t setting) const;
  /// `row_ranks`: data-parallel ranks of the row's instances.
  Tail tail(const Row& tail, std::int64_t row_ranks, std::uint64_t setting) const;
  std::uint64_t instances() const { return instances_; }

 private:
  /// A small run of a row's kind.
  struct Instance {
    int stages, chunks, layers;  ///< layers of each chunk
    std::int64_t micro_batches, ranks;
  };
  /// What was estimated of it, in seconds and bytes; ranks by stage.
  struct Seen {
    double seconds = 0, outside = 0, cache = 0;
    bool played = true;
    std::vector<double> allocated, persistent, passes;
  };
  Seen see(const Row& row, std::uint64_t setting, const Instance& instance) const;
  Strategy strategy_of(const Row& row, std::uint64_t setting, const Instance& instance) const;
  Summary of_one_stage(const Row& row, std::uint64_t setting) const;
  struct Stages;
  Stages see_pipeline(const Row& row, std::uint64_t setting) const;
  Tail measured_tail(const Row& tail, std::int64_t row_ranks, std::uint64_t setting) const;
  void add_memory(const Row& row, const Stages& seen, Summary& summary) const;
  Summary of_pipeline(const Row& row, std::uint64_t setting) const;

  const Space& space_;
  const SearchRequest& request_;
  const Block* layers_ = nullptr;
  mutable std::atomic<std::uint64_t> instances_{0};
};

}  // namespace plimsoll::searching
