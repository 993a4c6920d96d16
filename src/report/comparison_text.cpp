// The lowered program beside the recorded one, for a person.
#include <fmt/core.h>

#include <algorithm>

#include "plimsoll/report.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

std::string number(double value) { return value < 1e15 ? with_thousands(static_cast<std::int64_t>(value)) : fmt::format("{:.6e}", value); }

}  // namespace

std::string to_text(const ProgramComparison& comparison, std::size_t most) {
  std::vector<std::vector<std::string>> rows{{"a steady step", "lowered", "recorded", "lowered / recorded"}};
  for (const auto& [name, values] : comparison.totals)
    rows.push_back(
        {name, number(values.first), number(values.second), values.second > 0 ? fmt::format("{:.4f}", values.first / values.second) : "-"});
  std::string text = columns(rows) + "\n";
  if (comparison.first_difference >= 0)
    text += fmt::format("first difference: matrix product {}\n  lowered   {}\n  recorded  {}\n", comparison.first_difference + 1,
                        printable(comparison.first_lowered), printable(comparison.first_recorded));
  else
    text += "the matrix products are the same, one by one\n";
  if (comparison.differences.empty()) return text + "no other difference\n";
  rows = {{"differences, largest first", "lowered", "recorded", "share"}};
  for (std::size_t i = 0; i < std::min(most, comparison.differences.size()); ++i) {
    const ProgramDifference& each = comparison.differences[i];
    rows.push_back({each.what, number(each.lowered), number(each.recorded), fmt::format("{:.3f} %", 100 * each.weight)});
  }
  text += "\n" + columns(rows);
  if (comparison.differences.size() > most) text += fmt::format("and {} more\n", comparison.differences.size() - most);
  return text;
}

}  // namespace plimsoll
