// What moves elements: flip, roll, repeat, gather, scatter, pad, copies into parts.
#include "program/ops/placing.hpp"

#include <algorithm>

#include "code/torch/arguments.hpp"
#include "code/torch/followed.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/pointwise.hpp"
#include "program/ops/routing.hpp"

namespace plimsoll::code {

using program::Dims;
using program::Tensor;
using In = Torch::In;

namespace {

/// Dimensions or numbers that stand one by one or in a list.
std::vector<Value> listed(Interpreter& i, const Bound& a) {
  return a.rest.size() == 1 && !a.rest.front().is_integer() ? i.all_of(a.rest.front()) : a.rest;
}

Value flip(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const bool has_several = a[1].as<SequenceObject>() != nullptr;
  if (!has_several) (void)torch_of(i).dimension_of(a[1], x.rank());
  for (const Value& each : has_several ? i.all_of(a[1]) : a.rest) (void)torch_of(i).dimension_of(each, x.rank());
  return torch_of(i).wrap(program::turned(x));
}

Value roll(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const int count = a.has(2) ? static_cast<int>(torch_of(i).dimensions_of(a[2], x.rank()).size()) : 1;
  if (!a.has(2)) i.unknown("roll() of all elements", "roll(shifts, dims)");
  return torch_of(i).wrap(program::rolled(x, count));
}

Value repeat(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const Dims times = torch_of(i).sizes_of(a.rest, "repeats");
  if (times.rank() < x.rank())
    torch_of(i).wrong_shape("Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
  int split = x.rank();  // repeat_backward sees each repeated dimension as two
  std::vector<std::int64_t> sizes;
  for (int at = 0; at < times.rank(); ++at) {
    const int own = at - (times.rank() - x.rank());
    split += own >= 0 && times[at] != 1 ? 1 : 0;
    sizes.push_back(times[at] * (own < 0 ? 1 : x.size(own)));
  }
  torch_of(i).check_rank(split);
  (void)torch_of(i).checked(std::move(sizes));
  return torch_of(i).wrap(program::repeated(x, times));
}

Value tile(Interpreter& i, Bound& a) {
  const int rank = input_of(i, a).rank();
  std::vector<Value> times = listed(i, a);
  while (static_cast<int>(times.size()) < rank) times.insert(times.begin(), Value::integer(1));
  a.rest = std::move(times);
  return repeat(i, a);
}

Value repeat_interleave(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  torch_of(i).check_rank(x.rank() + 1);
  if (!a.has(2) && x.rank() != 1) i.unknown("repeat_interleave() without a dimension", "dim=");
  const int dimension = dimension_at(i, a, 2, x.rank(), 0);
  if (a[1].is_integer()) {
    const std::int64_t times = a[1].as_integer();
    if (times < 1 || times > (std::int64_t{1} << 32)) torch_of(i).wrong_shape("repeats must be positive");
    return torch_of(i).wrap(program::repeated_in_place(x, times, dimension));
  }
  if (!a.has(3)) i.unknown("repeat_interleave() by a tensor's numbers", "output_size=");
  if (dimension != 0) i.unknown("repeat_interleave() of another than the first dimension by a tensor's numbers");
  const Tensor times = torch_of(i).tensor_of(a[1], "repeats");
  torch_of(i).check_devices({&x, &times});
  return torch_of(i).wrap(program::repeat_interleave(x, times, i.whole(a[3], "output_size")));
}

const Tensor& indices_of(Interpreter& i, const Value& value, const Tensor& x) {
  const Tensor& indices = torch_of(i).tensor_of(value, "index");
  torch_of(i).check_devices({&x, &indices});
  if (indices.dtype() != DType::int64 && indices.dtype() != DType::int32) torch_of(i).wrong_shape("expected dtype int64 for index");
  return indices;
}

Value gather(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), indices = indices_of(i, a[2], x);
  if (indices.rank() != x.rank()) torch_of(i).wrong_shape("Index tensor must have the same number of dimensions as input tensor");
  return torch_of(i).wrap(program::gathered(x, torch_of(i).dimension_of(a[1], x.rank()), indices));
}

template <bool kAdds, bool kInPlace>
Value scatter(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), indices = indices_of(i, a[2], x);
  (void)torch_of(i).dimension_of(a[1], x.rank());
  if (indices.rank() != x.rank()) torch_of(i).wrong_shape("Index tensor must have the same number of dimensions as self tensor");
  const Tensor values = Torch::is_tensor(a[3]) ? torch_of(i).tensor(a[3]) : Tensor();
  if (values) torch_of(i).check_devices({&x, &values});
  if (values && values.rank() != indices.rank())
    torch_of(i).wrong_shape("Index tensor must have the same number of dimensions as src tensor");
  if (!kInPlace) {
    Value made = torch_of(i).wrap(program::scattered(x, indices, values, kAdds, false));
    if (!kAdds && a[3].is_number() && torch_of(i).dimension_of(a[1], x.rank()) == x.rank() - 1) follow_scattered(torch_of(i), a[0], a[2], a[3].as_real(), made);
    return made;
  }
  torch_of(i).check_changeable(x);
  return torch_of(i).replace(a[0], program::scattered(x, indices, values, kAdds, true));
}

/// scatter_reduce(dim, index, src, reduce, include_self).
Value scatter_reduce(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), indices = indices_of(i, a[2], x), values = torch_of(i).tensor_of(a[3], "src");
  torch_of(i).check_devices({&x, &values});
  (void)torch_of(i).dimension_of(a[1], x.rank());
  if (indices.rank() != x.rank() || values.rank() != x.rank()) torch_of(i).wrong_shape("Index tensor must have the same number of dimensions as self tensor");
  if (torch_of(i).grad_enabled() && (x.requires_grad() || values.requires_grad())) i.unknown("scatter_reduce of what takes a gradient");
  const std::string& how = i.words(a[4], "reductions");
  return torch_of(i).wrap(program::scatter_reduced(x, indices, values, !flag(i, a, 5, true), how == "mean"));
}

