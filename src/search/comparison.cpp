#include "search/comparison.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "estimate/residuals.hpp"
#include "report/layout.hpp"
#include "strategy/flags.hpp"

namespace plimsoll::searching {
namespace {

double seconds_of(const Steps& steps, const std::string& part) {
  for (const auto& [name, seconds] : steps.parts)
    if (name == part) return seconds;
  return 0;
}

/// Measuring one quantity on the machine settles what two plans disagree about; nothing where only the step itself does.
const char* measurement_of(const std::string& part) {
  if (part == "exposed_tensor_parallel" || part == "exposed_data_parallel" || part == "exposed_expert_parallel" ||
      part == "exposed_context_parallel" || part == "pipeline_transfers")
    return "measure the collectives of its groups (nccl-tests or rccl-tests, then plimsoll calibrate --import)";
  if (part == "compute" || part == "recompute") return "calibrate the device's kernels (plimsoll calibrate)";
  if (part == "host") return "take a trace of a few steps (plimsoll compare-trace)";
  return nullptr;
}

}  // namespace

Steps steps_of(const EstimatedPlan& plan) {
  Steps steps{plan.seconds(), static_cast<double>(plan.plan.tokens), estimation::decisive_difference(plan.report.framework), {}};
  for (const TimePart& part : plan.report.time.breakdown) steps.parts.emplace_back(part.name, part.seconds.value);
  return steps;
}

std::vector<Loss> losses(const Steps& plan, const Steps& best) {
  std::vector<Loss> found;
  for (const auto& [name, seconds] : plan.parts)
    if (const double more = seconds * best.tokens / plan.tokens - seconds_of(best, name); more > 0) found.push_back({name, more});
  std::stable_sort(found.begin(), found.end(), [](const Loss& a, const Loss& b) { return a.seconds > b.seconds; });
  return found;
}

std::string losses_in_words(const EstimatedPlan& plan, const EstimatedPlan& best) {
  std::string words;
  std::size_t told = 0;
  for (const Loss& loss : losses(steps_of(plan), steps_of(best))) {
    if (told++ == 2) break;
    words += fmt::format("{}+{} {}", words.empty() ? "" : ", ", to_string(Seconds(loss.seconds)), spoken(loss.part));
  }
  return words;
}

bool equal_within_error(const Steps& plan, const Steps& best) {
  return plan.seconds * best.tokens < best.seconds * plan.tokens * (1 + std::max(plan.decisive, best.decisive));
}

std::string deciding_experiment(const Steps& plan, const Steps& best) {
  const std::vector<Loss> lost = losses(plan, best), won = losses(best, plan);
  const double alike = best.tokens / plan.tokens;  // gains are in seconds for the tokens of `plan`
  const bool by_loss = !lost.empty() && (won.empty() || lost.front().seconds >= won.front().seconds * alike);
  if (lost.empty() && won.empty()) return "run ten steps of both";
  const std::string part = by_loss ? lost.front().part : won.front().part;
  const char* measurement = measurement_of(part);
  if (measurement == nullptr) return fmt::format("they differ most in {}: run ten steps of both", spoken(part));
  return fmt::format("they differ most in {}: {}, or run ten steps of both", spoken(part), measurement);
}

std::string differing_options(const SearchPlan& plan, const SearchPlan& best) {
  std::vector<std::pair<std::string, std::string>> differing;
  if (plan.gpus != best.gpus) differing.emplace_back("gpus", std::to_string(plan.gpus));
  for (const auto& option : plan.options)
    if (std::find(best.options.begin(), best.options.end(), option) == best.options.end()) differing.push_back(option);
  for (const auto& [key, value] : best.options) {
    const bool said =
        std::any_of(plan.options.begin(), plan.options.end(), [&, &name = key](const auto& each) { return each.first == name; });
    if (!said) differing.emplace_back("without", key);
  }
  return as_flags(differing);
}

}  // namespace plimsoll::searching
