#include "formats/foreign/releases.hpp"

#include <algorithm>
#include <cctype>

#include "data/shipped_files.hpp"
#include "plimsoll/error.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kReleases = "models/releases.json";
constexpr const char* kPyTorch = "torch";

const JsonDocument& table() {
  static const JsonDocument document = [] {
    const auto* file = data::find_shipped_file(kReleases);
    if (!file) fail(std::string("there is no shipped file ") + kReleases);
    return JsonDocument::parse(file->text, kReleases);
  }();
  return document;
}

/// The whole numbers of a release, in order: "core_v0.16.1" is 0, 16, 1; what stands before the first one and suffixes ("rc0") count
/// nothing.
std::vector<long> numbers_of(const std::string& release) {
  constexpr std::size_t kMostDigits = 9;
  std::vector<long> numbers;
  for (std::size_t at = release.find_first_of("0123456789"); at < release.size();) {
    const std::size_t end = std::min(release.find_first_not_of("0123456789", at), release.size());
    numbers.push_back(std::stol(release.substr(at, std::min(end - at, kMostDigits))));
    if (end + 1 >= release.size() || release[end] != '.' || std::isdigit(static_cast<unsigned char>(release[end + 1])) == 0) break;
    at = end + 1;
  }
  return numbers;
}

using Steps = std::vector<std::pair<std::string, std::string>>;

/// An object of releases and what holds from each on.
Steps steps_of(const JsonValue& object) {
  Steps steps;
  for (const std::string& key : object.keys())
    if (key != "source") steps.emplace_back(key, object[key].text());
  return steps;
}

/// What holds in a release; an empty one is the newest.
std::string step_at(const Steps& steps, const std::string& release) {
  std::string value = steps.empty() ? std::string() : steps.front().second;
  for (const auto& [since, text] : steps)
    if (release.empty() || !is_earlier(release, since)) value = text;
  return value;
}

std::optional<JsonValue> part_of(const std::string& program, const char* part) {
  const std::optional<JsonValue> found = table().root()["programs"].find(program);
  return found ? found->find(part) : std::nullopt;
}

}  // namespace

std::string program_of_package(const std::string& package) {
  if (package == kPyTorch) return package;
  const JsonValue programs = table().root()["programs"];
  for (const std::string& name : programs.keys())
    for (const JsonValue& one : programs[name]["packages"].elements())
      if (one.text() == package) return name;
  return {};
}

std::vector<std::string> known_packages() {
  std::vector<std::string> names = {kPyTorch};
  const JsonValue programs = table().root()["programs"];
  for (const std::string& name : programs.keys())
    for (const JsonValue& one : programs[name]["packages"].elements()) names.push_back(one.text());
  return names;
}

std::string program_of(const std::string& release) {
  std::string program = release.substr(0, release.rfind(' '));
  std::transform(program.begin(), program.end(), program.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return program;
}

bool is_earlier(const std::string& release, const std::string& other) {
  std::vector<long> left = numbers_of(release), right = numbers_of(other);
  const std::size_t most = std::max(left.size(), right.size());
  left.resize(most);
  right.resize(most);
  return left < right;
}

std::vector<std::pair<std::string, std::string>> defaults_by_release(const std::string& program, const std::string& key) {
  const std::optional<JsonValue> defaults = part_of(program, "defaults");
  const std::optional<JsonValue> steps = defaults ? defaults->find(key) : std::nullopt;
  return steps ? steps_of(*steps) : Steps{};
}

std::optional<std::string> default_of_release(const std::string& program, const std::string& key, const std::string& release) {
  const Steps steps = defaults_by_release(program, key);
  if (steps.empty()) return std::nullopt;
  return step_at(steps, release);
}

std::string framework_version_of(const std::string& program, const std::string& release) {
  const std::optional<JsonValue> steps = part_of(program, "framework_version");
  std::string version = steps ? step_at(steps_of(*steps), release) : std::string();
  if (const std::size_t star = version.find('*'); star != std::string::npos) {
    const std::size_t digits = release.find_first_of("0123456789");
    version.replace(star, 1, digits == std::string::npos ? std::string() : release.substr(digits));
  }
  return version;
}

}  // namespace plimsoll::formats
