/// The space of strategies of a model on a cluster: screened by composition, the survivors estimated, the best named with the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {

/// A key of a strategy and the values that plans may give it; an empty value: the key is not said.
struct SearchAxis {
  std::string key;
  std::vector<std::string> values;
};

/// "4", "1,2,4", "none,full" (values that hold commas themselves: "a|b"), "1..16" (doubling), "2..8/2" (in steps of 2).
/// Throws Error: an empty or backward range, a step of 0, more than 4096 values.
std::vector<std::string> parse_axis_values(const std::string& text, const std::string& where);

/// How far the space is open where the caller names no axis.
enum class SearchWidth : std::uint8_t {
  named,  ///< what the caller names alone
  usual,  ///< degrees, schedule chunks, micro-batch, sharding, recomputation
  all,    ///< also numbers of recomputed layers, precision, optimizer, offload, compile, loss
};

/// What plans compete in. Ties go to the faster, then to the smaller index. Where plans train different numbers of tokens a step (free_batch),
/// time and cost are those of a token.
enum class SearchGoal : std::uint8_t {
  time,  ///< of a step
  gpus,  ///< the fewest that fit
  cost,  ///< GPU-seconds of a step
};

struct SearchRequest {
  Model model;
  Cluster cluster;                                      ///< the largest that may be taken
  std::string model_word, cluster_word, strategy_word;  ///< as commands name them (strategy_word: a file); empty: by their own names
  Strategy base;                                        ///< what all plans share
  std::vector<SearchAxis> axes;                         ///< what the caller opened or pinned; the rest is open_axes'
  std::vector<std::int64_t> gpus;                       ///< sizes of the cluster to try; empty: all of it
  SearchWidth width = SearchWidth::usual;
  SearchGoal goal = SearchGoal::time;
  double most_step_seconds = 0;     ///< slower plans do not count; 0: any
  std::size_t top = 10;             ///< plans whose order is exact
  std::uint64_t shard = 0, shards = 1;
  std::uint64_t sample = 0;           ///< layouts to look at, spread over the space; 0: all
  std::size_t most_estimates = 2000;  ///< beyond so many the answer is marked incomplete
  int threads = 0;                    ///< 0: as many as the machine has
  std::size_t keep_candidates = 0;    ///< screened plans to list (SearchResult::candidates); 0: none
  std::string resume;                 ///< SearchResult::state of the same search, which was stopped; empty: none
};

/// A point of the space.
struct SearchPlan {
  std::uint64_t index = 0;
  std::vector<std::pair<std::string, std::string>> options;  ///< of the axes, as on the command line
  std::int64_t gpus = 0, tokens = 1;  ///< tokens: of a step, of all ranks (samples where one has no positions); 1: not told
  double seconds = 0;                 ///< of a step, screened
  Bytes device;                       ///< of the fullest rank, screened
  bool screened = true;               ///< false: what the space holds of it could not be screened
};

/// A plan with its full estimate.
struct EstimatedPlan {
  SearchPlan plan;
  Report report;
  std::string command;  ///< that estimates it

  double seconds() const { return report.time.step_seconds.expected; }
  double seconds_per_token() const { return seconds() / static_cast<double>(plan.tokens); }
  double tokens_per_second() const { return static_cast<double>(plan.tokens) / seconds(); }
  Bytes headroom() const { return report.worst_rank().memory.margin(); }
  double gpu_seconds() const { return seconds() * static_cast<double>(plan.gpus); }
  double gpu_seconds_per_token() const { return seconds_per_token() * static_cast<double>(plan.gpus); }
};

/// What a search proposes for its front: of a cluster size and a sixteenth of the memory, the fastest plan as far as screening tells. The
/// whole's are the fastest of its shards'.
struct FrontOffer {
  std::int64_t gpus = 0;
  int sixteenth = 0;   ///< of the memory: so many are left
  double seconds_per_token = 0;  ///< screened
  std::uint64_t index = 0;
  std::optional<EstimatedPlan> plan;  ///< nothing where its estimate does not stand
};

/// Why plans were left out.
struct SearchRejection {
  std::uint64_t count = 0;
  std::string example;         ///< one of them: what resolve() said, or how much was missing
  SearchPlan nearest;          ///< the one that was nearest to being taken, where that has a measure
  double nearest_seconds = 0;  ///< of its step, screened; shards are merged by it and its tokens
  std::string rescue;          ///< the change of one axis that would take it; empty where none does
};

struct SearchResult {
  std::string model, cluster, fingerprint;  ///< fingerprint: of the space and its inputs; shards of one search share it
  SearchGoal goal = SearchGoal::time;
  bool free_batch = false;  ///< plans train different numbers of tokens a step: those of a second decide, not the step's time
  std::uint64_t shard = 0, shards = 1;
  std::vector<SearchAxis> axes;
  double points = 0;                   ///< of the space, legal or not
  std::vector<EstimatedPlan> best;     ///< that fit, the best first, at most SearchRequest::top
  std::vector<EstimatedPlan> front;    ///< no other plan is better in time, headroom and GPUs together
  std::vector<FrontOffer> offers;      ///< of a shard: what the front of the whole is made of
  std::vector<SearchPlan> candidates;  ///< the best that were screened, if asked for
  std::map<std::string, SearchRejection> rejected;
  std::uint64_t legal = 0, screened = 0, estimated = 0, probes = 0;
  double seconds = 0, screening_seconds = 0;
  bool complete = true;  ///< false: it was stopped, or most_estimates were not enough
  std::string state;     ///< of a search that was stopped: what SearchRequest::resume goes on from
  std::vector<std::string> notes;

