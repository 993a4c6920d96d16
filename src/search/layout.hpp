// The space by index: layouts (who computes what, on which ranks) times settings (everything else) times numbers of recomputed layers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plimsoll/framework.hpp"
#include "plimsoll/search.hpp"

namespace plimsoll::searching {

/// The last axis: layers of each stage that are recomputed whole, the others not (Megatron's block method).
inline constexpr const char* kRecomputedLayers = "recompute_num_layers";

using Options = std::vector<std::pair<std::string, std::string>>;

/// Sizes of the cluster that are tried, ascending.
std::vector<std::int64_t> cluster_sizes(const SearchRequest& request);
/// Whose code runs what many ranks can do with this model.
std::string usual_framework(const SearchRequest& request);

/// Mixed-radix numbers over the axes; the first varies slowest. index = (layout · settings + setting) · depths + depth.
class Space {
 public:
  /// Throws Error (refused): more points than an index can number.
  explicit Space(const SearchRequest& request);

  const std::vector<SearchAxis>& axes() const { return axes_; }  ///< layouts', settings', then the depth's
  std::uint64_t layouts() const { return layouts_; }
  std::uint64_t settings() const { return settings_; }
  std::uint64_t depths() const { return depths_; }
  double points() const { return static_cast<double>(layouts_) * static_cast<double>(settings_ * depths_); }

  std::uint64_t index(std::uint64_t layout, std::uint64_t setting, std::uint64_t depth) const {
    return (layout * settings_ + setting) * depths_ + depth;
  }
  std::uint64_t layout_of(std::uint64_t index) const { return index / depths_ / settings_; }
  std::uint64_t setting_of(std::uint64_t index) const { return index / depths_ % settings_; }
  std::uint64_t depth_of(std::uint64_t index) const { return index % depths_; }

  /// The options that a layout, a setting or a depth says; what it leaves unsaid is missing. `gpus` is none of them.
  Options layout_options(std::uint64_t layout) const { return decode(layout, 0, layout_axes_); }
  Options setting_options(std::uint64_t setting) const { return decode(setting, layout_axes_, axes_.size() - depth_axes_); }
  Options depth_options(std::uint64_t depth) const;
  Options options(std::uint64_t index) const;
  std::int64_t gpus_of(std::uint64_t layout) const;
  /// The digit of the axis `key` of a layout as a number; `otherwise` where there is no such axis or it says nothing.
  std::int64_t digit(std::uint64_t layout, std::string_view key, std::int64_t otherwise) const;
  /// The layout with the next smaller micro-batch; the same where there is none.
  std::uint64_t with_smaller_micro_batch(std::uint64_t layout) const;
  /// Layers that a depth recomputes; 0: as the setting says.
  int recomputed_layers(std::uint64_t depth) const { return depth_values_.empty() ? 0 : depth_values_[depth]; }
  bool recomputes_all(std::uint64_t setting) const { return full_[setting]; }

 private:
  Options decode(std::uint64_t digits, std::size_t begin, std::size_t end) const;

  std::vector<SearchAxis> axes_;
  std::size_t layout_axes_ = 0, depth_axes_ = 0;
  std::uint64_t layouts_ = 1, settings_ = 1, depths_ = 1;
  std::vector<std::int64_t> sizes_;
  std::vector<int> depth_values_;
  std::vector<char> full_;  ///< by setting: recompute full
};

/// A legal layout: what composing a plan needs to know of it.
struct Layout {
  std::uint64_t raw = 0;  ///< its number in the space
  std::int64_t gpus = 0, micro_batches = 1, tokens = 1;  ///< tokens: SearchPlan's
  std::int32_t stages = 1, chunks = 1;        ///< p, v
  double first = 1, inner = 1, last = 1;      ///< layers of a chunk, on average, of the first, the fullest inner and the last rank
  double usual = 1;                           ///< of all ranks but the last
  double others = 1;                          ///< of all ranks but the fullest: what a micro-batch passes while the pipeline fills and drains
  double waves = 0;                           ///< of several chunks of stages in turn: layers of the fullest of each chunk but the last
  double last_wave = 0, head_chunk = 0;       ///< of the fullest of the last chunk but for the stage that has the head; of that stage
  double in_flight = 1, inner_in_flight = 1;  ///< chunks' forward passes whose activations the first and the next rank hold
  std::uint32_t row = 0, tail = 0, kind = 0;  ///< which summaries it is composed of; what settings are legal with it
  bool equal = false;                         ///< one stage, or interleaved chunks of as many layers each: they do as those of small instances
  bool fills = false;                         ///< its pipeline fills and drains stage by stage: each but the last waits for one chunk more
  std::uint32_t states = 0, head = 0;         ///< which differences of settings that change the states, or the loss, alone
};

/// Ranks, sizes and flags of a row of summaries: layouts that differ in their number of stages and data-parallel ranks alone.
struct Row {
  std::uint64_t raw = 0;                                  ///< a layout that has it
  std::int64_t micro_batch = 1, dp = 1, model_ranks = 1;  ///< data-parallel ranks of its instances; tp · cp
  int chunks = 1;                                         ///< of its instances
  bool more_chunks = false;                               ///< its layouts may have more: instances with one more tell how it goes on
  std::string schedule;
  bool pipelined = false, single = false;  ///< more than one stage; one micro-batch
  bool long_pipeline = false;              ///< some layout of it holds more, or fewer, passes than two stages in steady state
  bool undisturbed = false;                ///< collectives of data parallelism run behind the passes, not beside them
  bool by_units = false;                   ///< Megatron-FSDP's
  bool replicated = false;                 ///< ranks share out no more than optimizer states: what a pass holds is one rank's
};

/// All that resolve() takes, and what it says of the rest.
struct Layouts {
  std::vector<Layout> legal;
  std::vector<Row> rows, tails;
  std::vector<Row>
      states;              ///< layouts alike but for their micro-batch and who cuts the sequence: one of each with the smallest micro-batch
  std::vector<Row> heads;  ///< layouts alike but for their data parallelism and number of chunks
  std::vector<std::vector<char>> settings;  ///< by kind: whether a setting is legal
  std::vector<std::uint64_t> of_kind;       ///< by kind: a layout of it
  std::unordered_map<std::string, SearchRejection> rejected;
};

/// `gpus` of the cluster's devices, whether it has so many or not; nothing where they fill no whole nodes.
std::optional<Cluster> sized(const Cluster& cluster, std::int64_t gpus);

/// Whether all of its ranks' programs were played, for memory and for time.
bool was_played(const Report& report);

/// The strategy of a layout and what else is said.
Strategy with_options(const SearchRequest& request, const Options& options);

}  // namespace plimsoll::searching
