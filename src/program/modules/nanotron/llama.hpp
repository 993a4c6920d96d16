/// nanotron's Llama as it runs: fused projections on [sequence, batch, hidden], flash-attention's kernels, tensor parallelism in
/// reduce-scatter mode with asynchronous gathers. Sources: nanotron (Dec 2024) models/llama.py, parallel/tensor_parallel/functional.py and
/// nn.py; flash-attention 2 csrc/flash_attn/flash_api.cpp, flash_attn/layers/rotary.py and ops/triton/layer_norm.py; PyTorch 2.1 to 2.5.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/kernels.hpp"
#include "program/module.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// Sizes of the network on one tensor-parallel rank and of one micro-batch.
struct NanotronSizes {
  std::int64_t hidden = 0, head_dim = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0;  ///< heads, ffn and vocab: of this rank
  std::int64_t batch = 0, sequence = 0;
  std::int64_t tp = 1;
  bool scatters = true;  ///< TensorParallelLinearMode.REDUCE_SCATTER; else ALL_REDUCE

  std::int64_t tokens() const { return batch * sequence; }
  bool cuts() const { return tp > 1 && scatters; }  ///< along the sequence between the products
  bool reduces() const { return tp > 1 && !scatters; }
  Dims hidden_state() const { return {cuts() ? sequence / tp : sequence, batch, hidden}; }
};

/// What the modules of a rank share: BLAS workspaces, buffers of gathered activations, kernels tuned at their first call.
class NanotronDevice {
 public:
  NanotronDevice(Tape& tape, const NanotronSizes& sizes);

  Tape& tape;
  const NanotronSizes sizes;

  /// A product written into memory that exists. The first one of a thread (forward's, autograd's) makes cuBLAS's workspace, for good.
  void product(LinearPass pass, const LinearShape& shape);
  /// The same while its other operand is gathered: the rank's own rows first, the rest when they have come.
  void product_beside_gather(LinearPass pass, const LinearShape& whole);
  /// MemoryBuffer().get("allgather"): one buffer for all layers; gathers `shard` into it while the rank's own shard is multiplied.
  Tensor gathered_input(const Tensor& shard) { return gathered(input_buffer_, shard); }
  Tensor gathered_gradient(const Tensor& shard) { return gathered(gradient_buffer_, shard); }
  /// A collective of the tensor-parallel group behind what the compute stream has been given; `whole` holds all of its bytes.
  void communicate(CollectiveKind kind, const Tensor& whole);
  /// The compute stream waits for every collective so far.
  void await_communication();
  /// The rank's piece of the sum of `whole`; whoever reads it waits.
  Tensor reduce_scattered(const Tensor& whole, const Dims& piece);
  /// Adds up the ranks' tensors in place; whoever reads it waits.
  void all_reduce(const Tensor& partial);
  /// A new tensor of all pieces.
  Tensor all_gathered(const Tensor& piece, const Dims& whole);
  /// record_stream by a collective: once freed, the memory waits until the device has done what was issued before. Every collective of
  /// PyTorch 2.1 does so, those that the compute stream waits for at once too (ProcessGroupNCCL.cpp; since 2.2 only asynchronous ones).
  void use_on_communication_stream(const Tensor& tensor);
  /// Triton times a kernel's configurations at the first call, with a buffer that flushes the L2 cache between runs.
  enum class TunedKernel : std::uint8_t { norm_forward, norm_backward };
  void tune(TunedKernel kernel);
  StreamId communication() const { return communication_; }

 private:
  Tensor gathered(Tensor& buffer, const Tensor& shard);

  StreamId communication_;
  Tensor forward_workspace_, backward_workspace_;
  Tensor input_buffer_, gradient_buffer_;
  bool tuned_[2] = {false, false};
};

/// Layers of one pipeline rank, and what stands before and behind them.
struct NanotronStage {
  int first_layer = 0, layers = 0;
  bool embedding = true, head = true;
};

/// The modules of one pipeline rank. Parameters are made at construction, as nanotron's blocks are built on the device.
class NanotronLlama {
 public:
  /// `recomputes`: layers keep their input alone (recompute_layer).
  NanotronLlama(NanotronDevice& device, const NanotronStage& stage, bool tied_embeddings, bool recomputes);

  Module& root() { return root_; }
  /// Output of this rank's layers for token ids or for the hidden state that the rank before sent.
  Tensor hidden(const Tensor& input);
  /// The loss of the last rank's hidden state.
  Tensor loss(const Tensor& hidden, const Tensor& labels, const Tensor& label_mask);

 private:
  struct Layer {
    Module *module, *input_norm, *qkv, *output, *attention_norm, *gate_up, *down;
    Tensor cosine, sine;  ///< flash-attention's rotary module of each layer keeps its own tables
  };

  Module& make(const std::string& path, const Dims& sizes);
  Layer make_layer(int index);
  Tensor embed(const Tensor& ids);
  Tensor run_layer(Layer& layer, const Tensor& input);
  Tensor attend(Layer& layer, const Tensor& input);

  NanotronDevice& device_;
  Tape& tape_;
  NanotronSizes sizes_;
  Module root_;
  Module *embedding_ = nullptr, *final_norm_ = nullptr, *head_ = nullptr;
  std::vector<Layer> layers_;
  bool recomputes_;
};

}  // namespace plimsoll::program
