/// What a kernel is: what a price needs, and what a reader would ask of it.
///
/// A kernel holds sizes and kinds, never a total: FLOPs and traffic are read off it. Equal kernels of a program are one entry of
/// StepProgram::kernels, so a step of thousands of launches holds a hundred or so.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "plimsoll/dtype.hpp"

namespace plimsoll {

/// The classes of a report.
enum class KernelKind : std::uint8_t {
  gemm,                ///< m × n × k, batch times
  attention,           ///< fused attention forward
  attention_backward,  ///< and its helpers
  elementwise,         ///< bound by bytes
  reduction,           ///< norms, softmax, losses: bound by bytes
  gather,              ///< embedding, index, sort
  multi_tensor,        ///< foreach and fused optimizer kernels
  convolution,
};
inline constexpr std::size_t kKernelKinds = 8;
std::string_view name_of(KernelKind kind);

// ---- operands --------------------------------------------------------------------------------------------------------

/// How a kernel walks through one of its tensors.
enum class Walk : std::uint8_t {
  contiguous,  ///< in the order of memory
  broadcast,   ///< elements are read again for other results (a stride of zero)
  strided,     ///< in another order, or with gaps
  transposed,  ///< neighbours of the iteration lie far apart in memory: each element costs a sector
};
std::string_view name_of(Walk walk);

/// One tensor of a memory-bound kernel.
struct Operand {
  std::int64_t elements = 0;  ///< distinct ones: each is counted once, however often a broadcast reads it
  DType type = DType::fp32;
  Walk walk = Walk::contiguous;

  std::int64_t bytes() const { return elements * size_of(type); }
  bool operator==(const Operand&) const = default;
};

/// The tensors that a kernel reads, then those that it writes (in place: both). A longer list is folded into its last place.
class Operands {
 public:
  static constexpr std::size_t kMost = 8;
  Operands() = default;
  Operands(std::initializer_list<Operand> reads, std::initializer_list<Operand> writes);

  void read(const Operand& operand);
  /// After the last read.
  void write(const Operand& operand);

  std::size_t size() const { return size_; }
  std::size_t reads() const { return reads_; }
  const Operand& operator[](std::size_t i) const { return list_[i]; }
  const Operand* begin() const { return list_.data(); }
  const Operand* end() const { return list_.data() + size_; }
  std::int64_t bytes_read() const;
  std::int64_t bytes_written() const;
  bool operator==(const Operands&) const = default;

 private:
  std::array<Operand, kMost> list_{};
  std::uint8_t size_ = 0, reads_ = 0;
};

// ---- kinds -----------------------------------------------------------------------------------------------------------

/// How a product forms its terms, beyond what its operands' types say.
enum class Arithmetic : std::uint8_t {
  native,  ///< that of the operands' type; fp32 without tensor cores
  tf32,    ///< fp32 operands, rounded to 19 bits
  simt,    ///< 16-bit operands without tensor cores: by fp32 units
};

/// Scales of 8- and 4-bit operands.
enum class Scaling : std::uint8_t { none, tensor, row, block, mxfp8, nvfp4 };
std::string_view name_of(Scaling scaling);

/// What a product does to its result before it is written.
enum class Epilogue : std::uint8_t { none, bias, gelu, bias_gelu, bias_gradient, gelu_gradient };

/// A matrix product in BLAS's column-major terms, as the libraries' logs name it: D[m, n] = op(A)[m, k] · op(B)[k, n], `batch` times. A
/// row-major y[rows, out] = x[rows, in] · Wᵀ has m = out, n = rows, k = in and A = W transposed.
struct Product {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transpose_a = false, transpose_b = false;  ///< forward of a linear: T N, gradient of its input: N N, of its weight: N T
  DType a = DType::bf16, b = DType::bf16, result = DType::bf16;
  Arithmetic arithmetic = Arithmetic::native;
  Scaling scaling = Scaling::none;
  Epilogue epilogue = Epilogue::none;
  bool accumulates = false;  ///< adds to D (beta = 1)
  bool grouped = false;      ///< `batch` products of one launch whose n (tokens) are those of an even split, each with its own A
  std::int16_t alignment = 16;  ///< bytes of which addresses, leading dimensions and distances of a batch are multiples: 16, 8, 4, 2 or 1

  bool operator==(const Product&) const = default;
};

/// Whose kernels attend.
enum class AttentionLibrary : std::uint8_t {
  cudnn,
  flash2,
  flash3,
  memory_efficient,    ///< CUTLASS's, in PyTorch
  flex,                ///< Triton's, made by torch.compile
  triton,
  composable_kernel,
  aotriton,
  transformer_engine,  ///< its own fused kernels beside cuDNN's
  flash4,
};
std::string_view name_of(AttentionLibrary library);

/// One kernel of fused attention.
struct Attention {
  enum class Part : std::uint8_t {
    forward,
    combine,         ///< forward split along the keys: its parts are put together
    backward,
    delta,           ///< backward: row sums of gradient · output
    convert,         ///< backward: the accumulated dQ in the inputs' type
    sum_heads,       ///< backward: dK or dV of query heads that share a key head
  };
  AttentionLibrary library = AttentionLibrary::flash2;
  Part part = Part::forward;
  DType type = DType::bf16;
  bool causal = false;
  bool masked = false;   ///< reads a mask or a bias of every pair
  bool dropout = false;
  std::int64_t batch = 1, heads = 1, kv_heads = 1, queries = 0, keys = 0, head_dim = 0, value_dim = 0;
  std::int64_t window = 0;  ///< keys that a query sees at most; 0: all

