/// Operators that move elements: parts assigned, padding, turning, repeating, gathering and scattering along a dimension.
#pragma once

#include <vector>

#include "program/op.hpp"

namespace plimsoll::program {

/// x[:, start:end:step] of one dimension.
Tensor stepped(const Tensor& x, int dimension, std::int64_t start, std::int64_t end, std::int64_t step);
/// base[part] = value, `part` a view of base: by CopySlices, whose result, with base's storage, takes base's place. Without a value: a
/// number.
Tensor assign_part(const Tensor& base, const Tensor& part, const Tensor& value);
/// target.copy_(from): the result has target's storage.
Tensor copy_in_place(const Tensor& target, const Tensor& from);
/// F.pad with a constant: `before` and `behind` of each dimension, negative where it is cut.
Tensor padded(const Tensor& x, const Dims& before, const Dims& behind);
/// F.pad with mode reflect, replicate or circular of the last one to three dimensions.
Tensor padded_by_itself(const Tensor& x, const Dims& before, const Dims& behind);
/// x.flip(dims), x.roll(shifts, dims): one kernel each, whose backward is another.
Tensor turned(const Tensor& x);
/// x.roll over so many dimensions: one kernel for each.
Tensor rolled(const Tensor& x, int dimensions);
/// x.repeat(times), as many as the result has dimensions.
Tensor repeated(const Tensor& x, const Dims& times);
/// x.repeat_interleave(times, dim) of a number.
Tensor repeated_in_place(const Tensor& x, std::int64_t times, int dimension);
/// x.gather(dim, indices).
Tensor gathered(const Tensor& x, int dimension, const Tensor& indices);
/// x.scatter(dim, indices, values), scatter_add: without values, of a number. `in_place`: the result has x's storage.
Tensor scattered(const Tensor& x, const Tensor& indices, const Tensor& values, bool adds, bool in_place);
/// x.scatter_reduce(dim, indices, values, …) of what takes no gradient: a copy of x, where `excludes_self` the places that are named set to
/// what changes nothing, and the values put in; for a mean once more their counts.
Tensor scatter_reduced(const Tensor& x, const Tensor& indices, const Tensor& values, bool excludes_self, bool averages);
/// x.index_select(dim, indices).
Tensor selected_along(const Tensor& x, int dimension, const Tensor& indices);
/// x.index_add(dim, indices, rows) or in place.
Tensor index_added(const Tensor& x, const Tensor& indices, const Tensor& rows, bool in_place);
/// x[i, j, …] by tensors of indices, that broadcast, at neighbouring dimensions from `first` on; those before and behind are kept whole.
Tensor indexed_by(const Tensor& x, int first, const std::vector<Tensor>& indices);
/// x[mask] = number.
Tensor assign_masked(const Tensor& x, const Tensor& mask);
/// x[mask] = value, `place` the sizes of x[mask]: as many rows as the mask has true elements.
Tensor assign_masked_by(const Tensor& x, const Tensor& mask, const Dims& place, const Tensor& value);
/// x[mask], of whose elements so many are true: what stands behind the mask's dimensions, [count, …].
Tensor masked_rows(const Tensor& x, const Tensor& mask, std::int64_t count);
/// x.masked_select(mask), of so many true elements; x takes no gradient.
Tensor masked_selected(const Tensor& x, const Tensor& mask, std::int64_t count);
/// x.masked_scatter(mask, source).
Tensor masked_scattered(const Tensor& x, const Tensor& mask, const Tensor& source);
/// x.unfold(dim, size, step): a view.
Tensor windows(const Tensor& x, int dimension, std::int64_t size, std::int64_t step);
/// x.as_strided(sizes, strides) from x's first element on: a view, whose elements may lie over one another.
Tensor strided(const Tensor& x, const Dims& sizes, const Dims& strides);

}  // namespace plimsoll::program
