// The value of a key of a strategy as `set_option` would take it: what writers look up.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plimsoll/strategy.hpp"

namespace plimsoll::formats {

/// The value of a key of docs/rows.md in a resolved strategy; nothing where the strategy has none, or writers know no such key.
std::optional<std::string> value_of(const Strategy& resolved, std::string_view key);

/// All keys that `value_of` knows: what two strategies are compared by.
std::vector<std::string> written_keys();

/// Keys in which two resolved strategies differ, as "key: a, not b".
std::vector<std::string> differences(const Strategy& wanted, const Strategy& found);

}  // namespace plimsoll::formats
