#include "formats/row_recipes.hpp"

#include <map>
#include <set>
#include <string_view>

#include "data/shipped_files.hpp"
#include "formats/row_reader.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

JsonDocument shipped(const char* path) {
  const auto* file = data::find_shipped_file(path);
  if (!file) fail(std::string("there is no shipped file ") + path);
  return JsonDocument::parse(file->text, path);
}

/// In the order in which they give keys: what was run from a launcher's source (bench/bridge_recipes.py), then what was read from launch scripts.
const std::vector<JsonDocument>& recipe_files() {
  static const std::vector<JsonDocument> files = [] {
    std::vector<JsonDocument> read;
    for (const char* path : {"models/bridge-recipes.json", "models/recipes.json"}) read.push_back(shipped(path));
    return read;
  }();
  return files;
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

/// Whether the row's value, as text, is one of a recipe's: begins with a text, is a number, or is absent where the recipe says null.
bool is_one_of(const std::string& text, const JsonValue& values) {
  for (const JsonValue& value : values.elements()) {
    if (value.is_null() ? text.empty() : value.is_text() ? !text.empty() && text.rfind(value.text(), 0) == 0 : text == json_text(value)) return true;
  }
  return false;
}

/// What a recipe leaves to the head of its file.
std::string own_or_shared(const JsonValue& recipe, const JsonValue& file, const char* key) {
  return recipe.has(key) ? recipe[key].text() : file[key].text();
}

/// Whether the row is of the recipe's source and fulfils its conditions.
bool applies(const JsonValue& recipe, const JsonValue& file, const JsonValue& row) {
  if (own_or_shared(recipe, file, "title") != text_of(row, "source", "title")) return false;
  if (!recipe.has("when")) return true;
  const JsonValue conditions = recipe["when"];
  for (const auto& path : conditions.keys())
    if (!is_one_of(text_at(row, path), conditions[path])) return false;
  return true;
}

/// A recipe that applies, with the training keys that it gives, and the model's as "model.vocab_size".
struct Applying {
  std::string source;
  JsonValue training;
};

/// Those of a row's source and model, in the order of the files. Of models the recipe's name is the row's or how that begins.
std::vector<Applying> recipes_of(const JsonValue& row) {
  const std::string name = text_of(row, "model", "name");
  std::vector<Applying> list;
  for (const JsonDocument& document : recipe_files()) {
    const JsonValue file = document.root();
    for (const JsonValue& recipe : file["recipes"].elements()) {
      if (!applies(recipe, file, row)) continue;
      const JsonValue models = recipe["models"];
      std::string best;
      for (const auto& model : models.keys())
        if (name.rfind(model, 0) == 0 && model.size() > best.size()) best = model;
      if (!best.empty() || models.has("")) list.push_back({own_or_shared(recipe, file, "source"), models[best]});
    }
  }
  return list;
}

/// Whether the row says that it assumed its value of `key`: "recompute full, precision fp16: the paper's description, not in the file".
bool is_assumed(const JsonValue& row, const JsonValue& part, const std::string& key) {
  if (!row.has("assumed") || !row["assumed"].is_array()) return false;
  const std::string stated = key + " " + (part[key].is_text() ? part[key].text() : json_text(part[key]));
  for (const JsonValue& assumption : row["assumed"].elements())
    if (assumption.is_text() && assumption.text().find(stated) != std::string::npos) return true;
  return false;
}

/// An object of the row ("training", "model") with what recipes give and it leaves out, or only assumed.
struct Part {
  const JsonValue& row;
  JsonValue stated;
  std::map<std::string, std::string> values;  ///< texts of JSON
  std::set<std::string> held{};

  Part(const JsonValue& whole, const char* name) : row(whole), stated(whole[name]) {
    for (const auto& key : stated.keys()) values[key] = json_text(stated[key]);
  }
  bool take(const std::string& key, const JsonValue& value) {
    if ((given(stated, key) && !is_assumed(row, stated, key)) || !held.insert(key).second) return false;
    values[key] = json_text(value);
    return true;
  }
  std::string text() const {
    ObjectText object;
    for (const auto& [key, value] : values) object.raw(key, value);
    return object.text();
  }
};

/// Primus' logs name the schedule beside the run; its names for those that plimsoll plays too.
std::string schedule_beside(const JsonValue& row) {
  std::string name = text_of(row, "extra", "pp_schedule");
  if (name.rfind("1f1b-interleaved", 0) == 0) return "interleaved-1f1b";
  if (name == "zero-bubble") return "zb-h1";
  if (name == "zbv-formatted") return "zbv";
  return name;
}

}  // namespace

std::optional<std::string> completed_by_recipe(const JsonValue& row, std::vector<std::string>& assumed) {
  for (const char* part : {"training", "model"})
    if (!row.has(part) || !row[part].is_object()) return std::nullopt;
  const std::vector<Applying> applying = recipes_of(row);
  if (applying.empty()) return std::nullopt;
  Part training(row, "training"), model(row, "model");
  for (const Applying& recipe : applying)
    for (const auto& key : recipe.training.keys()) {
      constexpr std::string_view kOfModel = "model.";
      const bool of_model = key.rfind(kOfModel, 0) == 0;
      const JsonValue value = recipe.training[key];
      if (of_model ? model.take(key.substr(kOfModel.size()), value) : training.take(key, value))
        assumed.push_back((of_model ? key : "training." + key) + ": " + json_text(value) + " (" + recipe.source + ")");
    }
  if (const std::string schedule = schedule_beside(row); !schedule.empty() && !given(row["training"], "pp_schedule")) {
    training.values["pp_schedule"] = ObjectText::quoted(schedule);
    assumed.push_back("training.pp_schedule: " + ObjectText::quoted(schedule) + " (extra.pp_schedule)");
  }
  if (assumed.empty()) return std::nullopt;
  ObjectText whole;
  for (const auto& key : row.keys())
    whole.raw(key, key == "training" ? training.text() : key == "model" ? model.text() : json_text(row[key]));
  return whole.text();
}

}  // namespace plimsoll::formats
