#include "program/modules/torchtune/layers.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"
#include "program/modules/layers.hpp"
#include "program/modules/adapters/nf4.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

void add_parameter(Module& module, const std::string& name, const Dims& sizes, DType type, bool trainable) {
  module.parameters.push_back(
      std::make_shared<Parameter>(Parameter{.name = name, .sizes = sizes, .type = type, .trainable = trainable, .tensor = {}}));
}

/// A list may say behind a name where it belongs: "output_proj(attn)".
bool names(const std::vector<std::string>& targets, const std::string& target) {
  return std::any_of(targets.begin(), targets.end(),
                     [&](const std::string& listed) { return listed.substr(0, listed.find('(')) == target; });
}

/// RMSNorm.forward from 0.5: F.rms_norm(x.float(), weight).to(x.dtype), in the parts that mixed types take (at::rms_norm).
Tensor rms_norm_widened(const Tensor& x, const Tensor& weight) {
  Tensor weighted;
  {
    const Tensor wide = to(x, DType::fp32);
    Tensor scale;
    {
      const Tensor square = power(wide);
      scale = mean(square, -1, true);
      scale = rsqrt(scale);
    }
    const Tensor normed = multiply(wide, scale);
    weighted = multiply(normed, weight);
  }
  weighted = contiguous(weighted);  // at::rms_norm's last word, which heads that lie crosswise feel
  return to(weighted, x.dtype());
}

/// RMSNorm.forward before: its own arithmetic.
Tensor rms_norm_composed(const Tensor& x, const Tensor& weight) {
  const Tensor wide = to(x, DType::fp32);
  Tensor normed;
  {
    Tensor scale;
    {
      const Tensor square = power(wide);
      scale = mean(square, -1, true);
    }
    scale = add_scalar(scale);
    scale = rsqrt(scale);
    normed = multiply(wide, scale);
  }
  normed = to(normed, x.dtype());
  return multiply(normed, weight);
}

/// GemmaRMSNorm.forward: (x · rsqrt) · (1 + weight), in fp32.
Tensor gemma_norm(const Tensor& x, const Tensor& weight) {
  Tensor output;
  {
    const Tensor wide = to(x, DType::fp32);
    Tensor scale;
    {
      const Tensor square = power(wide);
      scale = mean(square, -1, true);
    }
    scale = add_scalar(scale);
    scale = rsqrt(scale);
    output = multiply(wide, scale);
  }
  {
    Tensor offset = to(weight, DType::fp32);
    offset = add_scalar(offset);
    output = multiply(output, offset);
  }
  return to(output, x.dtype());
}

}  // namespace

Module& add_tune_module(Module& parent, const std::string& name, Tape& tape) {
  Module& module = parent.child(name, true);
  module.label = tape.intern(module.path);
  return module;
}

TuneLinear::TuneLinear(Module& parent, const std::string& name, const std::string& target, const Shape& shape, const TuneContext& context)
    : module_(&add_tune_module(parent, name, context.tape)), tape_(&context.tape), run_(&context.run), shape_(shape) {
  const TuneRun& run = context.run;
  adapted_ = run.lora && names(run.lora->targets, target);
  quantized_ = run.nf4 && name != "output";
  const bool frozen = run.lora.has_value();
  if (quantized_) {
    add_nf4_weight(*module_, shape.out, shape.in, run.type);
  } else {
    add_parameter(*module_, "weight", {shape.out, shape.in}, run.type, !frozen);
  }
  if (shape.bias) add_parameter(*module_, "bias", {shape.out}, run.type, !frozen);
  const bool swapped = run.qat_group > 0 && (!frozen || adapted_);
  if (swapped && adapted_ && shape.in % run.qat_group != 0)
    fail("the rows of " + module_->path + ", " + std::to_string(shape.in) + " elements, are no whole groups of " + std::to_string(run.qat_group),
         "qat.group_size", "a divisor of the adapted linears' widths");
  if (swapped && adapted_ && shape.bias) refuse("fake quantizers beside adapters of a linear with a bias are not modelled", "qat.group_size");
  if (swapped && shape.in % run.qat_group == 0) {
    quantizers_ = std::make_unique<FakeQuantizers>();
    quantizers_->group = run.qat_group;
  }
  if (!adapted_) return;
  dropout_ = run.lora->dropout;
  decomposed_ = run.lora->dora;
  add_parameter(add_tune_module(*module_, "lora_a", *tape_), "weight", {run.lora->r, shape.in}, run.type, true);
  add_parameter(add_tune_module(*module_, "lora_b", *tape_), "weight", {shape.out, run.lora->r}, run.type, true);
  if (decomposed_) add_parameter(*module_, "magnitude", {shape.out}, run.type, true);
}

