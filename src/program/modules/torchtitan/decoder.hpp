/// TorchTitan's decoder (torchtitan/models/common): module tree and forward of one pipeline stage.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/kernel.hpp"
#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/tensor_parallel.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// How TorchTitan builds and runs a model, beyond what the model says.
struct TitanRun {
  TensorParallel tensor_parallel;
  bool fused_qkv = true;
  bool positions_given = true;    ///< rotary rows are gathered by position ids
  bool complex_rope = true;       ///< complex64 rotations; else fp32 cosines and sines
  bool skip_head = false;         ///< the loss applies the head (ChunkedLossWrapper)
  bool fused_norm = true;         ///< aten::_fused_rms_norm; before torch 2.8 its parts
  bool grouped_attention = true;  ///< attention takes fewer key heads; else they are repeated
  bool tied = false;              ///< embedding and head are one table
  bool one_table = false;         ///< tied tables are one parameter when they are sharded; else only their shards are
  enum class Attention : std::uint8_t {
    scaled_dot_product,
    efficient,  ///< scaled_dot_product by the memory-efficient kernel alone
    varlen,     ///< over packed sequences (varlen_attn)
    flex,       ///< flex_attention over a block mask, compiled
  } attention = Attention::scaled_dot_product;
  bool cudnn_attention = false;             ///< scaled_dot_product takes cuDNN's kernels
  bool keeps_cudnn_attention = true;        ///< selective checkpoints keep what they give
  Scaling product_scaling = Scaling::none;  ///< of compiled layers' 8- and 4-bit products
  bool float8_rowwise = false;              ///< the layers' products are torchao's Float8Linear
  bool truncated_init = true;               ///< projections start from trunc_normal_, which looks at what it drew; else from normal_
  bool fused_draw = true;  ///< query, key and value of a fused projection are drawn one by one; gpt-oss: its shard as any other's
  struct Router {
    bool softmax = true;             ///< scores are a softmax over the experts; else a sigmoid of each
    bool normalized = true;          ///< the chosen experts' scores are divided by their sum
  } router;                          ///< of mixtures of experts
  enum class Experts : std::uint8_t {
    dispatched,  ///< TokenDispatcher: scores meet the outputs where these are added to their tokens
    unsorted,    ///< before 0.3: outputs are put in the order of tokens and summed there with their scores
    scattered,   ///< before November 2025: outputs times scores are added to their tokens
  } experts = Experts::dispatched;   ///< how a mixture sends tokens to its experts and adds up what comes back
  std::int64_t expert_ranks = 1;     ///< expert parallelism
  bool keeps_exchanges = true;       ///< selective checkpoints keep what expert-parallel ranks exchange
  double imbalance = 1;              ///< rows of this rank's experts over the mean of all ranks
  std::int64_t context_ranks = 1;    ///< context parallelism: ring attention
  StreamId pieces = kComputeStream;  ///< of asynchronous tensor parallelism in compiled layers
  bool compiled = false;             ///< torch.compile of every layer
  bool early_blocks = false;         ///< as releases before 0.3 wrote them
  std::int64_t four_bit_layers = 0;  ///< the first layers, whose products are NVFP4
  bool compiled_loss = false;        ///< torch.compile of the loss, since 2025
  bool gives_outputs = false;        ///< a pipeline's schedule gives back the last stage's outputs
  int loss_divisions = 0;            ///< by numbers: of accumulated micro-batches, and of those of a pipeline
  bool early_stop = false;           ///< checkpoints end their recomputation with the last saved tensor
  bool shared_table = false;         ///< one rotary table for all layers, as before 0.3; else a table per layer
  bool ends_in_root = false;         ///< embedding, norm and head are the root's unit
  std::int64_t length = 0;           ///< of a sequence: rows of the rotary tables
  enum class Checkpointing : std::uint8_t { none, full, operators } checkpointing = Checkpointing::none;
  int every = 1;  ///< of full checkpointing: every n-th layer
};

/// What part of the model a stage holds.
struct TitanStage {
  std::vector<std::int64_t> layers;  ///< global indices
  bool embedding = true, head = true;
  int rank_before = -1, rank_behind = -1;  ///< pipeline ranks of the stages next to it; -1: none, or this rank itself
};

/// Rows of the query and key projections of a layer, over all ranks.
struct AttentionSizes {
  std::int64_t query = 0, key = 0;
};

class TitanLayer;
namespace inductor {
class ModuleGraphs;
}

class TitanDecoder {
 public:
  /// Throws Error (refused): a family that TorchTitan does not have or that is not modelled.
  TitanDecoder(const Model& model, const TitanRun& run, const TitanStage& stage, Tape& tape);
  ~TitanDecoder();

  Module& root() { return root_; }
  const TitanRun& run() const { return run_; }
  AttentionSizes attention_sizes() const { return attention_sizes_; }
  /// Module of layer `index` of the stage.
  Module& layer(std::size_t index) { return *layer_modules_[index]; }
  std::size_t layers() const { return layer_modules_.size(); }
  Module* embedding() { return root_.find_child("tok_embeddings"); }
  Module* norm() { return root_.find_child("norm"); }
  Module* head() { return root_.find_child("lm_head"); }
  /// The mixtures of experts of its layers.
  std::vector<Module*> mixtures();

  /// forward(tokens or hidden states, positions): hidden states, or logits where the stage applies its head.
  Tensor operator()(const Tensor& input, const Tensor& positions);
  /// The head alone: logits of hidden states.
  Tensor apply_head(const Tensor& hidden);

 private:
  Tensor embed(const Tensor& tokens);
  Tensor run_layer(std::size_t index, const Tensor& hidden, const Tensor& positions);

  void let_go_of_pieces();

  Tape& tape_;
  TitanRun run_;
  Module root_;
  AttentionSizes attention_sizes_;
  std::vector<Module*> layer_modules_;
  std::vector<std::unique_ptr<TitanLayer>> layers_;
  std::unique_ptr<inductor::ModuleGraphs> block_graphs_;  ///< of compiled layers
  Tensor embedding_pieces_;  ///< of partial sums being scattered, until the first layer waits for its input
};

}  // namespace plimsoll::program
