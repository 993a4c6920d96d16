/// A decoder layer as the two graphs that AOTAutograd makes of it (torch/_functorch/partitioners.py of PyTorch 2.15): what the forward
/// graph computes and keeps, and the backward graph over it, as operations of an inductor::Graph.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/inductor/graph.hpp"
#include "program/modules/transformers/compiled/cut.hpp"

namespace plimsoll::program {

/// Values of the layer: first the graph's arguments, then what it computes.
enum CompiledSlot : std::size_t {
  kHidden,
  kCosine,
  kSine,
  kVisible,  ///< which keys each query sees, where that is not all before it
  kInputNorm,
  kInputNormBias,
  kQkv,
  kQkvBias,
  kQ,
  kQBias,
  kQNorm,
  kK,
  kKBias,
  kKNorm,
  kV,
  kVBias,
  kOutput,
  kOutputBias,
  kMlpNorm,
  kMlpNormBias,
  kGate,
  kGateBias,
  kUp,
  kUpBias,
  kDown,
  kDownBias,
  kArguments,
  kInputMean = kArguments,
  kInputScale,
  kNormed,
  kProjections,  ///< queries, keys and values of one product
  kRawQuery,
  kQueryScale,
  kQuery,
  kRawKey,
  kKeyScale,
  kKey,
  kValue,
  kAttended,
  kLogSumExp,
  kRngState,
  kRngOffset,
  kProjected,
  kAttentionMask,
  kMlpMean,
  kMlpScale,
  kMlpNormed,
  kGated,
  kRaised,
  kActivated,
  kMlpMask,
  kScoreBias,     ///< kVisible as what is added to the scores
  kBranch,        ///< the MLP's result
  kStandardized,  ///< of a whole model's LayerNorms: the first norm's input, standardized
  kSummed,        ///< the second norm's
  kMiddle,        ///< the sum behind attention, where it is kept instead of what attention's projection gave
  kSeeds,         ///< of all dropouts of a whole model's graph
  // Of a graph that is cut (CutGraphs):
  kBefore,  ///< what the layer's input is the sum of, where that is kept instead: the stream behind the attention before, and the MLP's
            ///< branch
  kBeforeBranch,
  kNormedOut,  ///< the norm's result in its own type, for products in other parts
  kMlpNormedOut,
  kQkvInput,  ///< what such a product reads: its part's copy of that
  kQInput,
  kKInput,
  kVInput,
  kGateInput,
  kUpInput,
  kQueryNormed,  ///< queries behind their heads' norm, which are turned in another part
  kKeyNormed,
  kGateActivated,  ///< the activation of a gate that is multiplied in another part
  kActivatedOut,   ///< the activation in a wider type than its product's, for a product in another part
  kSlots
};
using CompiledValues = std::array<inductor::Value, kSlots>;

/// The layer's sizes and kinds.
struct CompiledShape {
  DType low = DType::bf16;   ///< of the products
  DType wide = DType::bf16;  ///< of the residual stream and the weights
  bool in_model = false;     ///< a layer of a whole model's graph, which makes its input too
  /// partitioners.py, min_cut_rematerialization_partition: a sum that is read again behind a product is not computed twice. So it is with
  /// all sums of a whole model's graph but the first, whose input is an embedding's, which no kernel takes in.
  bool keeps_middle = false;
  bool checkpointed = false;  ///< torch.utils.checkpoint within the graph: the backward graph computes the activations again
  bool layer_norm = false;    ///< nn.LayerNorm instead of an RMS norm
  bool norm_weights = true;   ///< olmo's LayerNorms have none
  bool head_norms = false;    ///< RMS norms of queries and keys, per head
  bool gated = true;          ///< a gated MLP; else one product up
  bool fused_qkv = false;     ///< queries, keys and values of one product
  bool rotary = true;
  bool causal = true;
  bool masked = false;           ///< attention with a mask
  bool fp32_tables = false;      ///< olmo: rotation in fp32, its results rounded
  bool scaled_queries = false;   ///< opt: a kernel scales the queries before attention
  bool relu = false;             ///< of the MLP: its result is what its backward needs
  bool relu_squared = false;     ///< of the MLP: its backward reads what it squared before the gradient
  bool wide_activation = false;  ///< of the MLP: autocast takes its power to fp32 (gelu_new)
  bool fused_gate_up = false;    ///< both products into a gated MLP are one
  bool conv1d = false;           ///< weights [in, out] (transformers' Conv1D, addmm)
  bool dropout = false;          ///< of both branches
  bool scaled_branches = false;  ///< granite: the branches' results times a constant
  double attention_dropout = 0;
  bool mlp_first = false;                 ///< the output is the MLP's branch + what comes before it; else the other way round
  bool widened_weights = false;           ///< gemma: the norms' weights are widened themselves, their gradients narrowed behind the sums
  std::array<bool, kArguments> biased{};  ///< by weight: its linear has a bias
  bool adds_input_again = false;          ///< of a graph that is cut: kBefore and kBeforeBranch are kept
  bool input_at_hand = false, middle_at_hand = false;  ///< of a graph that is cut: what the norms read crosses, or is a sum of what does
  std::array<int, kArguments> part{};  ///< by weight: the part of a graph that is cut; of what the layer is given, the one that makes it
  std::int64_t batch = 0, length = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, inner = 0;

