/// What all functions of Megatron-core and Transformer Engine of one rank share: sizes of its groups, streams, and buffers that live for
/// ever.
/// Sources: megatron/core/utils.py (GlobalMemoryBuffer) of Megatron-core 0.16.1, transformer_engine/pytorch/module/base.py.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "plimsoll/dtype.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// The same storage seen in other sizes; no view to autograd (as param.data and buffers are).
Tensor reshaped(const Tensor& x, const Dims& sizes);
/// Rows of the last dimension.
std::int64_t row_count(const Tensor& x);
/// The same sizes but for the last.
Dims with_last(const Dims& sizes, std::int64_t last);

/// Products of Transformer Engine in 8 or 4 bits.
struct TeQuantization {
  bool enabled = false;
  Scaling scaling = Scaling::none;
  bool turned = false;      ///< products take one layout alone: gradients read the transposed copies
  bool primary = false;     ///< the weights themselves are in few bits; else each keeps such copies beside its 16 bits
  bool transposes = true;   ///< a product over the other dimension needs a transposed copy: Hopper, and scales along one dimension anywhere
  std::int64_t block = 0;   ///< elements that share a scale of one byte; 0: the whole tensor
  bool measured = false;    ///< a tensor's greatest value is found before it is cast: current scaling, nvfp4
  bool fused_norm = true;   ///< norms write 8 bits themselves: delayed scaling and mxfp8
  bool transforms = false;  ///< a random Hadamard transform before the cast of what products of weights' gradients read: nvfp4
  bool casts_both_ways = false;  ///< one kernel casts the rows and, behind the transform, the columns: nvfp4 from TE 2.14 on
  bool turns_frozen = true;    ///< a linear without a norm casts its output's gradient both ways though its weight is frozen: before TE 2.7
  bool shares_inputs = false;  ///< linears whose input others save keep it as it is, and cast it again in backward: from TE 2.6 on

  /// Bytes of the scales of so many elements, and of the elements with them.
  std::int64_t scales(std::int64_t elements) const { return block > 0 ? ceil_div(elements, block) : 0; }
  std::int64_t stored(std::int64_t elements) const { return ceil_div(elements, packed()) + scales(elements); }
  /// Elements of one byte.
  std::int64_t packed() const { return scaling == Scaling::nvfp4 ? 2 : 1; }
  /// Primary weights that lie outside of the optimizer's buffers, which gather them in 16 bits (MXFP8Tensor takes no storage of others).
  bool apart() const { return primary && scaling == Scaling::mxfp8; }
};

/// How one rank's functions work, for all of them alike.
struct MegatronRuntimeOptions {
  std::int64_t tensor_parallel = 1, context_parallel = 1;
  std::int64_t layers_of_model = 0;
  bool sequence_parallel = false;
  bool user_buffers = false;  ///< tp_comm_overlap: pieces of the sequence come and go while Transformer Engine's products run
  TeQuantization quantization;
  bool keeps_transposes = true;         ///< of 8-bit weights; Megatron-FSDP does not (keep_fp8_transpose_cache)
  bool fused_weight_gradients = false;  ///< gradient_accumulation_fusion: products add a weight's gradient to its main_grad themselves
  DType main_gradient = DType::fp32;    ///< what they add to
  AttentionLibrary attention = AttentionLibrary::cudnn;  ///< of Transformer Engine
  /// async_tensor_model_parallel_allreduce: an input's gradient is added up beside the product of the weight's; before, behind both.
  bool reduces_beside_products = true;
  bool overlaps_exchanges = false;  ///< overlap_moe_expert_parallel_comm: exchanges run beside the passes of another micro-batch
  bool store_defers = true;         ///< who hands over weights' gradients that have slots of their own (framework::defers_by_store)
  bool keeps_dummies = true;        ///< Transformer Engine from 2.3 on: a dummy gradient serves all weights of its shape for ever
};

/// What a collective of the tensor-parallel ranks brings, and the event behind it while nobody has waited for it.
struct Awaited {
  Tensor tensor;
  std::optional<EventId> done;
};

class Module;

/// What all of Megatron's functions of one rank share.
class MegatronRuntime {
 public:
  MegatronRuntime(Tape& tape, const MegatronRuntimeOptions& options);

  Tape& tape() const { return tape_; }
  /// So many modules of Megatron's are called, for which no ModuleCall stands.
  void called(std::int64_t modules = 1) const { tape_.host(HostWork::module, modules); }
  std::int64_t tp() const { return options_.tensor_parallel; }
  std::int64_t cp() const { return options_.context_parallel; }
  bool sequence_parallel() const { return options_.sequence_parallel; }
  bool user_buffers() const { return options_.user_buffers && options_.sequence_parallel && options_.tensor_parallel > 1; }
  /// The recipe of products: the rank's own, or that of the QuantizationScope around.
  const TeQuantization& quantization() const { return *quantization_; }
  /// Gives a module a recipe of its own, which outlives the rank.
  void set_recipe(const Module& module, const TeQuantization& recipe) { recipes_[&module] = &recipe; }
  bool fused_weight_gradients() const { return options_.fused_weight_gradients; }
  DType main_gradient() const { return options_.main_gradient; }
  bool reduces_beside_products() const { return options_.reduces_beside_products; }
  AttentionLibrary attention() const { return options_.attention; }

