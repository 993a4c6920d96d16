#include "program/wrappers/deepspeed/deepspeed.hpp"

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/optimizers/host_optimizer.hpp"
#include "program/reduction.hpp"
#include "program/wrappers/deepspeed/norm.hpp"

namespace plimsoll::program {

namespace {

/// deepspeed.ops.adam.FusedAdam and deepspeed.ops.lion.FusedLion: one kernel, moments made in the first step, a skip buffer.
class FusedStates final : public Optimizer {
 public:
  FusedStates(Tape& tape, std::vector<Tensor> masters, bool adam)
      : Optimizer(tape, std::move(masters)), adam_(adam), moments_(parameters_.size()), skip_(tape.empty({1}, DType::int32)) {}

  void do_step() override {
    tape_.operator_name = adam_ ? "FusedAdam" : "FusedLion";
    const std::size_t each = adam_ ? 2 : 1;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const Tensor& master = parameters_[i];
      if (!master.grad()) continue;
      while (moments_[i].size() < each) {
        moments_[i].push_back(tape_.empty(master.sizes(), master.dtype(), Category::optimizer_state));
        pointwise(moments_[i].back(), {});
      }
    }
    launch_foreach(tape_, with_gradients(), adam_ ? 4 : 3, adam_ ? 3 : 2);
  }

 private:
  bool adam_;
  std::vector<std::vector<Tensor>> moments_;
  Tensor skip_;  ///< _dummy_overflow_buf
};

}  // namespace

std::unique_ptr<Optimizer> make_deepspeed_optimizer(const DeepSpeedSettings& settings, Tape& tape, std::vector<Tensor> masters) {
  const bool adam = settings.optimizer == OptimizerKind::adam || settings.optimizer == OptimizerKind::adamw;
  const bool lion = settings.optimizer == OptimizerKind::lion;  // torch.optim has none: it is DeepSpeed's own
  if (lion || (adam && settings.implementation == OptimizerImpl::fused))
    return std::make_unique<FusedStates>(tape, std::move(masters), adam);
  if (settings.optimizer == OptimizerKind::adamw_torch_8bit)
    refuse("torchao's AdamW with states of 8 bits under DeepSpeed is not modelled", "optimizer", "adamw or adamw-8bit");
  return make_optimizer(settings.optimizer, settings.implementation, tape, std::move(masters));
}

std::unique_ptr<Optimizer> make_deepspeed_host_optimizer(const DeepSpeedSettings& settings, Tape& tape, std::int64_t elements, bool idle) {
  return make_host_optimizer(settings.optimizer, settings.implementation, tape, elements, 4,
                             idle ? HostGradients::as_they_are : HostGradients::scaled_in_place);
}

Tensor parameter_on(Tape& tape, const Tensor& flat, const Parameter& slot) {
  Tensor leaf = tape.view(flat, slot.sizes, contiguous_strides(slot.sizes));
  leaf.impl()->base.reset();
  leaf.set_requires_grad(slot.trainable);
  return leaf;
}

void copy_elements(Tape& tape, std::int64_t elements, DType from, DType to) {
  if (from == to) {
    tape.copy({Copy::Direction::device_to_device, elements * size_of(to)}, tape.stream);
  } else {
    pointwise(tape, Pointwise::Form::map, {packed(elements, from)}, {packed(elements, to)});
  }
}

Tensor flatten(Tape& tape, const std::vector<Tensor>& tensors) {
  if (tensors.size() == 1) return tensors.front();
  std::int64_t elements = 0;
  DType type = tensors.front().dtype();
  for (const Tensor& tensor : tensors) {
    elements += tensor.elements();
    if (size_of(tensor.dtype()) > size_of(type)) type = tensor.dtype();
  }
  Tensor flat = tape.empty({elements}, type);
  concatenate(flat, tensors);
  return flat;
}

void drop_list(std::vector<Tensor>& list) {
  while (!list.empty()) list.pop_back();
}

Tensor converted(const Tensor& x, DType type) { return x.dtype() == type ? x : elementwise(x.tape(), {&x}, type); }

Tensor check_finite(const Tensor& x, const DeepSpeedSettings& settings) {
  Tape& tape = x.tape();
  const Tensor flat = tape.view(x, {x.elements()}, {1});
  if (settings.release.checks_extremes()) return has_inf_or_nan(flat);
  const Tensor wide = converted(flat, DType::fp32);
  const Tensor nan = elementwise(tape, {&wide}, DType::boolean);
  Tensor infinite;
  {
    const Tensor magnitude = elementwise(tape, {&wide}, DType::fp32);  // isinf is abs() == inf
    infinite = elementwise(tape, {&magnitude}, DType::boolean);
  }
  const Tensor either = elementwise(tape, {&nan, &infinite}, DType::boolean);
  const Tensor marks = elementwise(tape, {&either}, DType::fp32);
  return reduce(marks, {true}, false, DType::fp32);
}

Tensor norm_in(const Tensor& x, DType type) {
  const Tensor wide = converted(x.tape().view(x, {x.elements()}, {1}), type);
  return reduce(wide, {true}, false, type, size_of(type));
}

}  // namespace plimsoll::program
