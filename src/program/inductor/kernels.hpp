/// The memory habits of the code that torch.compile generates (torch/_inductor of PyTorch 2.15): one buffer per kernel output, freed behind
/// its last reader or handed on to a later output of the same size, products by cuBLAS, sums over rows in two stages.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "program/kernels.hpp"
#include "program/tape.hpp"

namespace plimsoll::program::inductor {

/// One generated kernel that reads and writes these tensors.
void fused(Tape& tape, std::initializer_list<const Tensor*> reads, std::initializer_list<const Tensor*> writes);

/// Elements that a buffer of those sizes spans where strides of more than 1,024 elements are padded to whole 128 bytes.
std::int64_t padded_elements(const Dims& sizes, DType type);

/// A buffer that a graph's forward hands to its backward, as a dropout's mask: strides of more than 1,024 elements are padded to whole 128
/// bytes (config.comprehensive_padding; torch/_inductor/ir.py, Layout._pad_strides). What the caller sees is not padded.
Tensor handed_to_backward(Tape& tape, const Dims& sizes, DType type);

/// Which factor of a product lies transposed in memory: a linear's weight forward (right), its gradient for the weight (left).
enum class Turned : std::uint8_t { neither, left, right };
/// extern_kernels.mm: [rows × inner] by [inner × columns], with its workspace.
void multiply(Tape& tape, DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner, Turned turned,
              Epilogue epilogue = Epilogue::none);
/// The same into a new buffer, [rows × columns].
Tensor product(Tape& tape, DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner, Turned turned = Turned::neither);
/// The same into `buffer`, whose contents are no longer needed.
void product_into(const Tensor& buffer, std::int64_t rows, std::int64_t columns, std::int64_t inner, Turned turned = Turned::neither);

/// Parts into which a sum over `reduced` rows of `kept` columns is cut (torch/_inductor/choices.py, reduction_split_factor of outer
/// reductions).
std::int64_t outer_sum_splits(const Tape& tape, std::int64_t reduced, std::int64_t kept);

/// The fp32 buffer between the two kernels of a sum over rows.
Tensor partial_sums(Tape& tape, std::int64_t reduced, std::int64_t kept);
/// The second kernel: the sum, in a new buffer.
Tensor finish_sum(const Tensor& partial, std::int64_t kept, DType type);

/// Whether sums over rows are taken by the kernel that also sums over columns of the same tensor (scheduler.MixOrderReduction.can_fuse).
bool mixes_reduction_orders(std::int64_t rows, std::int64_t columns);
/// Sizes of its fp32 partial sums over rows, [sums, parts, columns] (simd.py, _codegen_mix_order_reduction).
Dims mixed_order_workspace_sizes(const Tape& tape, std::int64_t rows, std::int64_t columns, int sums);
/// One of those sums: workspace.view(parts, columns).sum(dim=0).to(type), in eager mode.
Tensor mixed_order_sum(const Tensor& workspace, std::int64_t columns, DType type);

}  // namespace plimsoll::program::inductor
