#include "search/rounds.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "estimate/model_states.hpp"
#include "estimate/rank_groups.hpp"
#include "estimate/stages.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/topology.hpp"

namespace plimsoll::searching {
namespace {

constexpr std::size_t kAtOnce = 8;     // kinds of summaries between two looks
constexpr std::size_t kTooLarge = 8;   // plans that are surely too large and are composed all the same, to name the fastest of them
constexpr double kSixteenths = 16;     // of the memory, as the front is made of

/// Degrees and schedules do not change a layer, and under Megatron whether its states are divided does not either.
bool tells_of_layers(const std::string& key, const std::string& value) {
  static const std::set<std::string> others{"pp",          "dp",         "vp",        "stages_per_rank",        "gpus",    "global_batch",
                                            "grad_accum",  "dp_shard",   "schedule",  "micro_batches_per_step", "pp_schedule",
                                            "dp_replicate"};
  return others.count(key) == 0 && !(key == "data_parallel" && (value == "ddp" || value == "megatron-distopt"));
}

/// What a rank holds between steps on its device, where it has a closed form.
double bytes_between_steps(const estimation::States& states, const Strategy& s) {
  const bool on_host = s.offload.optimizer || s.offload.params || s.offload.grads;
  double bytes = s.offload.params ? 0 : states.parameters;
  if (states.gradients_persist && !on_host) bytes += states.gradients;
  if (!on_host) bytes += states.optimizer;
  return bytes;
}

/// What FSDP2 lays out of a stage while TorchTitan's pipeline runs, unless it is told otherwise: whole weights, and the sums of whole gradients.
struct Unsharded {
  double weights = 0, sums = 0;
};
Unsharded unsharded_in_pipeline(const estimation::States& states, const Strategy& s) {
  const bool lies = s.pp > 1 && s.dp_shard > 1 && engine_of(s) == Engine::fsdp2 && profile_of(s).code == ModelCode::torchtitan;
  if (!lies || s.fsdp.reshard == FsdpOptions::Reshard::always || s.offload.params || s.low_precision != LowPrecision::none) return {};
  const auto whole = [&](std::optional<DType> type) { return states.held.whole * static_cast<double>(size_of(type.value_or(DType::bf16))); };
  return {whole(s.compute_dtype), s.micro_batches > 1 && !s.lora ? whole(s.reduce_dtype) : 0};
}

/// Seconds behind the passes of a stage whose states are these, at the least, where that has a closed form: gradients are reduced and weights
/// gathered once the last pass is over, and an optimizer on the device reads and writes its states once.
double seconds_behind_the_passes(const estimation::States& states, const Strategy& s, const Cluster& cluster) {
  const bool on_host = s.offload.optimizer || s.offload.params || s.offload.grads;
  if (!reduces_behind_the_passes(s) || on_host || s.lora || s.ep > 1) return 0;
  double seconds = 2 * states.optimizer / cluster.accelerator.memory_bandwidth.value.value;
  if (s.dp * s.cp <= 1) return seconds;
  const GroupShape group = estimation::group_shapes(s, Topology(cluster))[static_cast<std::size_t>(Group::data_shard)];
  const auto exchange = [&](CollectiveKind kind, double bytes, DType type) {
    const Collective collective{.kind = kind, .group = Group::data_shard, .bytes = static_cast<std::int64_t>(bytes), .type = type};
    seconds += price(collective, group, cluster).value;
  };
  const bool divided = s.data_parallel == DataParallel::megatron_distopt;
  exchange(divided ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce, states.gradients, s.grad_dtype.value_or(DType::fp32));
  if (divided) exchange(CollectiveKind::all_gather, states.parameters, s.param_dtype.value_or(DType::fp32));
  return seconds;
}

}  // namespace

Least::Least(const Screen& screen, const Space& space, const SearchRequest& request, const Layouts& layouts, Watch& watch)
    : screen_(screen),
      space_(space),
      request_(request),
      layouts_(layouts),
      capacity_(static_cast<double>(request.cluster.accelerator.memory_usable.value.count)) {
  std::map<std::uint64_t, std::uint32_t> kinds;
  for (std::uint64_t setting = 0; setting < space.settings(); ++setting)
    kind_of_states_.push_back(kinds.emplace(screen.states_like(setting), static_cast<std::uint32_t>(kinds.size())).first->second);
  kinds_of_states_ = kinds.size();
  count_states(watch);
  number_blocks();
  measure(watch);
}

Least::States Least::states_of_rank(std::uint32_t layout, std::uint64_t setting) const {
  Options options = space_.layout_options(layouts_.legal[layout].raw);
  const Options more = space_.setting_options(setting);
  options.insert(options.end(), more.begin(), more.end());
  try {
    const Cluster cluster = part_of(request_.cluster, layouts_.legal[layout].gpus);
    const Strategy s = resolve(with_options(request_, options), request_.model, cluster);
    const auto stages = estimation::stages_of(request_.model, s);
    const estimation::States first = estimation::states_of(estimation::chunks_of(stages, 0, s), s);
    const bool dense = !request_.model.has_experts();
    const Unsharded unsharded = unsharded_in_pipeline(first, s);
    return {bytes_between_steps(first, s) + unsharded.weights, unsharded.sums, first.gradients_persist && !s.offload.activations,
            dense ? seconds_behind_the_passes(first, s, cluster) : 0};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    return {};
  }
}

void Least::count_states(Watch& watch) {
  std::vector<std::int64_t> setting_of(kinds_of_states_ * layouts_.settings.size(), -1);  // a legal one of each kind
  for (std::size_t kind = 0; kind < layouts_.settings.size(); ++kind)
    for (std::uint64_t setting = space_.settings(); setting-- > 0;)
      if (layouts_.settings[kind][setting]) setting_of[kind * kinds_of_states_ + kind_of_states_[setting]] = static_cast<std::int64_t>(setting);
  states_.resize(layouts_.legal.size() * kinds_of_states_);
  parallel_for(layouts_.legal.size(), threads_of(request_), watch, "states", [&](std::uint64_t i, int) {
    for (std::uint64_t kind = 0; kind < kinds_of_states_; ++kind) {
      const std::int64_t setting = setting_of[layouts_.legal[i].kind * kinds_of_states_ + kind];
      if (setting >= 0) states_[i * kinds_of_states_ + kind] = states_of_rank(static_cast<std::uint32_t>(i), static_cast<std::uint64_t>(setting));
    }
  });
}

void Least::number_blocks() {
  std::map<std::string, std::uint32_t> numbers;
  for (const Layout& layout : layouts_.legal) {
    std::string key;
    for (const auto& [name, value] : space_.layout_options(layout.raw))
      if (tells_of_layers(name, value)) key += name + "=" + value + " ";
    const auto [found, fresh] = numbers.emplace(key, static_cast<std::uint32_t>(blocks_.size()));
    if (fresh) blocks_.push_back(layouts_.rows[layout.row]);
    block_of_.push_back(found->second);
  }
}

void Least::measure(Watch& watch) {
  floors_.resize(blocks_.size() * space_.settings());
  std::set<std::uint64_t> wanted;
  for (std::uint32_t i = 0; i < layouts_.legal.size(); ++i)
    for (std::uint64_t setting = 0; setting < space_.settings(); ++setting) {
      if (!layouts_.settings[layouts_.legal[i].kind][setting]) continue;
      if (screening_bound(kLeast).least_bytes(states(i, setting).bytes) > capacity_) continue;
      wanted.insert(block_of_[i] * space_.settings() + screen_.core_setting(setting));
    }
  const std::vector<std::uint64_t> jobs(wanted.begin(), wanted.end());
  parallel_for(jobs.size(), threads_of(request_), watch, "blocks", [&](std::uint64_t i, int) {
    floors_[jobs[i]] = screen_.summarizer().floor(blocks_[jobs[i] / space_.settings()], jobs[i] % space_.settings());
  });
}

Least::Of Least::plan(std::uint32_t number, std::uint64_t setting) const {
  const Layout& layout = layouts_.legal[number];
  const States& lie = states(number, setting);
  const auto with = [&](std::uint64_t of) -> Of {
    const Floor& floor = floors_[block_of_[number] * space_.settings() + screen_.core_setting(of)];
    const auto stages = static_cast<double>(layout.stages);
    double layers = layout.stages == 1 ? layout.last : layout.chunks * std::max({layout.first, layout.inner, layout.last}), waits = 0;
    double of_last = layout.chunks * layout.last * floor.seconds + floor.head;  // seconds of a micro-batch
    if (layout.fills) waits = (stages - 1) * layout.others;
    if (screen_.summarizer().mixed()) {  // some kinds take less than the mean of a pattern: what all of them take is dealt to the stages
      layers = static_cast<double>(request_.model.layers - screen_.summarizer().prefix()) / stages;
      waits = of_last = 0;
    }
    const double passes = layout.stages > 1 ? layout.in_flight : 1;
    const double held = layout.first * std::max((lie.every_pass ? passes : 1) * floor.bytes, passes * floor.kept);
    return {static_cast<double>(layout.micro_batches) * std::max(layers * floor.seconds, of_last) + waits * floor.seconds + lie.ends,
            lie.bytes + std::max(screen_.summarizer().mixed() ? 0 : held, lie.accumulated)};
  };
  const std::int64_t none = screen_.between(setting);
  const Of own = with(setting);
  if (none < 0) return own;
  const Of other = with(static_cast<std::uint64_t>(none));
  return {std::min(own.seconds, other.seconds), std::min(own.bytes, other.bytes)};
}

namespace {

class Rounds {
 public:
  Rounds(Screen& screen, const Space& space, const SearchRequest& request, const Layouts& layouts, Scout& scout, Watch& watch)
      : screen_(screen),
        layouts_(layouts),
        scout_(scout),
        watch_(watch),
        capacity_(static_cast<double>(request.cluster.accelerator.memory_usable.value.count)),
        least_(screen, space, request, layouts, watch) {
    const ScreeningBound bound = screening_bound(kLeast);
    for (std::uint32_t i = 0; i < layouts.legal.size(); ++i)
      for (std::uint64_t setting = 0; setting < space.settings(); ++setting) {
        if (!layouts.settings[layouts.legal[i].kind][setting]) continue;
        const Least::Of least = least_.plan(i, setting);
        const Layout& layout = layouts.legal[i];
        Open plan{i, setting, bound.least_seconds(least.seconds) / static_cast<double>(layout.tokens), bound.least_bytes(least.bytes), {}};
        plan.score = score_of(request.goal, plan.pace, layout.gpus);
        screen.set_least_seconds(i, setting, bound.least_seconds(least.seconds));
        const bool fits = plan.bytes <= capacity_ || screen.bounds_a_depth(i, setting);
        screen.set_fate(i, setting, fits ? Fate::beaten : Fate::too_large);
        (fits ? open_ : too_large_).push_back(plan);
      }
    const auto faster = [](const Open& a, const Open& b) { return a.score < b.score || (!(b.score < a.score) && std::pair(a.layout, a.setting) < std::pair(b.layout, b.setting)); };
    std::sort(open_.begin(), open_.end(), faster);
    std::sort(too_large_.begin(), too_large_.end(), faster);
  }

