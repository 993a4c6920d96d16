#include "strategy/flags.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace plimsoll {

std::string as_flags(const std::vector<std::pair<std::string, std::string>>& options) {
  std::string flags;
  for (auto [key, value] : options) {
    std::replace(key.begin(), key.end(), '_', '-');
    const char* quote = value.find(' ') == std::string::npos ? "" : "'";
    flags += fmt::format("{}--{} {}{}{}", flags.empty() ? "" : " ", key, quote, value, quote);
  }
  return flags;
}

}  // namespace plimsoll
