#include "plimsoll/error.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plimsoll/printable.hpp"
#include "plimsoll/suggestion.hpp"

namespace plimsoll {
namespace {

/// Messages quote files and command lines.
std::string one_line(const std::string& message, const std::string& where, const std::string& hint) {
  std::string line = where.empty() ? message : where + ": " + message;
  if (!hint.empty()) line += " (" + hint + ")";
  return printable(line);
}

/// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment); `enough` where they are that many or more. A
/// row of distances grows from the two rows above it, so two that are all `enough` end it: most names end within their first letters.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t enough) {
  std::size_t least_above = 0;
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    const std::size_t least = *std::min_element(row.begin(), row.end());
    if (std::min(least, least_above) >= enough) return enough;
    least_above = least;
    before.swap(above);
    above.swap(row);
  }
  return std::min(above[b.size()], enough);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string lower(std::string_view text) {
  std::string low(text);
  std::transform(low.begin(), low.end(), low.begin(), [](char c) { return lower(c); });
  return low;
}

constexpr std::size_t kLongestName = 100;  // longer input is no typo of ours, and comparing it would be slow

/// "'a', 'b', …": the candidates of which `holds` is true, the first six of them.
template <class Holds>
std::string quoted(const std::vector<std::string>& candidates, const Holds& holds) {
  constexpr int kMost = 6;
  std::string text;
  int count = 0;
  for (const std::string& candidate : candidates)
    if (holds(lower(candidate)) && ++count <= kMost) text += (text.empty() ? "'" : ", '") + candidate + "'";
  return count > kMost ? text + ", …" : text;
}

}  // namespace

Error::Error(ErrorCode code, std::string message, std::string where, std::string hint)
    : std::runtime_error(one_line(message, where, hint)),
      code_(code),
      message_(std::move(message)),
      where_(std::move(where)),
      hint_(std::move(hint)) {}

Error Error::at(std::string_view outer) const { return Error(code_, message_, std::string(outer) + where_, hint_); }

void fail(std::string message, std::string where, std::string hint) {
  throw Error(ErrorCode::bad_input, std::move(message), std::move(where), std::move(hint));
}

void refuse(std::string message, std::string where, std::string hint) {
  throw Error(ErrorCode::refused, std::move(message), std::move(where), std::move(hint));
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  return nearest_name(name, candidates, std::max<std::size_t>(1, name.size() / 3));
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates, std::size_t most_edits) {
  if (name.size() > kLongestName) return {};
  const std::string wanted = lower(name);
  std::string best;
  std::size_t best_distance = most_edits + 1;
  for (const auto& candidate : candidates) {
    const std::size_t lengths = candidate.size() > name.size() ? candidate.size() - name.size() : name.size() - candidate.size();
    if (lengths >= best_distance) continue;  // as many edits at least
    const std::size_t distance = edit_distance(wanted, lower(candidate), best_distance);
    if (distance < best_distance) best = candidate, best_distance = distance;
  }
  return best;
}

std::string meant(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr std::size_t kTelling = 3;  // fewer letters stand in many names
  if (name.empty() || name.size() > kLongestName) return {};
  const std::string wanted = lower(name);
  std::string near = quoted(candidates, [&](const std::string& candidate) { return candidate.rfind(wanted, 0) == 0; });
  if (const std::string nearest = near.empty() ? nearest_name(name, candidates) : std::string(); !nearest.empty())
    near = "'" + nearest + "'";
  if (near.empty() && name.size() >= kTelling)
    near = quoted(candidates, [&](const std::string& candidate) { return candidate.find(wanted) != std::string::npos; });
  return near.empty() ? near : "did you mean " + near + "?";
}

std::string suggest(std::string_view name, const std::vector<std::string>& candidates) {
  if (std::string near = meant(name, candidates); !near.empty()) return near;
  std::string list = "one of: ";
  constexpr std::size_t kMost = 40;
  for (std::size_t i = 0; i < std::min(kMost, candidates.size()); ++i) list += (i ? ", " : "") + candidates[i];
  return candidates.size() > kMost ? list + ", …" : list;
}

}  // namespace plimsoll
