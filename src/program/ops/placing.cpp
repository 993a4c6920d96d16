// Their backward passes: torch/csrc/autograd/FunctionsManual.cpp and functions/tensor.cpp (CopySlices) of PyTorch 2.15.
#include "program/ops/placing.hpp"

#include <algorithm>

#include "program/cub.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/memory_format.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/routing.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

Tensor integers(Tape& tape, std::int64_t count) { return tape.empty({count}, DType::int64, Category::workspace); }

/// A part of `whole` of these sizes, its strides times those of `steps`.
Tensor part_of(const Tensor& whole, const Dims& sizes) { return whole.tape().view(whole, sizes, whole.strides()); }

Dims broadcast(const Dims& a, const Dims& b) {
  Dims wider = a.rank() >= b.rank() ? a : b;
  const Dims& other = a.rank() >= b.rank() ? b : a;
  for (int i = 1; i <= other.rank(); ++i)
    if (wider[-i] == 1) wider[-i] = other[-i];
  return wider;
}

/// index_put_with_sort_kernel: linear indices of n values, sorted (Indexing.cu); see routing.cpp.
void sort_indices(Tape& tape, std::int64_t n, std::int64_t rows, int dimensions) {
  Tensor wrapped = integers(tape, n);
  const Tensor linear = integers(tape, n);
  if (dimensions > 1) pointwise(linear, {&linear, &wrapped});
  wrapped.reset();
  const Tensor sorted = integers(tape, n), origins = integers(tape, n), range = integers(tape, n);
  tape.scratch(cub::radix_sort_bytes(n, rows - 1));
  for (int i = 0; i < dimensions; ++i) {
    pointwise(linear, {&linear});
    pointwise(linear, {&linear});
  }
  pointwise(sorted, {&linear});
  pointwise(range, {});
  for (std::int64_t i = cub::radix_sort_launches(n, rows - 1); i > 0; --i)
    gather(Gather::Function::sort, n, {&sorted, &origins}, {&sorted, &origins});
}

/// Where the mask is true, `count` places (cuda/Nonzero.cu): the host reads how many before it has room for them.
Tensor true_places(Tape& tape, const Tensor& mask, std::int64_t count) {
  const Tensor found = tape.empty({}, DType::int32, Category::workspace);
  tape.scratch(1);
  constexpr std::int64_t kTile = 4096;  // of DeviceReduce: what one block sums needs no second kernel
  for (int i = mask.elements() > kTile ? 2 : 1; i > 0; --i) reduce(found, mask, Reduction::Axis::all);
  tape.copy({.direction = Copy::Direction::device_to_host, .bytes = size_of(DType::int32)}, tape.stream);
  tape.read_back();
  Tensor places = tape.empty({count * mask.rank()}, DType::int64, Category::workspace);
  tape.scratch(1);
  for (int i = 0; i < 2; ++i) gather(Gather::Function::scan, mask.elements(), {&mask}, {&places});
  return places;
}

}  // namespace

Tensor stepped(const Tensor& x, int dimension, std::int64_t start, std::int64_t end, std::int64_t step) {
  Op op("slice", {&x});
  op.tell_number(start);
  Dims sizes = x.sizes(), strides = x.strides();
  sizes[dimension] = ceil_div(end - start, step);
  strides[dimension] *= step;
  Tensor y = op.tape().view(x, sizes, strides);
  return op.done(y, [before = x.sizes(), dimension, step](BackwardCall& b) {  // slice_backward
    Tensor whole = zeros(b.tape, before, b.grad().dtype());
    Dims apart = contiguous_strides(before);
    apart[dimension] *= step;
    copy_into(b.tape.view(whole, b.grad().sizes(), apart), b.grad());
    b.give(0, std::move(whole));
  });
}

