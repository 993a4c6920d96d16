#include "program/checkpoint.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/running_node.hpp"

namespace plimsoll::program {

namespace {

/// Thrown when the last tensor that the region saved exists again (_StopRecomputationError).
struct StopRecomputation {};

/// _CachingTorchDispatchMode and _CachedTorchDispatchMode over one storage: outputs by operator and call.
class KeptOutputs final : public SelectiveOutputs {
 public:
  explicit KeptOutputs(std::unique_ptr<SelectivePolicy> policy) : policy_(std::move(policy)) {}

  std::vector<Tensor> kept(const char* name) override {
    if (!again_) return {};
    Calls& calls = calls_[name];
    return std::move(calls.outputs[calls.next++]);
  }

  void computed(const char* name, const std::vector<Tensor>& outputs) override {
    if (again_) return;
    std::vector<Tensor> keep;
    if (policy_->keeps(name)) {
      for (const Tensor& output : outputs) {
        if (output) Tape::categorize(output, Category::activation);
        keep.push_back(output ? output.detach() : output);
      }
    }
    calls_[name].outputs.push_back(std::move(keep));
  }

  void run_again() { again_ = true; }

 private:
  struct Calls {
    std::vector<std::vector<Tensor>> outputs;
    std::size_t next = 0;
  };
  std::unique_ptr<SelectivePolicy> policy_;
  std::unordered_map<std::string, Calls> calls_;
  bool again_ = false;
};

/// The operators of the scope belong to a selective checkpoint's region.
class SelectiveScope {
 public:
  SelectiveScope(Tape& tape, std::shared_ptr<SelectiveOutputs> outputs)
      : tape_(tape), before_(std::exchange(tape.selective_outputs, std::move(outputs))) {}
  ~SelectiveScope() { tape_.selective_outputs = std::move(before_); }
  SelectiveScope(const SelectiveScope&) = delete;
  SelectiveScope& operator=(const SelectiveScope&) = delete;

 private:
  Tape& tape_;
  std::shared_ptr<SelectiveOutputs> before_;
};

/// _CheckpointFrame: one call of checkpoint().
struct Frame {
  Tape& tape;
  TupleRegion region;
  std::vector<SavedTensor> arguments;  ///< of a node of their own, so that hooks around the region see them (_NoopSaveInputs)
  bool autocast;                       ///< of the forward
  DType autocast_type;
  std::uint32_t module_label;
  bool early_stop = true;
  std::shared_ptr<KeptOutputs> selective;
  std::size_t holders = 0;   ///< tensors that the region saved
  std::vector<bool> wanted;  ///< whether holder i is still referenced
  /// What the region saved when it ran again, by graph task: a backward in halves runs it anew in each, and what a task did not ask for
  /// stays as long as the graph.
  std::map<std::uint32_t, std::vector<Tensor>> recomputed;
};

/// _current_graph_task_id: the task that reached the node whose backward runs.
std::uint32_t running_task() {
  const Node* node = running_node();
  return node == nullptr ? 0 : node->visited;
}

/// Stands in a node for a tensor saved within the region.
class Holder final : public SavedTensorHooks::Packed {
 public:
  Holder(std::shared_ptr<Frame> frame, std::size_t index) : frame_(std::move(frame)), index_(index) {}
  ~Holder() override {
    frame_->wanted[index_] = false;
    for (auto& [task, tensors] : frame_->recomputed)
      if (index_ < tensors.size()) tensors[index_].reset();
  }
  Frame& frame() const { return *frame_; }
  std::size_t index() const { return index_; }

 private:
  std::shared_ptr<Frame> frame_;
  std::size_t index_;
};

/// While the region runs again: the i-th saved tensor belongs to the i-th holder.
class RecomputationHooks final : public SavedTensorHooks {
 public:
  RecomputationHooks(Frame& frame, std::vector<Tensor>& recomputed) : frame_(frame), recomputed_(recomputed) {}
  std::unique_ptr<Packed> pack(const Tensor& tensor) override;
  Tensor unpack(Packed& packed) override;