Value index_select(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), indices = indices_of(i, a[2], x);
  if (indices.rank() > 1) torch_of(i).wrong_shape("index_select(): Index is supposed to be a vector");
  return torch_of(i).wrap(program::selected_along(x, torch_of(i).dimension_of(a[1], x.rank()), indices));
}

template <bool kInPlace>
Value index_add(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), indices = indices_of(i, a[2], x), rows = torch_of(i).tensor_of(a[3], "source");
  (void)torch_of(i).dimension_of(a[1], x.rank());
  if (rows.dtype() != x.dtype()) torch_of(i).wrong_shape("index_add_(): self and source expected to have the same dtype");
  if (!kInPlace) return torch_of(i).wrap(program::index_added(x, indices, rows, false));
  torch_of(i).check_changeable(x);
  return torch_of(i).replace(a[0], program::index_added(x, indices, rows, true));
}

Value masked_scatter(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), mask = torch_of(i).tensor_of(a[1], "mask"), source = torch_of(i).tensor_of(a[2], "source");
  torch_of(i).check_devices({&x, &mask, &source});
  torch_of(i).check_broadcast(x, mask);
  if (x.dtype() != source.dtype()) torch_of(i).wrong_shape("masked_scatter_: expected self and source to have same dtypes");
  return torch_of(i).wrap(program::masked_scattered(x, mask, source));
}

Value masked_select(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), mask = torch_of(i).tensor_of(a[1], "mask");
  torch_of(i).check_devices({&x, &mask});
  if (mask.dtype() != DType::boolean) torch_of(i).wrong_shape("masked_select: expected BoolTensor for mask");
  if (x.sizes() != mask.sizes() || x.requires_grad()) i.unknown("masked_select() of what is broadcast, or takes a gradient");
  Value made = torch_of(i).wrap(program::masked_selected(x, mask, torch_of(i).truths_in(a[1], "masked_select(): how many elements are true")));
  made.as<TensorObject>()->ids_below = a[0].as<TensorObject>()->ids_below;
  return made;
}

Value one_hot(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  if (x.dtype() != DType::int64) torch_of(i).wrong_shape("one_hot is only applicable to index tensor of type LongTensor.");
  if (!a.has(1) || i.whole(a[1], "num_classes") < 1) i.unknown("one_hot() without num_classes", "what the device computes is not followed");
  torch_of(i).check_rank(x.rank() + 1);
  const std::int64_t classes = i.whole(a[1], "num_classes");
  Value made = torch_of(i).wrap(program::one_hot(x, classes));
  follow_classes(torch_of(i), a[0], classes, made);
  return made;
}

