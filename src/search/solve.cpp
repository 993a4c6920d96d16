// One quantity at its end: the largest or the least with which something fits.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "plimsoll/error.hpp"
#include "plimsoll/report.hpp"
#include "plimsoll/search.hpp"
#include "report/json_text.hpp"
#include "report/layout.hpp"
#include "search/summary.hpp"

namespace plimsoll {
namespace {

using namespace searching;

/// What a value came to: the fastest plan that fits with it, or why there is none.
struct Trial {
  std::optional<EstimatedPlan> plan;
  std::string because;
};

std::string missing_of(const Report& report) {
  const RankMemory& memory = report.worst_rank().memory;
  return fmt::format("it needs {} of {}", to_string(Bytes(static_cast<std::int64_t>(memory.device.expected))), to_string(memory.capacity));
}

Trial tried(const SearchRequest& request, const SearchWatcher& watch) {
  try {
    if (!request.axes.empty() || request.gpus.size() > 1) {
      SearchResult result = search(request, watch);
      if (!result.best.empty()) return {std::move(result.best.front()), {}};
      return {{}, "no plan fits"};
    }
    const SearchPlan plan{0, {}, searching::cluster_sizes(request).back(), 1, 0, {}, false};
    EstimatedPlan estimated{plan, estimate(request.model, part_of(request.cluster, plan.gpus), strategy_of(request, plan)),
                            command_of(request, plan)};
    if (estimated.report.verdict == Verdict::does_not_fit) return {{}, missing_of(estimated.report)};
    return {std::move(estimated), {}};
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    return {{}, error.message()};
  }
}

SearchRequest with_key(SearchRequest request, const std::string& key, std::int64_t value) {
  auto options = request.base.options;
  std::erase_if(options, [&](const auto& each) { return each.first == key || (key == "seq" && each.first == "seq_len"); });
  options.emplace_back(key, std::to_string(value));
  set_options(request.base, options);
  return request;
}

SearchRequest with_layers(SearchRequest request, std::int64_t layers) {
  const auto stack = layer_stack(request.model);
  if (!stack) refuse("layers of this model follow no pattern: it has no larger sister", "--largest layers");
  request.model = searching::with_layers(request.model, *stack, layers);
  return request;
}

using WithValue = std::function<SearchRequest(std::int64_t)>;

/// Doubles a unit until it does not fit, then halves the gap. Fitting is taken to be monotonous.
Solution bisected(const std::string& key, std::int64_t unit, const WithValue& with, const SearchWatcher& watch) {
  constexpr std::int64_t kMost = std::int64_t{1} << 26;
  Solution solution;
  solution.key = key;
  const auto fits = [&](std::int64_t units) {
    Trial trial = tried(with(units * unit), watch);
    if (trial.plan) {
      solution.plan = std::move(trial.plan);
      solution.value = std::to_string(units * unit);
    } else {
      solution.next = std::to_string(units * unit);
      solution.because = trial.because;
    }
    return solution.next.empty() || solution.next != std::to_string(units * unit);
  };
  std::int64_t good = 0, bad = 1;
  while (bad * unit <= kMost && fits(bad)) good = std::exchange(bad, 2 * bad);
  while (bad - good > 1) {
    const std::int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return solution;
}

/// The largest of a list, ascending.
Solution last_of(const std::string& key, const std::vector<std::int64_t>& values, const WithValue& with, const SearchWatcher& watch) {
  Solution solution;
  solution.key = key;
  for (std::size_t i = values.size(); i-- > 0;) {
    Trial trial = tried(with(values[i]), watch);
    if (trial.plan) {
      solution.plan = std::move(trial.plan);
      solution.value = std::to_string(values[i]);
      return solution;
    }
    solution.next = std::to_string(values[i]);
    solution.because = trial.because;
  }
  return solution;
}

}  // namespace

Solution largest(const SearchRequest& request, const std::string& key, const SearchWatcher& watch) {
  constexpr std::int64_t kTokens = 1024;
  if (key == "micro_batch") {
    const WithValue with = [&](std::int64_t value) { return with_key(request, key, value); };
    if (request.base.global_batch == 0) return bisected(key, 1, with, watch);
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= std::min<std::int64_t>(request.base.global_batch, 4096); ++d)
      if (request.base.global_batch % d == 0) divisors.push_back(d);
    return last_of(key, divisors, with, watch);
  }
  if (key == "seq")
    return bisected(
        key, kTokens, [&](std::int64_t value) { return with_key(request, "seq", value); }, watch);
  if (key == "layers")
    return bisected(
        key, 1, [&](std::int64_t value) { return with_layers(request, value); }, watch);
  fail("there is no largest '" + key + "'", "--largest", suggest(key, {"micro_batch", "seq", "layers"}));
}

Solution least_recompute(const SearchRequest& request, const SearchWatcher& watch) {
  using Keys = std::vector<std::pair<std::string, std::string>>;
  std::vector<Keys> values{{{"recompute", "none"}}, {{"recompute", "selective"}}, {{"recompute", "selective-ac-op"}}};
  for (std::int64_t n = 1; n < request.model.layers; ++n)
    values.push_back({{"recompute", "full"}, {"recompute_method", "block"}, {"recompute_num_layers", std::to_string(n)}});
  values.push_back({{"recompute", "full"}});
  Solution solution;
  solution.key = "recompute";
  const auto flags = [](const Keys& options) {
    std::string text;
    for (const auto& [key, value] : options) text += (text.empty() ? "" : " ") + value;
    return text;
  };
  for (const Keys& value : values) {
    SearchRequest with = request;
    Keys options = request.base.options;
    std::erase_if(options, [](const auto& each) { return each.first.rfind("recompute", 0) == 0; });
    options.insert(options.end(), value.begin(), value.end());
    try {
      set_options(with.base, options);
    } catch (const Error&) {
      continue;
    }
    Trial trial = tried(with, watch);
    if (trial.plan) {
      solution.plan = std::move(trial.plan);
      solution.value = flags(value);
      return solution;
    }
    solution.next = flags(value);
    solution.because = trial.because;
  }
  return solution;
}

std::string to_text(const Solution& solution) {
  const char* end = solution.key == "recompute" ? "least" : "largest";
  std::string text;
  if (!solution.plan) {
    text = wrapped("", fmt::format("no {} fits", spoken(solution.key)));
  } else {
    const RankMemory& memory = solution.plan->report.worst_rank().memory;
    const Verdict verdict = solution.plan->report.verdict;
    text = wrapped(
        "", fmt::format("{} {}: {} ({}{} a step, {:.1f} of {:.1f} GiB)", end, spoken(solution.key), solution.value,
                        verdict == Verdict::fits ? "" : spoken(name_of(verdict)) + ": ", to_string(Seconds(solution.plan->seconds())),
                        memory.device.expected / 1073741824.0, memory.capacity.gib()));
    text += "  " + printable(solution.plan->command) + "\n";
  }
  if (!solution.next.empty()) text += wrapped("  ", fmt::format("{} does not: {}", solution.next, printable(solution.because)));
  return text;
}

std::string to_json(const Solution& solution) {
  nlohmann::ordered_json object = {
      {"schema", "plimsoll/solution/1"}, {"key", solution.key}, {"fits", solution.plan.has_value()}, {"value", solution.value}};
  if (solution.plan) {
    object["command"] = solution.plan->command;
    object["verdict"] = name_of(solution.plan->report.verdict);
    object["step_seconds"] = solution.plan->seconds();
    object["device_bytes"] = static_cast<std::int64_t>(solution.plan->report.worst_rank().memory.device.expected);
  }
  if (!solution.next.empty()) object["next"] = {{"value", solution.next}, {"because", solution.because}};
  return json_text(object);
}

}  // namespace plimsoll
