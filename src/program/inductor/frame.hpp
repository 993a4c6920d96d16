/// A forward whose code Dynamo turns into several graphs, one behind the other: it breaks one where the code does what cannot be traced
/// (torch/_dynamo/symbolic_convert.py), and DDP's buckets of gradients cut one (torch/_dynamo/backends/distributed.py of PyTorch 2.15,
/// DDPOptimizer), so that a bucket can be reduced while the backward goes on. Each graph is compiled by itself; what another one made is an
/// input, and what others read is a result.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "program/inductor/trace.hpp"

namespace plimsoll::program::inductor {

/// Tensors are those of the traced run.
struct FrameGraph {
  JointGraph joint;
  std::vector<Tensor> inputs;   ///< in the order of JointGraph::inputs
  std::vector<Tensor> results;  ///< in that of its first outputs
};

/// Numbers Dynamo's operators: autocast's casts are part of the operator that asks for them, a checkpoint is one.
class OperatorCount {
 public:
  /// The number of the operator that `trace` is told of.
  std::size_t of(const OperatorTrace& trace);

 private:
  std::size_t next_ = 0;
  int checkpoint_ = -1;   ///< the last one that was met
  bool awaited_ = false;  ///< casts have been met whose operator has not
};

class TracedFrame final : public OperatorTrace {
 public:
  /// A graph begins in front of each of the operators `cuts`, counted as `ParameterUses` does.
  TracedFrame(Tape& tape, std::vector<Tensor> resident, Checkpointing checkpointing, std::set<std::size_t> cuts = {});
  ~TracedFrame() override;
  TracedFrame(const TracedFrame&) = delete;
  TracedFrame& operator=(const TracedFrame&) = delete;

  void ran(const char* name, const List<const Tensor*>& inputs, const ToldNumbers& told, const std::vector<Tensor>& outputs) override;
  /// The code's variables hold `live` where it breaks.
  void breaks(const std::vector<Tensor>& live) override;
  bool broken() const { return broken_; }
  /// Ends the frame, which returns `results`.
  std::vector<FrameGraph> graphs(const std::vector<Tensor>& results);

 private:
  void begin_graph();

  Tape& tape_;
  const std::vector<Tensor> resident_;
  Checkpointing checkpointing_;
  std::set<std::size_t> cuts_;
  OperatorCount count_;
  bool broken_ = false;
  std::vector<std::unique_ptr<Trace>> traces_;
  std::vector<std::vector<Tensor>> live_;  ///< of each graph that a break ended: what the variables hold
};

/// The operators in front of which DDP cuts a graph whose operators use those parameters. Counted from the back, a part is full when the
/// parameters that it uses, each as often as it is used, reach its limit; what stands before the operator that filled it is the next
/// part's.
std::set<std::size_t> bucket_cuts(const std::vector<std::vector<Tensor>>& uses, const BucketLimits& limits);

/// What a frame's operators read of parameters.
class ParameterUses final : public OperatorTrace {
 public:
  ParameterUses(Tape& tape, const std::vector<Tensor>& parameters);
  ~ParameterUses() override;
  ParameterUses(const ParameterUses&) = delete;
  ParameterUses& operator=(const ParameterUses&) = delete;

  void ran(const char* name, const List<const Tensor*>& inputs, const ToldNumbers& told, const std::vector<Tensor>& outputs) override;
  void breaks(const std::vector<Tensor>& live) override;
  /// Of each operator, as often as it reads one.
  const std::vector<std::vector<Tensor>>& uses() const { return uses_; }

 private:
  Tape& tape_;
  std::set<const TensorImpl*> parameters_;
  OperatorCount count_;
  std::vector<std::vector<Tensor>> uses_;
};

}  // namespace plimsoll::program::inductor
