#include "hardware/device_names.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/suggestion.hpp"
#include "units/text.hpp"

namespace plimsoll::hardware {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr std::size_t kMostName = 64;

Pairs texts(const JsonValue& object) {
  Pairs pairs;
  for (const auto& key : object.keys()) pairs.emplace_back(key, object[key].text());
  return pairs;
}

std::optional<std::string> look_up(const Pairs& pairs, const std::string& name) {
  const std::string wanted = lower(name);
  for (const auto& [key, value] : pairs)
    if (lower(key) == wanted) return value;
  return std::nullopt;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The gigabytes of "80gb", "141g"; nullopt: no size.
std::optional<double> gigabytes_of(const std::string& word) {
  std::size_t digits = 0;
  while (digits < word.size() && digits < 4 && is_digit(word[digits])) ++digits;
  const std::string unit = word.substr(digits);
  if (digits == 0 || (unit != "gb" && unit != "g" && unit != "gib")) return std::nullopt;
  return std::stod(word.substr(0, digits));
}

/// Small letters and digits of a name, in words: "nvidia", "geforce", "rtx", "3090"; a number and its unit are one: "24gb".
std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words(1);
  for (const char c : lower(name)) {
    const bool belongs = is_digit(c) || (c >= 'a' && c <= 'z');
    if (belongs)
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  for (std::size_t i = 1; i < words.size(); ++i)
    if ((words[i] == "gb" || words[i] == "gib") && gigabytes_of(words[i - 1] + words[i])) {
      words[i - 1] += words[i];
      words.erase(words.begin() + static_cast<std::ptrdiff_t>(i));
    }
  return words;
}

/// Words that only say who made a board, for whom, or how it is mounted where one device alone has the name without.
bool says_nothing(const std::string& word) {
  constexpr std::array<std::string_view, 14> kWords{"nvidia", "amd",     "ati",  "instinct", "tesla", "geforce", "quadro",
                                                    "radeon", "graphics", "gpu", "card",     "board", "oam",     "generation"};
  return std::find(kWords.begin(), kWords.end(), word) != kWords.end();
}

/// "sxm" of "sxm2" to "sxm6": which socket it is follows from the device.
std::string socketless(const std::string& word) { return word.size() == 4 && word.substr(0, 3) == "sxm" && is_digit(word[3]) ? "sxm" : word; }

/// A name without what says nothing, and the memory that it states.
struct PlainName {
  std::string text;
  std::optional<double> gigabytes;
};

PlainName plain(const std::string& name) {
  PlainName found;
  for (const std::string& word : words_of(name)) {
    if (says_nothing(word)) continue;
    if (const auto gigabytes = gigabytes_of(word); gigabytes && !found.gigabytes)
      found.gigabytes = gigabytes;
    else
      found.text += socketless(word);
  }
  return found;
}

/// Shops count GB, sheets GiB, and drivers what is left of either.
bool has_memory(const std::string& device, double gigabytes) {
  constexpr double kNear = 0.08;
  const double bytes = static_cast<double>(load_accelerator(device).memory_nominal.value.count);
  return std::abs(bytes / (gigabytes * 1e9) - 1) < kNear || std::abs(bytes / (gigabytes * double(1 << 30)) - 1) < kNear;
}

/// Devices by their names and aliases without what says nothing; those whose name states a memory also with it.
const std::map<std::string, std::string>& plain_names() {
  static const std::map<std::string, std::string> all = [] {
    std::map<std::string, std::string> found;
    const auto add = [&](const std::string& name, const std::string& device) {
      const PlainName is = plain(name);
      if (!is.gigabytes) found.emplace(is.text, device);
      else found.emplace(is.text + "/" + std::to_string(static_cast<int>(*is.gigabytes)), device);
    };
    for (const std::string& name : shipped_accelerators()) add(name, name);
    for (const auto& [alias, device] : shipped_aliases().names) add(alias, device);
    return found;
  }();
  return all;
}

/// The device that a name as makers and shops write it means; nullopt: none.
std::optional<std::string> written_otherwise(const std::string& name) {
  if (name.size() > kMostName) return std::nullopt;
  const PlainName said = plain(name);
  if (said.text.empty()) return std::nullopt;
  const std::map<std::string, std::string>& all = plain_names();
  if (said.gigabytes)
    if (const auto found = all.find(said.text + "/" + std::to_string(static_cast<int>(*said.gigabytes))); found != all.end()) return found->second;
  const auto found = all.find(said.text);
  if (found == all.end() || (said.gigabytes && !has_memory(found->second, *said.gigabytes))) return std::nullopt;
  return found->second;
}

/// "8xa100" of "a100x8"; empty: no number stands behind.
std::string number_first(const std::string& name) {
  const std::size_t x = name.find_last_of("xX");
  if (x == std::string::npos || x == 0 || x + 1 == name.size() || name.size() > kMostName) return {};
  const bool counts = name.find_first_not_of("0123456789", x + 1) == std::string::npos;
  return counts ? name.substr(x + 1) + "x" + name.substr(0, x) : std::string();
}

/// "8xmi300x" of "8mi300x"; empty: no device's name stands behind a number.
std::string number_apart(const std::string& name, const std::vector<std::string>& known) {
  const std::size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string::npos) return {};
  const std::string device = lower(name.substr(digits));
  const bool is_device = std::find(known.begin(), known.end(), device) != known.end() || written_otherwise(device).has_value();
  return is_device ? name.substr(0, digits) + "x" + device : std::string();
}

/// What was perhaps meant by a name that no device has.
std::string advice(const std::string& name) {
  std::vector<std::string> known = shipped_accelerators();
  const std::string front = name.substr(0, name.find_last_of("xX"));  // the "rt" of "rtx409" is no device
  const bool is_device = std::find(known.begin(), known.end(), lower(front)) != known.end() || written_otherwise(front).has_value();
  if (const std::string turned = is_device ? number_first(name) : std::string(); !turned.empty()) return "write the number first: " + turned;
  const std::string shown = name.substr(0, kMostName);
  if (const std::string apart = number_apart(shown, known); !apart.empty()) return "write an x behind the number: " + apart;
  if (const std::string near = meant(shown, known); !near.empty()) return near;
  for (const auto& [alias, target] : shipped_aliases().names) known.push_back(alias);
  if (const std::string near = meant(shown, known); !near.empty()) return near;
  return "'plimsoll hardware' lists those that are; another is described in a file (docs/hardware.md)";
}

}  // namespace

/// Read once: a name that no device has asks for them each time.
const Aliases& shipped_aliases() {
  static const Aliases aliases = [] {
    const JsonDocument document = shipped_document("hardware/aliases.json");
    return Aliases{texts(document.root()["aliases"]), texts(document.root()["refused"])};
  }();
  return aliases;
}

std::string canonical_device(const std::string& name) {
  const std::vector<std::string> known = shipped_accelerators();
  if (std::find(known.begin(), known.end(), lower(name)) != known.end()) return lower(name);
  const Aliases& aliases = shipped_aliases();
  if (const auto reason = look_up(aliases.refused, name)) refuse("accelerator '" + name + "': " + *reason);
  if (const auto found = look_up(aliases.names, name)) return *found;
  if (const auto found = written_otherwise(name)) return *found;
  fail("unknown accelerator '" + name.substr(0, kMostName) + "'", {}, advice(name));
}

std::string device_value(const JsonValue& value) {
  try {
    return canonical_device(value.text());
  } catch (const Error& error) {
    throw error.at(value.where());
  }
}

}  // namespace plimsoll::hardware