Tensor assign_part(const Tensor& base, const Tensor& part, const Tensor& value) {
  Op op("copy_slices", {&base, &value});
  if (value)
    copy_into(part.detach(), value.detach());
  else
    in_place(part.detach(), {});
  Tensor y = base.detach();
  return op.done(y, [sizes = part.sizes(), strides = part.strides(), by_tensor = value.defined()](BackwardCall& b) {
    Tensor whole = b.tape.empty(b.grad().sizes(), b.grad().dtype());
    copy_into(whole, b.grad());
    const Tensor place = b.tape.view(whole, sizes, strides);
    Tensor piece = b.tape.empty(sizes, b.grad().dtype());
    copy_into(piece, place);
    if (b.needs(0)) {
      const Tensor nothing = zeros(b.tape, sizes, b.grad().dtype());
      copy_into(place, nothing);
      b.give(0, std::move(whole));
    }
    if (by_tensor && b.needs(1)) b.give(1, std::move(piece));
  });
}

Tensor copy_in_place(const Tensor& target, const Tensor& from) {
  Op op("copy_", {&target, &from});
  copy_into(target, from);
  Tensor y = target.detach();
  return op.done(y, [type = from.dtype()](BackwardCall& b) {
    if (b.needs(0)) {
      Tensor nothing = empty_like(b.grad());
      memset(nothing);
      b.give(0, std::move(nothing));
    }
    if (b.needs(1)) b.give(1, to(b.grad(), type));
  });
}

Tensor padded(const Tensor& x, const Dims& before, const Dims& behind) {
  Op op("pad", {&x});
  Dims sizes = x.sizes(), kept = x.sizes();
  for (int i = 0; i < x.rank(); ++i) {
    sizes[i] += before[i] + behind[i];
    kept[i] += std::min<std::int64_t>(before[i], 0) + std::min<std::int64_t>(behind[i], 0);
  }
  const bool grows = sizes != kept;
  Tensor y = op.output(sizes, x.dtype());  // constant_pad_nd: filled, then the middle copied; where nothing is added, a clone of a part
  if (has_channels_last(x)) lay_channels_last(y);
  if (grows) in_place(y, {});
  copy_into(part_of(y, kept), part_of(x.detach(), kept));
  return op.done(y, [from = x.sizes(), kept](BackwardCall& b) {  // constant_pad_nd by the negative of it
    Tensor inner = b.tape.empty(from, b.grad().dtype());
    if (has_channels_last(b.grad())) lay_channels_last(inner);
    if (kept != from) in_place(inner, {});
    copy_into(part_of(inner, kept), part_of(b.grad(), kept));
    b.give(0, std::move(inner));
  });
}

