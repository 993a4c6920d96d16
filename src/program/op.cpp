#include "program/op.hpp"

#include "plimsoll/error.hpp"

namespace plimsoll::program {

namespace {

Tape& tape_of(const List<const Tensor*>& inputs) {
  for (const Tensor* input : inputs) {
    if (input->defined()) return input->tape();
  }
  throw Error(ErrorCode::internal, "an operator without a defined input");  // a defect of its caller
}

/// Stride of dimension `dimension` of `sizes` for `tensor` broadcast to them: 0 where it is expanded.
std::int64_t broadcast_stride(const Tensor& tensor, const Dims& sizes, int dimension) {
  const int own = dimension - (sizes.rank() - tensor.rank());
  if (own < 0 || (tensor.size(own) == 1 && sizes[dimension] != 1)) return 0;
  return tensor.strides()[own];
}

/// TensorIteratorBase::reorder_dimensions, its comparison: > 0 when dimension `a` must lie outside `b`.
int should_swap(const Dims& sizes, std::initializer_list<const Tensor*> tensors, int a, int b) {
  for (const Tensor* tensor : tensors) {
    const std::int64_t stride_a = broadcast_stride(*tensor, sizes, a);
    const std::int64_t stride_b = broadcast_stride(*tensor, sizes, b);
    if (stride_a == 0 || stride_b == 0) continue;
    if (stride_a < stride_b) return -1;
    if (stride_a > stride_b) return 1;
    if (sizes[a] > sizes[b]) return 1;
  }
  return 0;
}

/// The tensor's dimensions are a permutation of a packed row-major tensor.
bool is_dense(const Tensor& x) {
  std::int64_t span = 1;
  for (int i = 0; i < x.rank(); ++i) {
    if (x.size(i) > 1) span += (x.size(i) - 1) * x.strides()[i];
  }
  return span == x.elements();
}

}  // namespace

Dims broadcast_sizes(std::initializer_list<const Tensor*> tensors) {
  Dims sizes;
  for (const Tensor* tensor : tensors) {
    const Dims& other = tensor->sizes();
    if (other.rank() <= sizes.rank()) {
      const int shift = sizes.rank() - other.rank();
      for (int i = 0; i < other.rank(); ++i) {
        if (other[i] != 1) sizes[i + shift] = other[i];
      }
      continue;
    }
    Dims wider = other;
    const int shift = other.rank() - sizes.rank();
    for (int i = 0; i < sizes.rank(); ++i) {
      if (sizes[i] != 1) wider[i + shift] = sizes[i];
    }
    sizes = wider;
  }
  return sizes;
}

Dims elementwise_strides(const Dims& sizes, std::initializer_list<const Tensor*> tensors) {
  bool plain = true;
  for (const Tensor* tensor : tensors) plain = plain && tensor->sizes() == sizes && tensor->is_contiguous();
  if (plain) return contiguous_strides(sizes);
  std::array<int, Dims::kMost> order{};  // fastest dimension first
  const int rank = sizes.rank();
  for (int i = 0; i < rank; ++i) order[static_cast<std::size_t>(i)] = rank - 1 - i;
  for (int i = 1; i < rank; ++i) {
    int moving = i;
    for (int other = i - 1; other >= 0; --other) {
      int& a = order[static_cast<std::size_t>(other)];
      int& b = order[static_cast<std::size_t>(moving)];
      const int comparison = should_swap(sizes, tensors, a, b);
      if (comparison > 0) {
        std::swap(a, b);
        moving = other;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  Dims strides = sizes;
  std::int64_t stride = 1;
  for (int i = 0; i < rank; ++i) {
    const int dimension = order[static_cast<std::size_t>(i)];
    strides[dimension] = stride;
    stride *= std::max<std::int64_t>(sizes[dimension], 1);
  }
  return strides;
}

Dims like_strides(const Tensor& x) {
  if (x.is_contiguous()) return contiguous_strides(x.sizes());
  if (is_dense(x)) return x.strides();
  return elementwise_strides(x.sizes(), {&x});
}

Tensor elementwise(Tape& tape, std::initializer_list<const Tensor*> inputs, DType type) {
  const Dims sizes = broadcast_sizes(inputs);
  Tensor y = tape.empty(sizes, type);
  y.impl()->strides = elementwise_strides(sizes, inputs);
  pointwise(y, inputs);
  return y;
}

Tensor empty_like(const Tensor& x) {
  Tensor y = x.tape().empty(x.sizes(), x.dtype());
  y.impl()->strides = like_strides(x);
  return y;
}

Tensor zeros(Tape& tape, const Dims& sizes, DType type) {
  Tensor y = tape.empty(sizes, type);
  if (tape.torch.zeroes_by_driver())
    memset(y);
  else
    in_place(y, {});
  return y;
}

void in_place(const Tensor& target, std::initializer_list<const Tensor*> inputs) { pointwise(target, inputs); }

Op::Op(const char* name, std::initializer_list<const Tensor*> inputs) : Op(name, List<const Tensor*>(inputs)) {}

Op::Op(const char* name, List<const Tensor*> inputs)
    : inputs_(std::move(inputs)),
      tape_(tape_of(inputs_)),
      name_(name),
      name_before_(std::exchange(tape_.operator_name, name)),
      differentiable_(tape_.records(inputs_)) {
  if (differentiable_) saved_.reserve(inputs_.size() + 1);  // as many as most save
  tape_.host(HostWork::operation);
  if (tape_.trace) ++tape_.trace->running;
}

Op::~Op() {
  if (tape_.trace) --tape_.trace->running;
  tape_.operator_name = name_before_;
}

void Op::tell_trace(std::initializer_list<Tensor*> outputs) {
  std::vector<Tensor> all;
  for (const Tensor* output : outputs) all.push_back(*output);
  tell_trace(all);
}

void Op::tell_trace(const std::vector<Tensor>& outputs) {
  if (tape_.trace->running == 1) tape_.trace->ran(name_, inputs_, told_, outputs);
}

void Op::tie(Node& node) {
  node.tape = &tape_;
  node.name = name_;
  node.sequence = tape_.next_sequence();
  node.label = tape_.module_label;
  node.transposed_input = transposed_input_;
  node.edges.reserve(inputs_.size());
  for (const Tensor* input : inputs_) {
    node.edges.push_back(input->defined() && input->requires_grad() ? tape_.gradient_edge(*input) : Edge{});
  }
  node.saved = std::move(saved_);
}

void Op::save_outputs(Node& node) {
  for (auto& [condition, output] : pending_) node.saved.emplace_back(condition ? output : Tensor(), true);
}

}  // namespace plimsoll::program
