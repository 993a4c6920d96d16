// Every point of a few axes estimated, and techniques added one after the other.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "estimate/residuals.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/search.hpp"
#include "report/answer.hpp"
#include "report/csv.hpp"
#include "report/json_text.hpp"
#include "report/layout.hpp"
#include "search/comparison.hpp"
#include "search/layout.hpp"
#include "search/parallel.hpp"
#include "strategy/flags.hpp"

namespace plimsoll {
namespace {

using namespace searching;
using Json = nlohmann::ordered_json;

double gib_of(const Report& report) { return report.worst_rank().memory.device.expected / 1073741824.0; }
double seconds_of(const Report& report) { return report.time.step_seconds.expected; }

Json report_object(const Report& report) {
  Json breakdown = Json::object();
  for (const TimePart& part : report.time.breakdown) breakdown[part.name] = part.seconds.value;
  return {{"verdict", name_of(report.verdict)},
          {"step_seconds", seconds_of(report)},
          {"tokens_per_second_per_gpu", report.time.tokens_per_second_per_gpu},
          {"device_bytes", static_cast<std::int64_t>(report.worst_rank().memory.device.expected)},
          {"headroom_bytes", report.worst_rank().memory.margin().count},
          {"breakdown", std::move(breakdown)}};
}

/// "--recompute full --tp 2" as keys and values.
Options options_of(const std::string& flags) {
  Options options;
  std::istringstream words(flags);
  std::string word, value;
  while (words >> word) {
    if (word.rfind("--", 0) != 0 || word.size() < 3 || !(words >> value))
      fail("'" + flags + "' are no flags with a value each", "--then", "--then '--recompute full'");
    std::string key = word.substr(2);
    std::replace(key.begin(), key.end(), '-', '_');
    options.emplace_back(key, value);
  }
  if (options.empty()) fail("nothing is added", "--then", "--then '--recompute full'");
  return options;
}

}  // namespace

Sweep sweep(const SearchRequest& request, const SearchWatcher& watcher) {
  SearchRequest named = request;
  named.width = SearchWidth::named;
  const Space space(named);
  constexpr double kMost = 20'000;
  if (space.points() > kMost)
    refuse(fmt::format("{:.0f} points to estimate, and {:.0f} is the most", space.points(), kMost), "sweep",
           "shorten the lists, or use plimsoll search");
  Sweep sweep{request.model.name, request.cluster.name, space.axes(), {}};
  std::erase_if(sweep.axes, [](const SearchAxis& axis) { return axis.values.size() < 2; });
  sweep.points.resize(static_cast<std::size_t>(space.points()));
  Watch watch(watcher);
  parallel_for(sweep.points.size(), threads_of(request), watch, "estimates", [&](std::uint64_t index, int) {
    SweepPoint& point = sweep.points[index];
    point.plan = {index, space.options(index), space.gpus_of(space.layout_of(index)), 1, 0, {}, false};
    try {
      point.report = estimate(named.model, part_of(named.cluster, point.plan.gpus), strategy_of(named, point.plan));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::internal) throw;
      point.refusal = error.message();
    }
  });
  for (SweepPoint& point : sweep.points)
    if (!point.report && point.refusal.empty()) point.refusal = "stopped before it was estimated";
  return sweep;
}

std::string to_text(const Sweep& sweep) {
  double slowest = 0, fullest = 0;
  for (const SweepPoint& point : sweep.points)
    if (point.report) {
      slowest = std::max(slowest, seconds_of(*point.report));
      fullest = std::max(fullest, point.report->worst_rank().memory.capacity.gib());
    }
  std::string text = wrapped("", fmt::format("{} on {}", printable(sweep.model), printable(sweep.cluster))) + "\n";
  constexpr int kCells = 16;
  for (const SweepPoint& point : sweep.points) {
    auto options = point.plan.options;
    if (std::any_of(sweep.axes.begin(), sweep.axes.end(), [](const SearchAxis& axis) { return axis.key == "gpus"; }))
      options.insert(options.begin(), {"gpus", std::to_string(point.plan.gpus)});
    text += printable(as_flags(options)) + "\n";
    if (!point.report) {
      text += wrapped("  refused: ", printable(point.refusal));
      continue;
    }
    const Report& report = *point.report;
    text += fmt::format("  time   {:>10}  {}\n", to_string(Seconds(seconds_of(report))), bar(seconds_of(report) / slowest, kCells));
    text += "  rate   " + rate_of(report.time) + "\n";
    text += fmt::format("  memory {:>6.1f} GiB  {}{}\n", gib_of(report), bar(gib_of(report) / fullest, kCells),
                        report.verdict == Verdict::does_not_fit ? "  does not fit"
                        : report.verdict == Verdict::tight      ? "  tight"
                                                                : "");
  }
  return text;
}

