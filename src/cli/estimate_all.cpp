#include "estimate_all.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
#include "plimsoll/printable.hpp"
#include "report_flags.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

/// One training of the script: its report, or why there is none.
struct Estimated {
  ForeignLaunch launch;
  std::optional<Report> report;
  std::string refusal;
};

Estimated estimated(const Arguments& arguments, const ForeignLaunch& launch, std::int64_t number) {
  ForeignOptions options = foreign_options_of(arguments);
  options.launch = number;
  Estimated one{launch, {}, {}};
  try {
    const Run run = run_of(arguments, read_foreign(arguments.all("--from"), options));
    one.report = estimate(run.model, run.cluster, run.strategy);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    one.refusal = error.what();
  }
  return one;
}

std::string to_text(const std::vector<Estimated>& all) {
  constexpr std::size_t kMostWords = 400;
  std::string text = fmt::format("{:>4}  {:>10}  {:>10}  {:<12}  {}\n", "", "memory", "step", "", "launch line");
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Estimated& one = all[i];
    const std::string place = printable(one.launch.where);
    if (one.report) {
      const Bytes device(static_cast<std::int64_t>(one.report->worst_rank().memory.device.expected));
      text += fmt::format("{:>4}  {:>10}  {:>10}  {:<12}  {}\n", i + 1, to_string(device),
                          to_string(Seconds(one.report->time.step_seconds.expected)), name_of(one.report->verdict), place);
    } else {
      text += fmt::format("{:>4}  {:>10}  {:>10}  {:<12}  {}\n      {}\n", i + 1, "", "", "refused", place, printable(one.refusal));
    }
    if (!one.launch.differs.empty()) text += fmt::format("      {}\n", printable(one.launch.differs.substr(0, kMostWords)));
  }
  return text;
}

std::string to_json(const std::vector<Estimated>& all) {
  nlohmann::ordered_json launches = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < all.size(); ++i) {
    nlohmann::ordered_json one = {{"launch", i + 1}, {"where", all[i].launch.where}, {"line", all[i].launch.line}};
    if (all[i].report) {
      one["report"] = nlohmann::ordered_json::parse(plimsoll::to_json(*all[i].report));
    } else {
      one["refusal"] = all[i].refusal;
    }
    launches.push_back(std::move(one));
  }
  return nlohmann::ordered_json{{"schema", "plimsoll/launches/1"}, {"launches", launches}}.dump(2) + "\n";
}

}  // namespace

int estimate_all(const Arguments& arguments, const std::string& format) {
  if (format != "text" && format != "json") fail("--all prints a table", "--format", "text or json");
  for (const char* other : {"--launch", "--against"})
    if (arguments.has(other)) fail("--all and " + std::string(other) + " are not given together", other, "leave one of them out");
  std::vector<Estimated> all;
  for (const ForeignLaunch& launch : foreign_launches(arguments.all("--from"), foreign_options_of(arguments)))
    all.push_back(estimated(arguments, launch, static_cast<std::int64_t>(all.size()) + 1));
  print_to(arguments, format == "json" ? to_json(all) : to_text(all));
  const auto refused = std::find_if(all.begin(), all.end(), [](const Estimated& one) { return !one.report; });
  if (refused != all.end()) return kBadInput;
  const bool fits = std::none_of(all.begin(), all.end(), [](const Estimated& one) { return one.report->verdict == Verdict::does_not_fit; });
  return fits ? kFits : kDoesNotFit;
}

}  // namespace plimsoll::cli
