#include "calibrate/system_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace plimsoll::calibrate {
namespace {

std::optional<std::int64_t> parsed(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::string> SystemFiles::line(const std::string& path) const {
  std::ifstream file(at(path));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.pop_back();
  return text;
}

std::vector<std::string> SystemFiles::lines(const std::string& path) const {
  std::ifstream file(at(path));
  std::vector<std::string> list;
  for (std::string text; std::getline(file, text);) list.push_back(text);
  return list;
}

std::optional<std::int64_t> SystemFiles::number(const std::string& path) const {
  const auto text = line(path);
  return text ? parsed(*text) : std::nullopt;
}

std::map<std::string, std::int64_t> SystemFiles::properties(const std::string& path) const {
  std::ifstream file(at(path));
  std::map<std::string, std::int64_t> values;
  for (std::string key, value; file >> key >> value;)
    if (const auto number = parsed(value)) values[key] = *number;
  return values;
}

std::vector<std::string> SystemFiles::entries(const std::string& folder, const std::string& prefix) const {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(at(folder), error), end; !error && entry != end; entry.increment(error))
    if (const std::string name = entry->path().filename().string(); name.rfind(prefix, 0) == 0) names.push_back(name);
  const auto number = [&](const std::string& name) { return parsed(name.substr(prefix.size())).value_or(INT64_MAX); };
  std::sort(names.begin(), names.end(),
            [&](const std::string& a, const std::string& b) { return number(a) != number(b) ? number(a) < number(b) : a < b; });
  return names;
}

bool SystemFiles::exists(const std::string& path) const { return access(at(path).c_str(), F_OK) == 0; }
bool SystemFiles::writable(const std::string& path) const { return access(at(path).c_str(), R_OK | W_OK) == 0; }

std::string system_root() {
  const char* root = std::getenv("PLIMSOLL_SYSTEM_ROOT");
  return root ? root : "/";
}

}  // namespace plimsoll::calibrate
