/// Megatron-core's own autograd functions and fused operators on one tensor-parallel rank. Tensors are [sequence, batch, …].
/// Sources: megatron/core/tensor_parallel/{layers,mappings,cross_entropy}.py, megatron/core/fusions of Megatron-core 0.16.1.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "plimsoll/dtype.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// Products of Transformer Engine in 8 bits.
struct TeQuantization {
  bool enabled = false;
  Scaling scaling = Scaling::none;
  bool turned = false;     ///< products take one layout alone: gradients read the transposed copies
  bool primary = false;    ///< the weights themselves are 8-bit; else each keeps 8-bit copies beside its 16 bits
  bool transposes = true;  ///< a product over the other dimension needs a transposed copy: Hopper, and scales along one dimension anywhere
  std::int64_t block = 0;  ///< elements that share a scale; 0: the whole tensor
  bool fused_norm = true;  ///< norms write 8 bits themselves: delayed scaling and mxfp8
};

/// How one rank's functions work, for all of them alike.
struct MegatronRuntimeOptions {
  std::int64_t tensor_parallel = 1, context_parallel = 1;
  std::int64_t layers_of_model = 0;
  bool sequence_parallel = false;
  bool user_buffers = false;  ///< tp_comm_overlap: pieces of the sequence come and go while Transformer Engine's products run
  TeQuantization quantization;
  bool fused_weight_gradients = false;  ///< gradient_accumulation_fusion: products add a weight's gradient to its main_grad themselves
  DType main_gradient = DType::fp32;    ///< what they add to
  AttentionLibrary attention = AttentionLibrary::cudnn;  ///< of Transformer Engine
  /// async_tensor_model_parallel_allreduce: an input's gradient is added up beside the product of the weight's; before, behind both.
  bool reduces_beside_products = true;
  bool keeps_dummies = true;            ///< Transformer Engine from 2.3 on: a dummy gradient serves all weights of its shape for ever
};

/// What a collective of the tensor-parallel ranks brings, and the event behind it while nobody has waited for it.
struct Awaited {
  Tensor tensor;
  std::optional<EventId> done;
};

/// What all of Megatron's functions of one rank share.
class MegatronRuntime {
 public:
  MegatronRuntime(Tape& tape, const MegatronRuntimeOptions& options);

  Tape& tape() const { return tape_; }
  std::int64_t tp() const { return options_.tensor_parallel; }
  std::int64_t cp() const { return options_.context_parallel; }
  bool sequence_parallel() const { return options_.sequence_parallel; }
  bool user_buffers() const { return options_.user_buffers && options_.sequence_parallel && options_.tensor_parallel > 1; }
  const TeQuantization& quantization() const { return options_.quantization; }
  bool fused_weight_gradients() const { return options_.fused_weight_gradients; }
  DType main_gradient() const { return options_.main_gradient; }
  bool reduces_beside_products() const { return options_.reduces_beside_products; }
  AttentionLibrary attention() const { return options_.attention; }

  /// GlobalMemoryBuffer.get_tensor(…, "mpu"): a view of one buffer per type that grows and is never given back.
  Tensor global_buffer(const Dims& sizes, DType type);
  /// get_dummy_wgrad: what autograd sees as the gradient of a weight whose gradient is in main_grad already. One tensor per shape and
  /// type, never given back; before Transformer Engine 2.3 a new one each time.
  Tensor dummy_gradient(const Tensor& weight);
  /// 8-bit copies of a weight that live as long as it does: made when its first product needs them (`transposed`: the input's gradient).
  void reserve_quantized(const Tensor& weight, bool transposed);
  /// Whether a gradient that has arrived is such a dummy.
  bool is_dummy(const Tensor& gradient);
  /// Transformer Engine's workspace of its products, taken at the first of them and kept.
  void reserve_gemm_workspace();
  /// save_to_aux_losses_tracker: adds a layer's loss to the list of all layers of the model, which the first call makes.
  void log_auxiliary_loss();
  /// The workspaces of its grouped products, one per stream.
  void reserve_grouped_workspaces();
  /// The stream of Transformer Engine's context parallelism.
  StreamId context_stream();
  /// A collective over the tensor-parallel ranks, awaited. `bytes` is the full buffer's. Nothing when tp is 1.
  void collective(CollectiveKind kind, std::int64_t bytes, DType type);
  /// The same without waiting: `wait()` does.
  void collective_async(CollectiveKind kind, std::int64_t bytes, DType type);
  void wait();
  /// The same with an event behind it, one for each kind: `await` holds the compute stream until then. Nothing when tp is 1.
  std::optional<EventId> collective_event(CollectiveKind kind, std::int64_t bytes, DType type);
  void await(Awaited& pending);