  /// GlobalMemoryBuffer.get_tensor(…, "mpu"): a view of one buffer per type that grows and is never given back.
  Tensor global_buffer(const Dims& sizes, DType type);
  /// get_dummy_wgrad: what autograd sees as the gradient of a weight whose gradient is in main_grad already. One tensor per shape and
  /// type, never given back; before Transformer Engine 2.3 a new one each time.
  Tensor dummy_gradient(const Tensor& weight);
  /// The copy in few bits that a product reads of a weight (`transposed`: that of the input's gradient), undefined where it reads the
  /// weight itself. It lives as long as the weight from its first product on; transposes of gathered 8-bit weights are made for each
  /// product.
  Tensor quantized_weight(const Tensor& weight, bool transposed);
  /// Makes what a primary weight in few bits has beside its values from the start: their scales, and where it lies outside of the
  /// optimizer's buffers its transposed copy.
  void make_scales(const Tensor& weight);
  /// grad_added_to_main_grad: whether products added a weight's gradient to its main_grad since the last question.
  bool takes_added(const Tensor& weight) { return added_.erase(weight.impl()) > 0; }
  /// Products of weights' gradients that wait for a slot of their own in the schedule, with what they read.
  using Deferred = std::vector<std::function<void()>>;
  /// Passes back from here on leave them in `deferred`; with nullptr they run at once (WGradRunningCache of Primus).
  void defer_weight_gradients(Deferred* deferred) { deferred_ = deferred; }
  bool defers_weight_gradients() const { return deferred_ != nullptr; }
  bool store_defers() const { return options_.store_defers; }
  /// Leaves a product, to run in the recipe and under the label of now.
  void defer(std::function<void()> product);
  /// Transformer Engine's workspace of its products, taken at the first of them and kept.
  void reserve_gemm_workspace();
  /// save_to_aux_losses_tracker: adds a layer's loss to the list of all layers of the model, which the first call makes.
  void log_auxiliary_loss();
  /// The workspaces of its grouped products, one per stream.
  void reserve_grouped_workspaces();
  /// The stream of Transformer Engine's context parallelism.
  StreamId context_stream();
  /// An exchange of the expert-parallel ranks, awaited. Where exchanges overlap, passes of two micro-batches take turns at them: while one
  /// goes, the other micro-batch computes up to its own next exchange, so that the compute stream waits for the one before.
  void exchange(const Collective& collective);
  /// No pass of another micro-batch runs beside those that follow, or one does again: an exchange under way is awaited, and those to come
  /// are awaited themselves.
  void passes_alone(bool alone);
  /// A collective over the tensor-parallel ranks, awaited. `bytes` is the full buffer's. Nothing when tp is 1.
  void collective(CollectiveKind kind, std::int64_t bytes, DType type);
  /// The same without waiting: `wait()` does.
  void collective_async(CollectiveKind kind, std::int64_t bytes, DType type);
  void wait();
  /// The same with an event behind it, one for each kind: `await` holds the compute stream until then. Nothing when tp is 1.
  std::optional<EventId> collective_event(CollectiveKind kind, std::int64_t bytes, DType type);
  void await(Awaited& pending);

 private:
  friend class QuantizationScope;

  Tape& tape_;
  MegatronRuntimeOptions options_;
  const TeQuantization* quantization_ = &options_.quantization;
  std::map<const Module*, const TeQuantization*> recipes_;
  StreamId stream_;
  std::map<DType, Tensor> buffers_;
  std::map<std::tuple<std::int64_t, std::int64_t, DType>, Tensor> dummies_;
  std::set<const TensorImpl*> added_;                                 ///< weights whose gradient is in main_grad
  std::map<const TensorImpl*, std::pair<Tensor, Tensor>> quantized_;  ///< by weight: as it is, transposed
  std::vector<Tensor> scales_;                                        ///< of primary weights
  Tensor gemm_workspace_, auxiliary_losses_;
  std::vector<Tensor> grouped_workspaces_;
  std::optional<StreamId> context_stream_;
  std::map<CollectiveKind, EventId> events_;
  std::optional<StreamId> exchange_stream_;
  std::array<EventId, 2> exchanged_{};  ///< behind the last two exchanges, in turn
  std::size_t exchanges_ = 0;
  bool alone_ = false;
  Deferred* deferred_ = nullptr;
};

/// Products within it are those of a module's own recipe, where it has one, or of the recipe given.
class QuantizationScope {
 public:
  QuantizationScope(MegatronRuntime& runtime, const Module& module);
  QuantizationScope(MegatronRuntime& runtime, const TeQuantization& recipe);
  ~QuantizationScope() { runtime_.quantization_ = outer_; }
  QuantizationScope(const QuantizationScope&) = delete;
  QuantizationScope& operator=(const QuantizationScope&) = delete;

 private:
  MegatronRuntime& runtime_;
  const TeQuantization* outer_;
};

}  // namespace plimsoll::program
