#include "program/kernels.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "plimsoll/error.hpp"

namespace plimsoll::program {
namespace {

/// The largest power of two up to 16 bytes that divides every distance.
std::int16_t alignment_of(std::initializer_list<const Matrix*> matrices) {
  std::int64_t bits = 16;
  for (const Matrix* matrix : matrices) bits |= (matrix->leading | matrix->pitch) * size_of(matrix->type);
  return static_cast<std::int16_t>(bits & -bits);
}

/// Before PyTorch 1.13 cuBLAS multiplied batches of 16-bit matrices whose addresses are no multiples of 16 bytes without tensor cores: in
/// BigScience's runs on A100 (PyTorch 1.11) heads of 108 and 150 elements cost a step of GPT-200B as much as attention at half of fp32's peak
/// does (tr11-176B-ml/chronicles-prequel.md, NHEADS comparison). Under 1.13 heads of 150 reached 79 and 94 TFLOP/s on an A100, of 151 57 and 56
/// (EleutherAI/cookbook fb3e361, sizing/results/transformer_data/h_sweep.out).
bool leaves_tensor_cores(const Tape& tape, const Product& p) {
  return !tape.torch.batches_need_no_alignment() && !tape.device.amd() && p.batch > 1 && p.alignment < 16 && size_of(p.a) == 2;
}

Product product_of(const Tape& tape, const Matrix& a, const Matrix& b, const Matrix& out, const ProductOptions& options) {
  Product product;
  product.m = out.columns;  // column-major: the result's rows and columns, and the operands, change places
  product.n = out.rows;
  product.k = a.columns;
  product.batch = out.batch;
  product.transpose_a = b.transposed;
  product.transpose_b = a.transposed;
  product.a = b.type;
  product.b = a.type;
  product.result = out.type;
  product.arithmetic = tape.tf32 && a.type == DType::fp32 ? Arithmetic::tf32 : Arithmetic::native;
  product.scaling = options.scaling;
  product.epilogue = options.epilogue;
  product.accumulates = options.accumulates;
  product.alignment = alignment_of({&a, &b, &out});
  if (leaves_tensor_cores(tape, product)) product.arithmetic = Arithmetic::simt;
  return product;
}

constexpr std::int64_t kTileCounter = 4;

/// Whether cuBLAS's kernels of Hopper on (nvjet) hand out the tiles of a 16-bit product by a counter, set to zero before: products of more
/// than two waves of tiles. Read off traces of PyTorch 2.11 on an H100: tiles of 256 x 128 and others of about that size.
bool schedules_tiles_by_counter(const Tape& tape, const Product& p) {
  constexpr std::int64_t kRows = 256, kColumns = 128, kWaves = 2;
  if (!tape.torch.has_cuda_13() || size_of(p.a) != 2 || p.alignment < 16) return false;
  return p.m * p.n * p.batch > kWaves * tape.device.units * kRows * kColumns;
}

/// Distinct elements: those that a stride of zero repeats count once.
std::int64_t distinct(const Tensor& x) {
  std::int64_t elements = 1;
  for (int i = 0; i < x.rank(); ++i)
    if (x.strides()[i] != 0) elements *= x.size(i);
  return elements;
}

/// Kernels of a pointwise operator whose largest operand has so many elements of this size: TensorIterator halves what 32-bit offsets in
/// bytes do not reach (TensorIterator::with_32bit_indexing). Parts of one depth have `least` elements or one more, so that two counts tell of
/// all of them, however many there are.
std::int64_t indexed_parts(std::int64_t elements, std::int64_t size) {
  const auto reached = [&](std::int64_t part) { return 1 + (part - 1) * size <= std::numeric_limits<std::int32_t>::max(); };
  std::int64_t least = elements, of_least = 1, of_more = 0;
  while (!reached(least)) {
    const bool odd = least % 2 != 0;
    const std::int64_t halves = odd ? of_least : 2 * of_least + of_more, more = odd ? of_least + 2 * of_more : of_more;
    least /= 2, of_least = halves, of_more = more;
  }
  return of_least + (reached(least + 1) ? of_more : 2 * of_more);
}

Operand part_of(Operand operand, std::int64_t parts) {
  operand.elements /= parts;
  return operand;
}

/// Whether some dimension of `out` that is longer than one is read by x without moving.
bool broadcasts(const Tensor& x, const Tensor& out) {
  const int shift = out.rank() - x.rank();
  for (int i = 0; i < out.rank(); ++i) {
    if (out.size(i) == 1) continue;
    const int own = i - shift;
    if (own < 0 || x.size(own) == 1 || x.strides()[own] == 0) return true;
  }
  return false;
}

/// The iteration over a result: its dimensions that are longer than one, from the one that moves least in memory.
class Iteration {
 public:
  explicit Iteration(const Tensor& out) : sizes_(out.sizes()) {
    const Dims& strides = out.strides();
    for (int i = sizes_.rank() - 1; i >= 0; --i)
      if (sizes_[i] > 1) insert(i, strides);
  }

