// What a person reads of a search.
#include <fmt/format.h>

#include <algorithm>

#include "plimsoll/report.hpp"
#include "plimsoll/search.hpp"
#include "report/answer.hpp"
#include "report/csv.hpp"
#include "report/layout.hpp"
#include "search/comparison.hpp"
#include "search/search_words.hpp"
#include "strategy/flags.hpp"

namespace plimsoll {
namespace {

using namespace searching;

std::string count(std::uint64_t n) { return with_thousands(static_cast<std::int64_t>(n)); }

/// Spaces with every axis open have more points than anybody reads.
std::string points_of(double points) {
  return points < 1e9 ? with_thousands(static_cast<std::int64_t>(points)) : fmt::format("{:.3g}", points);
}

std::string line_of(const EstimatedPlan& plan, bool free_batch) {
  const RankMemory& memory = plan.report.worst_rank().memory;
  const std::string batch = free_batch ? fmt::format(" of {} tokens", with_thousands(plan.plan.tokens)) : std::string();
  return fmt::format("{} a step{} on {} GPU{}, {}; {:.1f} of {:.1f} GiB{}", to_string(Seconds(plan.seconds())), batch,
                     with_thousands(plan.plan.gpus), plan.plan.gpus == 1 ? "" : "s", rate_of(plan.report.time),
                     memory.device.expected / 1073741824.0, memory.capacity.gib(), plan.report.verdict == Verdict::tight ? ", tight" : "");
}

/// ": the nearest needs 93.2 of 79.2 GiB, --tp 8 …; it would fit as plimsoll estimate …", where nothing does.
std::string nearest_of(const SearchResult& result) {
  const auto found = result.rejected.find("does not fit");
  if (!result.complete || found == result.rejected.end() || found->second.nearest.options.empty()) return {};
  const SearchRejection& rejection = found->second;
  return fmt::format("; {}, {}{}", rejection.example, as_flags(rejection.nearest.options),
                     rejection.rescue.empty() ? std::string() : "; " + printable(rejection.rescue));
}

std::string best_of(const SearchResult& result) {
  return wrapped("", answer_of(result)) + (result.best.empty() ? std::string() : "  " + printable(result.best.front().command) + "\n");
}

std::string runners_up(const SearchResult& result) {
  if (result.best.size() < 2) return {};
  std::string text = result.free_batch ? "\nrunners-up: a step, its tokens, and what each loses for the tokens of the best\n" : "\nrunners-up, with what each loses\n";
  const EstimatedPlan& best = result.best.front();
  for (std::size_t i = 1; i < result.best.size(); ++i) {
    const EstimatedPlan& plan = result.best[i];
    const double more = 100 * (plan.seconds_per_token() / best.seconds_per_token() - 1);
    const std::string batch = result.free_batch ? fmt::format("  {:>9}", with_thousands(plan.plan.tokens)) : std::string();
    text += wrapped(fmt::format("  {:>2}  {:>9}{}  {:+5.1f} %  {:>6.1f} GiB  ", i + 1, to_string(Seconds(plan.seconds())), batch, more,
                                plan.report.worst_rank().memory.device.expected / 1073741824.0),
                    fmt::format("{}{}: {}", plan.report.verdict == Verdict::tight ? "tight; " : "", differing_options(plan.plan, best.plan),
                                losses_in_words(plan, best)));
  }
  const auto equal = static_cast<std::size_t>(std::count_if(result.best.begin() + 1, result.best.end(), [&](const EstimatedPlan& plan) {
    return equal_within_error(steps_of(plan), steps_of(best));
  }));
  if (equal > 0)
    text += wrapped(
        "  ",
        fmt::format("{} of them {} equal to the best as far as predictions of such runs go: nine in ten pairs of measured runs came out "
                    "in the predicted order from {:.0f} % on. The best two: {}",
                    equal, equal == 1 ? "is" : "are", 100 * steps_of(best).decisive,
                    deciding_experiment(steps_of(result.best[1]), steps_of(best))));
  return text;
}

std::vector<std::string> front_row(const EstimatedPlan& plan, bool free_batch) {
  std::vector<std::string> row{"  " + to_string(Seconds(plan.seconds())), with_thousands(plan.plan.gpus),
                               fmt::format("{:.1f} GiB", plan.headroom().gib()), fmt::format("{:.4g}", cost_of(plan, free_batch)),
                               as_flags(plan.plan.options)};
  if (!free_batch) return row;
  row.front() = to_string(Seconds(plan.seconds()));
  row.insert(row.begin(), "  " + with_thousands(static_cast<std::int64_t>(plan.tokens_per_second())));
  return row;
}

std::string front_of(const SearchResult& result) {
  if (result.front.empty()) return {};
  std::vector<std::vector<std::string>> rows{{"  step", "GPUs", "left", "GPU-seconds", "plan"}};
  if (result.free_batch) rows.front() = {"  tokens/s", "step", "GPUs", "left", "GPU-seconds a million tokens", "plan"};
  std::string text = "\nno plan is better than one of these in time, memory left, GPUs and cost together\n";
  for (const EstimatedPlan& plan : result.front)
    rows.push_back(front_row(plan, result.free_batch));
  std::size_t widest = 0;
  for (const auto& row : rows) widest = std::max(widest, row.back().size());
  for (auto& row : rows) row.back().resize(widest, ' ');  // flushed left
  return text + columns(rows);
}

std::string rejected_of(const SearchResult& result) {
  if (result.rejected.empty()) return {};
  std::string text = "\nrejected\n";
  for (const auto& [reason, rejection] : rejections_by_count(result)) {
    std::string why = reason;
    const bool told = result.best.empty() && result.complete;  // in the first lines
    if (!told && !rejection->nearest.options.empty()) why += fmt::format(": {}, {}", rejection->example, as_flags(rejection->nearest.options));
    if (!told && !rejection->rescue.empty()) why += "; " + rejection->rescue;
    text += wrapped(fmt::format("  {:>12}  ", count(rejection->count)), printable(why));
  }
  return text;
}

}  // namespace

namespace searching {

std::string answer_of(const SearchResult& result) {
  const std::string what = printable(result.model) + " on " + printable(result.cluster);
  if (result.best.empty()) return (result.complete ? "no plan fits: " : "stopped before a plan was found that fits: ") + what + nearest_of(result);
  const char* goals[] = {"fastest", "fewest GPUs", "cheapest"};
  std::string line = fmt::format("{}: {}, {}", goals[static_cast<int>(result.goal)], what, line_of(result.best.front(), result.free_batch));
  if (result.free_batch) line += "; plans train batches of their own (no one global batch is said): tokens per second decide, not the step's time";
  return line;
}

std::string effort_of(const SearchResult& result) {
  std::string text = fmt::format("{} points, {} legal plans, {} screened in {} ({:.3g} a second) by {} small instances, {} estimated in full; {}",
                                 points_of(result.points), count(result.legal), count(result.screened), to_string(Seconds(result.screening_seconds)),
                                 result.screened_per_second(), count(result.probes), count(result.estimated), to_string(Seconds(result.seconds)));
  if (!result.complete) text += "; stopped before the best was certain: this is the best so far (--max-estimates allows more)";
  return text;
}

double cost_of(const EstimatedPlan& plan, bool free_batch) { return free_batch ? 1e6 * plan.gpu_seconds_per_token() : plan.gpu_seconds(); }

std::vector<std::pair<std::string, const SearchRejection*>> rejections_by_count(const SearchResult& result) {
  std::vector<std::pair<std::string, const SearchRejection*>> by_count;
  for (const auto& [reason, rejection] : result.rejected) by_count.emplace_back(reason, &rejection);
  std::stable_sort(by_count.begin(), by_count.end(), [](const auto& a, const auto& b) { return a.second->count > b.second->count; });
  return by_count;
}

}  // namespace searching

std::string to_text(const SearchResult& result) {
  std::string text = best_of(result) + "\n" + wrapped("", effort_of(result)) + runners_up(result) + front_of(result) + rejected_of(result);
  for (const std::string& note : result.notes) text += wrapped("note: ", note);
  if (!result.best.empty()) text += "\nthe best in full\n\n" + to_text(result.best.front().report);
  return text;
}

std::string to_csv(const SearchResult& result) {
  std::string text = "index,gpus,tokens,seconds,device_bytes,screened";
  std::vector<std::string> keys;
  for (const SearchAxis& axis : result.axes)
    if (axis.key != "gpus") keys.push_back(axis.key);
  for (const std::string& key : keys) text += "," + key;
  text += "\n";
  for (const SearchPlan& plan : result.candidates) {
    text += fmt::format("{},{},{},{:.6g},{},{}", plan.index, plan.gpus, plan.tokens, plan.seconds, plan.device.count, plan.screened ? 1 : 0);
    for (const std::string& key : keys) {
      const auto said = std::find_if(plan.options.begin(), plan.options.end(), [&](const auto& each) { return each.first == key; });
      text += "," + (said == plan.options.end() ? std::string() : csv_field(said->second));
    }
    text += "\n";
  }
  return text;
}

}  // namespace plimsoll
