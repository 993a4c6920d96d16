/// Megatron-core's own autograd functions and fused operators on one tensor-parallel rank. Tensors are [sequence, batch, …].
/// Sources: megatron/core/tensor_parallel/layers.py, megatron/core/fusions of Megatron-core 0.16.1.
#pragma once

#include <cstdint>
#include <vector>

#include "program/modules/megatron/runtime.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// defer_embedding_wgrad_compute: inputs and output gradients of the output layer, whose weight's gradient waits for the end of a schedule.
struct DeferredGradients {
  std::size_t most = 0;        ///< backward passes that leave it; the others compute it at once
  std::size_t unrecorded = 0;  ///< passes more that left it, which stand in the program as repetitions
  std::vector<Tensor> inputs, gradients;
};

/// Who adds what over the tensor-parallel ranks around a product.
struct MegatronLinear {
  bool gather_input = false;              ///< the input is a part of the sequence: gathered into the global buffer, again in backward
  bool reduce_gradient = false;           ///< the input's gradient is all-reduced, while the weight's gradient is computed
  DeferredGradients* deferred = nullptr;  ///< takes the weight's gradients first; needs products that add to main_grad themselves
};

/// LinearWithGradAccumulationAndAsyncCommunication. `bias` may be undefined.
Tensor megatron_linear(MegatronRuntime& runtime, const Tensor& input, const Tensor& weight, const Tensor& bias, const MegatronLinear& mode);

/// drain_embedding_wgrad_compute: what was deferred of a linear with that weight.
void compute_deferred(MegatronRuntime& runtime, const Tensor& weight, DeferredGradients& deferred);

/// bias_dropout_add_fused_train: residual + dropout(x + bias), compiled into one kernel. `bias` may be undefined.
Tensor bias_dropout_add(const Tensor& x, const Tensor& bias, const Tensor& residual, double p);
/// GeLUFunction: gelu(x + bias), compiled.
Tensor bias_gelu(const Tensor& x, const Tensor& bias);
/// squared_relu, compiled: its backward computes relu(x) again.
Tensor squared_relu(const Tensor& x);
/// SwiGLUFunction and BiasSwiGLUFunction: silu(first half) · second half of the last dimension, compiled. `bias` may be undefined.
/// `in_eight_bits`: its input is saved in 8 bits (activation_func_fp8_input_store).
Tensor bias_swiglu(const Tensor& x, const Tensor& bias, bool in_eight_bits = false);
/// MLP.forward's glu without bias_swiglu_fusion: silu(first half) · (second half + glu_linear_offset), operator by operator.
Tensor eager_swiglu(const Tensor& x);

/// MoEAuxLossAutoScaler and MTPLossAutoScaler: passes the activation on, and gives the loss its own gradient.
Tensor attach_loss(const Tensor& activation, const Tensor& loss);

/// torch.baddbmm(buffer, a, b, beta=0, alpha=scale).
Tensor scaled_product(const Tensor& a, const Tensor& b);
/// Whether Megatron's fused softmax has a kernel for such scores (fused_softmax.py, is_kernel_available).
bool has_fused_softmax(std::int64_t length, DType type);
/// ScaledUpperTriangMaskedSoftmax of [b, heads, s, s]: its backward writes over the gradient that arrives.
Tensor fused_causal_softmax(const Tensor& scores);
/// x.repeat_interleave(times, dim).
Tensor repeat_interleave(const Tensor& x, std::int64_t times, int dimension);

}  // namespace plimsoll::program
