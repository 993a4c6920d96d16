#include <optional>

#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/pointwise.hpp"

namespace plimsoll::program {

namespace {

int wrapped(int dimension, int rank) { return dimension < 0 ? dimension + rank : dimension; }

Dims inferred(const Tensor& x, Dims sizes) {
  std::int64_t known = 1;
  int unknown = -1;
  for (int i = 0; i < sizes.rank(); ++i) {
    if (sizes[i] < 0) {
      unknown = i;
    } else {
      known *= sizes[i];
    }
  }
  if (unknown >= 0) sizes[unknown] = x.elements() / std::max<std::int64_t>(known, 1);
  return sizes;
}

/// at::detail::computeStride: the strides of a view with `sizes`, if there is one.
std::optional<Dims> view_strides(const Tensor& x, const Dims& sizes) {
  if (x.is_contiguous() || x.elements() == 0) return contiguous_strides(sizes);
  Dims strides = sizes;
  int next = sizes.rank() - 1;
  std::int64_t chunk_base = x.strides()[-1];
  std::int64_t tensor_elements = 1, view_elements = 1;
  for (int i = x.rank() - 1; i >= 0; --i) {
    tensor_elements *= x.size(i);
    const bool chunk_ends = i == 0 || (x.size(i - 1) != 1 && x.strides()[i - 1] != tensor_elements * chunk_base);
    if (!chunk_ends) continue;
    while (next >= 0 && (view_elements < tensor_elements || sizes[next] == 1)) {
      strides[next] = view_elements * chunk_base;
      view_elements *= sizes[next];
      --next;
    }
    if (view_elements != tensor_elements) return std::nullopt;
    if (i > 0) {
      chunk_base = x.strides()[i - 1];
      tensor_elements = view_elements = 1;
    }
  }
  return next == -1 ? std::optional<Dims>(strides) : std::nullopt;
}

/// A view operator: no kernel; `backward` maps the gradient back.
template <class Function>
Tensor view_op(const char* name, const Tensor& x, const Dims& sizes, const Dims& strides, Function&& backward, std::int64_t start = 0) {
  Op op(name, {&x});
  op.tell_number(start);
  Tensor y = op.tape().view(x, sizes, strides);
  return op.done(y, std::forward<Function>(backward));
}

/// slice_backward and select_backward: the gradient copied into its place, a view of these strides, among zeros.
Tensor placed_in_zeros(BackwardCall& b, const Dims& before, const Dims& strides) {
  Tensor whole = zeros(b.tape, before, b.grad().dtype());
  if (b.grad().elements() > 0) copy_into(b.tape.view(whole, b.grad().sizes(), strides), b.grad());
  return whole;
}

/// contiguous_strides of a tensor without its dimension `at`.
Dims strides_without(const Dims& sizes, int at) {
  const Dims whole = contiguous_strides(sizes);
  Dims strides;
  for (int i = 0; i < whole.rank(); ++i)
    if (i != at) strides.push_back(whole[i]);
  return strides;
}

/// Kernels of cat (cat_out_cuda) of `rank` dimensions: one batched copy of inputs of one type in up to four dimensions, else input by input
/// a copy into its part of the result, a view of these strides.
void launch_cat(Tape& tape, const Tensor& y, int rank, const Dims& strides, const std::vector<Tensor>& inputs) {
  constexpr int kMostDimensions = 4;
  const bool one_type = std::all_of(inputs.begin(), inputs.end(), [&](const Tensor& input) { return input.dtype() == y.dtype(); });
  if (inputs.size() > 1 && one_type && rank <= kMostDimensions) return concatenate(y, inputs);
  for (const Tensor& input : inputs)
    if (input.elements() > 0) copy_into(tape.view(y, input.sizes(), strides), input);
}

}  // namespace

bool can_view(const Tensor& x, const Dims& sizes) { return view_strides(x, sizes).has_value(); }

Tensor view(const Tensor& x, Dims sizes) {
  sizes = inferred(x, sizes);
  return view_op("view", x, sizes, view_strides(x, sizes).value(),
                 [before = x.sizes()](BackwardCall& b) { b.give(0, reshape(b.grad(), before)); });
}

Tensor alias(const Tensor& x) {
  return view_op("alias", x, x.sizes(), x.strides(), [](BackwardCall& b) { b.give(0, b.grad()); });
}

Tensor unsafe_view(const Tensor& x, Dims sizes) {
  sizes = inferred(x, sizes);
  Op op("unsafe_view", {&x});
  Tensor y = x.detach();
  y.impl()->sizes = sizes;
  y.impl()->strides = view_strides(x, sizes).value();
  return op.done(y, [before = x.sizes()](BackwardCall& b) { b.give(0, reshape(b.grad(), before)); });
}

Tensor reshape(const Tensor& x, Dims sizes) {
  sizes = inferred(x, sizes);
  if (view_strides(x, sizes)) return view(x, sizes);
  Tensor packed;
  {
    Op op("reshape", {&x});
    Tensor copy = op.output(x.sizes(), x.dtype());
    copy_into(copy, x);
    packed = op.done(copy, [](BackwardCall& b) { b.give(0, b.grad()); });
  }
  return unsafe_view(packed, sizes);
}

Tensor permute(const Tensor& x, const Dims& order) {
  Dims sizes = x.sizes(), strides = x.strides(), inverse = order;
  for (int i = 0; i < order.rank(); ++i) {
    sizes[i] = x.size(static_cast<int>(order[i]));
    strides[i] = x.strides()[static_cast<int>(order[i])];
    inverse[static_cast<int>(order[i])] = i;
  }
  return view_op("permute", x, sizes, strides, [inverse](BackwardCall& b) { b.give(0, permute(b.grad(), inverse)); });
}

Tensor transpose(const Tensor& x, int first, int second) {
  Dims sizes = x.sizes(), strides = x.strides();
  std::swap(sizes[first], sizes[second]);
  std::swap(strides[first], strides[second]);
  return view_op("transpose", x, sizes, strides, [first, second](BackwardCall& b) { b.give(0, transpose(b.grad(), first, second)); });
}

Tensor unsqueeze(const Tensor& x, int dimension) {
  const int at = wrapped(dimension, x.rank() + 1);
  Dims sizes, strides;
  for (int i = 0; i <= x.rank(); ++i) {
    if (i == at) {
      sizes.push_back(1);
      strides.push_back(at < x.rank() ? x.size(at) * x.strides()[at] : 1);
    }
    if (i < x.rank()) {
      sizes.push_back(x.size(i));
      strides.push_back(x.strides()[i]);
    }
  }
  return view_op("unsqueeze", x, sizes, strides, [at](BackwardCall& b) { b.give(0, squeeze(b.grad(), at)); });
}

Tensor squeeze(const Tensor& x, int dimension) {
  const int at = wrapped(dimension, x.rank());
  Dims sizes, strides;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == at) continue;
    sizes.push_back(x.size(i));
    strides.push_back(x.strides()[i]);
  }
  return view_op("squeeze", x, sizes, strides, [at](BackwardCall& b) { b.give(0, unsqueeze(b.grad(), at)); });
}

