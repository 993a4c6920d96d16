#include "hardware/read_values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "data/shipped_files.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::hardware {
namespace {

/// Parses a text with its unit; errors name the place, and a zero is refused: no quantity of a device is zero.
template <class T>
T positive(const JsonValue& value, T (*parse)(std::string_view)) {
  try {
    const T parsed = parse(value.text());
    if constexpr (requires { parsed.value; }) {
      if (!(parsed.value > 0)) value.expected("a quantity above zero");
    } else {
      if (parsed.count <= 0) value.expected("a size above zero");
    }
    return parsed;
  } catch (const Error& error) {
    if (!error.where().empty()) throw;
    fail(error.message(), value.where(), error.hint());
  }
}

}  // namespace

Provenance read_provenance(const JsonValue& value) {
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) {
    names.emplace_back(name_of(static_cast<Provenance>(i)));
    if (value.text() == names.back()) return static_cast<Provenance>(i);
  }
  fail("'" + value.text() + "' is no provenance", value.where(), suggest(value.text(), names));
}

MathType math_type(const JsonValue& at, std::string_view name) {
  std::vector<std::string> names;
  for (int i = 0; i < 9; ++i) {
    names.emplace_back(name_of(static_cast<MathType>(i)));
    if (name == names.back()) return static_cast<MathType>(i);
  }
  fail("'" + std::string(name) + "' is no arithmetic", at.where(), suggest(name, names));
}

Bytes bytes_value(const JsonValue& value) { return positive(value, parse_bytes); }
BytesPerSecond bandwidth_value(const JsonValue& value) { return positive(value, parse_bytes_per_second); }
FlopsPerSecond flops_value(const JsonValue& value) { return positive(value, parse_flops_per_second); }
Seconds seconds_value(const JsonValue& value) { return positive(value, parse_seconds); }
Hertz hertz_value(const JsonValue& value) { return positive(value, parse_hertz); }
Watts watts_value(const JsonValue& value) { return positive(value, parse_watts); }
Tile tile_value(const JsonValue& value) {
  const std::string& text = value.text();
  char* end = nullptr;
  const long m = std::strtol(text.c_str(), &end, 10);
  const long n = *end == 'x' ? std::strtol(end + 1, &end, 10) : 0;
  if (*end != '\0' || m < 1 || n < 1 || m > 4096 || n > 4096) value.expected("a tile such as \"256x128\"");
  return {m, n};
}

std::int64_t threads_value(const JsonValue& value) { return value.integer(32, 65536); }
double share_value(const JsonValue& value) { return value.number(0, 1); }
double board_powers_value(const JsonValue& value) { return value.number(0.01, 10); }
double pace_value(const JsonValue& value) { return value.number(0.01, 100); }
double positive_share_value(const JsonValue& value) { return value.number(1e-3, 1); }

std::string optional_text(const JsonValue& object, std::string_view key) {
  const auto found = object.find(key);
  return found ? found->text() : std::string();
}

std::vector<Accelerator::Source> read_sources(const JsonValue& root) {
  std::vector<Accelerator::Source> sources;
  const JsonValue object = root["sources"];
  for (const auto& key : object.keys()) sources.push_back({key, object[key].text()});
  return sources;
}

namespace {
void check_sources(const JsonValue& value, const JsonValue& sources) {
  if (value.is_array()) {
    for (const auto& element : value.elements()) check_sources(element, sources);
  } else if (value.is_object()) {
    for (const auto& key : value.keys()) {
      const JsonValue member = value[key];
      if (key == "source" && !sources.has(member.text()))
        fail("source '" + member.text() + "' is not explained", member.where(), "add it to /sources");
      if (key != "sources") check_sources(member, sources);
    }
  }
}
}  // namespace

void require_all(const JsonValue& root, const std::vector<std::string>& paths, const std::string& kind) {
  std::string missing;
  int count = 0;
  for (const std::string& path : paths) {
    JsonValue at = root;
    std::size_t begin = 0;
    bool there = true;
    while (there && begin <= path.size()) {
      const std::size_t end = std::min(path.find('.', begin), path.size());
      const std::string key = path.substr(begin, end - begin);
      there = at.is_object() && at.has(key);
      if (there) at = at[key];
      begin = end + 1;
    }
    if (there) continue;
    missing += (missing.empty() ? "" : ", ") + path;
    ++count;
  }
  if (count == 0) return;
  if (count == 1) fail("the key \"" + missing + "\" is missing", root.where(), "'plimsoll hardware --template " + kind + "' writes a file that has it");
  fail(std::to_string(count) + " keys are missing: " + missing, root.where(), "'plimsoll hardware --template " + kind + "' writes a file that has them");
}

void check_complete(const JsonValue& root) {
  const auto unread = root.unread_keys();
  if (!unread.empty())
    fail("unknown key '" + unread.front() + "'", root.where() + "#/" + unread.front(), "docs/hardware.md lists the keys");
  check_sources(root, root["sources"]);
}

double read_power_exponent(const JsonValue& kernels) { return read_sourced(kernels["power_exponent"], positive_share_value).value; }

JsonDocument shipped_document(const std::string& path) {
  const auto* file = data::find_shipped_file(path);
  if (!file) fail("there is no shipped file " + path);
  return JsonDocument::parse(file->text, path);
}

}  // namespace plimsoll::hardware
