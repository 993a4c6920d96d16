// Settings whose effects add up: what optimizes, in which 16-bit type, and with which loss does not change what a layer's passes take.
// Their differences are measured once per kind of states or head, the rest of a setting (its core) once per kind of block.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "search/layout.hpp"

namespace plimsoll::searching {

struct Separation {
  explicit Separation(const Space& space);

  /// What is separated: the optimizer, where it runs on the device; fp16 from bf16; the loss.
  enum Part : std::size_t { optimizer, half, loss };
  static constexpr std::size_t kParts = 3;

  std::vector<std::uint32_t> core;                        ///< by setting: the number of its core
  std::vector<std::uint64_t> cores;                       ///< by core: the setting that is it
  std::array<std::vector<std::uint32_t>, kParts> value;   ///< by setting: which of the part's values; 0: as the core
  std::array<std::vector<std::uint64_t>, kParts> values;  ///< by value: the setting that has it and is else a core with the least memory

  /// Layouts of one row have the same differences.
  static std::uint32_t row_of(std::size_t part, const Layout& layout) { return part == loss ? layout.head : layout.states; }
};

}  // namespace plimsoll::searching