Value copy_into(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a), from = torch_of(i).tensor_of(a[1], "src");
  torch_of(i).check_broadcast(x, from);
  if (!torch_of(i).is_on_device(x)) return a[0];
  torch_of(i).check_devices({&x, &from});
  torch_of(i).check_changeable(x);
  return torch_of(i).replace(a[0], program::copy_in_place(x, from));
}

/// A view of a tensor that reaches no further than it does, whose own elements do not lie over one another.
Value as_strided(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const Dims sizes = torch_of(i).sizes_of(a[1], "size");
  const std::vector<Value> steps = i.all_of(a[2]);
  for (int at = 0; at < x.rank(); ++at)
    if (x.strides()[at] == 0 && x.size(at) > 1) i.unknown("as_strided() of an expanded tensor", "a copy of it");
  if (static_cast<std::size_t>(sizes.rank()) != steps.size()) torch_of(i).wrong_shape("mismatch in length of strides and shape");
  Dims strides;
  for (const Value& each : steps) strides.push_back(i.whole(each, "stride"));
  if (a.has(3)) i.unknown("as_strided() with a storage_offset", "a slice of the tensor in front of it");
  std::int64_t last = 0, most = 0;
  for (int at = 0; at < sizes.rank(); ++at) {
    if (strides[at] < 1 || sizes[at] < 1) i.unknown("as_strided() of steps or sizes that are not positive");
    std::int64_t way = 0;
    if (__builtin_mul_overflow(sizes[at] - 1, strides[at], &way) || __builtin_add_overflow(last, way, &last))
      i.unknown("as_strided() beyond the tensor's own elements");
  }
  for (int at = 0; at < x.rank(); ++at) most += (x.size(at) - 1) * x.strides()[at];
  if (last > most) i.unknown("as_strided() beyond the tensor's own elements");
  return torch_of(i).wrap(program::strided(x, sizes, strides));
}

Value unfold(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const int dimension = torch_of(i).dimension_of(a[1], x.rank());
  const std::int64_t size = i.whole(a[2], "sizes"), step = i.whole(a[3], "steps");
  torch_of(i).check_rank(x.rank() + 1);
  if (size < 1 || step < 1 || size > x.size(dimension))
    torch_of(i).wrong_shape("maximum size for tensor at dimension " + std::to_string(dimension) + " is " +
                            std::to_string(x.size(dimension)) + " but size is " + std::to_string(size));
  return torch_of(i).wrap(program::windows(x, dimension, size, step));
}

Value narrow(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const int dimension = torch_of(i).dimension_of(a[1], x.rank());
  const std::int64_t start = i.whole(a[2], "start"), length = i.whole(a[3], "length");
  if (start < 0 || length < 1 || start > x.size(dimension) - length)
    torch_of(i).wrong_shape("start (" + std::to_string(start) + ") + length (" + std::to_string(length) + ") exceeds dimension size (" +
                            std::to_string(x.size(dimension)) + ").");
  return torch_of(i).wrap(program::slice(x, dimension, start, start + length));
}

Value select(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const int dimension = torch_of(i).dimension_of(a[1], x.rank());
  const std::int64_t index = i.whole(a[2], "index");
  return torch_of(i).wrap(program::select(x, dimension, index < 0 ? index + x.size(dimension) : index));
}

/// movedim(source, destination): a permutation.
Value moved(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const std::vector<int> from = torch_of(i).dimensions_of(a[1], x.rank()), to = torch_of(i).dimensions_of(a[2], x.rank());
  if (from.size() != to.size()) torch_of(i).wrong_shape("movedim: Invalid source or destination dims");
  std::vector<int> order(static_cast<std::size_t>(x.rank()), -1);
  for (std::size_t at = 0; at < from.size(); ++at) order[static_cast<std::size_t>(to[at])] = from[at];
  int next = 0;
  for (int& each : order) {
    if (each >= 0) continue;
    while (std::find(from.begin(), from.end(), next) != from.end()) ++next;
    each = next++;
  }
  Dims dimensions;
  for (const int each : order) dimensions.push_back(each);
  return torch_of(i).wrap(program::permute(x, dimensions));
}

