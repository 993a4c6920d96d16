#include "search/screen.hpp"

#include <fmt/format.h>

#include <map>

#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::searching {
namespace {

/// Settings that change what is recomputed or how kernels run leave states and their collectives as they are.
bool leaves_states(const std::string& key) { return key == "recompute" || key == "attention" || key == "loss" || key == "compile"; }

/// By setting: the first that says the same where `kept` says so, and for all other keys has the values of `with`.
template <class Kept>
std::vector<std::int64_t> first_alike(const Space& space, const Kept& kept, const Options& with) {
  const auto rest_of = [&](std::uint64_t setting) {
    std::string rest;
    for (const auto& [key, value] : space.setting_options(setting))
      if (kept(key)) rest += key + "=" + value + " ";
    return rest;
  };
  const auto has = [&](std::uint64_t setting) {
    const Options options = space.setting_options(setting);
    return std::all_of(with.begin(), with.end(),
                       [&](const auto& each) { return std::find(options.begin(), options.end(), each) != options.end(); });
  };
  std::unordered_map<std::string, std::int64_t> first;
  for (std::uint64_t setting = 0; setting < space.settings(); ++setting)
    if (has(setting)) first.emplace(rest_of(setting), static_cast<std::int64_t>(setting));
  std::vector<std::int64_t> alike;
  for (std::uint64_t setting = 0; setting < space.settings(); ++setting) {
    const auto found = first.find(rest_of(setting));
    alike.push_back(found == first.end() ? -1 : found->second);
  }
  return alike;
}

}  // namespace

ScreeningBound screening_bound(std::string_view framework) {
  static const std::vector<std::pair<std::string, ScreeningBound>> bounds = [] {
    std::vector<std::pair<std::string, ScreeningBound>> list;
    const JsonDocument document = hardware::shipped_document("hardware/screening.json");
    for (const JsonValue& row : document.root()["bounds"].elements())
      list.emplace_back(row["framework"].text(), ScreeningBound{row["seconds"].at(0).number(-0.99, 0), row["seconds"].at(1).number(0, 9),
                                                                row["bytes"].at(0).number(-0.99, 0), row["bytes"].at(1).number(0, 9)});
    return list;
  }();
  for (const std::string_view name : {framework, std::string_view("all")})
    for (const auto& [of, bound] : bounds)
      if (of == name) return bound;
  throw Error(ErrorCode::internal, "hardware/screening.json has no bound for all frameworks");
}

Score score_of(SearchGoal goal, double seconds_per_token, std::int64_t gpus) {
  const auto count = static_cast<double>(gpus);
  switch (goal) {
    case SearchGoal::gpus:
      return {count, seconds_per_token};
    case SearchGoal::cost:
      return {count * seconds_per_token, seconds_per_token};
    default:
      return {seconds_per_token, count};
  }
}

Screen::Screen(const Space& space, const SearchRequest& request, const Layouts& layouts, State& state)
    : space_(space), request_(request), layouts_(layouts), summarizer_(space, request, state), separation_(space) {
  constexpr std::uint64_t kMostSummaries = 400'000;  // 80 MB
  const std::uint64_t cores = separation_.cores.size(), wanted = (layouts.rows.size() + layouts.tails.size() + 1) * cores;
  if (wanted > kMostSummaries)
    refuse(fmt::format("{} kinds of blocks under {} settings need {} summaries", layouts.rows.size(), cores, wanted), {},
           "pin some axes to one value, or --sample some layouts");
  summaries_.resize(layouts.rows.size() * cores);
  tails_.resize((layouts.tails.size() + 1) * cores);
  states_like_ = first_alike(space, [](const std::string& key) { return !leaves_states(key); }, {});
  for (const std::uint64_t setting : separation_.cores) tail_core_.push_back(separation_.core[states_like(setting)]);
  unrecomputed_ = first_alike(space, [](const std::string& key) { return key != "recompute"; }, {{"recompute", "none"}});
  recomputed_ = first_alike(space, [](const std::string& key) { return key != "recompute"; }, {{"recompute", "full"}});
  fates_.assign(layouts.legal.size() * space.settings(), Fate::composed);
  std::unordered_map<std::uint64_t, std::int64_t> numbers;
  for (std::uint32_t i = 0; i < layouts.legal.size(); ++i) numbers.emplace(layouts.legal[i].raw, i);
  for (const Layout& layout : layouts.legal) {
    const auto found = numbers.find(space.with_smaller_micro_batch(layout.raw));
    smaller_.push_back(found == numbers.end() || found->first == layout.raw ? -1 : found->second);
  }
  host_bound_ = screening_bound(kOptimizerOnHost);
  equal_bounds_ = {screening_bound(kEqual), screening_bound(kEqualUndisturbed)};
  for (std::uint64_t setting = 0; setting < space.settings(); ++setting) {
    const Options options = space.setting_options(setting);
    on_host_.push_back(request.base.offload.optimizer ||
                       std::find(options.begin(), options.end(), std::pair<std::string, std::string>("offload", "optimizer")) !=
                           options.end());
  }
  for (const std::uint64_t raw : layouts.of_kind) {
    const Strategy resolved =
        resolve(with_options(request, space.layout_options(raw)), request.model, part_of(request.cluster, space.gpus_of(raw)));
    const bool fsdp = resolved.data_parallel == DataParallel::megatron_fsdp;
    const ScreeningBound bound = screening_bound(fsdp ? kMegatronFsdp : name_of(profile_of(resolved).code));
    bounds_.push_back(summarizer_.mixed() ? bound | screening_bound(kMixedLayers) : bound);
  }
}