  /// Pairs of query and key that count: half of them where causal, a band where there is a window.
  double pairs() const;
  bool operator==(const Attention&) const = default;
};

/// TensorIterator's kernels and their like: every result element from the operands' elements of its place.
struct Pointwise {
  enum class Form : std::uint8_t {
    map,
    concatenate,  ///< cat, stack: several inputs, one result
    random,       ///< dropout and other generators
    fused,        ///< by Inductor, Triton or a hand-written kernel: whatever its walk, vectorised
  };
  Form form = Form::map;
  std::int64_t elements = 0;  ///< of the widest result
  Operands operands;
  /// That are left when those that every operand walks through in one go are merged (TensorIterator's coalescing); 0: not known.
  std::uint8_t dimensions = 0;

  bool operator==(const Pointwise&) const = default;
};

/// Sums, means, maxima and norms of numbers: [rows, columns] to [rows] or [columns] or one.
struct Reduction {
  enum class Axis : std::uint8_t {
    inner,  ///< neighbours in memory are reduced together (a mean over the last dimension)
    outer,  ///< neighbours stay apart (a sum over rows: the gradient of a bias)
    all,
  };
  Axis axis = Axis::inner;
  std::int64_t outputs = 1, reduced = 0;  ///< results, and elements of each
  Operands operands;

  bool operator==(const Reduction&) const = default;
};

/// Kernels that work row by row, with reductions and maps in one.
struct RowWise {
  enum class Function : std::uint8_t {
    softmax,
    softmax_backward,
    log_softmax,
    log_softmax_backward,
    layer_norm,
    layer_norm_backward,  ///< of the input
    norm_weight_backward, ///< of weight and bias: over rows
    rms_norm,
    rms_norm_backward,
    group_norm,
    group_norm_backward,
    cross_entropy,        ///< fused, with or without its gradient
    rope,                 ///< fused rotary embedding
    quantize,             ///< amax and cast to 8 or 4 bits, scales by row or block
  };
  Function function = Function::softmax;
  std::int64_t rows = 0, columns = 0;
  Operands operands;

  bool operator==(const RowWise&) const = default;
};

/// Kernels that read or write by an index.
struct Gather {
  enum class Function : std::uint8_t { embedding, embedding_backward, index, scatter, sort, top_k, nll_loss, scan, permute };
  Function function = Function::index;
  std::int64_t elements = 0;
  Operands operands;

  bool operator==(const Gather&) const = default;
};

/// multi_tensor_apply: one launch over a chunk of a list of tensors (foreach operators, fused optimizers).
struct MultiTensor {
  enum class Function : std::uint8_t {
    map,    ///< foreach: add, mul, lerp, addcmul, sqrt, div …
    norm,
    copy,   ///< between types
    fused,  ///< a whole optimizer step
  };
  Function function = Function::map;
  std::int64_t tensors = 1;
  std::int64_t elements = 0;  ///< of all its tensors
  Operands operands;          ///< of `elements` each

  bool operator==(const MultiTensor&) const = default;
};

/// One pass of a convolution: image [batch, in, …], filter [out, in / groups, window], result [batch, out, …].
struct Convolution {
  enum class Pass : std::uint8_t { forward, input_gradient, weight_gradient };
  Pass pass = Pass::forward;
  DType type = DType::fp32;
  std::int64_t batch = 1, in = 0, out = 0, groups = 1;
  std::int64_t image = 0, result = 0, window = 0;  ///< places of the image, of the result, of the filter
  bool channels_last = false;

  bool operator==(const Convolution&) const = default;
};

/// A recorded kernel of which no more is known than its name's class and what it moves (by its grid, or by what its maker said).
struct Unspecified {
  KernelKind kind = KernelKind::elementwise;
  DType type = DType::fp32;
  double flops = 0;
  std::int64_t bytes_read = 0, bytes_written = 0;

  bool operator==(const Unspecified&) const = default;
};

/// One launch.
struct Kernel {
  std::variant<Unspecified, Product, Attention, Pointwise, Reduction, RowWise, Gather, MultiTensor, Convolution> work;

  KernelKind kind() const;
  /// Of its arithmetic: a product's operands, a memory-bound kernel's widest result.
  DType type() const;
  /// 2·m·n·k·batch of a product; the counted pairs of attention (backward: 2.5 times); of convolutions the products; otherwise one
  /// operation an element.
  double flops() const;
  std::int64_t bytes_read() const;
  std::int64_t bytes_written() const;
  std::int64_t bytes() const { return bytes_read() + bytes_written(); }

  const Product* product() const { return std::get_if<Product>(&work); }
  const Attention* attention() const { return std::get_if<Attention>(&work); }
  bool operator==(const Kernel&) const = default;
};

/// A hash of everything that operator== compares.
std::size_t hash_of(const Kernel& kernel);

/// One line for a reader: "bf16 product 4096 x 8192 x 2048, T N, bias".
std::string describe(const Kernel& kernel);

}  // namespace plimsoll
