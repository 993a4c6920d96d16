#include "formats/foreign/releases.hpp"

#include <algorithm>
#include <cctype>

#include "data/shipped_files.hpp"
#include "plimsoll/error.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kReleases = "models/releases.json";

const JsonDocument& table() {
  static const JsonDocument document = [] {
    const auto* file = data::find_shipped_file(kReleases);
    if (!file) fail(std::string("there is no shipped file ") + kReleases);
    return JsonDocument::parse(file->text, kReleases);
  }();
  return document;
}

/// The defaults of a package; nullopt: none are told apart by release.
std::optional<JsonValue> defaults_of(Package package) { return table().root()["packages"][name_of(package)].find("defaults"); }

}  // namespace

std::optional<Package> package_of(const std::string& release) {
  std::string program = release.substr(0, release.rfind(' '));
  std::transform(program.begin(), program.end(), program.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const PackageFacts& facts : package_facts())
    if (std::find(facts.names.begin(), facts.names.end(), program) != facts.names.end() && defaults_of(facts.package)) return facts.package;
  return std::nullopt;
}

Steps defaults_by_release(std::optional<Package> package, const std::string& key) {
  const std::optional<JsonValue> defaults = package ? defaults_of(*package) : std::nullopt;
  const std::optional<JsonValue> steps = defaults ? defaults->find(key) : std::nullopt;
  Steps read;
  if (!steps) return read;
  for (const std::string& since : steps->keys())
    if (const std::optional<Release> release = Release::parse(since)) read.emplace_back(*release, (*steps)[since].text());
  return read;
}

std::optional<std::string> default_of_release(const Steps& steps, const std::optional<Release>& release) {
  if (steps.empty()) return std::nullopt;
  std::string value = steps.front().second;
  for (const auto& [since, text] : steps)
    if (!release || !(release->with_date(0) < since)) value = text;
  return value;
}

}  // namespace plimsoll::formats