/// Layouts and settings whose summaries are made together; those that tell whether they are hopeless were made before.
struct Screen::Wave {
  std::int64_t micro_batch = 0;
  bool recomputed = true;
  std::vector<std::uint32_t> layouts;
};

std::vector<Screen::Wave> Screen::waves() const {
  std::map<std::pair<std::int64_t, bool>, Wave> by;
  for (std::uint32_t i = 0; i < layouts_.legal.size(); ++i)
    for (const bool recomputed : {true, false}) {
      const std::int64_t size = layouts_.rows[layouts_.legal[i].row].micro_batch;
      Wave& wave = by[{size, !recomputed}];
      wave.micro_batch = size;
      wave.recomputed = recomputed;
      wave.layouts.push_back(i);
    }
  std::vector<Wave> waves;
  for (auto& [key, wave] : by) waves.push_back(std::move(wave));
  return waves;
}

bool Screen::needs_more_than_there_is(std::uint32_t layout, std::uint64_t setting) const {
  constexpr double kMargin = 1.1;  // tests hold that plans that need less than their larger siblings do so by more than the difference to 1
  const auto capacity = static_cast<double>(request_.cluster.accelerator.memory_usable.value.count);
  const auto too_large = [&](std::int64_t other, std::int64_t with) {
    if (other < 0 || with < 0) return false;
    const auto of = static_cast<std::uint32_t>(other);
    const auto its = static_cast<std::uint64_t>(with);
    const Layout& its_layout = layouts_.legal[of];
    if (!layouts_.settings[its_layout.kind][its]) return false;
    if (hopeless(of, its)) return true;
    Screened plan;
    compose(its_layout, its, plan);
    return plan.known && bound(of, its).least_bytes(plan.bytes) > kMargin * capacity;
  };
  const auto itself = static_cast<std::int64_t>(setting);
  return too_large(smaller_[layout], itself) || (recomputed_[setting] != itself && too_large(layout, recomputed_[setting]));
}

bool Screen::bounds_a_depth(std::uint32_t layout, std::uint64_t setting) const {
  const std::int64_t full = recomputed_[setting];
  if (space_.depths() == 1 || full < 0 || unrecomputed_[setting] != static_cast<std::int64_t>(setting)) return false;
  return full != static_cast<std::int64_t>(setting) && !hopeless(layout, static_cast<std::uint64_t>(full));
}

void Screen::summarize(const Wave& wave, Watch& watch) {
  std::vector<std::pair<std::uint32_t, std::uint64_t>> plans;
  for (const std::uint32_t i : wave.layouts)
    for (std::uint64_t setting = 0; setting < space_.settings(); ++setting) {
      const Layout& layout = layouts_.legal[i];
      const bool recomputed = recomputed_[setting] < 0 || recomputed_[setting] == static_cast<std::int64_t>(setting);
      if (recomputed != wave.recomputed || !layouts_.settings[layout.kind][setting]) continue;
      if (needs_more_than_there_is(i, setting) && !bounds_a_depth(i, setting)) {
        set_fate(i, setting, Fate::too_large);
        continue;
      }
      plans.emplace_back(i, setting);
    }
  summarize(plans, watch);
}