Tensor TuneLinear::operator()(const Tensor& input) const {
  Tensor x = input;
  ModuleCall call(*module_, *tape_, {&x});
  const Tensor out = base(x);
  if (!adapted_ || run_->adapters_off) return call.done(out);
  return call.done(decomposed_ ? decomposed(x, out) : low_rank(x, out));
}

/// F.linear of the frozen or trained weight, which fake quantizers round with its input; behind an NF4 product the bias is added by itself.
Tensor TuneLinear::base(const Tensor& x) const {
  const Tensor& bias = module_->tensor("bias");
  if (quantizers_) {
    const Tensor input = quantizers_->input.per_token(x);
    const Tensor weight = quantizers_->weight.per_group(module_->tensor("weight"), quantizers_->group);
    return linear(input, weight, bias);
  }
  if (!quantized_) return linear(x, module_->tensor("weight"), bias);
  const Tensor product = linear_nf4(x, *module_, *tape_, shape_.out, shape_.in);
  return bias ? add(product, bias) : product;
}

/// LoRALinear.forward behind the base product.
Tensor TuneLinear::low_rank(const Tensor& x, const Tensor& out) const {
  const Linear down(module_->child("lora_a"), *tape_), up(module_->child("lora_b"), *tape_);
  Tensor update;
  {
    const Tensor dropped = dropout(x, dropout_);
    update = down(dropped);
  }
  {
    const Tensor raised = up(update);
    update = multiply_scalar(raised);
  }
  return add(out, update);
}

/// DoRALinear.forward behind the base product: the norm of weight and update together is a constant.
Tensor TuneLinear::decomposed(const Tensor& input, const Tensor& out) const {
  const Linear down(module_->child("lora_a"), *tape_), up(module_->child("lora_b"), *tape_);
  const Tensor x = dropout(input, dropout_);
  Tensor update = down(x);
  update = up(update);
  Tensor product;
  const Tensor identity = zeros(*tape_, {shape_.in, shape_.in}, x.dtype());
  in_place(identity, {});
  {
    const Tensor reduced = down(identity);
    product = transpose(up(reduced), 0, 1);
  }
  const Tensor weight = quantized_ ? dequantized(*module_, *tape_, shape_.out, shape_.in, x.dtype()) : module_->tensor("weight");
  Tensor norm;
  {
    const GradMode frozen(*tape_, false);
    Tensor whole;
    {
      const Tensor scaled = multiply_scalar(product);
      whole = add(weight, scaled);
    }
    norm = tape_->empty({shape_.out}, x.dtype());
    reduce(norm, whole, Reduction::Axis::inner);
  }
  const Tensor scale = view(divide(module_->tensor("magnitude"), norm), {1, -1});
  Tensor result;
  {
    Tensor kept, scaled;
    {
      const Tensor less_one = add_scalar(scale);
      kept = multiply(less_one, out);
    }
    {
      const Tensor raised = multiply(scale, update);
      scaled = multiply_scalar(raised);
    }
    result = add(kept, scaled);
  }
  return add(result, out);
}