  bool casts() const { return low != wide; }  ///< weights are cast within the graph, their gradients cast back
  std::int64_t rows() const { return batch * length; }
  std::int64_t q_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  /// Whether a LayerNorm of a whole model's graph keeps its input standardized (model_norm.cpp).
  bool standardizes(CompiledSlot norm) const { return casts() && !(norm == kInputNorm ? input_at_hand : middle_at_hand); }
  /// Whether the weights are used in different parts.
  bool apart(std::size_t a, std::size_t b) const { return part[a] != part[b]; }
};

/// Of a layer whose graphs are cut: both of them, and the values that the forward graph made.
struct CompiledCut {
  CutGraphs* graphs = nullptr;
  const CompiledValues* made = nullptr;
};

/// Builds either graph. `values` holds the arguments (undefined where the layer has none) and, for a backward graph that is not
/// checkpointed, what the forward graph kept.
class CompiledLayer {
 public:
  CompiledLayer(inductor::Graph& graph, const CompiledShape& shape, CompiledValues& values, const Tape& tape)
      : g_(graph), s_(shape), v_(values), tape_(tape) {}
  virtual ~CompiledLayer() = default;
  /// Before the backward graph of a layer is told that is cut.
  void follow(const CompiledCut& cut) { cut_ = cut; }

  /// The forward graph: the layer's output. Values that it makes are put into their slots.
  virtual inductor::Value forward();
  /// The backward graph: the gradients of the arguments, by slot.
  virtual std::array<inductor::Value, kArguments> backward(inductor::Value incoming);
  /// In a backward graph: a checkpointed layer's output computed again, as what it is the sum of, for what stands behind it.
  std::vector<inductor::Value> recompute();

 protected:
  using Values = std::vector<inductor::Value>;
  struct Norm {
    CompiledSlot weight, bias, mean, scale, normed, out;
  };
  static constexpr Norm kInput{kInputNorm, kInputNormBias, kInputMean, kInputScale, kNormed, kNormedOut};
  static constexpr Norm kMlp{kMlpNorm, kMlpNormBias, kMlpMean, kMlpScale, kMlpNormed, kMlpNormedOut};
  /// A sum over rows: its result, and what it sums first (the same where it is not cut into parts).
  struct RowSum {
    inductor::Value total, parts;
  };
  struct NormGradient {
    RowSum weight, bias;
    inductor::Value stream;
    Values residual;  ///< the stream's gradient as what follows reads it: the stream itself, or what it is the sum of
    Values kernel;    ///< the sums over columns and the stream's gradient
  };

