// Writes a Python pickle (protocol 2, which every Python since 2.3 reads) opcode by opcode: dictionaries, lists, tuples of two, integers,
// text and booleans. Text that repeats is written once and recalled.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace plimsoll::report {

class PickleWriter {
 public:
  PickleWriter() : bytes_("\x80\x02") {}

  void integer(std::int64_t value);
  void text(const std::string& value);
  void boolean(bool value) { bytes_ += value ? '\x88' : '\x89'; }

  /// A dictionary or list; `fill` writes its members: for a dictionary key, value, key, value …
  void dictionary(const std::function<void()>& fill);
  void list(const std::function<void()>& fill);
  /// The tuple of the two values written last.
  void pair_of_last_two() { bytes_ += '\x86'; }

  /// Members of a dictionary.
  void member(const char* key, std::int64_t value) { text(key), integer(value); }
  void member(const char* key, const std::string& value) { text(key), text(value); }
  void member(const char* key, const char* value) { text(key), text(value); }
  void member(const char* key, bool value) { text(key), boolean(value); }

  /// Notes the value written last under the returned number; recall() writes it again, as the same object.
  std::uint32_t memoize();
  void recall(std::uint32_t number);

  /// The finished pickle; nothing can be written any more.
  std::string finish();

 private:
  void little_endian(std::uint64_t value, int bytes);

  std::string bytes_;
  std::unordered_map<std::string, std::uint32_t> texts_;
  std::uint32_t next_ = 0;
};

}  // namespace plimsoll::report
