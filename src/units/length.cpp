#include "length.hpp"

#include <charconv>

namespace plimsoll {

std::optional<std::int64_t> parse_length(std::string_view text) {
  std::int64_t scale = 1;
  if (!text.empty() && (text.back() == 'k' || text.back() == 'K')) scale = 1 << 10;
  if (!text.empty() && (text.back() == 'm' || text.back() == 'M')) scale = 1 << 20;
  if (scale > 1) text.remove_suffix(1);
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  constexpr std::int64_t kMost = 1'000'000'000'000;
  if (error != std::errc() || end != text.data() + text.size() || count < 0 || count > kMost / scale) return {};
  return count * scale;
}

}  // namespace plimsoll
