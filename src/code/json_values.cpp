#include "code/json_values.hpp"

#include <nlohmann/json.hpp>

#include "plimsoll/error.hpp"

namespace plimsoll::code {

using Json = nlohmann::json;

namespace {

constexpr int kMostDepth = 40;  ///< of a config.json

}  // namespace

Value value_of_json(Interpreter& i, const Json& json, const std::string& where, int depth) {
  if (depth > kMostDepth) fail("is nested more than " + std::to_string(kMostDepth) + " deep", where);
  if (json.is_null()) return Value::none();
  if (json.is_boolean()) return Value::boolean(json.get<bool>());
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    fail("has a number that is too large", where);
  if (json.is_number_integer()) return Value::integer(json.get<std::int64_t>());
  if (json.is_number()) return Value::real(json.get<double>());
  if (json.is_string()) return i.text(json.get<std::string>());
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& each : json) items.push_back(value_of_json(i, each, where, depth + 1));
    return i.list(std::move(items));
  }
  Value made(new DictionaryObject(i.heap()));
  for (const auto& [name, each] : json.items()) made.as<DictionaryObject>()->set(i.text(name), value_of_json(i, each, where, depth + 1));
  return made;
}

}  // namespace plimsoll::code
