// Summaries of blocks: what one layer, one micro-batch and one stage more cost in time and memory, read off estimates of small instances of
// the same model on the same kind of cluster. Instances are whole estimates, lowered and priced like any other; a plan is composed of them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/error.hpp"
#include "search/layer_stack.hpp"
#include "search/layout.hpp"
#include "search/state.hpp"

namespace plimsoll::searching {

/// A quantity of a rank by its chunks of the model and the layers of each.
struct Line {
  double at_none = 0, per_chunk = 0, per_layer = 0;

  double at(double layers, double chunks = 1) const { return at_none + chunks * (per_chunk + per_layer * layers); }
  Line& operator+=(const Line& other) {
    at_none += other.at_none;
    per_chunk += other.per_chunk;
    per_layer += other.per_layer;
    return *this;
  }
};

/// Peak of a rank: what lies there once, and what each forward pass of a chunk adds whose activations are held.
struct RankLine {
  Line once, per_pass;

  double at(double layers, double chunks, double passes) const { return once.at(layers, chunks) + passes * per_pass.at(layers); }
};

/// Of one row of layouts under one setting.
struct Summary {
  bool known = false;             ///< else a plan of it must be estimated
  std::uint32_t refusal = 0;      ///< why its instances were refused (Summarizer::refusals); 0: they were not, or for their size alone
  bool played = false;            ///< its instances' programs were; else closed forms, which are not compared with what was played
  Line micro_batch;               ///< seconds of the busiest stage for one micro-batch
  Line step;                      ///< seconds of a step besides: what filling and draining takes at its ends, the step's end
  Line stage;                     ///< seconds of filling and draining that each stage but the last adds, by the layers of one chunk
  double cache = 0;               ///< bytes that the instances' allocators held beyond their peaks, at most
  std::array<RankLine, 3> ranks;  ///< bytes that the first, an inner and the last rank need, without that (one stage: the first)
};

/// What a row's instances lack: of a layout with more data-parallel ranks, or of a setting that changes the states or the loss alone.
struct Tail {
  bool known = true, played = true;
  std::uint32_t refusal = 0;   ///< as a summary's
  Line step, micro_batch;      ///< seconds
  std::array<Line, 3> states;  ///< bytes between steps, by rank as above

