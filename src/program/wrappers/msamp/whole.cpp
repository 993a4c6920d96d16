#include "program/wrappers/msamp/whole.hpp"

#include <utility>

#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/wrappers/msamp/masters.hpp"

namespace plimsoll::program::msamp {

namespace {

constexpr std::int64_t kBucket = 500'000'000;        // MEMORY_OPT_ALLREDUCE_SIZE, in elements
constexpr std::int64_t kScaledBucket = 512LL << 20;  // TensorDist.ALL_REDUCE_BUCKET_SIZE, which counts elements

void all_reduce(Tape& tape, std::int64_t bytes, DType type) {
  tape.collective({.kind = CollectiveKind::all_reduce, .group = Group::data_replicate, .bytes = bytes, .type = type}, tape.stream);
}

/// p.data = …: a new weight and a new scaling in the place of the old.
void replace_weight(ScaledLinear& linear, EightBits cast) {
  Tape::categorize(cast.value, Category::parameter);
  linear.weight->tensor = std::move(cast.value);
  linear.weight->type = DType::fp8;
  linear.scaling = std::move(cast.scaling);
}

}  // namespace

// ---- setting up ----------------------------------------------------------------------------------------------------------

ScaledWhole::ScaledWhole(Tape& tape, Model& model, const DeepSpeedSettings& settings, States states)
    : DeepSpeedOptimizer(tape, settings), model_(model), ordinary_(ordinary(model)) {
  const GradMode no_grad(tape, false);
  type_ = ordinary_.front()->type;
  flatten_parameters();
  tape_.operator_name = "fp8 weights";
  std::vector<Trained> trained = {{master_parameter(master_), nullptr}};
  for (const Trained& one : model.trained()) {
    if (!one.linear) continue;
    weights_.push_back({one.linear, cloned_master(*one.linear)});
    trained.push_back({weights_.back().master->weight, weights_.back().master.get()});
    replace_weight(*one.linear, to_eight_bits(one.linear->weight->tensor, one.linear->scaling));
  }
  optimizer_ = make_optimizer(tape_, model_, std::move(trained), states, settings_.optimizer == OptimizerKind::adamw);
}

/// The parameters' clones side by side, of which they become views, and an fp32 copy.
void ScaledWhole::flatten_parameters() {
  tape_.operator_name = "flatten parameters";
  {
    std::vector<Tensor> clones;
    for (const auto& parameter : ordinary_) clones.push_back(clone(parameter->tensor.detach()));
    flat_ = flatten(tape_, clones);
  }
  Tape::categorize(flat_, Category::parameter);
  for (const auto& parameter : ordinary_) parameter->tensor = parameter_on(tape_, flat_, *parameter);
  const Tensor copy = clone(flat_);
  master_ = converted(copy, DType::fp32);
  Tape::categorize(master_, Category::optimizer_state);
}

// ---- gradients -----------------------------------------------------------------------------------------------------------

/// buffered_allreduce_fallback, of every parameter that the model has.
void ScaledWhole::after_backward() {
  if (!boundary_) return;
  tape_.operator_name = "reduce gradients";
  std::vector<Tensor> gradients;
  std::vector<ScaledLinear*> linears;
  std::int64_t elements = 0;
  const std::vector<Trained> all = model_.all();
  for (const Trained& one : all) {
    if (one.linear) continue;
    Tensor& gradient = one.parameter->tensor.grad();
    if (!gradient) gradient = zeros(tape_, one.parameter->sizes, type_);
    gradients.push_back(gradient);
    elements += gradient.elements();
    if (elements <= kBucket) continue;
    reduce_ordinary(std::exchange(gradients, {}));
    elements = 0;
  }
  if (!gradients.empty()) reduce_ordinary(gradients);
  gradients.clear();
  if (settings_.ranks == 1) return;
  elements = 0;
  for (const Trained& one : all) {
    if (!one.linear) continue;
    linears.push_back(one.linear);
    elements += one.parameter->sizes.product();
    if (elements < kScaledBucket) continue;
    reduce_scaled(std::exchange(linears, {}));
    elements = 0;
  }
  if (!linears.empty()) reduce_scaled(linears);
}

/// allreduce_bucket, and the mean back into the gradients.
void ScaledWhole::reduce_ordinary(const std::vector<Tensor>& gradients) {
  const Tensor flat = flatten(tape_, gradients);
  all_reduce(tape_, flat.bytes(), flat.dtype());
  in_place(flat, {&flat});
  for (const Tensor& gradient : gradients) copy_elements(tape_, gradient.elements(), flat.dtype(), gradient.dtype());
}

/// TensorDist.all_reduce_avg: the values stay in the flat tensor, and the mean is a matter of their scales.
void ScaledWhole::reduce_scaled(const std::vector<ScaledLinear*>& linears) {
  std::vector<Tensor> gradients;
  for (const ScaledLinear* linear : linears) gradients.push_back(linear->weight->tensor.grad());
  const Tensor flat = flatten(tape_, gradients);
  gradients.clear();
  all_reduce(tape_, flat.bytes(), DType::fp8);
  for (ScaledLinear* linear : linears) {
    if (linears.size() > 1) move_values(linear->weight->tensor.grad(), flat);
    in_place(linear->weight_gradient.inverse, {&linear->weight_gradient.inverse});
  }
}

// ---- the step ------------------------------------------------------------------------------------------------------------

void ScaledWhole::step() {
  tape_.operator_name = "FP8Optimizer";
  if (type_ == DType::fp32 && settings_.clips) clip();
  check_overflow();
  assign_gradients();
  norm();
  in_place(master_.grad(), {&master_.grad()});
  for (const Weight& weight : weights_) in_place(weight.master->weight_gradient.inverse, {&weight.master->weight_gradient.inverse});
  optimizer_->step();
  std::vector<Tensor> held = {std::exchange(master_.grad(), Tensor())};  // lists of the function's own, which live until it returns
  for (const Weight& weight : weights_) held.push_back(std::exchange(weight.master->weight->tensor.grad(), Tensor()));
  write_weights();
  if (type_ == DType::fp32)  // zero_grad() of the engine, not of the optimizer: a copied head's too
    for (const Trained& one : model_.all()) one.parameter->tensor.grad().reset();
}

void ScaledWhole::check_overflow() {
  std::vector<Tensor> gradients;
  std::vector<const ScaledLinear*> linears;
  for (const auto& parameter : ordinary_)
    if (parameter->tensor.grad()) gradients.push_back(parameter->tensor.grad());
  for (const Weight& weight : weights_) linears.push_back(weight.linear);
  read_overflow(tape_, gradients, linears);
  const Tensor overflow = tape_.empty({1}, DType::uint8);
  tape_.copy({Copy::Direction::host_to_device, overflow.bytes()}, tape_.stream);
  tape_.copy({Copy::Direction::device_to_host, overflow.bytes()}, tape_.stream);
}

/// The gradients in fp32, flattened into the master's; those of 8 bits as they are.
void ScaledWhole::assign_gradients() {
  {
    std::vector<Tensor> wide;
    for (const auto& parameter : ordinary_) wide.push_back(converted(parameter->tensor.grad(), DType::fp32));
    Tensor flat = flatten(tape_, wide);
    Tape::categorize(flat, Category::gradient);
    master_.grad() = std::move(flat);
  }
  for (const auto& parameter : ordinary_) parameter->tensor.grad().reset();
  for (const Weight& weight : weights_)
    weight.master->weight->tensor.grad() = std::exchange(weight.linear->weight->tensor.grad(), Tensor());
}

/// One tensor's norm is a number of the host.
void ScaledWhole::read_norm(const Tensor& gradient, const Scaling* scaling) {
  const Tensor norm = norm_in(widened(gradient, scaling, DType::fp32), DType::fp32);
  tape_.copy({Copy::Direction::device_to_host, norm.bytes()}, tape_.stream);
}

/// DeepSpeedEngine.clip_fp32_gradients, where nothing has 16 bits: of every parameter that the model has.
void ScaledWhole::clip() {
  const std::vector<Trained> all = model_.all();
  for (const Trained& one : all) read_norm(one.parameter->tensor.grad(), one.linear ? &one.linear->weight_gradient : nullptr);
  all_reduce(tape_, 4, DType::fp32);
  for (const Trained& one : all) {
    const Tensor& scaled = one.linear ? one.linear->weight_gradient.inverse : one.parameter->tensor.grad();
    in_place(scaled, {&scaled});
  }
}

/// get_grad_norm.
void ScaledWhole::norm() {
  read_norm(master_.grad(), nullptr);
  for (const Weight& weight : weights_) read_norm(weight.master->weight->tensor.grad(), &weight.master->weight_gradient);
  const Tensor total = tape_.empty({1}, DType::fp32);
  tape_.copy({Copy::Direction::host_to_device, total.bytes()}, tape_.stream);
  tape_.copy({Copy::Direction::device_to_host, total.bytes()}, tape_.stream);
}

/// p.data.copy_(q.data), and p.data = m.data.cast(kfloat8_e4m3).
void ScaledWhole::write_weights() {
  for (const auto& parameter : ordinary_) copy_elements(tape_, parameter->sizes.product(), DType::fp32, type_);
  for (const Weight& weight : weights_)
    replace_weight(*weight.linear, to_eight_bits(weight.master->weight->tensor, weight.master->scaling));
}

}  // namespace plimsoll::program::msamp
