#include "program/wrappers/msamp/optimizer.hpp"

#include <array>
#include <utility>

#include "program/op.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/optimizers/clipping.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program::msamp {

namespace {

std::vector<Tensor> tensors_of(const std::vector<Trained>& trained) {
  std::vector<Tensor> tensors;
  for (const Trained& one : trained) tensors.push_back(one.parameter->tensor);
  return tensors;
}

/// The gradient in fp32: itself where it is that.
Tensor wide_gradient(const Trained& one) {
  const Tensor& gradient = one.parameter->tensor.grad();
  return widened(gradient, one.linear && gradient.dtype() == DType::fp8 ? &one.linear->weight_gradient : nullptr, DType::fp32);
}

Tensor wide_weight(const Trained& one) {
  return widened(one.parameter->tensor.detach(), one.linear ? &one.linear->scaling : nullptr, DType::fp32);
}

/// params[i].copy_(param.cast(…)): an FP8Linear's weight from its fp32 copy; no other parameter is written back.
void write_back(const Trained& one, const Tensor& wide) {
  if (!one.linear) return;
  const Tensor half = to_half(wide, one.linear->scaling);
  copy_into(one.parameter->tensor, half);
  for (const Tensor* number : {&one.linear->scaling.scale, &one.linear->scaling.inverse, &one.linear->scaling.largest})
    copy_into(*number, *number);
}

class LbAdam : public Optimizer {
 public:
  LbAdam(Tape& tape, Model& model, std::vector<Trained> trained, bool decays)
      : Optimizer(tape, tensors_of(trained)), model_(model), decays_(decays), trained_(std::move(trained)) {}

  void do_step() override {
    tape_.operator_name = "lb_adam";
    std::vector<std::size_t> with;
    for (std::size_t i = 0; i < trained_.size(); ++i) {
      if (!trained_[i].parameter->tensor.grad()) continue;
      create_states(i);
      with.push_back(i);
    }
    update(with);
    model_.update_scales();
  }

 protected:
  virtual void create_states(std::size_t index) = 0;
  virtual void update(const std::vector<std::size_t>& with_gradients) = 0;

  /// torch.zeros_like(p, dtype=torch.float32).
  Tensor zeroed(std::size_t index) {
    Tensor state = zeros(tape_, trained_[index].parameter->sizes, DType::fp32);
    Tape::categorize(state, Category::optimizer_state);
    return state;
  }

  Model& model_;
  bool decays_;
  std::vector<Trained> trained_;
};

/// O1: moments in fp32, in PyTorch's own operators.
class Fp32States final : public LbAdam {
 public:
  Fp32States(Tape& tape, Model& model, std::vector<Trained> trained, bool decays)
      : LbAdam(tape, model, std::move(trained), decays), first_(trained_.size()), second_(trained_.size()) {}

 private:
  void create_states(std::size_t index) override {
    if (first_[index]) return;
    first_[index] = zeroed(index);
    second_[index] = zeroed(index);
  }

  void update(const std::vector<std::size_t>& with_gradients) override {
    Tensor wide, gradient, denominator;  // Python's variables live on until the next parameter's
    for (std::size_t i : with_gradients) {
      wide.reset();  // the loop's own variable has taken its name
      wide = wide_weight(trained_[i]);
      gradient = wide_gradient(trained_[i]);
      if (decays_) in_place(wide, {&wide});
      update_moments(i, gradient);
      {
        const Tensor root = elementwise(tape_, {&second_[i]}, DType::fp32);
        denominator = elementwise(tape_, {&root}, DType::fp32);
      }
      in_place(denominator, {&denominator});
      {
        const Tensor ratio = elementwise(tape_, {&first_[i], &denominator}, DType::fp32);
        in_place(wide, {&wide, &ratio});
      }
      write_back(trained_[i], wide);
    }
  }

  void update_moments(std::size_t index, const Tensor& gradient) {
    in_place(first_[index], {&first_[index]});
    in_place(first_[index], {&first_[index], &gradient});
    in_place(second_[index], {&second_[index]});
    const Tensor square = elementwise(tape_, {&gradient}, DType::fp32);
    in_place(second_[index], {&second_[index], &square});
  }

  std::vector<Tensor> first_, second_;
};

/// O2: the first moment in 8 bits, the second in fp16, updated by two kernels of MS-AMP's: the weights and the new largest magnitudes,
/// then, once all scales are known, the moments.
class ScaledStates final : public LbAdam {
 public:
  ScaledStates(Tape& tape, Model& model, std::vector<Trained> trained, bool decays)
      : LbAdam(tape, model, std::move(trained), decays), first_(trained_.size()), second_(trained_.size()) {}

 private:
  struct Moment {
    Tensor value;
    Scaling scaling;
  };