  void run() {
    while (!open_.empty() && !watch_.stopped()) {
      screen_.summarize(first(kAtOnce), watch_);
      scouted_ = scout_.look(watch_);
      std::erase_if(open_, [&](const Open& plan) { return beaten(plan); });
    }
    name_what_is_too_large();
  }

 private:
  /// A plan whose summary is not made yet.
  struct Open {
    std::uint32_t layout;
    std::uint64_t setting;
    double pace, bytes;  ///< seconds of a token and bytes, at the least
    Score score;
  };
  using Plans = std::vector<std::pair<std::uint32_t, std::uint64_t>>;

  /// The first of the open plans until they need `kinds` kinds of summaries; those of the same kinds come along, those that need more than one
  /// that is too large are left out.
  Plans first(std::size_t kinds) {
    std::set<std::pair<std::uint32_t, std::uint64_t>> rows;
    Plans plans;
    std::erase_if(open_, [&](const Open& plan) {
      const std::pair<std::uint32_t, std::uint64_t> row{layouts_.legal[plan.layout].row, screen_.core_of(plan.setting)};
      if (rows.size() >= kinds && rows.count(row) == 0) return false;
      if (screen_.needs_more_than_there_is(plan.layout, plan.setting) && !screen_.bounds_a_depth(plan.layout, plan.setting)) {
        screen_.set_fate(plan.layout, plan.setting, Fate::too_large);
        too_large_.push_back(plan);
        return true;
      }
      rows.insert(row);
      plans.emplace_back(plan.layout, plan.setting);
      return true;
    });
    return plans;
  }

