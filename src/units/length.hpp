// Counts as people say lengths.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plimsoll {

/// "8192", "8k" (8 · 1,024) or "1M" (1,048,576) tokens. Nothing where the text is no such count, or beyond a million million.
std::optional<std::int64_t> parse_length(std::string_view text);

}  // namespace plimsoll