  static Values joined(Values first, const Values& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
  Dims stream_sizes() const { return {s_.batch, s_.length, s_.hidden}; }
  std::int64_t qkv_width() const { return s_.q_width() + 2 * s_.kv_width(); }
  Dims per_row() const { return {s_.batch, s_.length, 1}; }

  void enter(CompiledSlot weight) { g_.enter(s_.part[weight]); }
  /// The weights of the products that read the norm.
  std::vector<CompiledSlot> readers(const Norm& norm) const;
  bool is_read_apart(const Norm& norm) const;
  void hand_on(const Norm& norm, const Values& reads);
  void low_copy_and_norm(CompiledSlot weight, const Norm& norm, const Values& reads, std::int64_t in, std::int64_t out);
  inductor::Value input_of(CompiledSlot weight, const Norm& norm) const;
  CompiledSlot source_of(CompiledSlot weight) const;
  inductor::Value hand_back(CompiledSlot made, inductor::Value gradient, bool other_strides = false);
  Values residual_of(CompiledSlot made, const Values& gradient);

  void low_copy(CompiledSlot weight, std::int64_t in, std::int64_t out);
  void low_copy_and(const std::function<void()>& input, CompiledSlot weight, std::int64_t in, std::int64_t out);
  void norm_statistics(const Norm& norm, const Values& reads);
  void apply_norm(const Norm& norm, const Values& reads);
  inductor::Value linear(CompiledSlot weight, inductor::Value input, std::int64_t in, std::int64_t out);
  void head_statistics(CompiledSlot raw, CompiledSlot scale, std::int64_t heads);
  inductor::Value norm_heads(CompiledSlot raw, CompiledSlot scale, CompiledSlot weight, std::int64_t heads);
  void rotate(CompiledSlot raw, CompiledSlot scale, CompiledSlot weight, inductor::Value normed, CompiledSlot turned, std::int64_t heads);
  void project(const Norm& norm, const Values& reads);
  inductor::Value scale_queries();
  Values attention_inputs() const;
  std::vector<inductor::Value> flash(const Values& reads);
  void attend();
  void fuse_rotations(inductor::Value query, inductor::Value key);
  void drop_attention();
  void keep_middle();
  /// The layer's input in its backward graph, as a norm reads it.
  Values input_stream() const;
  /// The residual stream between the branches, as a norm reads it.
  Values middle_stream() const;
  void low_weight(CompiledSlot weight, std::int64_t in, std::int64_t out);
  virtual void compute();
  void activate();
  void activate_for_down();
  bool repeats() const { return s_.heads != s_.kv_heads; }
  void prepare_masked();
  void attend_masked();
  std::vector<inductor::Value> masked_flash_backward(inductor::Value gradient);
  Values masked_projections_backward(const Values& gradients);

  void to_weight(CompiledSlot weight, inductor::Value gradient, inductor::Value input, std::int64_t in, std::int64_t out);
  void widen(CompiledSlot weight, std::int64_t in, std::int64_t out);
  inductor::Value to_input(CompiledSlot weight, inductor::Value gradient, std::int64_t in, std::int64_t out);
  RowSum sum_rows(const Values& reads, std::int64_t width, DType type);
  inductor::Value linear_backward(CompiledSlot weight, inductor::Value gradient, inductor::Value input, std::int64_t in, std::int64_t out);
  inductor::Value sum_for_bias(CompiledSlot weight, inductor::Value gradient, std::int64_t out);
  void widen_biased(CompiledSlot weight, inductor::Value sum, std::int64_t in, std::int64_t out);
  void finish_biased(CompiledSlot weight, inductor::Value gradient, std::int64_t in, std::int64_t out);
  void fuse_with_bias(CompiledSlot weight, inductor::Value gradient, std::int64_t heads);
  NormGradient norm_backward(const Norm& norm, const Values& gradients, const Values& stream, const Values& residual);
  NormGradient dropped_norm_backward(inductor::Value gradient, inductor::Value residual, inductor::Value& masked);
  inductor::Value standardize();
  inductor::Value enter_branch(inductor::Value incoming);
  Values gates_backward_apart(inductor::Value down);
  Values projections_backward(inductor::Value value, const std::function<inductor::Value()>& unturn_query,
                              const std::function<inductor::Value()>& unturn_key);
  inductor::Value narrowed(inductor::Value sum, std::int64_t width);

  /// Slots of a LayerNorm of a whole model's graph: the norm's, and that of its input standardized.
  struct ModelNorm {
    const Norm& norm;
    CompiledSlot standard;
  };
  static constexpr ModelNorm kInputModelNorm{kInput, kStandardized}, kMlpModelNorm{kMlp, kSummed};
  void model_norm(const ModelNorm& of, const Values& stream, Values kernel);
  inductor::Value model_norm_backward(const ModelNorm& of, inductor::Value gradient, const Values& stream, inductor::Value residual);
  inductor::Value heads_backward(CompiledSlot raw, CompiledSlot scale, CompiledSlot weight, inductor::Value turned, std::int64_t heads);
  Values mlp_backward(inductor::Value incoming);
  Values gates_backward(inductor::Value down, Values kernel);
  std::vector<inductor::Value> flash_backward(inductor::Value gradient);
  inductor::Value join_projections(const Values& gradients);
  Values attention_backward(inductor::Value narrow);
  void fuse_norms(const NormGradient& mlp, const NormGradient& input);
  void fuse_norm(const NormGradient& norm);

  inductor::Graph& g_;
  const CompiledShape& s_;
  CompiledValues& v_;
  const Tape& tape_;
  CompiledCut cut_;
  bool forward_only_ = false;
  bool recomputed_ = false;
  Values statistics_, query_statistics_, key_statistics_;
  inductor::Value raw_value_;   ///< before it is repeated
  inductor::Value bias_parts_;  ///< of the last linear's bias
  RowSum down_bias_;
  inductor::Value down_gradient_;   ///< of the last product's result
  inductor::Value seeds_, random_;  ///< of the dropouts; what the attention's drew
  inductor::Value standardized_;    ///< the MLP's norm before its weight, where it is a buffer
  Values dropped_;                  ///< what the kernel of the attention's dropout makes beside the norm
  std::array<inductor::Value, kArguments> gradients_;
};

}  // namespace plimsoll::program