  /// Whether it can be none of the best, and none of the front: one that leaves as much memory, of as many GPUs, is faster than it can be.
  bool beaten(const Open& plan) const {
    if (!(scouted_.bar < plan.score)) return false;
    const std::int64_t gpus = layouts_.legal[plan.layout].gpus;
    const int most_left = static_cast<int>(std::min(kSixteenths - 1, kSixteenths * std::max(0.0, 1 - plan.bytes / capacity_)));
    return std::any_of(scouted_.front.begin(), scouted_.front.end(), [&](const Roomy& roomy) {
      const Layout& its = screen_.layout(roomy.plan);
      return its.gpus == gpus && roomy.sixteenth >= most_left && roomy.plan.seconds / static_cast<double>(its.tokens) <= plan.pace;
    });
  }

  /// The fastest that does not fit is an example: it is composed, though it is known not to fit. Where nothing fits, so is the smallest.
  void name_what_is_too_large() {
    const auto pace = [&](const Screened& plan) {
      return plan.known ? plan.seconds / static_cast<double>(screen_.layout(plan).tokens) : std::numeric_limits<double>::infinity();
    };
    double fastest = pace(scouted_.fastest_too_large);
    std::size_t made = 0;
    for (const Open& plan : too_large_) {
      if (plan.pace >= fastest || made == kTooLarge || watch_.stopped()) break;
      screen_.summarize({{plan.layout, plan.setting}}, watch_);
      ++made;
      const Screened composed = screen_.screened(plan.layout, plan.setting, 0);
      fastest = std::min(fastest, pace(composed));
    }
    if (scouted_.fits || too_large_.empty()) return;
    const auto smallest = std::min_element(too_large_.begin(), too_large_.end(), [](const Open& a, const Open& b) { return a.bytes < b.bytes; });
    screen_.summarize({{smallest->layout, smallest->setting}}, watch_);
  }

  Screen& screen_;
  const Layouts& layouts_;
  Scout& scout_;
  Watch& watch_;
  double capacity_;
  Least least_;
  std::vector<Open> open_, too_large_;  ///< by rising least score
  Scouted scouted_;
};

}  // namespace

void summarize_what_matters(Screen& screen, const Space& space, const SearchRequest& request, const Layouts& layouts, Scout& scout,
                            Watch& watch) {
  if (!screen.can() || watch.stopped()) return;
  // Without pipelines a summary is four instances, of which two would tell of its least.
  if (std::none_of(layouts.rows.begin(), layouts.rows.end(), [](const Row& row) { return row.pipelined; })) return screen.summarize(watch);
  screen.prepare(watch);
  Rounds(screen, space, request, layouts, scout, watch).run();
}

}  // namespace plimsoll::searching
