#include "rehearse/launch.hpp"

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

}  // namespace

std::string_view Arguments::bytes(int parameter) const {
  std::string_view rest = tail_;
  record::Argument header;
  while (rest.size() >= sizeof header) {
    std::memcpy(&header, rest.data(), sizeof header);
    rest.remove_prefix(sizeof header);
    if (header.bytes == 0 || header.bytes > rest.size()) return {};  // the event's padding, or a damaged one
    if (header.parameter == parameter) return rest.substr(0, header.bytes);
    rest.remove_prefix(std::min<std::size_t>((header.bytes + 7U) / 8 * 8, rest.size()));
  }
  return {};
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
