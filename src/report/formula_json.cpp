// "plimsoll/formula/1", documented in docs/formula.md.
#include <cmath>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "plimsoll/formula_answer.hpp"
#include "report/json_text.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

/// Counts are printed as such.
Json number(double value) {
  if (std::abs(value) >= 1e15 || std::floor(value) != value) return value;
  return static_cast<std::int64_t>(value);
}

}  // namespace

std::string to_json(const FormulaAnswer& answer) {
  Json given = Json::object(), results = Json::array();
  for (const auto& [name, value] : answer.given) given[name] = number(value);
  for (const FormulaAnswer::Row& row : answer.results) {
    Json object = {{"name", row.name}};
    for (const auto& [name, value] : row.numbers) object[name] = number(value);
    if (!row.note.empty()) object["note"] = row.note;
    results.push_back(std::move(object));
  }
  return json_text({{"schema", "plimsoll/formula/1"}, {"formula", answer.formula}, {"given", std::move(given)}, {"results", std::move(results)}});
}

}  // namespace plimsoll
