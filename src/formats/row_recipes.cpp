#include "formats/row_recipes.hpp"

#include "data/shipped_files.hpp"
#include "formats/row_reader.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRecipes = "models/recipes.json";

const JsonDocument& recipes() {
  static const JsonDocument document = [] {
    const auto* file = data::find_shipped_file(kRecipes);
    if (!file) fail(std::string("there is no shipped file ") + kRecipes);
    return JsonDocument::parse(file->text, kRecipes);
  }();
  return document;
}

std::string text_of(const JsonValue& object, const char* part, const char* key) {
  if (!object.has(part) || !object[part].is_object() || !object[part].has(key) || !object[part][key].is_text()) return {};
  return object[part][key].text();
}

bool given(const JsonValue& object, const std::string& key) { return object.has(key) && !object[key].is_null(); }

/// The training keys that the recipe of a row's source and model gives; empty: none.
std::optional<JsonValue> recipe_of(const JsonValue& row, std::string& source) {
  const std::string title = text_of(row, "source", "title"), name = text_of(row, "model", "name");
  for (const JsonValue& recipe : recipes().root()["recipes"].elements()) {
    if (recipe["title"].text() != title || !recipe["models"].has(name)) continue;
    source = recipe["source"].text();
    return recipe["models"][name];
  }
  return std::nullopt;
}

/// Primus' logs name the schedule beside the run; its names for those that plimsoll plays too.
std::string schedule_beside(const JsonValue& row) {
  const std::string name = text_of(row, "extra", "pp_schedule");
  if (name.rfind("1f1b-interleaved", 0) == 0) return "interleaved-1f1b";
  if (name == "zero-bubble") return "zb-h1";
  if (name == "zbv-formatted") return "zbv";
  return name;
}

}  // namespace

std::optional<std::string> completed_by_recipe(const JsonValue& row, std::vector<std::string>& assumed) {
  if (!row.has("training") || !row["training"].is_object()) return std::nullopt;
  std::string source;
  const auto recipe = recipe_of(row, source);
  if (!recipe) return std::nullopt;
  const JsonValue training = row["training"];
  ObjectText completed;
  for (const auto& key : training.keys()) completed.raw(key, json_text(training[key]));
  const auto add = [&](const std::string& key, const std::string& json) {
    completed.raw(key, json);
    assumed.push_back("training." + key + ": " + json + " (" + source + ")");
  };
  for (const auto& key : recipe->keys())
    if (!given(training, key)) add(key, json_text((*recipe)[key]));
  if (const std::string schedule = schedule_beside(row); !schedule.empty() && !given(training, "pp_schedule"))
    add("pp_schedule", ObjectText::quoted(schedule));
  if (assumed.empty()) return std::nullopt;
  ObjectText whole;
  for (const auto& key : row.keys()) whole.raw(key, key == "training" ? completed.text() : json_text(row[key]));
  return whole.text();
}

}  // namespace plimsoll::formats
