#include <fmt/format.h>

#include "formats/row_reader.hpp"

namespace plimsoll::formats {

std::string ObjectText::quoted(const std::string& text) {
  std::string json = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      json += std::string("\\") + c;
    else if (byte < 0x20)
      json += fmt::format("\\u{:04x}", byte);
    else
      json += c;
  }
  return json + "\"";
}

ObjectText& ObjectText::add(const std::string& key, double value) { return raw(key, fmt::format("{}", value)); }

ObjectText& ObjectText::raw(const std::string& key, const std::string& json) {
  members_ += (members_.empty() ? "" : ", ") + quoted(key) + ": " + json;
  return *this;
}

std::string json_text(const JsonValue& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return value.boolean() ? "true" : "false";
  if (value.is_integer()) return std::to_string(value.integer(INT64_MIN, INT64_MAX));
  if (value.is_number()) return fmt::format("{}", value.number(-1e308, 1e308));
  if (value.is_text()) return ObjectText::quoted(value.text());
  if (value.is_object()) {
    ObjectText object;
    for (const auto& key : value.keys()) object.raw(key, json_text(value[key]));
    return object.text();
  }
  std::string list;
  for (const JsonValue& element : value.elements()) list += (list.empty() ? "" : ", ") + json_text(element);
  return "[" + list + "]";
}

}  // namespace plimsoll::formats
