/// Moves of activations over the tensor-parallel ranks. Tensors are [sequence, batch, …].
/// Source: megatron/core/tensor_parallel/mappings.py of Megatron-core 0.16.1.
#pragma once

#include "program/modules/megatron/runtime.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// Sizes of what is gathered from all ranks' parts of the sequence, and of a rank's part of what is scattered.
Dims gathered_sizes(const MegatronRuntime& runtime, const Tensor& x);
Dims scattered_sizes(const MegatronRuntime& runtime, const Tensor& x);
/// Without autograd: this rank's part of the sum, and all ranks' parts.
Tensor reduce_scatter_rows(MegatronRuntime& runtime, const Tensor& x);
Tensor all_gather_rows(MegatronRuntime& runtime, const Tensor& x);

/// reduce_scatter_to_sequence_parallel_region: [s, …] → [s/tp, …]; backward gathers.
Tensor reduce_scatter_sequence(MegatronRuntime& runtime, const Tensor& x);
/// scatter_to_sequence_parallel_region: this rank's part of [s, …], a view; backward gathers.
Tensor scatter_sequence(MegatronRuntime& runtime, const Tensor& x);
/// The same two without autograd and without waiting, as Transformer Engine's backward does: the gathering runs beside the product of the
/// input's gradient, the scattering beside that of the weight's.
Awaited gather_sequence_async(MegatronRuntime& runtime, const Tensor& x);
Awaited reduce_scatter_sequence_async(MegatronRuntime& runtime, const Tensor& x);
/// A rank's part of what is scattered, not written yet.
Tensor scattered_like(MegatronRuntime& runtime, const Tensor& x);
/// gather_from_sequence_parallel_region: [s/tp, …] → [s, …]; backward reduce-scatters.
Tensor gather_sequence(MegatronRuntime& runtime, const Tensor& x);
/// all_gather_last_dim_from_tensor_parallel_region: [s, b, w] → [s, b, w · tp]; backward reduce-scatters.
Tensor gather_last_dimension(MegatronRuntime& runtime, const Tensor& x);
/// gather_from_tensor_model_parallel_region: the same; backward keeps this rank's columns.
Tensor gather_columns(MegatronRuntime& runtime, const Tensor& x);
/// reduce_from_tensor_model_parallel_region: summed in place; backward does nothing.
Tensor reduce_over_tensor_parallel(MegatronRuntime& runtime, const Tensor& x);

}  // namespace plimsoll::program