  int dimensions() const { return dimensions_; }
  /// Whether x moves from dimension i − 1 to dimension i as if they were one.
  bool merges(const Tensor& x, int i) const { return step(x, i) == step(x, i - 1) * sizes_[at(i - 1)]; }
  /// Whether x follows the result without gaps.
  bool dense(const Tensor& x) const {
    bool follows = dimensions_ == 0 || step(x, 0) == 1;
    for (int i = 1; i < dimensions_; ++i) follows = follows && merges(x, i);
    return follows;
  }
  /// Whether the innermost step takes x to another place than its next element.
  bool transposes(const Tensor& x) const { return dimensions_ > 0 && step(x, 0) > 1; }

 private:
  int& at(int i) { return order_[static_cast<std::size_t>(i)]; }
  int at(int i) const { return order_[static_cast<std::size_t>(i)]; }
  /// Among those before it, behind its equals: half a dozen at most, and one iteration for every kernel of a program.
  void insert(int dimension, const Dims& strides) {
    int place = dimensions_++;
    for (; place > 0 && strides[dimension] < strides[at(place - 1)]; --place) at(place) = at(place - 1);
    at(place) = dimension;
  }
  /// How far x moves in dimension i of the iteration: 0 where it is broadcast.
  std::int64_t step(const Tensor& x, int i) const {
    const Dims& sizes = x.sizes();
    const int own = at(i) - (sizes_.rank() - sizes.rank());
    return own < 0 || sizes[own] == 1 ? 0 : x.strides()[own];
  }

