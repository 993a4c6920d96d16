// One launch as a record has it: grid, block, and those of its arguments that were kept.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace plimsoll::rehearse {

/// The tail of a record's Kernel event. Nothing is there where the launch's arguments were not seen (a trace, a kernel without a signature).
class Arguments {
 public:
  Arguments() = default;
  explicit Arguments(std::string_view tail) : tail_(tail) {}

  /// What was kept of a parameter, from 0; empty: nothing.
  std::string_view bytes(int parameter) const;
  /// A parameter that is a number or a pointer.
  std::optional<std::int64_t> integer(int parameter) const;
  /// All that were kept, in order: numbers of four bytes, and of eight (pointers are among them).
  std::vector<std::int64_t> words() const { return numbers(4); }
  std::vector<std::int64_t> longs() const { return numbers(8); }

 private:
  std::vector<std::int64_t> numbers(std::size_t bytes) const;

  std::string_view tail_;
};

/// The 4 or 8 bytes at `offset` of a structure; nothing where it is shorter.
std::optional<std::int64_t> word_at(std::string_view structure, std::size_t offset);
std::optional<std::int64_t> long_at(std::string_view structure, std::size_t offset);

struct Launch {
  std::uint64_t blocks[3] = {1, 1, 1};   ///< grid
  std::uint64_t threads[3] = {1, 1, 1};  ///< of a block
  Arguments arguments{};
};

}  // namespace plimsoll::rehearse
