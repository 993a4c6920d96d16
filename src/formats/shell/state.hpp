// What a script has set so far.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/shell/syntax.hpp"

namespace plimsoll::formats::shell {

/// A variable; one that is known to be unset is one without values. A scalar is what stands at index 0.
struct Variable {
  bool array = false, keyed = false, exported = false, whole_number = false, upper = false, lower = false;
  std::map<std::int64_t, std::string> values;
  std::vector<std::pair<std::string, std::string>> entries;  ///< of one with keys (declare -A), in the order of their making

  bool operator==(const Variable&) const = default;
  bool is_set() const { return keyed ? !entries.empty() : !values.empty(); }
  std::size_t size() const { return keyed ? entries.size() : values.size(); }
  const std::string* at(std::int64_t index) const {
    const auto found = values.find(index);
    return found == values.end() ? nullptr : &found->second;
  }
  const std::string* at(const std::string& key) const {
    for (const auto& [name, value] : entries)
      if (name == key) return &value;
    return nullptr;
  }
  void put(const std::string& key, std::string value) {
    for (auto& [name, old] : entries)
      if (name == key) {
        old = std::move(value);
        return;
      }
    entries.emplace_back(key, std::move(value));
  }
};

/// The outcome of a command: what $? would be, or why that is not known.
struct Outcome {
  int code = 0;
  std::string unknown;  ///< a mark; empty: `code` is known

  bool is_known() const { return unknown.empty(); }
  bool holds() const { return is_known() && code == 0; }
};

/// Text that commands read, and how far.
struct Input {
  std::string text;
  std::size_t at = 0;
};

struct State {
  std::map<std::string, Variable> variables;
  std::map<std::string, StatementPtr> functions;
  std::map<std::string, std::string> files;                            ///< that the script has written, by path
  std::vector<std::map<std::string, std::optional<Variable>>> scopes;  ///< what `local` hid, a table per function that runs
  std::optional<std::string> name;                                     ///< $0; none: the script's path
  std::vector<std::string> arguments;
  bool arguments_known = false;  ///< those of the script itself are not, unless `set --` makes them
  std::string folder;            ///< where `cd` went; empty: where the script was started
  bool errors_end = false;       ///< set -e
  std::size_t option_at = 0;     ///< where getopts is within a word of several letters
  Outcome last;
};

}  // namespace plimsoll::formats::shell
