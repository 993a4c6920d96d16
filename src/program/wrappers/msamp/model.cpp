#include "program/wrappers/msamp/model.hpp"

#include <unordered_set>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/modules/linear_modules.hpp"
#include "program/op.hpp"
#include "program/ops/copying.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program::msamp {

namespace {

constexpr std::int64_t kWindow = 16;                      // FP8Linear.DEFAULT_WINDOW_SIZE
constexpr std::int64_t kBroadcastElements = 512LL << 20;  // TensorDist.BROADCAST_BUCKET_SIZE, which counts elements

/// Gemm._get_cublas_workspace_size_bytes: 32 MiB from Hopper on, else 4.
std::int64_t workspace_bytes(const TargetDevice& device) { return std::int64_t{device.from(90) ? 32 : 4} << 20; }

/// The type that FP8Linear's products answer in.
DType output_type(const Tape& tape, const Tensor& x) { return tape.autocast.enabled ? tape.autocast.type : x.dtype(); }

}  // namespace

/// What _FP8GemmFunction's context has for backward. These are attributes of the context and no saved tensors: they live until the node
/// dies, which is when the loss is dropped, and checkpoints that recompute by hooks on saved tensors do not see them.
struct Model::Saved {
  Tensor input;
  EightBits weight;
  DType type = DType::bf16;
};

Model::Model(Tape& tape, Module& root, const plimsoll::Model& model, std::int64_t ranks) : tape_(tape), root_(root), ranks_(ranks) {
  const GradMode no_grad(tape, false);
  tape.operator_name = "msamp.initialize";
  const std::vector<std::shared_ptr<Parameter>> originals = root.all_parameters();
  std::vector<Tensor> replaced;  // the optimizer's lists hold them until they are given the new ones
  for (Module* linear : linear_modules(root, model)) replace(*linear, replaced);
  if (linears_.empty()) refuse("MS-AMP replaces nn.Linear, and the model has none", "precision");
  if (ranks > 1) broadcast();
  register_scalings();
  find_trained(originals);
}

/// The optimizer's lists with the new parameters in the old ones' places. What a tied parameter was copied into has no place there.
void Model::find_trained(const std::vector<std::shared_ptr<Parameter>>& originals) {
  std::unordered_set<const Parameter*> present;
  for (const auto& parameter : root_.all_parameters()) present.insert(parameter.get());
  for (const auto& original : originals) {
    const auto copy = copies_.find(original.get());
    const bool stays = present.count(original.get()) > 0;
    leaves_unused_ = leaves_unused_ || (stays && copy != copies_.end() && original->name == "bias");
    const Trained now = stays ? Trained{original, nullptr} : copy->second;
    if (now.parameter->trainable) trained_.push_back(now);
  }
}

/// LinearReplacer._build_fp8linear.
void Model::replace(Module& module, std::vector<Tensor>& replaced) {
  const LabelScope label(tape_, module.label);
  auto linear = std::make_unique<ScaledLinear>();
  linear->scaling = new_scaling(tape_, 1, Category::parameter);
  linear->input = new_scaling(tape_, kWindow, Category::parameter);
  linear->weight_gradient = new_scaling(tape_, 1, Category::parameter);
  linear->output_gradient = new_scaling(tape_, kWindow, Category::parameter);
  const Parameter* bias = nullptr;
  std::vector<std::shared_ptr<Parameter>> parameters;
  for (const auto& old : module.parameters) {
    auto parameter = std::make_shared<Parameter>(*old);
    if (parameter->name == "weight") {
      parameter->type = DType::fp16;
      parameter->tensor = tape_.empty(old->sizes, DType::fp16, Category::parameter);
      linear->weight = parameter;
    } else {
      parameter->tensor = tape_.parameter(old->sizes, old->type, old->trainable);
      bias = parameter.get();
    }
    replaced.push_back(old->tensor);
    copies_.emplace(old.get(), Trained{parameter, parameter == linear->weight ? linear.get() : nullptr});
    parameters.push_back(std::move(parameter));
  }
  if (bias) copy_into(bias->tensor, bias->tensor);
  {
    Scaling cast = new_scaling(tape_, 1, Category::temporary);
    const Tensor half = to_half(module.find_parameter("weight")->tensor, cast);
    copy_into(linear->weight->tensor, half);
    for (const Tensor* number : {&linear->scaling.scale, &linear->scaling.inverse, &linear->scaling.largest}) copy_into(*number, *number);
  }
  module.parameters = std::move(parameters);
  module.replacement = [this, bias, state = linear.get()](const Tensor& x) { return forward(*state, bias, x); };
  linears_.push_back(std::move(linear));
}