 private:
  struct Kept final : Packed {
    Tensor tensor;
  };
  Frame& frame_;
  std::vector<Tensor>& recomputed_;
};

std::unique_ptr<SavedTensorHooks::Packed> RecomputationHooks::pack(const Tensor& tensor) {
  auto kept = std::make_unique<Kept>();
  kept->tensor = tensor.requires_grad() ? tensor.detach() : tensor;
  const std::size_t index = recomputed_.size();
  if (index >= frame_.holders) throw Error(ErrorCode::internal, "recomputation saves more tensors than the forward pass");
  recomputed_.push_back(frame_.wanted[index] ? kept->tensor : Tensor());
  if (frame_.early_stop && recomputed_.size() == frame_.holders) throw StopRecomputation{};
  return kept;
}

Tensor RecomputationHooks::unpack(Packed& packed) { return static_cast<Kept&>(packed).tensor; }

void recompute(Frame& frame, std::vector<Tensor>& recomputed) {
  recomputed.reserve(frame.holders);
  Tape& tape = frame.tape;
  const LabelScope label(tape, frame.module_label);
  tape.host(HostWork::checkpoint);
  const RunningAgain again(tape);
  if (frame.selective) frame.selective->run_again();
  const SelectiveScope selective(tape, frame.selective);
  try {
    const SavedTensorHooksScope hooks(tape, std::make_shared<RecomputationHooks>(frame, recomputed));
    const GradMode grad(tape, true);
    const AutocastScope autocast(tape, frame.autocast, frame.autocast_type);
    std::vector<Tensor> arguments;
    for (const SavedTensor& argument : frame.arguments) arguments.push_back(argument.unpack());
    frame.region(arguments);
  } catch (const StopRecomputation&) {
  }
}

class CheckpointHooks final : public SavedTensorHooks {
 public:
  explicit CheckpointHooks(std::shared_ptr<Frame> frame) : frame_(std::move(frame)) {}

  std::unique_ptr<Packed> pack(const Tensor&) override {
    frame_->wanted.push_back(true);
    return std::make_unique<Holder>(frame_, frame_->holders++);
  }

  Tensor unpack(Packed& packed) override {
    const Holder& holder = static_cast<Holder&>(packed);
    Frame& frame = holder.frame();
    const auto [run, first] = frame.recomputed.try_emplace(running_task());
    if (first) recompute(frame, run->second);
    return std::move(run->second[holder.index()]);
  }

 private:
  std::shared_ptr<Frame> frame_;
};

}  // namespace

namespace {

/// Within torch.compile a checkpoint is part of the graph, whose backward computes again what the region's operators gave.
std::vector<Tensor> traced_checkpoint(OperatorTrace& trace, const TupleRegion& region, const std::vector<Tensor>& arguments) {
  struct Region {
    bool& recomputes;
    const bool before;
    ~Region() { recomputes = before; }
  } const inside{trace.recomputes, std::exchange(trace.recomputes, true)};
  ++trace.checkpoints;
  return region(arguments);
}

}  // namespace

std::vector<Tensor> checkpoint(Tape& tape, const TupleRegion& region, const std::vector<Tensor>& arguments,
                               const CheckpointOptions& options) {
  if (tape.trace) {
    if (options.policy) refuse("a selective checkpoint within torch.compile is not modelled", "compile", "false");
    return traced_checkpoint(*tape.trace, region, arguments);
  }
  tape.host(HostWork::checkpoint);
  auto frame = std::make_shared<Frame>(Frame{.tape = tape,
                                             .region = region,
                                             .arguments = {},
                                             .autocast = tape.autocast.enabled,
                                             .autocast_type = tape.autocast.type,
                                             .module_label = tape.module_label,
                                             .early_stop = options.early_stop && tape.torch.checkpoints_stop_early(),
                                             .selective = {},
                                             .wanted = {},
                                             .recomputed = {}});
  if (tape.grad_enabled) {
    for (const Tensor& argument : arguments) frame->arguments.emplace_back(argument, false);
  }
  if (options.policy && tape.grad_enabled) frame->selective = std::make_shared<KeptOutputs>(options.policy());
  const SelectiveScope selective(tape, frame->selective);
  const SavedTensorHooksScope hooks(tape, std::make_shared<CheckpointHooks>(frame));
  return region(arguments);
}

namespace {

/// A region of one result as one of several.
TupleRegion as_tuple(const Region& region) {
  return [region](const std::vector<Tensor>& arguments) {
    std::vector<Tensor> results;
    results.push_back(region(arguments));
    return results;
  };
}

/// detach_variable: leaves in the place of the arguments.
std::vector<Tensor> detached_arguments(const BackwardCall& call, std::size_t count) {
  std::vector<Tensor> detached;
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor& saved = call.saved(i);
    detached.push_back(saved ? saved.detach() : Tensor());
    if (saved) detached.back().set_requires_grad(saved.requires_grad());
  }
  return detached;
}

}  // namespace

