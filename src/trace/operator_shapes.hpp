// What an operator's arguments say of its tensors.
#pragma once

#include <optional>
#include <vector>

#include "plimsoll/kernel.hpp"
#include "trace/recorded_events.hpp"

namespace plimsoll::trace {

/// Of the last two dimensions, as a matrix: neighbours in memory are of one column.
bool is_transposed(const TensorShape& matrix);
/// Elements from one row (or column, transposed) to the next.
std::int64_t leading(const TensorShape& matrix);
void exchange_last_two(TensorShape& matrix);

/// "is_causal" among the constants of an operator of attention; nothing where constants were not recorded.
std::optional<bool> flag_of(const Operator& op, AttentionLibrary library);

/// The dimensions that a reduction takes together: all of them for an operator that names none; nothing where they were not recorded.
std::optional<std::vector<std::size_t>> reduced_dimensions(const Operator& op);

/// The tensors that an elementwise operator reads, and how many elements it writes: those of all its tensors broadcast together.
struct PointwiseShapes {
  std::vector<TensorShape> reads;
  std::int64_t elements = 0;
};
PointwiseShapes pointwise_shapes(const Operator& op);

/// How a kernel of so many elements walks through a tensor, by the tensor's own sizes and strides.
Walk walk_of(const TensorShape& shape, std::int64_t elements);

}  // namespace plimsoll::trace
