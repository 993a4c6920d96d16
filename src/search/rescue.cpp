#include "search/rescue.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll::searching {
namespace {

/// What differs between two plans' options, as flags; empty where more than one key does.
std::string single_change(const Options& from, const Options& to, std::int64_t gpus_from, std::int64_t gpus_to) {
  std::string change;
  int changes = 0;
  const auto note = [&](const std::string& key, const std::string& value) {
    std::string flag = key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    change = fmt::format("--{} {}", flag, value);
    ++changes;
  };
  if (gpus_from != gpus_to) note("gpus", std::to_string(gpus_to));
  for (const auto& [key, value] : to) {
    const auto same = std::find_if(from.begin(), from.end(), [&, &name = key](const auto& each) { return each.first == name; });
    if (same == from.end() || same->second != value) note(key, value);
  }
  return changes == 1 ? change : std::string();
}

}  // namespace

std::string rescue_of(const Screened& plan, const Screen& screen, const Space& space, const Layouts& layouts, const SearchRequest& request) {
  const auto capacity = static_cast<double>(request.cluster.accelerator.memory_usable.value.count);
  const Layout& own = layouts.legal[plan.layout];
  const Options from = space.options(plan.index);
  const std::uint64_t setting = space.setting_of(plan.index);
  Screened best;
  double fastest = 0;  // seconds of a token
  std::string change;
  for (std::uint32_t i = 0; i < layouts.legal.size(); ++i) {
    const bool here = i == plan.layout;
    screen.each(i, [&](const Screened& other) {
      if (!other.known || (!here && space.setting_of(other.index) != setting) || other.bytes + other.cache > capacity) return;
      const double its = other.seconds / static_cast<double>(layouts.legal[i].tokens);
      if (!change.empty() && its >= fastest) return;
      const std::string found = single_change(from, space.options(other.index), own.gpus, layouts.legal[i].gpus);
      if (found.empty()) return;
      best = other;
      fastest = its;
      change = found;
    });
  }
  if (change.empty()) return {};
  const Layout& rescued = layouts.legal[best.layout];
  if (rescued.tokens == own.tokens)
    return fmt::format("{} would ({} a step instead of {})", change, to_string(Seconds(best.seconds)), to_string(Seconds(plan.seconds)));
  const auto rate = [](const Screened& of, const Layout& with) {
    return with_thousands(static_cast<std::int64_t>(static_cast<double>(with.tokens) / of.seconds));
  };
  return fmt::format("{} would ({} tokens/s instead of {})", change, rate(best, rescued), rate(plan, own));
}

}  // namespace plimsoll::searching