  const Dims& sizes_;
  std::array<int, Dims::kMost> order_{};
  int dimensions_ = 0;
};

/// Of another shape, and as many elements in the order of memory: a view of the result's shape.
bool flat(const Tensor& x, const Tensor& like) {
  return x.sizes() != like.sizes() && x.is_contiguous() && like.is_contiguous() && x.elements() == like.elements();
}

/// Dimensions that are left when those that all operands walk through in one go are merged (TensorIteratorBase::coalesce_dimensions).
std::uint8_t merged_dimensions(const Iteration& iteration, const Tensor& out, std::initializer_list<const Tensor*> ins) {
  int merged = 1;
  for (int i = 1; i < iteration.dimensions(); ++i) {
    const auto merges = [&](const Tensor* in) { return flat(*in, out) || iteration.merges(*in, i); };
    if (!iteration.merges(out, i) || !std::all_of(ins.begin(), ins.end(), merges)) ++merged;
  }
  return static_cast<std::uint8_t>(merged);
}

/// x as a kernel over `like` walks through it.
Operand walked(const Iteration& iteration, const Tensor& x, const Tensor& like) {
  if (iteration.dense(x) || flat(x, like)) return {x.elements(), x.dtype(), Walk::contiguous};
  if (broadcasts(x, like)) return {distinct(x), x.dtype(), Walk::broadcast};
  return {distinct(x), x.dtype(), iteration.transposes(x) ? Walk::transposed : Walk::strided};
}

/// What a kernel depends on of a tensor.
void add(LaunchMemo::Key& key, const Tensor& x) {
  const Dims &sizes = x.sizes(), &strides = x.strides();
  key.add(sizes.rank() * 256 + static_cast<std::int64_t>(x.dtype()));
  for (int i = 0; i < sizes.rank(); ++i) {
    key.add(sizes[i]);
    key.add(strides[i]);
  }
}

LaunchMemo::Launch launch_pointwise(const Tensor& out, std::initializer_list<const Tensor*> ins) {
  const std::int64_t elements = out.elements();
  if (elements == 0) return {};
  std::int64_t widest = size_of(out.dtype());
  for (const Tensor* in : ins)
    if (in->elements() == elements) widest = std::max(widest, size_of(in->dtype()));
  const std::int64_t parts = indexed_parts(elements, widest);
  Pointwise kernel;
  kernel.elements = elements / parts;
  const Iteration iteration(out);
  for (const Tensor* in : ins) kernel.operands.read(part_of(walked(iteration, *in, out), parts));
  kernel.operands.write(part_of(walked(iteration, out, out), parts));
  kernel.dimensions = merged_dimensions(iteration, out, ins);
  return out.tape().launch({kernel}, parts);
}

Operands operands_of(std::initializer_list<const Tensor*> ins, std::initializer_list<const Tensor*> outs) {
  Operands operands;
  for (const Tensor* in : ins)
    if (in->defined()) operands.read(operand(*in));
  for (const Tensor* out : outs)
    if (out->defined()) operands.write(operand(*out));
  return operands;
}

Tape& tape_of(std::initializer_list<const Tensor*> ins, std::initializer_list<const Tensor*> outs) {
  for (const auto& list : {outs, ins})
    for (const Tensor* tensor : list)
      if (tensor->defined()) return tensor->tape();
  throw Error(ErrorCode::internal, "a kernel without a tensor");
}

/// Whether the dimension whose elements are neighbours in memory is among the reduced ones.
Reduction::Axis axis_of(const Tensor& out, const Tensor& in, const std::vector<bool>& reduced) {
  if (out.elements() == 1) return Reduction::Axis::all;
  int innermost = -1;
  for (int i = 0; i < in.rank(); ++i) {
    if (in.size(i) == 1) continue;
    if (innermost < 0 || in.strides()[i] <= in.strides()[innermost]) innermost = i;
  }
  return innermost >= 0 && reduced[static_cast<std::size_t>(innermost)] ? Reduction::Axis::inner : Reduction::Axis::outer;
}

}  // namespace

Matrix matrix(const Tensor& x) {
  Matrix m;
  m.rows = x.size(-2);
  m.columns = x.size(-1);
  for (int i = 0; i < x.rank() - 2; ++i) {
    m.batch *= x.size(i);
    if (x.size(i) > 1) m.pitch = std::gcd(m.pitch, x.strides()[i]);
  }
  m.transposed = x.strides()[-1] != 1 && x.strides()[-2] == 1;
  m.leading = std::max(x.strides()[m.transposed ? -1 : -2], m.transposed ? m.rows : m.columns);
  m.type = x.dtype();
  return m;
}

Matrix folded(const Tensor& x) {
  if (x.rank() == 2) return matrix(x);
  const std::int64_t columns = x.size(-1);
  int rows = x.rank() - 2;  // the innermost dimension of rows
  while (rows > 0 && x.size(rows) == 1) --rows;
  const std::int64_t leading = rows < 0 ? columns : std::max(x.strides()[rows], columns);
  return {x.elements() / columns, columns, 1, leading, false, x.dtype()};
}

void gemm(Tape& tape, const Matrix& a, const Matrix& b, const Matrix& out, const ProductOptions& options) {
  // A product with an epilogue goes through cuBLASLt, which has a workspace of its own (CUDABlas.cpp, gemm_and_bias).
  if (options.workspace)
    tape.product_workspace(options.epilogue == Epilogue::none ? Tape::BlasLibrary::cublas : Tape::BlasLibrary::cublas_lt);
  const Product product = product_of(tape, a, b, out, options);
  if (product.m * product.n * product.k == 0) refuse("a product of a tensor without elements is not modelled");
  if (schedules_tiles_by_counter(tape, product)) tape.copy({Copy::Direction::set, kTileCounter}, tape.stream);
  tape.kernel({product});
}

void grouped_gemm(Tape& tape, const Matrix& a, const Matrix& b, const Matrix& out, std::int64_t groups, const ProductOptions& options) {
  Product product = product_of(tape, a, b, out, options);
  product.grouped = true;
  product.batch = groups;
  if (out.batch == 1) {
    product.n = ceil_div(product.n, groups);  // tokens
  } else {
    product.k = ceil_div(product.k, groups);
  }
  tape.kernel({product});
}

LinearMatrices matrices_of(LinearPass pass, const LinearShape& shape) {
  const auto matrix_of = [](std::int64_t rows, std::int64_t columns, DType type) { return Matrix{rows, columns, 1, columns, false, type}; };
  const auto [rows, in, out, type, result, turned] = shape;
  switch (pass) {
    case LinearPass::forward:
      return {matrix_of(rows, in, type), matrix_of(out, in, type).t(), matrix_of(rows, out, result)};
    case LinearPass::input_gradient:
      return {matrix_of(rows, out, type), turned ? matrix_of(in, out, type).t() : matrix_of(out, in, type), matrix_of(rows, in, result)};
    case LinearPass::weight_gradient:
      if (turned) return {matrix_of(out, rows, type), matrix_of(in, rows, type).t(), matrix_of(out, in, result)};
      return {matrix_of(rows, out, type).t(), matrix_of(rows, in, type), matrix_of(out, in, result)};
  }
  throw Error(ErrorCode::internal, "a linear layer has three products");
}

void linear_product(Tape& tape, LinearPass pass, const LinearShape& shape, const ProductOptions& options) {
  const LinearMatrices m = matrices_of(pass, shape);
  gemm(tape, m.a, m.b, m.out, options);
}

void grouped_linear_product(Tape& tape, LinearPass pass, const LinearShape& shape, std::int64_t groups, const ProductOptions& options) {
  LinearMatrices m = matrices_of(pass, shape);
  (pass == LinearPass::weight_gradient ? m.out : m.b).batch = groups;
  grouped_gemm(tape, m.a, m.b, m.out, groups, options);
}

Attention attention_over(AttentionLibrary library, const Tensor& query, const Tensor& key, const Tensor& value, HeadsOrder order) {
  const bool inside = order == HeadsOrder::batch_heads_length;
  const int batch = order == HeadsOrder::length_batch_heads ? 1 : 0, heads = inside ? 1 : 2;
  const int length = inside ? 2 : 1 - batch;
  Attention attention;
  attention.library = library;
  attention.type = query.dtype();
  attention.batch = query.size(batch);
  attention.heads = query.size(heads);
  attention.kv_heads = key.size(heads);
  attention.queries = query.size(length);
  attention.keys = key.size(length);
  attention.head_dim = query.size(3);
  attention.value_dim = value.size(3);
  return attention;
}

Operand operand(const Tensor& x, const Tensor& like) { return walked(Iteration(like), x, like); }

Operand operand(const Tensor& x) { return {distinct(x), x.dtype(), x.is_contiguous() ? Walk::contiguous : Walk::strided}; }

void pointwise(const Tensor& out, std::initializer_list<const Tensor*> ins) {
  Tape& tape = out.tape();
  if (!tape.is_recording()) return;
  LaunchMemo::Key key;
  add(key, out);
  for (const Tensor* in : ins) add(key, *in);
  if (const LaunchMemo::Launch* known = tape.pointwise_launches.find(key)) return tape.relaunch(*known);
  tape.pointwise_launches.keep(key, launch_pointwise(out, ins));
}

void pointwise(Pointwise::Form form, std::initializer_list<const Tensor*> ins, std::initializer_list<const Tensor*> outs) {
  Pointwise kernel{form, 0, operands_of(ins, outs)};
  for (const Operand& each : kernel.operands) kernel.elements = std::max(kernel.elements, each.elements);
  if (kernel.elements > 0) tape_of(ins, outs).kernel({kernel});
}

void concatenate(const Tensor& out, const std::vector<Tensor>& ins) {
  Pointwise kernel{Pointwise::Form::concatenate, out.elements(), {}};
  for (const Tensor& in : ins)
    if (in.elements() > 0) kernel.operands.read(operand(in));
  kernel.operands.write(operand(out));
  if (kernel.elements > 0) out.tape().kernel({kernel});
}

void reduce(const Tensor& out, const Tensor& in, const std::vector<bool>& reduced) { reduce(out, in, axis_of(out, in, reduced)); }

void reduce(const Tensor& out, const Tensor& in, Reduction::Axis axis) {
  if (in.elements() == 0) return pointwise(out, {});  // of nothing: result.zero_() (sum_out)
  Reduction kernel;
  kernel.axis = axis;
  kernel.outputs = std::max<std::int64_t>(out.elements(), 1);
  kernel.reduced = in.elements() / kernel.outputs;
  kernel.operands = Operands({operand(in)}, {operand(out)});
  out.tape().kernel({kernel});
}

void row_wise(RowWise::Function function, std::int64_t rows, std::int64_t columns, std::initializer_list<const Tensor*> ins,
              std::initializer_list<const Tensor*> outs) {
  if (rows > 0) tape_of(ins, outs).kernel({RowWise{function, rows, columns, operands_of(ins, outs)}});
}

void gather(Gather::Function function, std::int64_t elements, std::initializer_list<const Tensor*> ins,
            std::initializer_list<const Tensor*> outs) {
  if (elements > 0) tape_of(ins, outs).kernel({Gather{function, elements, operands_of(ins, outs)}});
}

Operand packed(std::int64_t elements, DType type) { return {elements, type, Walk::contiguous}; }

void pointwise(Tape& tape, Pointwise::Form form, std::initializer_list<Operand> reads, std::initializer_list<Operand> writes) {
  Pointwise kernel{form, 0, Operands(reads, writes)};
  for (const Operand& each : kernel.operands) kernel.elements = std::max(kernel.elements, each.elements);
  tape.kernel({kernel});
}

void reduce(Tape& tape, Reduction::Axis axis, std::int64_t outputs, std::initializer_list<Operand> reads,
            std::initializer_list<Operand> writes) {
  Reduction kernel{axis, std::max<std::int64_t>(outputs, 1), 0, Operands(reads, writes)};
  kernel.reduced = kernel.operands.size() > 0 ? kernel.operands[0].elements / kernel.outputs : 0;
  tape.kernel({kernel});
}

void row_wise(Tape& tape, RowWise::Function function, std::int64_t rows, std::int64_t columns, std::initializer_list<Operand> reads,
              std::initializer_list<Operand> writes) {
  tape.kernel({RowWise{function, rows, columns, Operands(reads, writes)}});
}

void gather(Tape& tape, Gather::Function function, std::int64_t elements, std::initializer_list<Operand> reads,
            std::initializer_list<Operand> writes) {
  tape.kernel({Gather{function, elements, Operands(reads, writes)}});
}

void multi_tensor(Tape& tape, MultiTensor::Function function, std::int64_t tensors, std::int64_t elements,
                  std::initializer_list<DType> reads, std::initializer_list<DType> writes) {
  MultiTensor kernel{function, tensors, elements, {}};
  for (const DType type : reads) kernel.operands.read({elements, type, Walk::contiguous});
  for (const DType type : writes) kernel.operands.write({elements, type, Walk::contiguous});
  tape.kernel({kernel});
}

void multiply(DType type, double flops, std::initializer_list<const Tensor*> ins, std::initializer_list<const Tensor*> outs) {
  Unspecified kernel{KernelKind::gemm, type, flops, 0, 0};
  for (const Tensor* in : ins) kernel.bytes_read += in->bytes();
  for (const Tensor* out : outs) kernel.bytes_written += out->bytes();
  tape_of(ins, outs).kernel({kernel});
}

void memset(const Tensor& target) {
  if (target.bytes() > 0) target.tape().copy({Copy::Direction::set, target.bytes()}, target.tape().stream);
}

}  // namespace plimsoll::program
