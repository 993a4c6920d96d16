#include "rehearse/launch.hpp"

#include <algorithm>
#include <cstring>

#include "rehearse/record.hpp"

namespace plimsoll::rehearse {
namespace {

template <class Number>
std::optional<std::int64_t> number_at(std::string_view bytes, std::size_t offset) {
  Number value;
  if (offset > bytes.size() || bytes.size() - offset < sizeof value) return {};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return static_cast<std::int64_t>(value);
}

/// Calls `take(parameter, bytes)` for every argument up to the event's padding, or to where it is damaged.
template <class Take>
void for_each(std::string_view tail, Take take) {
  record::Argument header;
  while (tail.size() >= sizeof header) {
    std::memcpy(&header, tail.data(), sizeof header);
    tail.remove_prefix(sizeof header);
    if (header.bytes == 0 || header.bytes > tail.size()) return;
    take(header.parameter, tail.substr(0, header.bytes));
    tail.remove_prefix(std::min<std::size_t>((header.bytes + 7U) / 8 * 8, tail.size()));
  }
}

}  // namespace

std::string_view Arguments::bytes(int parameter) const {
  std::string_view found;
  for_each(tail_, [&](int each, std::string_view bytes) {
    if (each == parameter && found.empty()) found = bytes;
  });
  return found;
}

std::vector<std::int64_t> Arguments::numbers(std::size_t bytes) const {
  std::vector<std::int64_t> list;
  for_each(tail_, [&](int, std::string_view value) {
    if (value.size() == bytes) list.push_back(*(bytes == 4 ? number_at<std::int32_t>(value, 0) : number_at<std::int64_t>(value, 0)));
  });
  return list;
}

std::optional<std::int64_t> Arguments::integer(int parameter) const {
  const std::string_view value = bytes(parameter);
  switch (value.size()) {
    case 1:
      return number_at<std::int8_t>(value, 0);
    case 4:
      return number_at<std::int32_t>(value, 0);
    case 8:
      return number_at<std::int64_t>(value, 0);
    default:
      return {};
  }
}

std::optional<std::int64_t> word_at(std::string_view structure, std::size_t offset) { return number_at<std::int32_t>(structure, offset); }
std::optional<std::int64_t> long_at(std::string_view structure, std::size_t offset) { return number_at<std::int64_t>(structure, offset); }

}  // namespace plimsoll::rehearse