 private:
  Tape& tape_;
  MegatronRuntimeOptions options_;
  StreamId stream_;
  std::map<DType, Tensor> buffers_;
  std::map<std::tuple<std::int64_t, std::int64_t, DType>, Tensor> dummies_;
  std::set<const Storage*> awaited_dummies_;                          ///< those made anew, until they arrive
  std::map<const TensorImpl*, std::pair<Tensor, Tensor>> quantized_;  ///< by weight: as it is, transposed
  Tensor gemm_workspace_, auxiliary_losses_;
  std::vector<Tensor> grouped_workspaces_;
  std::optional<StreamId> context_stream_;
  std::map<CollectiveKind, EventId> events_;
};

/// Who adds what over the tensor-parallel ranks around a product.
struct MegatronLinear {
  bool gather_input = false;     ///< the input is a part of the sequence: gathered into the global buffer, again in backward
  bool reduce_gradient = false;  ///< the input's gradient is all-reduced, while the weight's gradient is computed
};

/// LinearWithGradAccumulationAndAsyncCommunication. `bias` may be undefined.
Tensor megatron_linear(MegatronRuntime& runtime, const Tensor& input, const Tensor& weight, const Tensor& bias, const MegatronLinear& mode);

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
/// reduce_from_tensor_model_parallel_region: summed in place; backward does nothing.
Tensor reduce_over_tensor_parallel(MegatronRuntime& runtime, const Tensor& x);

/// bias_dropout_add_fused_train: residual + dropout(x + bias), compiled into one kernel. `bias` may be undefined.
Tensor bias_dropout_add(const Tensor& x, const Tensor& bias, const Tensor& residual, double p);
/// GeLUFunction: gelu(x + bias), compiled.
Tensor bias_gelu(const Tensor& x, const Tensor& bias);
/// squared_relu, compiled: its backward computes relu(x) again.
Tensor squared_relu(const Tensor& x);
/// SwiGLUFunction and BiasSwiGLUFunction: silu(first half) · second half of the last dimension, compiled. `bias` may be undefined.
/// `in_eight_bits`: its input is saved in 8 bits (activation_func_fp8_input_store).
Tensor bias_swiglu(const Tensor& x, const Tensor& bias, bool in_eight_bits = false);

/// torch.baddbmm(buffer, a, b, beta=0, alpha=scale).
Tensor scaled_product(const Tensor& a, const Tensor& b);
/// Whether Megatron's fused softmax has a kernel for such scores (fused_softmax.py, is_kernel_available).
bool has_fused_softmax(std::int64_t length, DType type);
/// ScaledUpperTriangMaskedSoftmax of [b, heads, s, s]: its backward writes over the gradient that arrives.
Tensor fused_causal_softmax(const Tensor& scores);
/// x.masked_fill_(mask, value).
Tensor masked_fill_in_place(const Tensor& x, const Tensor& mask);
/// x.repeat_interleave(times, dim).
Tensor repeat_interleave(const Tensor& x, std::int64_t times, int dimension);

/// vocab_parallel_cross_entropy: logits [s, b, V/tp], target [s, b] → loss [s, b] in fp32.
Tensor vocab_parallel_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target);
/// The same with `cross_entropy_loss_fusion`, implementation native: three compiled functions.
Tensor fused_vocab_parallel_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target);
/// VocabParallelEmbedding before its reduction: indices [b, s] → [b, s, h].
Tensor vocab_parallel_embedding(MegatronRuntime& runtime, const Tensor& weight, const Tensor& indices);

}  // namespace plimsoll::program