  Tail& operator+=(const Tail& other) {
    known &= other.known;
    played &= other.played;
    if (refusal == 0) refusal = other.refusal;
    step += other.step;
    micro_batch += other.micro_batch;
    for (std::size_t i = 0; i < states.size(); ++i) states[i] += other.states[i];
    return *this;
  }
};

/// Seconds by which one micro-batch is late where the pipeline fills and drains: it passes chunk by chunk, each as slowly as its fullest
/// stage, while in the steady state the chunks of a rank, `busiest` of them all, make up for one another.
inline double unevenness(const Summary& s, const Layout& layout, double busiest) {
  if (layout.waves <= 0) return 0;
  const Line& each = s.micro_batch;
  const double last = std::max(each.per_layer * layout.last_wave, each.at_none + each.per_layer * layout.head_chunk);
  const double waves = layout.chunks * each.per_chunk + each.per_layer * layout.waves + last;
  return std::max(0.0, waves - busiest);
}

/// Seconds of a step of a layout.
inline double composed_seconds(const Summary& s, const Tail& tail, const Layout& layout) {
  const auto micro_batches = static_cast<double>(layout.micro_batches), chunks = static_cast<double>(layout.chunks);
  const double more = micro_batches * tail.micro_batch.at(layout.last, chunks);
  if (layout.stages == 1) return micro_batches * s.micro_batch.at(layout.last) + s.step.at(layout.last) + tail.step.at(layout.last) + more;
  // The last stage has the head, unless an inner one has so many layers more that it is busier.
  const double busiest =
      std::max(s.micro_batch.at(layout.last, chunks), chunks * s.micro_batch.per_layer * std::max(layout.first, layout.inner));
  const double late = std::min<double>(layout.stages, micro_batches) * unevenness(s, layout, busiest);
  return micro_batches * busiest + late + s.step.at(layout.first, chunks) + (layout.stages - 1) * s.stage.at(layout.others) +
         tail.step.at(layout.inner, chunks) + more;
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

/// What one layer takes at the least, of every plan that is made of such.
struct Floor {
  double seconds = 0;  ///< for each micro-batch
  double head = 0;     ///< seconds that the model's head takes for each besides
  double bytes = 0;    ///< beside its states, while a pass is held
  double kept = 0;     ///< of these, what each pass that is held keeps for its backward pass
};

/// Runs the instances of a row or a tail.
class Summarizer {
 public:
  /// `state`: the instances that were seen, and those that will have been.
  Summarizer(const Space& space, const SearchRequest& request, State& state);

  /// Whether instances with fewer layers stand for the model: it is one stack, whose layers follow a pattern.
  bool can() const { return stack_.has_value(); }
  /// Whether the instances' layers are of several kinds.
  bool mixed() const { return stack_ && !stack_->alike(); }
  /// Nothing known where an instance is refused, or fills no whole nodes.
  Summary summary(const Row& row, std::uint64_t setting) const;
  /// `row_ranks`: data-parallel ranks of the row's instances.
  Tail tail(const Row& tail, std::int64_t row_ranks, std::uint64_t setting) const;
  /// What `setting` adds to `base`, which differ in what changes the states or the loss alone.
  Tail difference(const Row& row, std::uint64_t base, std::uint64_t setting) const;
  /// By instances of one stage and one micro-batch: of whatever pipeline or sharding, layers of the row's kind take no less.
  Floor floor(const Row& row, std::uint64_t setting) const;
  /// Layers that follow no pattern, before those that do.
  std::int64_t prefix() const { return stack_ ? stack_->prefix : 0; }
  std::uint64_t instances() const { return instances_; }
  /// What a refusal's number, from 1, is about.
  std::string refusal(std::uint32_t number) const {
    const std::lock_guard lock(numbering_);
    return refusals_.at(number - 1);
  }

 private:
  /// The number of what the error is about, from 1; 0: an instance's own size.
  std::uint32_t refusal_of(const Error& error) const;
  /// What `measure` finds, or a tail that is not known, with the reason.
  template <class Measure>
  Tail unless_refused(const Measure& measure) const;
  /// Layers of each chunk of an instance with fewer and with more: whole patterns behind the layers of their own kinds.
  struct Sizes {
    int few, many;
    double more() const { return many - few; }
  };
  Sizes sizes_of(const Row& row, bool pipelined) const;
  /// A small run of a row's kind.
  struct Instance {
    int stages, chunks, layers;  ///< layers of each chunk
    std::int64_t micro_batches, ranks;
  };
  /// Estimated once however many rows ask for it.
  Seen see(const Row& row, std::uint64_t setting, const Instance& instance) const;
  /// By instances of so many ranks; nothing where they are refused.
  std::optional<Floor> floor_of(const Row& row, std::uint64_t setting, std::int64_t ranks) const;
  Seen estimated(const Row& row, std::uint64_t setting, const Instance& instance) const;
  Strategy strategy_of(const Row& row, std::uint64_t setting, const Instance& instance) const;
  Summary of_one_stage(const Row& row, std::uint64_t setting) const;
  struct Stages;
  Stages see_pipeline(const Row& row, std::uint64_t setting) const;
  Tail measured_difference(const Row& row, std::uint64_t base, std::uint64_t setting) const;
  Tail measured_tail(const Row& tail, std::int64_t row_ranks, std::uint64_t setting) const;
  void add_memory(const Row& row, const Stages& seen, Summary& summary) const;
  Summary of_pipeline(const Row& row, std::uint64_t setting) const;

  const Space& space_;
  const SearchRequest& request_;
  std::optional<LayerStack> stack_;
  mutable std::atomic<std::uint64_t> instances_{0};
  State& state_;
  mutable std::mutex numbering_;
  mutable std::vector<std::string> refusals_;
};

}  // namespace plimsoll::searching