/// TensorDist.broadcast: values in pieces of 512 Mi elements, then the inverse scales.
void Model::broadcast() {
  const auto send = [&](std::vector<Tensor*>& tensors) {
    if (tensors.empty()) return;
    flatten(tensors);
    std::int64_t bytes = 0;
    for (const Tensor* tensor : tensors) bytes += tensor->bytes();
    tape_.collective({.kind = CollectiveKind::broadcast, .group = Group::world, .bytes = bytes, .type = tensors.front()->dtype()},
                     tape_.stream);
    tensors.clear();
  };
  std::vector<Tensor*> values, inverses;
  std::int64_t elements = 0;
  for (const auto& linear : linears_) {
    values.push_back(&linear->weight->tensor);
    elements += values.back()->elements();
    if (elements < kBroadcastElements) continue;
    send(values);
    elements = 0;
  }
  send(values);
  for (const auto& linear : linears_) inverses.push_back(&linear->scaling.inverse);
  send(inverses);
}

/// ModelState.register_scaling_metas: scales, inverses and windows of all linears lie side by side.
void Model::register_scalings() {
  for (Scaling ScaledLinear::*kind : {&ScaledLinear::input, &ScaledLinear::weight_gradient, &ScaledLinear::output_gradient}) {
    for (Tensor Scaling::*part : {&Scaling::scale, &Scaling::inverse, &Scaling::largest}) {
      std::vector<Tensor*> parts;
      for (const auto& linear : linears_) parts.push_back(&((*linear).*kind.*part));
      flatten(parts);
    }
  }
}

std::vector<Trained> Model::all() {
  std::vector<Trained> all;
  for (const auto& parameter : root_.all_parameters()) {
    ScaledLinear* owner = nullptr;
    for (const auto& linear : linears_)
      if (linear->weight == parameter) owner = linear.get();
    if (parameter->trainable) all.push_back({parameter, owner});
  }
  return all;
}

/// Gemm.fp8_gemm: [rows of b, rows of a] from matrices of equal width, on a workspace of its own.
Tensor Model::product(const Tensor& a_in, const Tensor& b_in, DType type, const Tensor& into) {
  if (!workspace_) workspace_ = tape_.empty({workspace_bytes(tape_.device)}, DType::int8, Category::workspace);
  const std::int64_t rows = b_in.size(0), columns = a_in.size(0), inner = a_in.size(1);
  const Tensor a = padded_to(a_in, padded(columns), padded(inner)), b = padded_to(b_in, padded(rows), padded(inner));
  Tensor y = into ? padded_to(into, padded(rows), padded(columns)) : tape_.empty({padded(rows), padded(columns)}, type);
  gemm(tape_, matrix(b), matrix(a).t(), matrix(y), {.scaling = plimsoll::Scaling::tensor, .accumulates = into.defined(), .workspace = false});
  if (rows == padded(rows) && columns == padded(columns)) return y;
  if (into) {
    in_place(into, {&into});
    return into;
  }
  return trimmed(y, rows, columns);
}

