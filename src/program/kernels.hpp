/// The only makers of kernels: each takes the tensors that a kernel reads and writes, and reads off them what its time depends on
/// (plimsoll/kernel.hpp). Making a kernel launches it on the tape's current stream.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

// ---- products --------------------------------------------------------------------------------------------------------

/// A matrix as a product sees it, row-major: rows × columns of a tensor, read in its order or transposed; `batch` of them.
struct Matrix {
  std::int64_t rows = 0, columns = 0, batch = 1;
  std::int64_t leading = 0;  ///< elements from one row (transposed: column) to the next
  bool transposed = false;   ///< neighbours in memory are of one column
  DType type = DType::bf16;
  std::int64_t pitch = 0;  ///< of a batch: elements of whose multiples its matrices lie apart; 0: of any

  /// The same memory with rows and columns exchanged: x.t().
  Matrix t() const { return {columns, rows, batch, leading, !transposed, type, pitch}; }
};
/// The last two dimensions of x, as its strides have them; the dimensions before them are a batch.
Matrix matrix(const Tensor& x);
/// All dimensions before the last as rows (F.linear's view of its input).
Matrix folded(const Tensor& x);

struct ProductOptions {
  Epilogue epilogue = Epilogue::none;
  Scaling scaling = Scaling::none;
  bool accumulates = false;
  bool workspace = true;  ///< takes cuBLAS's workspace from the tape (cuBLASLt's with an epilogue), at once given back
};
/// out = a · b by cuBLAS. Its arithmetic is the operands' type's, or tf32 for fp32 where the tape allows it.
void gemm(Tape& tape, const Matrix& a, const Matrix& b, const Matrix& out, const ProductOptions& options = {});
/// A grouped product of experts (CUTLASS): `a` holds all tokens in groups of even size, `b` one matrix a group; or (gradients of weights)
/// both hold tokens and `out` one matrix a group.
void grouped_gemm(Tape& tape, const Matrix& a, const Matrix& b, const Matrix& out, std::int64_t groups, const ProductOptions& options = {});

/// The products of a linear layer y[rows, out] = x[rows, in] · W[out, in]ᵀ.
enum class LinearPass : std::uint8_t { forward, input_gradient, weight_gradient };
struct LinearShape {
  std::int64_t rows = 0, in = 0, out = 0;
  DType type = DType::bf16, result = DType::bf16;
  bool turned = false;  ///< gradients read transposed copies: kernels that take one layout alone (8 bits on Hopper)
};
struct LinearMatrices {
  Matrix a, b, out;
};
LinearMatrices matrices_of(LinearPass pass, const LinearShape& shape);
void linear_product(Tape& tape, LinearPass pass, const LinearShape& shape, const ProductOptions& options = {});
/// The same of `groups` layers of one shape in one launch; rows are those of all groups.
void grouped_linear_product(Tape& tape, LinearPass pass, const LinearShape& shape, std::int64_t groups, const ProductOptions& options = {});

// ---- attention -------------------------------------------------------------------------------------------------------

/// In which order the first three dimensions of attention's [·, ·, ·, width] tensors stand.
enum class HeadsOrder : std::uint8_t { batch_heads_length, batch_length_heads, length_batch_heads };
/// The kernel of a library over these queries, keys and values: its sizes and type. Which part of it, and what it masks, the caller says.
Attention attention_over(AttentionLibrary library, const Tensor& query, const Tensor& key, const Tensor& value,
                         HeadsOrder order = HeadsOrder::batch_heads_length);

// ---- kernels bound by memory -----------------------------------------------------------------------------------------

/// How a kernel whose results lie as `like` walks through x.
Operand operand(const Tensor& x, const Tensor& like);
/// The same where a kernel takes the tensor as it lies: contiguous, or strided.
Operand operand(const Tensor& x);

/// TensorIterator's kernel over broadcast inputs into `out`, cut where 32-bit offsets do not reach.
void pointwise(const Tensor& out, std::initializer_list<const Tensor*> ins);
/// The same of a kernel with several results (a fused one, dropout with its mask).
void pointwise(Pointwise::Form form, std::initializer_list<const Tensor*> ins, std::initializer_list<const Tensor*> outs);
/// cat and stack.
void concatenate(const Tensor& out, const std::vector<Tensor>& ins);
/// A reduction of `in` to `out`; `reduced[i]`: dimension i is summed away.
void reduce(const Tensor& out, const Tensor& in, const std::vector<bool>& reduced);
void reduce(const Tensor& out, const Tensor& in, Reduction::Axis axis);
void row_wise(RowWise::Function function, std::int64_t rows, std::int64_t columns, std::initializer_list<const Tensor*> ins,
              std::initializer_list<const Tensor*> outs);
void gather(Gather::Function function, std::int64_t elements, std::initializer_list<const Tensor*> ins,
            std::initializer_list<const Tensor*> outs);
/// A launch of multi_tensor_apply over `elements` of `tensors` tensors: the types of the lists that it reads, then of those it writes.
void multi_tensor(Tape& tape, MultiTensor::Function function, std::int64_t tensors, std::int64_t elements,
                  std::initializer_list<DType> reads, std::initializer_list<DType> writes);

// The same of kernels whose operands are told one by one: those that work on a part of what their tensors hold.

/// So many elements that lie one behind the other.
Operand packed(std::int64_t elements, DType type);
void pointwise(Tape& tape, Pointwise::Form form, std::initializer_list<Operand> reads, std::initializer_list<Operand> writes);
void reduce(Tape& tape, Reduction::Axis axis, std::int64_t outputs, std::initializer_list<Operand> reads,
            std::initializer_list<Operand> writes);
void row_wise(Tape& tape, RowWise::Function function, std::int64_t rows, std::int64_t columns, std::initializer_list<Operand> reads,
              std::initializer_list<Operand> writes);
void gather(Tape& tape, Gather::Function function, std::int64_t elements, std::initializer_list<Operand> reads,
            std::initializer_list<Operand> writes);

/// A kernel of somebody's own that multiplies in `type` and does more, of which no law of products tells the tiles: its FLOPs and what it
/// moves.
void multiply(DType type, double flops, std::initializer_list<const Tensor*> ins, std::initializer_list<const Tensor*> outs);

/// cudaMemsetAsync.
void memset(const Tensor& target);

}  // namespace plimsoll::program
