// The value of a key of a strategy as `set_option` would take it: what writers look up and reports list.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/strategy.hpp"

namespace plimsoll::formats {

/// The value of a key of docs/rows.md in a resolved strategy; nothing where the strategy has none, or writers know no such key.
std::optional<std::string> value_of(const Strategy& resolved, std::string_view key);

/// The same of keys that no writer needs: what a report lists beside the written ones.
std::optional<std::string> reported_value(const Strategy& resolved, std::string_view key);
/// The keys by whose names the value of `key` is told: itself, or what a short or a foreign name stands for ("seq": seq_len). Empty: it has
/// no value of its own (a remark; a section that is refused).
std::vector<std::string> told_as(std::string_view key);

/// A key that reports list: its value is that of the first of its readers that has one.
struct ListedKey {
  using Reader = std::optional<std::string> (*)(const Strategy&);
  std::string name;
  std::array<Reader, 2> readers{};

  std::optional<std::string> value(const Strategy& resolved) const;
};
/// What the options are told as, each key once, in the order of the options. The tables are looked through once.
const std::vector<ListedKey>& listed_keys();

/// All keys that `value_of` knows: what two strategies are compared by.
std::vector<std::string> written_keys();

/// Keys in which two resolved strategies differ, as "key: a, not b".
std::vector<std::string> differences(const Strategy& wanted, const Strategy& found);

}  // namespace plimsoll::formats