  double screened_per_second() const { return screening_seconds > 0 ? static_cast<double>(screened) / screening_seconds : 0; }
};

/// How far a search is.
struct SearchProgress {
  const char* phase = "";  ///< "layouts", "summaries", "screening", "estimates"
  std::uint64_t done = 0, of = 0;
  double best_seconds = 0;  ///< 0: nothing fits yet
};
/// Called now and then from the thread that called `search`; false: stop and answer with what is known.
using SearchWatcher = std::function<bool(const SearchProgress&)>;

/// The axes that are searched where `request.axes` does not name them, behind those that it does.
std::vector<SearchAxis> open_axes(const SearchRequest& request);

/// Searches. The first `top` of the answer are those of a full estimate of every legal plan, as far as screening errs no more than
/// hardware/screening.json says. Throws Error: contradictions that all plans share, a space too large to be looked at.
SearchResult search(const SearchRequest& request, const SearchWatcher& watch = {});

/// Whether plans of the space may train different numbers of tokens a step: no global batch is said, or several batches or lengths are.
bool free_batch(const SearchRequest& request);
/// The strategy of a plan: `base` with its options, for the cluster that it takes.
Strategy strategy_of(const SearchRequest& request, const SearchPlan& plan);
/// `gpus` of a cluster's devices on its nodes: a part of one node, or whole nodes. Throws Error where they fill no whole nodes.
Cluster part_of(const Cluster& cluster, std::int64_t gpus);

/// The command line that estimates a plan.
std::string command_of(const SearchRequest& request, const SearchPlan& plan);

/// The best with its report, the runners-up with what they lose, the front, and the rejected with what would rescue them.
std::string to_text(const SearchResult& result);
/// One object "plimsoll/search/1" (docs/search.md).
std::string to_json(const SearchResult& result);
/// A line per candidate: index, GPUs, screened seconds and bytes, a column per axis.
std::string to_csv(const SearchResult& result);

// ---- one quantity at its end ------------------------------------------------------------------------------------------

/// The last value that fits, and why the next does not.
struct Solution {
  std::string key;
  std::string value;                  ///< empty: none fits
  std::optional<EstimatedPlan> plan;  ///< the fastest that fits with it
  std::string next, because;          ///< empty: nothing was tried beyond
};

/// The largest "micro_batch", "seq" (in steps of 1,024 tokens) or "layers" (of the same model) with which a plan of the named axes fits.
/// Under a global batch that is said only its divisors are tried. Throws Error: another key.
Solution largest(const SearchRequest& request, const std::string& key, const SearchWatcher& watch = {});
/// The least recomputation: none, selective, one recomputed layer a stage, two …, full.
Solution least_recompute(const SearchRequest& request, const SearchWatcher& watch = {});
std::string to_text(const Solution& solution);
std::string to_json(const Solution& solution);

// ---- every point estimated --------------------------------------------------------------------------------------------

struct SweepPoint {
  SearchPlan plan;
  std::optional<Report> report;
  std::string refusal;  ///< where there is none
};
struct Sweep {
  std::string model, cluster;
  std::vector<SearchAxis> axes;
  std::vector<SweepPoint> points;
};
/// Estimates every point of the named axes, in order. Throws Error (refused): more than 20,000.
Sweep sweep(const SearchRequest& request, const SearchWatcher& watch = {});
/// A bar of time and of memory for each point.
std::string to_text(const Sweep& sweep);
std::string to_csv(const Sweep& sweep);
/// One object "plimsoll/sweep/1" (docs/sweep.md).
std::string to_json(const Sweep& sweep);

/// A strategy after one technique more.
struct Technique {
  std::string flags;  ///< what was added; empty: the beginning
  Report report;
};
/// Estimates the base, then each of `steps` (flags as on a command line) on top of those before it. Throws Error as estimate does.
std::vector<Technique> waterfall(const SearchRequest& request, const std::vector<std::string>& steps);
std::string to_text(const std::vector<Technique>& techniques);
/// One object "plimsoll/waterfall/1" (docs/sweep.md).
std::string to_json(const std::vector<Technique>& techniques);

/// Objects "plimsoll/search/1" of the shards of one search as one such object, whatever the split. Each text is named by its file.
/// Throws Error: another search's shard, one given twice.
std::string merge_searches(const std::vector<std::pair<std::string, std::string>>& files);
/// The result that such an object tells of; its plans are estimated anew. Throws Error: another search's object.
SearchResult result_of(const SearchRequest& request, const std::string& json);

}  // namespace plimsoll