void Screen::summarize(const std::vector<std::pair<std::uint32_t, std::uint64_t>>& plans, Watch& watch) {
  const std::uint64_t cores = separation_.cores.size();
  std::vector<std::uint64_t> rows, tails;
  for (const auto& [number, setting] : plans) {
    const Layout& layout = layouts_.legal[number];
    set_fate(number, setting, Fate::composed);
    const auto add = [&, &layout = layout](std::uint64_t core) {
      rows.push_back(layout.row * cores + core);
      if (layout.tail > 0) tails.push_back(layout.tail * cores + tail_core_[core]);
    };
    add(separation_.core[setting]);
    if (const std::int64_t none = between(setting); none >= 0) add(separation_.core[static_cast<std::uint64_t>(none)]);
  }
  const auto once = [](std::vector<std::uint64_t>& jobs, std::vector<char>& made) {
    std::sort(jobs.begin(), jobs.end());
    jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
    std::erase_if(jobs, [&](std::uint64_t job) { return made[job] != 0; });
    for (const std::uint64_t job : jobs) made[job] = 1;
  };
  once(rows, row_made_);
  once(tails, tail_made_);
  parallel_for(rows.size() + tails.size(), threads_of(request_), watch, "summaries", [&](std::uint64_t i, int) {
    if (i < rows.size()) {
      summaries_[rows[i]] = summarizer_.summary(layouts_.rows[rows[i] / cores], separation_.cores[rows[i] % cores]);
    } else {
      const std::uint64_t job = tails[i - rows.size()], tail = job / cores;
      tails_[job] = summarizer_.tail(layouts_.tails[tail - 1], row_ranks_[tail], separation_.cores[job % cores]);
    }
  });
}

/// What settings beside their core add, for every row of differences that a legal plan has.
void Screen::measure_differences(Watch& watch) {
  for (std::size_t part = 0; part < Separation::kParts; ++part) {
    const std::vector<std::uint64_t>& values = separation_.values[part];
    const std::vector<Row>& rows = part == Separation::loss ? layouts_.heads : layouts_.states;
    differences_[part].assign(rows.size() * values.size(), {});
    std::vector<char> wanted(differences_[part].size(), 0);
    for (const Layout& layout : layouts_.legal)
      for (std::uint64_t setting = 0; setting < space_.settings(); ++setting)
        if (layouts_.settings[layout.kind][setting])
          wanted[Separation::row_of(part, layout) * values.size() + separation_.value[part][setting]] = 1;
    std::vector<std::uint64_t> jobs;
    for (std::uint64_t job = 0; job < wanted.size(); ++job)
      if (wanted[job] != 0 && job % values.size() != 0) jobs.push_back(job);
    parallel_for(jobs.size(), threads_of(request_), watch, "differences", [&](std::uint64_t i, int) {
      const std::uint64_t job = jobs[i];
      differences_[part][job] = summarizer_.difference(rows[job / values.size()], values.front(), values[job % values.size()]);
    });
  }
}

void Screen::prepare(Watch& watch) {
  if (!can()) return;
  row_ranks_.assign(layouts_.tails.size() + 1, 1);
  tail_made_.assign(tails_.size(), 0);
  row_made_.assign(summaries_.size(), 0);
  for (const Layout& layout : layouts_.legal) row_ranks_[layout.tail] = layouts_.rows[layout.row].dp;
  measure_differences(watch);
}

void Screen::summarize(Watch& watch) {
  if (!can()) return;
  prepare(watch);
  for (const Wave& wave : waves()) summarize(wave, watch);
}

bool Screen::plays() const {
  return std::any_of(summaries_.begin(), summaries_.end(), [](const Summary& summary) { return summary.known && summary.played; });
}

Screened Screen::screened(std::uint32_t layout, std::uint64_t setting, std::uint64_t depth) const {
  Screened found;
  const std::uint64_t index = space_.index(layouts_.legal[layout].raw, setting, depth);
  each(layout, [&](const Screened& plan) {
    if (plan.index == index) found = plan;
  });
  return found;
}

}  // namespace plimsoll::searching
