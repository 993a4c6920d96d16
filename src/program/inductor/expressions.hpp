/// What element-wise operations compute, as loops over loads (torch/_inductor/ir.py, Pointwise and its views of PyTorch 2.15): views are
/// other ways to index the same elements, and a load seen through a view is a load again.
#pragma once

#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "program/inductor/lower.hpp"

namespace plimsoll::program::inductor {

std::int64_t product_of(const std::vector<std::int64_t>& sizes);
/// Strides of elements in a row.
std::vector<std::int64_t> in_a_row(const std::vector<std::int64_t>& sizes);

/// A part of the elements of a storage: of an expression counted in the order of its dimensions, of a buffer by their places.
struct View {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;
};

View whole_view(const Dims& sizes);
std::size_t hash_of(const View& view);

/// What computes a storage's elements: loops over `sizes`, whose loads have a stride for each of them.
struct Expression {
  std::vector<std::int64_t> sizes;
  std::vector<Load> loads = {};
  std::vector<Load> values = {};  ///< nodes that it computes, in the place of buffers, each under every way in which it is indexed
};

/// The way of what begins anew after a period of single steps.
inline constexpr std::size_t kPeriodic = 2;
/// Adds a load that is not there yet.
void add_load(std::vector<Load>& loads, Load load);
std::size_t hash_of(const Load& load);
/// Whether the loops read every place of a buffer of as many elements, and once.
bool reads_each_once(const Load& load, const std::vector<std::int64_t>& sizes);
/// The load seen through `view` of the loops over `sizes` that it belongs to.
Load seen_through(const Load& load, const std::vector<std::int64_t>& sizes, const View& view);

/// Loops without their dimensions of 1, those of what is kept in the order in which it is written.
LoweredOperation loops(LoweredOperation::Kind kind, const std::vector<std::int64_t>& kept, const std::vector<std::int64_t>& places,
                       const std::vector<std::int64_t>& summed, const std::vector<Load>& loads);
/// Strides of a new buffer that nobody wants to lie otherwise: as what it is made from (ComputedBuffer.get_fill_order).
std::vector<std::int64_t> strides_like(const std::vector<std::int64_t>& kept, const std::vector<Load>& loads);

/// An access to a buffer over loops (MemoryDep).
struct Access {
  int buffer = -1;
  std::int64_t offset = 0;
  std::size_t way = 0;
  std::vector<std::int64_t> sizes, strides;
  std::int64_t places = 0;  ///< as of a load
  bool operator==(const Access&) const = default;
  /// Any order, for sets; not defaulted: vectors of older standard libraries have no three-way comparison.
  bool operator<(const Access& other) const {
    return std::tie(buffer, offset, way, sizes, strides, places) < std::tie(other.buffer, other.offset, other.way, other.sizes, other.strides, other.places);
  }

  std::int64_t elements() const {
    if (way != 0 && places != 0) return places;
    std::int64_t count = 1;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (strides[i] != 0) count *= sizes[i];
    return count;
  }
};

/// The same with its loops merged where it goes on from one to the next (MemoryDep.normalize).
Access merged(const Access& access);
/// The same with the largest steps outside, merged (MemoryDep.normalize_with_stride_order).
Access in_order_of_strides(const Access& access);
/// The same in the two loops of a sum: one over what it keeps, one over what it adds up; as it is where either goes in no single step.
Access in_loops_of_sum(const Access& access, std::int64_t kept, std::int64_t summed);

}  // namespace plimsoll::program::inductor