/// F.linear as FunctionalOverider has it.
Tensor Model::forward(ScaledLinear& linear, const Parameter* bias, const Tensor& x) {
  const Dims sizes = x.sizes();
  const std::int64_t width = linear.weight->sizes[0];
  const DType type = output_type(tape_, x);
  const bool casts = linear.weight->tensor.dtype() != DType::fp8;
  Tensor y;
  {
    const Tensor flat = x.rank() == 2 ? x : reshape(x, {-1, x.size(-1)});
    if (tape_.grad_enabled && !flat.requires_grad()) refuse("MS-AMP linears on inputs that take no gradient are not modelled", "precision");
    PythonFunction op("fp8_linear", {&flat});
    Saved saved;
    {
      const GradMode no_grad(tape_, false);
      saved.type = type;
      saved.input = to_eight_bits(contiguous(flat), linear.input, {});
      saved.weight = casts ? to_eight_bits(linear.weight->tensor, linear.scaling) : EightBits{linear.weight->tensor, linear.scaling};
      y = product(saved.weight.value, saved.input, type);
    }
    if (op.differentiable()) Tape::categorize(saved.input, Category::activation);
    if (op.differentiable() && casts) Tape::categorize(saved.weight.value, Category::activation);
    y = op.done(y, [this, &linear, saved = std::move(saved)](BackwardCall& call) { backward(linear, saved, call); });
  }
  if (bias) {
    Tensor sum;
    {
      const Tensor low = to(bias->tensor, type);
      sum = add(y, view(low, {1, width}));
    }
    y = std::move(sum);
  }
  if (sizes.rank() == 2) return y;
  Dims wide = sizes;
  wide[-1] = width;
  return view(y, wide);
}

/// The weight's gradient in 16 bits; one that stands already is widened, and the product adds to it.
Tensor Model::weight_product(ScaledLinear& linear, const Tensor& input, const Tensor& gradient, DType type) {
  const Tensor& before = linear.weight->tensor.grad();
  if (!before) return product(input, gradient, type);
  const Tensor wide = widened(before, before.dtype() == DType::fp8 ? &linear.weight_gradient : nullptr, type);
  return product(input, gradient, type, wide);
}

/// _FP8GemmFunction.backward, whose variables live until it returns.
void Model::backward(ScaledLinear& linear, const Saved& saved, BackwardCall& call) {
  const Tensor gradient = contiguous(call.grad());
  const CastPair gradients = cast_and_transpose(gradient, linear.output_gradient);
  const Tensor weight = transposed(saved.weight.value);
  Tensor input_gradient = product(weight, gradients.straight, saved.type);
  const Tensor input = transposed(saved.input);
  Tensor weight_gradient = weight_product(linear, input, gradients.transposed, saved.type);
  if (!keeps_wide_gradients)
    weight_gradient = to_eight_bits(weight_gradient, linear.weight_gradient, {.searches = true, .synchronizes = true, .ranks = ranks_});
  Tape::categorize(weight_gradient, Category::gradient);
  linear.weight->tensor.grad() = weight_gradient;
  if (!keeps_wide_gradients) weight_gradient.reset();  // the variable's value is the gradient's own, which a hook may move
  if (on_gradient) on_gradient(linear);
  call.give(0, std::move(input_gradient));
  call.drop_gradients();
}

void Model::update_scales() {
  for (Scaling ScaledLinear::*kind : {&ScaledLinear::input, &ScaledLinear::output_gradient}) {
    const std::int64_t count = static_cast<std::int64_t>(linears_.size());
    const Scaling& first = (*linears_.front()).*kind;
    const Tensor windows = tape_.view(first.largest, {count, kWindow}, {kWindow, 1}), scales = tape_.view(first.scale, {count}, {1});
    const Tensor newest = tape_.view(first.largest, {count}, {kWindow});
    const Tensor valid = elementwise(tape_, {&newest}, DType::boolean), invalid = elementwise(tape_, {&valid}, DType::boolean);
    in_place(newest, {&invalid});
    Tensor factor;
    {
      const Tensor largest = elementwise(tape_, {&newest}, DType::fp32), positions = elementwise(tape_, {&newest}, DType::int64);  // max(1)
      factor = scaling_factor(largest, scales);
    }
    const Tensor rolled = elementwise(tape_, {&windows}, DType::fp32);
    copy_into(windows, rolled);
    in_place(newest, {&newest});
    copy_into(scales, factor);
  }
}

}  // namespace plimsoll::program::msamp