TuneNorm::TuneNorm(Module& parent, const std::string& name, std::int64_t width, bool unit_offset, const TuneContext& context)
    : module_(&add_tune_module(parent, name, context.tape)),
      tape_(&context.tape),
      unit_offset_(unit_offset),
      composed_(context.run.composed_norm) {
  add_parameter(*module_, "scale", {width}, context.run.type, !context.run.lora);
}

Tensor TuneNorm::operator()(const Tensor& input) const {
  Tensor x = input;
  ModuleCall call(*module_, *tape_, {&x});
  const Tensor& weight = module_->tensor("scale");
  if (unit_offset_) return call.done(gemma_norm(x, weight));
  return call.done(composed_ ? rms_norm_composed(x, weight) : rms_norm_widened(x, weight));
}

void TuneRope::materialize() {
  tape_.operator_name = "rope_init";
  frequencies_ = tape_.empty({dim_ / 2}, DType::fp32, Category::parameter);
  const bool neighbours = kind_ == Kind::neighbours;
  const Dims angles{rows_, neighbours ? dim_ / 2 : dim_};
  const Tensor product = tape_.empty(angles, DType::fp32);
  const Tensor cosine = elementwise(tape_, {&product}, DType::fp32), sine = elementwise(tape_, {&product}, DType::fp32);
  table_ = neighbours ? tape_.empty({rows_, dim_ / 2, 2}, DType::fp32, Category::parameter)
                      : tape_.empty({rows_, 2 * dim_}, DType::fp32, Category::parameter);
  in_place(table_, {&cosine, &sine});
}

/// cache[:length], or cache[positions], as the arithmetic sees it: [1 or batch, length, 1, …].
Tensor TuneRope::rows_of(const Tensor& x, const Tensor& positions) const {
  const std::int64_t length = x.size(1), batch = positions ? positions.size(0) : 1;
  Tensor rows = slice(table_, 0, 0, length);
  if (positions) {
    rows = tape_.empty({batch, length, 2 * (kind_ == Kind::neighbours ? dim_ / 2 : dim_)}, DType::fp32);
    gather(tape_, Gather::Function::index, rows.elements(), {operand(positions), packed(rows.elements(), DType::fp32)}, {operand(rows)});
  }
  if (kind_ == Kind::neighbours) return view(rows, {batch, length, 1, dim_ / 2, 2});
  return view(rows, {batch, length, 1, 2 * dim_});
}

Tensor TuneRope::operator()(const Tensor& x, const Tensor& positions) const {
  const Tensor rows = rows_of(x, positions);
  return kind_ == Kind::neighbours ? turn_neighbours(x, rows) : turn_halves(x, rows);
}

Tensor TuneRope::turn_neighbours(const Tensor& x, const Tensor& rows) const {
  const Tensor pairs = reshape(to(x, DType::fp32), {x.size(0), x.size(1), x.size(2), dim_ / 2, 2});
  const auto product = [&] {
    const Tensor element = select(pairs, -1), factor = select(rows, -1);
    return multiply(element, factor);
  };
  Tensor turned;
  {
    Tensor even, odd;
    {
      const Tensor a = product(), b = product();
      even = subtract(a, b);
    }
    {
      const Tensor a = product(), b = product();
      odd = add(a, b);
    }
    turned = stack({even, odd}, -1);
  }
  turned = view(turned, {x.size(0), x.size(1), x.size(2), dim_});
  return to(turned, x.dtype());
}

Tensor TuneRope::turn_halves(const Tensor& x, const Tensor& rows) const {
  const DType type = kind_ == Kind::halves ? x.dtype() : DType::fp32;
  const Tensor cosine = to(slice(rows, -1, 0, dim_), type), sine = to(slice(rows, -1, dim_, 2 * dim_), type);
  const Tensor rotated = rotate_half(x);
  Tensor turned;
  {
    const Tensor kept = multiply(x, cosine);
    const Tensor crossed = multiply(rotated, sine);
    turned = add(kept, crossed);
  }
  return to(turned, x.dtype());
}

}  // namespace plimsoll::program
