#include "report/pickle.hpp"

#include <utility>

namespace plimsoll::report {
namespace {

// Opcodes of Lib/pickle.py.
constexpr char kBinInt = 'J', kLong1 = '\x8a', kBinUnicode = 'X', kEmptyDict = '}', kEmptyList = ']', kMark = '(', kSetItems = 'u',
               kAppends = 'e', kLongBinPut = 'r', kLongBinGet = 'j', kStop = '.';

}  // namespace

void PickleWriter::little_endian(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
}

void PickleWriter::integer(std::int64_t value) {
  if (value >= INT32_MIN && value <= INT32_MAX) {
    bytes_ += kBinInt;
    little_endian(static_cast<std::uint64_t>(value), 4);
    return;
  }
  bytes_ += kLong1;
  bytes_ += '\x08';
  little_endian(static_cast<std::uint64_t>(value), 8);
}

void PickleWriter::text(const std::string& value) {
  const auto known = texts_.find(value);
  if (known != texts_.end()) return recall(known->second);
  bytes_ += kBinUnicode;
  little_endian(value.size(), 4);
  bytes_ += value;
  texts_[value] = memoize();
}

void PickleWriter::dictionary(const std::function<void()>& fill) {
  bytes_ += kEmptyDict;
  bytes_ += kMark;
  fill();
  bytes_ += kSetItems;
}

void PickleWriter::list(const std::function<void()>& fill) {
  bytes_ += kEmptyList;
  bytes_ += kMark;
  fill();
  bytes_ += kAppends;
}

std::uint32_t PickleWriter::memoize() {
  bytes_ += kLongBinPut;
  little_endian(next_, 4);
  return next_++;
}

void PickleWriter::recall(std::uint32_t number) {
  bytes_ += kLongBinGet;
  little_endian(number, 4);
}

std::string PickleWriter::finish() {
  bytes_ += kStop;
  return std::move(bytes_);
}

}  // namespace plimsoll::report