Tensor expand(const Tensor& x, Dims sizes) {
  Dims strides = sizes;
  const int added = sizes.rank() - x.rank();
  for (int i = 0; i < sizes.rank(); ++i) {
    if (sizes[i] < 0) sizes[i] = x.size(i - added);
    strides[i] = i < added || (x.size(i - added) == 1 && sizes[i] != 1) ? 0 : x.strides()[i - added];
  }
  return view_op("expand", x, sizes, strides, [before = x.sizes()](BackwardCall& b) { b.give(0, sum_to(b.grad(), before)); });
}

Tensor slice(const Tensor& x, int dimension, std::int64_t start, std::int64_t end) {
  const int at = wrapped(dimension, x.rank());
  if (start == 0 && end == x.size(at)) return alias(x);
  Dims sizes = x.sizes();
  sizes[at] = end - start;
  const auto backward = [before = x.sizes()](BackwardCall& b) {  // slice_backward
    b.give(0, placed_in_zeros(b, before, contiguous_strides(before)));
  };
  return view_op("slice", x, sizes, x.strides(), backward, start);
}

Tensor every_second(const Tensor& x, std::int64_t start) {
  Dims sizes = x.sizes(), strides = x.strides();
  sizes[-1] = ceil_div(x.size(-1) - start, 2);
  strides[-1] *= 2;
  return view_op("slice", x, sizes, strides, [before = x.sizes()](BackwardCall& b) {  // slice_backward
    Dims every_other = contiguous_strides(before);
    every_other[-1] *= 2;
    b.give(0, placed_in_zeros(b, before, every_other));
  }, start);
}