Tensor checkpoint(Tape& tape, const Region& region, const std::vector<Tensor>& arguments, const CheckpointOptions& options) {
  return checkpoint(tape, as_tuple(region), arguments, options).front();
}

Tensor checkpoint_reentrant(Tape& tape, const Region& region, const std::vector<Tensor>& arguments) {
  return checkpoint_reentrant(tape, as_tuple(region), arguments).front();
}

std::vector<Tensor> checkpoint_reentrant(Tape& tape, const TupleRegion& region, const std::vector<Tensor>& arguments) {
  if (tape.trace) refuse("a reentrant checkpoint within torch.compile is not modelled", "compile", "false");
  List<const Tensor*> inputs;
  for (const Tensor& argument : arguments) inputs.push_back(&argument);
  Op op("CheckpointFunction", inputs);
  tape.host(HostWork::checkpoint);
  for (const Tensor& argument : arguments) op.save(argument);
  std::vector<Tensor> results;
  {
    const GradMode no_grad(tape, false);
    results = region(arguments);
  }
  std::vector<Tensor> outputs;  // those that are tensors; an argument that comes back is another tensor of its storage (view_as)
  for (const Tensor& result : results) {
    if (!result) continue;
    const bool argument = std::any_of(inputs.begin(), inputs.end(), [&](const Tensor* input) { return input->impl() == result.impl(); });
    outputs.push_back(argument ? result.detach() : result);
  }
  op.finish_all(outputs, [region, count = arguments.size(), enabled = tape.autocast.enabled, type = tape.autocast.type](BackwardCall& b) {
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < b.node.outputs.size(); ++i)
      gradients.push_back(b.grad(i) ? b.grad(i) : zeros(b.tape, b.node.outputs[i].sizes, b.node.outputs[i].type));
    const std::vector<Tensor> detached = detached_arguments(b, count);
    b.tape.host(HostWork::checkpoint);
    std::vector<Tensor> again;
    {
      const GradMode grad(b.tape, true);
      const RunningAgain running_again(b.tape);
      const AutocastScope autocast(b.tape, enabled, type);
      again = region(detached);
    }
    std::vector<Tensor> roots, root_gradients;
    std::size_t output = 0;
    for (const Tensor& result : again) {
      if (!result) continue;
      if (result.requires_grad()) {
        roots.push_back(result);
        root_gradients.push_back(gradients[output]);
      }
      ++output;
    }
    b.tape.backward(roots, std::move(root_gradients));
    for (std::size_t i = 0; i < count; ++i) {
      if (b.needs(i)) b.give(i, detached[i].grad());
    }
  });
  std::size_t output = 0;
  for (Tensor& result : results)
    if (result) result = std::move(outputs[output++]);
  return results;
}

}  // namespace plimsoll::program