Value pad(Interpreter& i, Bound& a) {
  const Tensor x = input_of(i, a);
  const std::vector<Value> given = i.all_of(a[1]);
  if (given.size() % 2 != 0 || given.size() > 2 * static_cast<std::size_t>(x.rank()))
    torch_of(i).wrong_shape("Length of pad must be even and must be no more than twice the number of dimensions of the input");
  Dims before = x.sizes(), behind = x.sizes();
  for (int at = 0; at < x.rank(); ++at) before[at] = behind[at] = 0;
  for (std::size_t pair = 0; 2 * pair < given.size(); ++pair) {
    const int at = x.rank() - 1 - static_cast<int>(pair);
    before[at] = i.whole(given[2 * pair], "pad");
    behind[at] = i.whole(given[2 * pair + 1], "pad");
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    if (std::abs(before[at]) > kMost || std::abs(behind[at]) > kMost || x.size(at) + before[at] + behind[at] < 1)
      torch_of(i).wrong_shape("the resulting size of a padded dimension is not possible");
  }
  const std::string mode = a.has(2) ? i.words(a[2], "modes") : "constant";
  if (mode != "constant") {
    if (mode != "reflect" && mode != "replicate") i.unknown("padding with mode '" + mode + "'", "constant, reflect or replicate");
    return torch_of(i).wrap(program::padded_by_itself(x, before, behind));
  }
  std::vector<std::int64_t> sizes;
  for (int at = 0; at < x.rank(); ++at) sizes.push_back(x.size(at) + before[at] + behind[at]);
  (void)torch_of(i).checked(std::move(sizes));
  Value made = torch_of(i).wrap(program::padded(x, before, behind));
  follow_padded(torch_of(i), a[0], before, a.has(3) ? i.number(a[3], "value") : 0, made);
  return made;
}

constexpr OperatorRow kRows[] = {
    {In::tensor, "flip", "input, dims, *more", flip},
    {In::torch, "flip", "input, dims, *more", flip},
    {In::both, "roll", "input, shifts, dims=", roll},
    {In::tensor, "repeat", "input, *repeats", repeat},
    {In::tensor, "tile", "input, *dims", tile},
    {In::both, "repeat_interleave", "input, repeats, dim=, *, output_size=", repeat_interleave},
    {In::both, "gather", "input, dim, index", gather},
    {In::both, "scatter", "input, dim, index, src", scatter<false, false>},
    {In::both, "scatter_add", "input, dim, index, src", scatter<true, false>},
    {In::tensor, "scatter_", "input, dim, index, src", scatter<false, true>},
    {In::tensor, "scatter_add_", "input, dim, index, src", scatter<true, true>},
    {In::both, "scatter_reduce", "input, dim, index, src, reduce, *, include_self=", scatter_reduce},
    {In::both, "index_select", "input, dim, index", index_select},
    {In::both, "index_add", "input, dim, index, source", index_add<false>},
    {In::tensor, "index_add_", "input, dim, index, source", index_add<true>},
    {In::both, "masked_select", "input, mask", masked_select},
    {In::both, "masked_scatter", "input, mask, source", masked_scatter},
    {In::tensor, "copy_", "input, src, non_blocking=", copy_into},
    {In::tensor, "unfold", "input, dimension, size, step", unfold},
    {In::both, "as_strided", "input, size, stride, storage_offset=", as_strided},
    {In::both, "narrow", "input, dim, start, length", narrow},
    {In::both, "select", "input, dim, index", select},
    {In::both, "movedim", "input, source, destination", moved},
};

}  // namespace

void define_placing(Interpreter& i, Torch& torch) {
  for (const OperatorRow& row : kRows) torch.define(row.in, row.name, row.signature, row.run);
  NamespaceObject& functional = i.library("torch.nn.functional");
  functional.attributes[i.symbol("pad")] = i.native("torch.nn.functional.pad", "input, pad, mode=, value=", pad);
  functional.attributes[i.symbol("one_hot")] = i.native("torch.nn.functional.one_hot", "input, num_classes=", one_hot);
}

}  // namespace plimsoll::code