  void create_states(std::size_t index) override {
    if (first_[index].value) return;
    for (Moment* moment : {&first_[index], &second_[index]}) {
      Tensor state = zeroed(index);
      Tape::categorize(state, Category::temporary);
      moment->scaling = new_scaling(tape_, 1, Category::optimizer_state);
      moment->value = moment == &first_[index] ? to_eight_bits(state, moment->scaling, {}) : to_half(state, moment->scaling);
      Tape::categorize(moment->value, Category::optimizer_state);
    }
  }

  void update(const std::vector<std::size_t>& with_gradients) override {
    const std::vector<Tensor> inverses = inverse_scales(with_gradients);
    for (std::vector<Moment>* moments : {&first_, &second_}) {
      std::vector<Tensor> largest;
      for (std::size_t i : with_gradients) largest.push_back((*moments)[i].scaling.largest);
      launch_foreach(tape_, largest, 1, 1);  // _foreach_zero_
    }
    Tensor wide, gradient;
    for (std::size_t i : with_gradients) {
      wide.reset();
      wide = wide_weight(trained_[i]);
      gradient = wide_gradient(trained_[i]);
      if (decays_) in_place(wide, {&wide});
      stage(i, gradient, &wide);
      write_back(trained_[i], wide);
    }
    new_scales(with_gradients);
    for (std::size_t i : with_gradients) {
      wide.reset();
      gradient = wide_gradient(trained_[i]);
      for (Moment* moment : {&first_[i], &second_[i]}) {
        moment->scaling.scale.reset();  // a Python number from the first step on
        in_place(moment->scaling.inverse, {});
      }
      stage(i, gradient, nullptr);
    }
  }

  /// [1.0 / state.meta.scale for …], of both moments: tensors only while scales are.
  std::vector<Tensor> inverse_scales(const std::vector<std::size_t>& with_gradients) {
    std::vector<Tensor> inverses;
    for (std::vector<Moment>* moments : {&first_, &second_}) {
      for (std::size_t i : with_gradients) {
        const Tensor& scale = (*moments)[i].scaling.scale;
        if (!scale) continue;
        const Tensor reciprocal = elementwise(tape_, {&scale}, DType::fp32);
        inverses.push_back(elementwise(tape_, {&reciprocal}, DType::fp32));
      }
    }
    return inverses;
  }

  /// adamw_fp8_stage1_compute with weights, adamw_fp8_stage2_compute without.
  void stage(std::size_t index, const Tensor& gradient, const Tensor* weights) {
    const Operand first = operand(first_[index].value), second = operand(second_[index].value);
    if (weights) {
      pointwise(tape_, Pointwise::Form::fused, {operand(gradient), first, second, operand(*weights)}, {operand(*weights)});
    } else {
      pointwise(tape_, Pointwise::Form::fused, {operand(gradient), first, second}, {first, second});
    }
  }

  /// Scales of all moments at once, which the host reads.
  void new_scales(const std::vector<std::size_t>& with_gradients) {
    const std::int64_t count = static_cast<std::int64_t>(with_gradients.size());
    std::array<Tensor, 2> largest;
    for (Tensor& all : largest) {
      all = tape_.empty({count}, DType::fp32);
      pointwise(tape_, Pointwise::Form::concatenate, {operand(all)}, {operand(all)});
    }
    const Tensor ones = filled(tape_, {1}, DType::fp32);
    for (const Tensor& all : largest) scaling_factor(all, ones);
  }

  std::vector<Moment> first_, second_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(Tape& tape, Model& model, std::vector<Trained> trained, States states, bool decays) {
  if (states == States::fp32) return std::make_unique<Fp32States>(tape, model, std::move(trained), decays);
  return std::make_unique<ScaledStates>(tape, model, std::move(trained), decays);
}

void clip_grad_norm(Tape& tape, const std::vector<Trained>& parameters) {
  tape.operator_name = "clip_grad_norm";
  std::vector<Tensor> norms;
  for (const Trained& one : parameters) {
    if (!one.parameter->tensor.grad()) continue;
    const Tensor wide = wide_gradient(one);
    norms.push_back(reduce(wide, std::vector<bool>(static_cast<std::size_t>(wide.rank()), true), false, DType::fp32));
  }
  const Tensor stacked = stacked_norms(tape, norms, DType::fp32);
  const Tensor total = reduce(stacked, {true}, false, DType::fp32);
  const Tensor coefficient = clipping_coefficient(tape, total);
  for (const Trained& one : parameters) {
    const Tensor& gradient = one.parameter->tensor.grad();
    if (!gradient) continue;
    const Tensor& scaled = one.linear ? one.linear->weight_gradient.inverse : gradient;
    in_place(scaled, {&scaled, &coefficient});
  }
}

}  // namespace plimsoll::program::msamp
