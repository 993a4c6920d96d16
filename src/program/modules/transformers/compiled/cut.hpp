/// A compiled graph under DDP: torch.compile cuts it where DDP's buckets of gradients end (torch/_dynamo/backends/distributed.py of PyTorch
/// 2.15, DDPOptimizer), so that a bucket can be reduced while the backward pass goes on. Each part has a forward and a backward graph of
/// its own and is a node of autograd's, whose engine brings gradients from part to part and adds up those of several.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "program/inductor/parts.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// The parameters that one operation of the traced graph reads.
using ParameterUse = std::vector<Tensor>;

/// The part of each of the graph's operations that read parameters, told in the graph's order (inductor::bucket_cuts).
std::vector<int> parts_of(const std::vector<ParameterUse>& uses, const BucketLimits& limits);

/// Both graphs are built whole, every operation in its part (Graph::enter); an operation of the backward graph is in the part of the
/// forward operation that it differentiates.
class CutGraphs {
 public:
  using Value = inductor::Value;
  CutGraphs(Tape& tape, int parts) : tape_(tape), parts_(parts), forward_(tape), backward_(tape) {}

  inductor::Graph& forward() { return forward_; }
  inductor::Graph& backward() { return backward_; }

  /// In the backward graph: what the forward graph made, or was given.
  Value saved(Value made);
  /// The part that makes the value keeps it for its backward graph, which does not read it.
  void keep(Value made) { kept_.push_back(made); }
  /// In the backward graph: the gradient of a value, as the part that made it is given it.
  Value gradient_of(Value made);
  /// The current part's gradient for a value that it read, as the part that made the value reads it: itself within one part, else what the
  /// engine brings; undefined for an input of the forward graph. Where `other_strides` it is copied to the value's own strides on its way
  /// (runtime_wrappers.py, coerce_to_expected_memory_format).
  Value hand_back(Value made, Value gradient, bool other_strides = false);
  /// In the backward graph's current part: the gradient of an output that nobody differentiates.
  Value no_gradient(const Dims& sizes, DType type);

  /// Runs the forward parts one after another; those of `results` of which a gradient was asked for have the last part's node.
  std::vector<Tensor> run(const std::vector<Value>& results);

 private:
  struct Zeros {
    int part;
    Value value;
  };
  /// What the nodes share.
  struct Backward;
  using Key = std::pair<int, int>;  ///< a part and a value of the forward graph

  void add_up_gradients();
  std::map<int, Value> last_gradients(int part) const;
  template <class GraphOp>
  void run_part(int part, inductor::GraphParts& forward, const std::shared_ptr<Backward>& backward, std::map<int, Tensor>& alive);

  Tape& tape_;
  int parts_;
  inductor::Graph forward_, backward_;
  std::map<int, Value> saved_;      ///< by the forward graph's values
  std::map<int, Value> gradients_;  ///< likewise: as they arrive
  std::map<int, int> made_;         ///< the forward graph's values by the backward graph's inputs
  std::map<Key, std::vector<Value>> handed_back_;
  std::map<int, bool> other_strides_;
  std::vector<Zeros> zeros_;
  std::vector<Value> kept_;
};

}  // namespace plimsoll::program