Tensor select(const Tensor& x, int dimension, std::int64_t index) {
  const int at = wrapped(dimension, x.rank());
  Dims sizes, strides;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == at) continue;
    sizes.push_back(x.size(i));
    strides.push_back(x.strides()[i]);
  }
  return view_op("select", x, sizes, strides, [before = x.sizes(), at](BackwardCall& b) {  // select_backward
    b.give(0, placed_in_zeros(b, before, strides_without(before, at)));
  }, index);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int dimension) {
  const int at = wrapped(dimension, x.rank());
  Op op("split", {&x});
  std::vector<Tensor> parts;
  parts.reserve(sizes.size());
  for (std::int64_t size : sizes) {
    Dims part = x.sizes();
    part[at] = size;
    parts.push_back(op.tape().view(x, part, x.strides()));
  }
  op.finish_all(parts, [at, count = sizes.size()](BackwardCall& b) {  // split_backward: cat of the gradients, zeros where none came
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < count; ++i) {
      const TensorMeta& meta = b.node.outputs[i];
      gradients.push_back(b.grad(i) ? b.grad(i) : zeros(b.tape, meta.sizes, meta.type));
    }
    b.give(0, cat(gradients, at));
  });
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, int chunks, int dimension) {
  const std::int64_t size = x.size(dimension);
  const std::int64_t each = ceil_div(size, chunks);
  std::vector<std::int64_t> sizes;
  for (std::int64_t start = 0; start < size; start += each) sizes.push_back(std::min(each, size - start));
  return split(x, sizes, dimension);
}

std::vector<Tensor> unbind(const Tensor& x, int dimension) {
  const int at = wrapped(dimension, x.rank());
  Dims sizes, strides;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == at) continue;
    sizes.push_back(x.size(i));
    strides.push_back(x.strides()[i]);
  }
  Op op("unbind", {&x});
  std::vector<Tensor> parts;
  for (std::int64_t i = 0; i < x.size(at); ++i) parts.push_back(op.tape().view(x, sizes, strides));
  op.finish_all(parts, [at, count = parts.size()](BackwardCall& b) {  // unbind_backward: stack of the gradients, zeros where none came
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < count; ++i) {
      const TensorMeta& meta = b.node.outputs[i];
      gradients.push_back(b.grad(i) ? b.grad(i) : zeros(b.tape, meta.sizes, meta.type));
    }
    b.give(0, stack(gradients, at));
  });
  return parts;
}

Tensor stack(const std::vector<Tensor>& tensors, int dimension) {
  const Tensor& first = tensors.front();
  const int at = wrapped(dimension, first.rank() + 1);
  Dims sizes;
  for (int i = 0; i <= first.rank(); ++i) {
    if (i == at) sizes.push_back(static_cast<std::int64_t>(tensors.size()));
    if (i < first.rank()) sizes.push_back(first.size(i));
  }
  List<const Tensor*> inputs;
  for (const Tensor& tensor : tensors) inputs.push_back(&tensor);
  Op op("stack", inputs);
  op.tell_number(at);
  Tensor y = op.output(sizes, first.dtype());
  // stack is cat in a dimension that its tensors have, whose result is split there; only behind the last are they unsqueezed first.
  launch_cat(op.tape(), y, std::max(first.rank(), at + 1), strides_without(sizes, at), tensors);
  return op.done(y, [at, part = first.sizes(), count = tensors.size()](BackwardCall& b) {  // unbind of the gradient
    Dims strides;
    for (int i = 0; i <= part.rank(); ++i)
      if (i != at) strides.push_back(b.grad().strides()[i]);
    for (std::size_t i = 0; i < count; ++i)
      if (b.needs(i)) b.give(i, b.tape.view(b.grad(), part, strides));
  });
}