Tensor padded_by_itself(const Tensor& x_in, const Dims& before, const Dims& behind) {
  const Tensor x = contiguous(x_in);
  Op op("pad", {&x});
  op.save(x);
  Dims sizes = x.sizes();
  for (int i = 0; i < x.rank(); ++i) sizes[i] += before[i] + behind[i];
  Tensor y = op.output(sizes, x.dtype());
  gather(Gather::Function::index, y.elements(), {&x}, {&y});
  return op.done(y, [](BackwardCall& b) {  // zeros_like(self), into which the kernel adds
    Tensor gradient = zeros(b.tape, b.saved(0).sizes(), b.grad().dtype());
    const Tensor grad = contiguous(b.grad());
    gather(Gather::Function::scatter, grad.elements(), {&grad}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

Tensor turned(const Tensor& x) {
  Op op("flip", {&x});
  Tensor y = empty_like(x);
  pointwise(y, {&x});
  return op.done(y, [](BackwardCall& b) { b.give(0, turned(b.grad())); });
}

Tensor rolled(const Tensor& x, int dimensions) {
  Op op("roll", {&x});
  Tensor y;
  {
    Tensor last = x.detach();
    for (int i = 0; i < dimensions; ++i) {  // roll_common: one dimension behind the other
      const Tensor packed_input = contiguous(last);
      Tensor next = op.output(x.sizes(), x.dtype());
      pointwise(next, {&packed_input});
      last = std::move(next);
    }
    y = std::move(last);
  }
  return op.done(y, [dimensions](BackwardCall& b) { b.give(0, rolled(b.grad(), dimensions)); });
}

Tensor repeated(const Tensor& x, const Dims& times) {
  Op op("repeat", {&x});
  const int added = times.rank() - x.rank();
  Dims sizes = times;  // an unfolded view of the result, [times, size] of every dimension, is copied into (repeat)
  for (int i = 0; i < times.rank(); ++i) sizes[i] = times[i] * (i < added ? 1 : x.size(i - added));
  Tensor y = op.output(sizes, x.dtype());
  if (x.elements() == y.elements() && x.is_contiguous())  // once: copy_ of what lies alike is the driver's
    op.tape().copy({Copy::Direction::device_to_device, y.bytes()}, op.tape().stream);
  else
    pointwise(op.tape(), Pointwise::Form::map, {packed(x.elements(), x.dtype())}, {packed(y.elements(), y.dtype())});
  return op.done(y, [from = x.sizes(), times, added](BackwardCall& b) {  // repeat_backward: summed over the copies
    Tensor grad = b.grad();
    std::vector<int> leading;
    for (int i = 0; i < added; ++i) leading.push_back(i);
    if (!leading.empty()) grad = sum(grad, leading, false);
    Dims split;
    std::vector<int> copies;
    for (int i = 0; i < from.rank(); ++i) {
      if (times[i + added] != 1) {
        copies.push_back(split.rank());
        split.push_back(times[i + added]);
      }
      split.push_back(from[i]);
    }
    if (!copies.empty()) grad = sum(reshape(grad, split), copies, false);
    b.give(0, std::move(grad));
  });
}

Tensor repeated_in_place(const Tensor& x, std::int64_t times, int dimension) {
  // repeat_interleave_symint of a number: unsqueeze, expand, clone(contiguous), flatten
  Dims wide;
  for (int i = 0; i < x.rank(); ++i) {
    wide.push_back(x.size(i));
    if (i == dimension) wide.push_back(times);
  }
  const Tensor seen = expand(unsqueeze(x, dimension + 1), wide);
  Tensor copy;
  {
    Op op("clone", {&seen});
    Tensor made = op.output(wide, x.dtype());
    copy_into(made, seen.detach());
    copy = op.done(made, [](BackwardCall& b) { b.give(0, b.grad()); });
  }
  Dims sizes = x.sizes();
  sizes[dimension] *= times;
  return view(copy, sizes);
}

Tensor gathered(const Tensor& x, int dimension, const Tensor& indices) {
  if (dimension == x.rank() - 1) return gather_last(x, indices);
  Op op("gather", {&x});
  op.save(indices);
  op.save(x);
  Tensor y = op.output(indices.sizes(), x.dtype());
  gather(Gather::Function::index, y.elements(), {&y, &indices}, {&y});
  return op.done(y, [before = x.sizes()](BackwardCall& b) {
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    gather(Gather::Function::scatter, b.grad().elements(), {&b.grad()}, {&b.grad()});
    b.give(0, std::move(gradient));
  });
}

Tensor scattered(const Tensor& x, const Tensor& indices, const Tensor& values, bool adds, bool into) {
  Op op(adds ? "scatter_add" : "scatter", {&x, &values});
  op.save(indices);
  Tensor y = into ? x.detach() : clone(x.detach());
  if (values)
    gather(Gather::Function::scatter, indices.elements(), {&values, &indices}, {&indices});
  else
    gather(Gather::Function::scatter, indices.elements(), {&indices}, {&indices});
  return op.done(y, [adds, by_tensor = values.defined()](BackwardCall& b) {
    const Tensor places = b.saved(0);
    if (b.needs(0)) {
      if (adds) {
        b.give(0, b.grad());
      } else {
        Tensor gradient = clone(b.grad());
        gather(Gather::Function::scatter, places.elements(), {&places}, {&places});
        b.give(0, std::move(gradient));
      }
    }
    if (!by_tensor || !b.needs(1)) return;
    Tensor gradient = b.tape.empty(places.sizes(), b.grad().dtype());
    gather(Gather::Function::index, gradient.elements(), {&gradient, &places}, {&gradient});
    b.give(1, std::move(gradient));
  });
}

Tensor scatter_reduced(const Tensor& x, const Tensor& indices, const Tensor& values, bool excludes_self, bool averages) {
  Op op("scatter_reduce", {&x});
  Tensor y = clone(x.detach());
  const auto scatter = [&](const Tensor& into) { gather(Gather::Function::scatter, indices.elements(), {&indices, &into}, {&into}); };
  if (excludes_self) scatter(y);
  gather(Gather::Function::scatter, indices.elements(), {&values, &indices}, {&y});
  if (!averages) return y;
  Tensor counts = filled(op.tape(), y.sizes(), y.dtype());  // TensorAdvancedIndexing.cpp, scatter_reduce_two: ones, or zeros where self is left out
  if (excludes_self) scatter(counts);
  const Tensor ones = filled(op.tape(), values.sizes(), y.dtype());
  scatter(counts);
  in_place(counts, {&counts});  // masked_fill_(count == 0, 1)
  in_place(y, {&y, &counts});
  return y;
}

Tensor selected_along(const Tensor& x, int dimension, const Tensor& indices) {
  if (dimension == 0) return index_select(x, indices);
  Op op("index_select", {&x});
  op.save(indices);
  Dims sizes = x.sizes();
  sizes[dimension] = indices.elements();
  Tensor y = op.output(sizes, x.dtype());
  gather(Gather::Function::index, y.elements(), {&y, &indices}, {&y});
  return op.done(y, [before = x.sizes()](BackwardCall& b) {
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    const Tensor places = b.saved(0);
    gather(Gather::Function::scatter, b.grad().elements(), {&b.grad(), &places}, {&b.grad()});
    b.give(0, std::move(gradient));
  });
}

Tensor index_added(const Tensor& x, const Tensor& indices, const Tensor& rows, bool into) {
  Op op("index_add", {&x, &rows});
  op.save(indices);
  Tensor y = into ? x.detach() : clone(x.detach());
  gather(Gather::Function::scatter, rows.elements(), {&rows, &indices}, {&rows});
  return op.done(y, [sizes = rows.sizes()](BackwardCall& b) {
    if (b.needs(0)) b.give(0, b.grad());
    if (!b.needs(1)) return;
    const Tensor places = b.saved(0);
    Tensor gradient = b.tape.empty(sizes, b.grad().dtype());
    gather(Gather::Function::index, gradient.elements(), {&gradient, &places}, {&gradient});
    b.give(1, std::move(gradient));
  });
}

namespace {

/// AdvancedIndex (TensorAdvancedIndexing.cpp): the kernel reads all indices by the same strides, so those that are broadcast differently are
/// written out.
std::vector<Tensor> alike(const std::vector<Tensor>& indices, const Dims& places) {
  std::vector<Tensor> wide;
  for (const Tensor& each : indices) wide.push_back(each.sizes() == places ? each : expand(each, places));
  const auto lies_as_first = [&](const Tensor& each) { return each.strides() == wide.front().strides(); };
  if (std::all_of(wide.begin(), wide.end(), lies_as_first)) return indices;
  for (Tensor& each : wide) each = contiguous(each);
  return wide;
}

}  // namespace

Tensor indexed_by(const Tensor& x, int first, const std::vector<Tensor>& indices) {
  Op op("index", {&x});
  for (const Tensor& each : indices) op.save(each);
  Dims places;
  for (const Tensor& each : indices) places = broadcast(places, each.sizes());
  const std::vector<Tensor> read = alike(indices, places);
  const int count = static_cast<int>(indices.size());
  Dims sizes;
  std::int64_t rows = 1;  // that the indices together tell apart
  for (int i = 0; i < first; ++i) sizes.push_back(x.size(i));
  for (int i = 0; i < places.rank(); ++i) sizes.push_back(places[i]);
  for (int i = first + count; i < x.rank(); ++i) sizes.push_back(x.size(i));
  for (int i = first; i < first + count; ++i) rows *= x.size(i);
  Tensor y = op.output(sizes, x.dtype());
  gather(Gather::Function::index, y.elements(), {&y, &read.front()}, {&y});
  return op.done(y, [before = x.sizes(), n = places.product(), rows, count](BackwardCall& b) {  // index_put_ into zeros, accumulating
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    const Tensor values = contiguous(b.grad());
    sort_indices(b.tape, n, rows, count);
    gather(Gather::Function::scatter, values.elements(), {&values}, {&values});
    b.give(0, std::move(gradient));
  });
}

Tensor masked_rows(const Tensor& x, const Tensor& mask, std::int64_t count) {
  Op op("index", {&x});
  op.save(mask);
  Dims sizes{count};
  for (int i = mask.rank(); i < x.rank(); ++i) sizes.push_back(x.size(i));
  const Tensor places = nonzero(mask, count);
  Tensor y = op.output(sizes, x.dtype());
  gather(Gather::Function::index, y.elements(), {&y, &places}, {&y});
  return op.done(y, [before = x.sizes(), count](BackwardCall& b) {  // index_put_ into zeros, accumulating, by the mask once more
    const Tensor by = b.saved(0);
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    const Tensor again = nonzero(by, count), values = contiguous(b.grad());
    sort_indices(b.tape, count, by.elements(), by.rank());
    gather(Gather::Function::scatter, values.elements(), {&values}, {&values});
    b.give(0, std::move(gradient));
  });
}

Tensor assign_masked(const Tensor& x, const Tensor& mask) {
  Op op("index_put_", {&x});
  op.save(mask);
  in_place(x, {&x, &mask});  // masked_fill_, by a number of the host
  Tensor y = x.detach();
  return op.done(y, [](BackwardCall& b) {  // grad.index_put(mask, zeros_like(value))
    const Tensor places = b.saved(0);
    Tensor gradient = clone(b.grad());
    in_place(gradient, {&gradient, &places});
    b.give(0, std::move(gradient));
  });
}

Tensor assign_masked_by(const Tensor& x, const Tensor& mask, const Dims& place, const Tensor& value) {
  Op op("index_put_", {&x, &value});
  op.save(mask);
  const auto put = [place](Tape& tape, const Tensor& target, const Tensor& by, const Tensor& from) {
    const Tensor places = true_places(tape, by, place[0]);
    gather(Gather::Function::scatter, place.product(), {&from, &places}, {&target});
  };
  put(op.tape(), x, mask, value);
  Tensor y = x.detach();
  return op.done(y, [place, put, of_value = value.sizes()](BackwardCall& b) {
    const Tensor by = b.saved(0);
    if (b.needs(0)) {  // grad.index_put(mask, zeros)
      const Tensor nothing = zeros(b.tape, of_value, b.grad().dtype());
      Tensor gradient = clone(b.grad());
      put(b.tape, gradient, by, nothing);
      b.give(0, std::move(gradient));
    }
    if (!b.needs(1)) return;
    const Tensor places = true_places(b.tape, by, place[0]);  // grad[mask], summed where the value was broadcast
    const Tensor rows = b.tape.empty(place, b.grad().dtype());
    gather(Gather::Function::index, rows.elements(), {&b.grad(), &places}, {&rows});
    b.give(1, sum_to(rows, of_value));
  });
}

Tensor masked_selected(const Tensor& x, const Tensor& mask, std::int64_t count) {
  const Op op("masked_select", {&x});
  const Tensor places = true_places(op.tape(), mask, count);
  Tensor y = op.tape().empty({count}, x.dtype());
  gather(Gather::Function::index, count, {&x, &places}, {&y});
  return y;
}

Tensor masked_scattered(const Tensor& x, const Tensor& mask, const Tensor& source) {
  Op op("masked_scatter", {&x, &source});
  op.save(mask);
  Tape& tape = op.tape();
  Tensor y = clone(x.detach());
  {  // masked_scatter_cuda_impl: where each true element's number stands, by an exclusive sum over the mask
    const Tensor wide = mask.sizes() == x.sizes() ? contiguous(mask) : contiguous(expand(mask, x.sizes()));
    const Tensor places = tape.empty(x.sizes(), DType::int64, Category::workspace);
    constexpr std::int64_t kTile = 1024;
    tape.scratch(cub::aligned(816 + 16 * ceil_div(x.elements(), kTile)) + cub::kAlignment - 1);
    for (int i = 0; i < 3; ++i)
      gather(Gather::Function::scan, wide.elements(), {&wide}, {&places});  // its start, itself, a check of the count
    const Tensor given = contiguous(source.detach());
    gather(Gather::Function::scatter, x.elements(), {&given, &wide, &places}, {&y});
  }
  return op.done(y, [from = source.sizes()](BackwardCall& b) {
    const Tensor places = b.saved(0);
    if (b.needs(0)) {
      Tensor gradient = clone(b.grad());
      in_place(gradient, {&gradient, &places});
      b.give(0, std::move(gradient));
    }
    if (!b.needs(1)) return;
    // masked_scatter_backward: grad.masked_select(mask), as many as the source has where all its elements are taken
    Tensor gradient;
    {
      const Tensor wide = places.sizes() == b.grad().sizes() ? contiguous(places) : contiguous(expand(places, b.grad().sizes()));
      const Tensor indices = true_places(b.tape, b.tape.view(wide, {wide.elements()}, {1}), from.product());
      gradient = b.tape.empty({from.product()}, b.grad().dtype());
      gather(Gather::Function::index, gradient.elements(), {&gradient, &indices}, {&gradient});
    }
    b.give(1, view(gradient, from));
  });
}

Tensor windows(const Tensor& x, int dimension, std::int64_t size, std::int64_t step) {
  Op op("unfold", {&x});
  Dims sizes = x.sizes(), strides = x.strides();
  sizes[dimension] = (x.size(dimension) - size) / step + 1;
  strides[dimension] *= step;
  sizes.push_back(size);
  strides.push_back(x.strides()[dimension]);
  Tensor y = op.tape().view(x, sizes, strides);
  return op.done(y, [before = x.sizes()](BackwardCall& b) {  // unfold_backward: zeros, then one kernel
    Tensor gradient = zeros(b.tape, before, b.grad().dtype());
    pointwise(Pointwise::Form::fused, {&b.grad()}, {&gradient});
    b.give(0, std::move(gradient));
  });
}

namespace {

/// Elements from the first of a tensor that lies so to its last (_min_storage_size).
std::int64_t reach(const Dims& sizes, const Dims& strides) {
  std::int64_t last = 0;
  for (int at = 0; at < sizes.rank(); ++at) {
    if (sizes[at] == 0) return 0;
    last += (sizes[at] - 1) * strides[at];
  }
  return last + 1;
}

/// _maybe_overlapping_memory.
bool may_overlap(const Dims& sizes, const Dims& strides) {
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;
  for (int at = 0; at < sizes.rank(); ++at) steps.emplace_back(strides[at], sizes[at]);
  std::sort(steps.begin(), steps.end());
  std::int64_t last = 0;
  for (const auto& [stride, size] : steps) {
    if (stride <= last) return true;
    last += stride * (size - 1);
  }
  return false;
}

/// as_strided_backward: the gradient scattered into zeros as large as what both reach, or added where its elements lie over one another.
Tensor strided_gradient(BackwardCall& b, const Dims& before, const Dims& before_strides, const Dims& strides) {
  Tensor grad = b.grad();
  Dims sizes, steps;
  for (int at = grad.rank() - 1; at >= 0; --at)
    if (grad.size(at) == 1) grad = squeeze(grad, at);
  for (int at = 0; at < b.grad().rank(); ++at) {
    if (b.grad().size(at) == 1) continue;
    sizes.push_back(b.grad().size(at));
    steps.push_back(strides[at]);
  }
  const std::int64_t all = std::max(reach(before, before_strides), reach(sizes, steps));
  Tensor storage = zeros(b.tape, {all}, grad.dtype());
  if (may_overlap(sizes, steps)) {
    const Tensor places = arange(b.tape, all);
    const Tensor named = reshape(b.tape.view(places, sizes, steps), {-1}), rows = reshape(grad, {-1});
    storage = index_added(storage, named, rows, true);
  } else {
    copy_into(b.tape.view(storage, sizes, steps), grad);
  }
  return b.tape.view(storage, before, before_strides);
}

}  // namespace

Tensor strided(const Tensor& x, const Dims& sizes, const Dims& strides) {
  Op op("as_strided", {&x});
  Tensor y = op.tape().view(x, sizes, strides);
  return op.done(y, [before = x.sizes(), before_strides = x.strides(), strides](BackwardCall& b) {
    b.give(0, strided_gradient(b, before, before_strides, strides));
  });
}

}  // namespace plimsoll::program