std::string to_csv(const Sweep& sweep) {
  std::string text;
  for (const SearchAxis& axis : sweep.axes) text += axis.key + ",";
  text += "verdict,step_seconds,tokens_per_second_per_gpu,device_bytes,refusal\n";
  for (const SweepPoint& point : sweep.points) {
    for (const SearchAxis& axis : sweep.axes) {
      const auto said =
          std::find_if(point.plan.options.begin(), point.plan.options.end(), [&](const auto& each) { return each.first == axis.key; });
      text += (axis.key == "gpus"                 ? std::to_string(point.plan.gpus)
               : said == point.plan.options.end() ? std::string()
                                                  : csv_field(said->second)) +
              ",";
    }
    if (point.report) {
      text += fmt::format("{},{:.6g},{:.6g},{:.0f},\n", name_of(point.report->verdict), seconds_of(*point.report),
                          point.report->time.tokens_per_second_per_gpu, point.report->worst_rank().memory.device.expected);
    } else {
      text += ",,,," + csv_field(point.refusal) + "\n";
    }
  }
  return text;
}

std::string to_json(const Sweep& sweep) {
  Json axes = Json::array(), points = Json::array();
  for (const SearchAxis& axis : sweep.axes) axes.push_back({{"key", axis.key}, {"values", axis.values}});
  for (const SweepPoint& point : sweep.points) {
    Json options = Json::object();
    for (const auto& [key, value] : point.plan.options) options[key] = value;
    Json object = {{"gpus", point.plan.gpus}, {"options", std::move(options)}};
    if (point.report)
      object["estimate"] = report_object(*point.report);
    else
      object["refusal"] = point.refusal;
    points.push_back(std::move(object));
  }
  return json_text(
      {{"schema", "plimsoll/sweep/1"}, {"model", sweep.model}, {"cluster", sweep.cluster}, {"axes", axes}, {"points", points}});
}

std::vector<Technique> waterfall(const SearchRequest& request, const std::vector<std::string>& steps) {
  std::vector<Technique> techniques;
  techniques.push_back({{}, estimate(request.model, request.cluster, request.base)});
  Options added;
  for (const std::string& step : steps) {
    for (const auto& option : options_of(step)) {
      std::erase_if(added, [&](const auto& each) { return each.first == option.first; });
      added.push_back(option);
    }
    techniques.push_back({step, estimate(request.model, request.cluster, with_options(request, added))});
  }
  return techniques;
}

namespace {

Steps steps_of(const Report& report) {
  const double rate = std::max(report.time.tokens_per_second_per_gpu, report.time.images_per_second_per_gpu) * static_cast<double>(report.gpus);
  return {seconds_of(report), rate * seconds_of(report), estimation::decisive_difference(report.framework), {}};
}

bool as_fast(const Report& report, const Report& before) {
  const Steps now = steps_of(report), then = steps_of(before);
  return equal_within_error(now, then) && equal_within_error(then, now);
}

}  // namespace

std::string to_text(const std::vector<Technique>& techniques) {
  std::string text;
  double slowest = 0, fullest = 0;
  for (const Technique& each : techniques) {
    slowest = std::max(slowest, seconds_of(each.report));
    fullest = std::max(fullest, gib_of(each.report));
  }
  constexpr int kCells = 20;
  const Technique* before = nullptr;
  for (const Technique& each : techniques) {
    text += each.flags.empty() ? printable(each.report.strategy) + "\n" : "then " + printable(each.flags) + "\n";
    const double seconds = seconds_of(each.report), gib = gib_of(each.report);
    const std::string slower = before ? fmt::format("{:+.1f} %", 100 * (seconds / seconds_of(before->report) - 1)) : "";
    const std::string larger = before ? fmt::format("{:+.1f} GiB", gib - gib_of(before->report)) : "";
    const Band& step = each.report.time.step_seconds;
    text += fmt::format("  time   {:>10}  {:>10}  {}  {} to {}\n", to_string(Seconds(seconds)), slower, bar(seconds / slowest, kCells), to_string(Seconds(step.low)),
                        to_string(Seconds(step.high)));
    if (before && as_fast(each.report, before->report))
      text += fmt::format("         a token takes as long as before, as far as predictions of such runs can tell ({:.0f} %)\n", 100 * steps_of(each.report).decisive);
    const double rate = steps_of(each.report).tokens / seconds, rate_before = before ? steps_of(before->report).tokens / seconds_of(before->report) : 0;
    text += "  rate   " + rate_of(each.report.time) + (rate_before > 0 ? fmt::format("  {:+.1f} %", 100 * (rate / rate_before - 1)) : "") + "\n";
    text += fmt::format("  memory {:>6.1f} GiB  {:>10}  {}{}\n", gib, larger, bar(gib / fullest, kCells),
                        each.report.verdict == Verdict::does_not_fit ? "  does not fit" : "");
    before = &each;
  }
  return text;
}

std::string to_json(const std::vector<Technique>& techniques) {
  Json steps = Json::array();
  for (const Technique& each : techniques)
    steps.push_back({{"added", each.flags}, {"strategy", each.report.strategy}, {"estimate", report_object(each.report)}});
  return json_text({{"schema", "plimsoll/waterfall/1"}, {"steps", steps}});
}

}  // namespace plimsoll
