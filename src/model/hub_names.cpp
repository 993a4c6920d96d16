#include "model/hub_names.hpp"

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "data/shipped_files.hpp"
#include "units/json_reader.hpp"
#include "units/text.hpp"

namespace plimsoll::model {
namespace {

/// models/hub.json.
struct Table {
  std::vector<std::pair<std::string, std::string>> shipped_by_hub;  ///< a name on the hub, in lower case, and that of the shipped model
  std::map<std::string, std::string> first_hub_name;                ///< of a shipped model, as the hub writes it
  std::map<std::string, CheckpointDtype> dtypes;
  std::map<std::string, std::string> own_code;  ///< a name on the hub, in lower case, and the model type of its own code
};

Table read_table() {
  constexpr const char* kTable = "models/hub.json";
  const JsonDocument document = JsonDocument::parse(data::find_shipped_file(kTable)->text, kTable);
  Table table;
  const JsonValue names = document.root()["names"];
  for (const std::string& shipped : names.keys()) {
    table.first_hub_name[shipped] = names[shipped].at(0).text();
    for (const JsonValue& hub : names[shipped].elements()) table.shipped_by_hub.emplace_back(lower(hub.text()), shipped);
  }
  for (const JsonValue& group : document.root()["dtypes"].elements())
    for (const JsonValue& model : group["models"].elements())
      table.dtypes[model.text()] = {group["type"].text(), group["told_by"].text()};
  for (const JsonValue& group : document.root()["own_code"].elements())
    for (const std::string& type : group["types"].keys())
      for (const JsonValue& hub : group["types"][type].elements()) table.own_code[lower(hub.text())] = type;
  return table;
}

/// Read once; nothing changes it, so that any thread may ask.
const Table& table() {
  static const Table read = read_table();
  return read;
}

bool is_shipped(const std::string& name) {
  return data::find_shipped_file("models/" + name + "/config.json") != nullptr ||
         data::find_shipped_file("models/code/" + name + "/config.json") != nullptr ||
         data::find_shipped_file("models/" + name + "/graph.json") != nullptr;
}

/// By the table: the whole name, or all of it but the owner.
std::optional<std::string> listed(const std::string& name) {
  const bool owned = name.find('/') != std::string::npos;
  for (const auto& [hub, shipped] : table().shipped_by_hub)
    if (hub == name || (!owned && name_without_owner(hub) == name)) return shipped;
  return {};
}

bool cut_end(std::string& name, std::string_view end) {
  if (name.size() <= end.size() || name.compare(name.size() - end.size(), end.size(), end) != 0) return false;
  name.resize(name.size() - end.size());
  return true;
}

/// Tuned models have the shape of those that they come from.
bool cut_tuning(std::string& name) {
  constexpr std::array<std::string_view, 10> kTunings{"-instruct", "-chat", "-it",   "-hf",   "-base",
                                                      "-pt",       "-v0.1", "-v0.2", "-v0.3", "-v1.0"};
  for (const std::string_view tuning : kTunings)
    if (cut_end(name, tuning)) return true;
  return false;
}

}  // namespace

std::optional<CheckpointDtype> checkpoint_dtype_of(const std::string& shipped) {
  const auto found = table().dtypes.find(shipped);
  return found == table().dtypes.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string> own_code_type_of(std::string_view hub_name) {
  const auto found = table().own_code.find(lower(hub_name));
  return found == table().own_code.end() ? std::nullopt : std::optional(found->second);
}

std::string hub_name_of(const std::string& shipped) {
  const auto found = table().first_hub_name.find(shipped);
  return found == table().first_hub_name.end() ? shipped : found->second;
}

std::string name_without_owner(std::string_view hub_name) { return lower(hub_name.substr(hub_name.rfind('/') + 1)); }

std::optional<std::string> shipped_name_of(std::string_view hub_name) {
  constexpr std::size_t kLongestName = 200;
  if (hub_name.size() > kLongestName) return {};
  std::string name = lower(hub_name);
  while (!name.empty() && name.back() == '/') name.pop_back();
  if (auto shipped = listed(name)) return shipped;
  name = name_without_owner(name);
  if (auto shipped = listed(name)) return shipped;  // another owner's copy
  constexpr std::string_view kMaker = "meta-";
  if (name.compare(0, kMaker.size(), kMaker) == 0) name.erase(0, kMaker.size());
  do {
    if (is_shipped(name)) return name;
  } while (cut_tuning(name));
  return {};
}

}  // namespace plimsoll::model
