#include "formats/row_recipes.hpp"

#include <algorithm>
#include <map>
#include <vector>

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

/// A value of the row at "part.key" as text; numbers as they stand.
std::string text_at(const JsonValue& row, const std::string& path) {
  const std::size_t dot = path.find('.');
  const std::string part = path.substr(0, dot), key = path.substr(dot + 1);
  if (!row.has(part) || !row[part].is_object() || !row[part].has(key) || row[part][key].is_null()) return {};
  return row[part][key].is_text() ? row[part][key].text() : json_text(row[part][key]);
}

/// Whether the text begins with one of a recipe's.
bool begins_with_one(const std::string& text, const JsonValue& beginnings) {
  for (const JsonValue& beginning : beginnings.elements())
    if (text.rfind(beginning.text(), 0) == 0 && !text.empty()) return true;
  return false;
}

/// Whether the row is of the recipe's source and fulfils its conditions.
bool applies(const JsonValue& recipe, const JsonValue& row) {
  if (recipe["title"].text() != text_of(row, "source", "title")) return false;
  if (!recipe.has("when")) return true;
  const JsonValue conditions = recipe["when"];
  for (const auto& path : conditions.keys())
    if (!begins_with_one(text_at(row, path), conditions[path])) return false;
  return true;
}

/// A recipe that applies, with the training keys that it gives; `corrects`: also those that the row's reader only assumed.
struct Applying {
  std::string source;
  JsonValue training;
  bool corrects = false;
};

/// Whether the row says of a key that its reader had to assume it.
bool assumed_by_reader(const JsonValue& row, const std::string& key) {
  if (!row.has("assumed") || !row["assumed"].is_array()) return false;
  const std::vector<JsonValue> lines = row["assumed"].elements();
  return std::any_of(lines.begin(), lines.end(),
                     [&](const JsonValue& line) { return line.is_text() && line.text().find(key) != std::string::npos; });
}

/// Those of a row's source and model, in the order of the file. Of models the recipe's name is the row's or how that begins.
std::vector<Applying> recipes_of(const JsonValue& row) {
  const std::string name = text_of(row, "model", "name");
  std::vector<Applying> list;
  for (const JsonValue& recipe : recipes().root()["recipes"].elements()) {
    if (!applies(recipe, row)) continue;
    const JsonValue models = recipe["models"];
    std::string best;
    for (const auto& model : models.keys())
      if (name.rfind(model, 0) == 0 && model.size() > best.size()) best = model;
    if (!best.empty() || models.has(""))
      list.push_back({recipe["source"].text(), models[best], recipe.has("corrects_assumed") && recipe["corrects_assumed"].boolean()});
  }
  return list;
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
  const std::vector<Applying> applying = recipes_of(row);
  if (applying.empty()) return std::nullopt;
  const JsonValue training = row["training"];
  std::map<std::string, std::string> taken;  // key → JSON
  for (const Applying& recipe : applying)
    for (const auto& key : recipe.training.keys()) {
      const bool open = !given(training, key) || (recipe.corrects && assumed_by_reader(row, key));
      if (!open || !taken.emplace(key, json_text(recipe.training[key])).second) continue;
      assumed.push_back("training." + key + ": " + taken[key] + " (" + recipe.source + ")");
    }
  ObjectText completed;
  for (const auto& key : training.keys())
    if (taken.count(key) == 0) completed.raw(key, json_text(training[key]));
  for (const auto& [key, text] : taken) completed.raw(key, text);
  if (const std::string schedule = schedule_beside(row); !schedule.empty() && !given(training, "pp_schedule")) {
    completed.raw("pp_schedule", ObjectText::quoted(schedule));
    assumed.push_back("training.pp_schedule: " + ObjectText::quoted(schedule) + " (extra.pp_schedule)");
  }
  if (assumed.empty()) return std::nullopt;
  ObjectText whole;
  for (const auto& key : row.keys()) whole.raw(key, key == "training" ? completed.text() : json_text(row[key]));
  return whole.text();
}

}  // namespace plimsoll::formats
