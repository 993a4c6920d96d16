#include "program/modules/megatron/recompute.hpp"

#include <algorithm>
#include <utility>

#include "program/op.hpp"

namespace plimsoll::program {

bool recomputes(const Recompute& recompute, std::string_view module) {
  if (recompute.kind != Recompute::Kind::selective) return false;
  if (recompute.modules.empty()) return module == "core_attn";
  return std::find(recompute.modules.begin(), recompute.modules.end(), module) != recompute.modules.end();
}

struct CheckpointWithoutOutput::State {
  Region region;
  std::vector<Tensor> arguments;  ///< detached
  std::vector<Tensor> outputs;    ///< those of the first run, beside the graph: their storages
  std::vector<Tensor> inputs, recomputed;

  /// _recompute: the second run's outputs are copied into the storages that the first one's users saved.
  void recompute(Tape& tape) {
    if (!region) return;
    for (const Tensor& argument : arguments) {
      Tensor input = argument.detach();
      input.set_requires_grad(argument.requires_grad());
      inputs.push_back(std::move(input));
    }
    {
      const GradMode recording(tape, true);
      const RunningAgain again(tape);
      recomputed = region(inputs);
    }
    region = nullptr;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      tape.allocate_storage(outputs[i], Category::activation);
      in_place(outputs[i], {&recomputed[i]});
    }
    outputs.clear();
  }
};

std::vector<Tensor> CheckpointWithoutOutput::run(Tape& tape, Region region, const std::vector<Tensor>& arguments) {
  List<const Tensor*> inputs;
  for (const Tensor& argument : arguments) inputs.push_back(&argument);
  Op op("CheckpointWithoutOutput", inputs);
  std::vector<Tensor> outputs;
  {
    const GradMode not_recording(tape, false);
    outputs = region(arguments);
  }
  if (!op.differentiable()) return outputs;
  state_ = std::make_shared<State>();
  state_->region = std::move(region);
  for (const Tensor& argument : arguments) {
    Tensor kept = argument.detach();
    kept.set_requires_grad(argument.requires_grad());
    Tape::categorize(kept, Category::activation);
    state_->arguments.push_back(std::move(kept));
  }
  for (const Tensor& output : outputs) state_->outputs.push_back(output.detach());
  op.finish_all(outputs, [state = state_](BackwardCall& b) {
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < state->recomputed.size(); ++i) gradients.push_back(b.grad(i));
    const std::vector<Tensor> roots = std::move(state->recomputed), leaves = std::move(state->inputs);
    b.tape.backward(roots, std::move(gradients));
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (leaves[i].requires_grad()) b.give(i, leaves[i].grad());
    }
    state->arguments.clear();
  });
  return outputs;
}

void CheckpointWithoutOutput::discard(const Tensor& following) {
  if (!state_) return;
  Tape& tape = following.tape();
  for (const Tensor& output : state_->outputs) tape.free_storage(output);
  if (following.requires_grad()) following.register_hook([state = state_, &tape](Tensor&) { state->recompute(tape); });
}

}  // namespace plimsoll::program
