// How every JSON writer of this room prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace plimsoll {

/// Two spaces of indent, a newline at the end; bytes that are no UTF-8 become U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace plimsoll