Tensor cat(const std::vector<Tensor>& tensors, int dimension) {
  const int at = wrapped(dimension, tensors.front().rank());
  List<const Tensor*> inputs;
  Dims sizes = tensors.front().sizes();
  sizes[at] = 0;
  DType type = tensors.front().dtype();  // of the widest
  for (const Tensor& tensor : tensors) {
    if (size_of(tensor.dtype()) > size_of(type)) type = tensor.dtype();
    inputs.push_back(&tensor);
    sizes[at] += tensor.size(at);
  }
  Op op("cat", inputs);
  op.tell_number(at);
  Tensor y = op.output(sizes, type);
  launch_cat(op.tape(), y, y.rank(), y.strides(), tensors);
  std::vector<Dims> parts;
  for (const Tensor& tensor : tensors) parts.push_back(tensor.sizes());
  return op.done(y, [parts = std::move(parts)](BackwardCall& b) {  // narrow of the gradient
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (b.needs(i)) b.give(i, b.tape.view(b.grad(), parts[i], b.grad().strides()));
    }
  });
}

namespace {

/// base[slice].copy_(part): CopySlices, whose backward copies the whole gradient, then the slice of it that the part gets; what the base
/// held before gets zeros there.
Tensor copy_slice(const Tensor& base, const Tensor& part) {
  Op op("copy_slices", {&base, &part});
  copy_into(part.detach(), part);
  Tensor y = base.detach();
  return op.done(y, [before = part.sizes()](BackwardCall& b) {
    Tensor whole = b.tape.empty(b.grad().sizes(), b.grad().dtype());  // as the base lies
    copy_into(whole, b.grad());
    Tensor piece = b.tape.empty(before, b.grad().dtype());
    const Tensor place = b.tape.view(whole, before, whole.strides());
    in_place(piece, {&place});
    if (b.needs(0)) {
      const Tensor nothing = zeros(b.tape, before, b.grad().dtype());
      in_place(place, {&nothing});
      b.give(0, std::move(whole));
    }
    b.give(1, std::move(piece));
  });
}

}  // namespace

Tensor copied_side_by_side(const Tensor& left, const Tensor& right) {
  Dims sizes = left.sizes();
  sizes[-1] += right.size(-1);
  left.tape().operator_name = "copy_slices";
  const Tensor base = left.tape().empty(sizes, left.dtype());
  const Tensor half = copy_slice(base, left);
  return copy_slice(half, right);
}

Tensor clone(const Tensor& x) {
  Op op("clone", {&x});
  Tensor y = empty_like(x);
  copy_into(y, x);
  return op.done(y, [](BackwardCall& b) { b.give(0, b.grad()); });
}

Tensor contiguous(const Tensor& x) {
  if (x.is_contiguous()) return x;
  Op op("contiguous", {&x});
  Tensor y = op.output(x.sizes(), x.dtype());
  copy_into(y, x);
  return op.done(y, [](BackwardCall& b) { b.give(0, b.grad()); });
}

Tensor pad_last(const Tensor& x, std::int64_t left, std::int64_t right) {
  Op op("pad", {&x});
  Dims sizes = x.sizes();
  sizes[-1] += left + right;
  Tensor y = op.output(sizes, x.dtype());  // constant_pad_nd: fill, then copy into the middle
  in_place(y, {});
  if (x.elements() == x.size(-1)) {  // a single row lies in one piece there
    op.tape().copy({Copy::Direction::device_to_device, x.bytes()}, op.tape().stream);
  } else {
    in_place(op.tape().view(y, x.sizes(), y.strides()), {&x});
  }
  return op.done(y, [before = x.sizes()](BackwardCall& b) {  // constant_pad_nd with negative padding: a clone of the narrowed gradient
    Tensor inner = b.tape.empty(before, b.grad().dtype());
    const Tensor narrow = b.tape.view(b.grad(), before, b.grad().strides());
    in_place(inner, {&narrow});
    b.give(0, std::move(inner));
  });
}

}  // namespace plimsoll::program
