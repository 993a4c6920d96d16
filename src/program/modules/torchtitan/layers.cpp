#include "program/modules/torchtitan/layers.hpp"

#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// at::rms_norm before it was one kernel: fp32 inside, a product with the weight at the end.
Tensor rms_norm_parts(const Tensor& x, const Tensor& weight) {
  Tensor low;
  {
    const Tensor wide = to(x, DType::fp32);
    Tensor scale;
    {
      const Tensor square = power(wide);
      scale = mean(square, -1, true);
    }
    scale = rsqrt(scale);
    const Tensor normed = multiply(wide, scale);
    low = to(normed, x.dtype());
  }
  return multiply(low, weight);
}

}  // namespace

Module& add_titan_module(Module& parent, const std::string& name, Tape& tape) {
  Module& module = parent.child(name, true);
  module.label = tape.intern(module.path);
  return module;
}

void add_titan_parameter(Module& module, const std::string& name, const Dims& sizes) {
  module.parameters.push_back(std::make_shared<Parameter>(Parameter{.name = name, .sizes = sizes, .type = DType::fp32, .tensor = {}}));
}

Linear add_titan_linear(Module& parent, const std::string& name, std::int64_t in, std::int64_t out, Tape& tape, bool bias) {
  Module& module = add_titan_module(parent, name, tape);
  add_titan_parameter(module, "weight", {out, in});
  if (bias) add_titan_parameter(module, "bias", {out});
  return {module, tape};
}

Tensor apply_rms_norm(bool fused, const Tensor& x, const Tensor& weight) { return fused ? rms_norm(x, weight) : rms_norm_parts(x, weight); }

TitanNorm::TitanNorm(Module& parent, const std::string& name, std::int64_t width, bool fused, Tape& tape)
    : module_(&add_titan_module(parent, name, tape)), tape_(&tape), fused_(fused) {
  add_titan_parameter(*module_, "weight", {width});
}

Tensor TitanNorm::operator()(const Tensor& input) const {
  Tensor x = input;
  ModuleCall call(*module_, *tape_, {&x});
  return call.done(apply_rms_norm(fused_, x, module_->tensor("weight")));
}

TitanFeedForward::TitanFeedForward(Module& parent, const std::string& name, std::int64_t hidden, std::int64_t intermediate,
                                   const TitanContext& context, Input input, Output output)
    : module_(add_titan_module(parent, name, context.tape)), context_(context), input_(input), output_(output) {
  const std::int64_t inner = context.run.tensor_parallel.share(intermediate);
  gate_ = add_titan_linear(module_, "w1", hidden, inner, context.tape);
  down_ = add_titan_linear(module_, "w2", inner, hidden, context.tape);
  up_ = add_titan_linear(module_, "w3", hidden, inner, context.tape);
}

Tensor TitanFeedForward::operator()(const Tensor& input) const {
  Tensor x = input;
  ModuleCall call(module_, context_.tape, {&x});
  const TensorParallel& tp = context_.run.tensor_parallel;
  if (tp.on() && input_ == Input::of_block) x = tp.sequence ? gather_sequence(tp, x) : replicate_input(tp, x);
  Tensor product;
  {
    Tensor gate = gate_(x);
    gate = silu(gate);
    const Tensor up = up_(x);
    product = multiply(gate, up);
  }
  Tensor result = down_(product);
  if (tp.on() && tp.sequence) result = scatter_sequence(tp, result);
  if (tp.on() && !tp.sequence && output_ == Output::of_block) result = reduce_partial(tp, result);
  return call.done(result);
}

}  // namespace plimsoll::program
