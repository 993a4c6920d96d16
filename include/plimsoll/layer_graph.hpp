/// The layer graph of a model: operators are vertices, tensors are edges, repeated blocks stay repeats. Topological order, critical path,
/// pipeline stage cuts, export.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/model.hpp"

namespace plimsoll {

/// A directed acyclic graph of a model's operators. A block that repeats is in it once; `repeat` says how often it runs in a row, the
/// output of one repeat being the input of the next.
class LayerGraph {
 public:
  struct Vertex {
    int block;         ///< index into the model's blocks
    int index;         ///< of the operator within its block
    std::string name;  ///< "model.layers.0-31.self_attn.q_proj"
    OperatorKind kind;
    std::int64_t repeat;
    std::int64_t parameters;          ///< of one repeat, tied tensors counted 0
    double flops;                     ///< forward matrix FLOPs of one repeat per position, without the attention product
    std::vector<std::int64_t> shape;  ///< of its output behind [batch, positions]
    std::string_view saves;           ///< saved_for_backward
  };
  /// A tensor: what `from` computes and `to` reads. `from` is -1 for the model's input (token ids, pixels).
  struct Tensor {
    int from, to;
    std::vector<std::int64_t> shape;  ///< behind [batch, positions]; empty when it is the model's input
  };

  /// Throws Error when an edge names no operator or operators form a cycle (the cycle is named).
  explicit LayerGraph(const Model& model);

  const std::vector<Vertex>& vertices() const { return vertices_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  /// Index of the vertex of operator `index` of block `block`.
  int vertex(int block, int index) const { return stages_[static_cast<std::size_t>(block)].first_vertex + index; }

  /// Every vertex behind all it reads.
  const std::vector<int>& topological_order() const { return order_; }

  /// The longest chain of dependent operators.
  struct Path {
    double cost = 0;            ///< with every repeat
    std::vector<int> vertices;  ///< each once, in order
  };
  /// Longest path when every vertex costs cost[i] >= 0 per repeat. Through a repeated block it runs through all repeats; only the first can
  /// be entered from a side input, since the later ones wait for the one before.
  Path critical_path(const std::vector<double>& cost) const;

  /// Graphviz: one cluster per block, "x 32" where it repeats.
  std::string to_dot() const;
  /// {"schema":"plimsoll/graph/1","model":…,"blocks":[…],"tensors":[…]}
  std::string to_json() const;

 private:
  /// A block as the graph keeps it; its vertices lie together and its output is that of the last.
  struct Stage {
    std::string name;
    std::int64_t repeat = 1, tokens = 0;
    int first_vertex = 0, vertices = 0;
    std::vector<int> inputs;  ///< vertices whose outputs are kBlockInput, kSideInput …; -1: the model's input
    std::vector<Edge> edges;  ///< as in the block
    std::vector<int> order;   ///< its operators, each behind what it reads

    int output() const { return first_vertex + vertices - 1; }
  };
  /// Longest paths within one repeat of a stage: when each operator ends, and which it waited for (an index, or an input).
  struct Reach {
    std::vector<double> finish;
    std::vector<int> waited_for;
  };
  void add_block(const Model& model, int block);
  void connect(int stage);
  void sort();
  Reach reach(const Stage& stage, const std::vector<double>& arrivals, const std::vector<double>& cost) const;
  std::string full_name(const Block& block, const Operator& op) const;
  int block_before(const Model& model, int block) const;

  std::string name_;
  std::vector<Stage> stages_;
  std::vector<Vertex> vertices_;
  std::vector<Tensor> tensors_;
  std::vector<int> order_;
};

/// What autograd keeps of an operator for its backward, in words: "input", "output", "mask"; "nothing" for a sum.
std::string_view saved_for_backward(const Operator& op);

/// Forward FLOPs of one repeat of every vertex, per sample of `sequence` tokens: a cost for critical_path. The graph must be the model's.
std::vector<double> forward_flops_per_vertex(const LayerGraph& graph, const Model& model, std::int64_t sequence);

// ---- pipeline stage cuts ---------------------------------------------------------------------------------------------

/// A run of equal layers of a pipeline's chain.
struct LayerRun {
  std::int64_t count = 1;
  double cost = 0;  ///< of one layer
};

/// The layers of each stage.
struct StageCut {
  std::vector<std::int64_t> layers;  ///< per stage, in order; their sum is the number of layers
  double largest = 0;                ///< cost of the most expensive stage
};

/// How many layers the embedding (on the first stage) and the head (on the last) count for, and what happens when stages do not divide
/// them.
struct EvenCut {
  std::int64_t first_stage_less = 0;  ///< Megatron account_for_embedding_in_pipeline_split, torchtitan first_stage_less_layers (1)
  std::int64_t last_stage_less = 0;   ///< Megatron account_for_loss_in_pipeline_split, torchtitan last_stage_less_layers (1)
  bool remainder_first = false;       ///< torchtitan: the first stages take one more; otherwise the cut is refused as Megatron does
};
/// Layers of each stage: (layers + first_less + last_less) / stages effective layers each, less those the embedding and the head stand for.
/// Throws Error when stages do not divide the layers (Megatron's rule) or a stage would be left without layers for its weight.
std::vector<std::int64_t> even_stage_cut(std::int64_t layers, std::int64_t stages, const EvenCut& rule = {});

/// The contiguous cut of the chain with the smallest largest stage; every stage gets at least one layer. `first_cost` and `last_cost` are
/// what the embedding and the head add to their stage. Exact up to rounding of sums; time O(runs + stages) per bisection step. Throws Error
/// when there are fewer layers than stages, or a cost is negative or not finite.
StageCut balanced_stage_cut(const std::vector<LayerRun>& chain, std::int64_t stages, double first_cost = 0, double last_cost = 0);

/// The chain of a model: its encoder and decoder layers as runs, each with its forward FLOPs per sample at `sequence` tokens.
std::vector<LayerRun> layer_chain(const Model& model, std::int64_t sequence);

}  // namespace plimsoll
