#include "program/modules/layers.hpp"

#include "plimsoll/error.hpp"
#include "program/modules/adapters/peft.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"
#include "program/traced_operator.hpp"

namespace plimsoll::program {

namespace {

/// LlamaRMSNorm.forward.
Tensor rms_norm_eager(const Tensor& x, const Tensor& weight, Norm::Rounding rounding) {
  Tensor variance;
  Tensor hidden = to(x, DType::fp32);
  variance = power(hidden);
  variance = mean(variance, -1, true);
  Tensor scale = add_scalar(variance);
  scale = rsqrt(scale);
  hidden = multiply(hidden, scale);
  scale.reset();
  if (rounding == Norm::Rounding::after_wide_weight) {
    Tensor product;
    {
      const Tensor wide = to(weight, DType::fp32);
      product = multiply(wide, hidden);
    }
    return to(product, x.dtype());
  }
  if (rounding == Norm::Rounding::after_weight) return to(multiply(weight, hidden), x.dtype());
  const Tensor low = to(hidden, x.dtype());
  return multiply(weight, low);
}

/// _norm(x.float()) of GemmaRMSNorm and Llama 4's norms.
Tensor norm_of_floats(const Tensor& x) {
  const Tensor wide = to(x, DType::fp32);
  Tensor scale = power(wide);
  scale = mean(scale, -1, true);
  scale = add_scalar(scale);
  scale = rsqrt(scale);
  return multiply(wide, scale);
}

/// GemmaRMSNorm.forward: everything in fp32, times 1 + weight, then back.
Tensor rms_norm_unit_offset(const Tensor& x, const Tensor& weight) {
  Tensor output = norm_of_floats(x);
  {
    Tensor offset = to(weight, DType::fp32);
    offset = add_scalar(offset);
    output = multiply(output, offset);
  }
  return to(output, x.dtype());
}

}  // namespace

Tensor Linear::operator()(const Tensor& input) const {
  Tensor x = input;
  ModuleCall call(*module_, *tape_, {&x});
  if (module_->replacement) return call.done(module_->replacement(x));
  if (Module* base = module_->find_child("base_layer")) return call.done(adapted(*module_, *tape_, x, Linear(*base, *tape_)));
  return call.done(linear(x, module_->tensor("weight"), module_->tensor("bias")));
}

Tensor Embedding::operator()(const Tensor& indices) const {
  Tensor ids = indices;
  ModuleCall call(*module_, *tape_, {&ids});
  return call.done(embedding(module_->tensor("weight"), ids));
}

namespace {

/// CohereLayerNorm: LayerNorm without bias, written out in fp32.
Tensor layer_norm_eager(const Tensor& input, const Tensor& weight) {
  Tensor x = to(input, DType::fp32);
  const Tensor mean = program::mean(x, -1, true);
  Tensor variance = subtract(x, mean);
  variance = power(variance);
  variance = program::mean(variance, -1, true);
  {
    const Tensor centred = subtract(x, mean);
    Tensor scale = add_scalar(variance);
    scale = rsqrt(scale);
    x = multiply(centred, scale);
  }
  {
    const Tensor wide = to(weight, DType::fp32);
    x = multiply(wide, x);
  }
  return to(x, input.dtype());
}

}  // namespace

namespace {

/// NemotronLayerNorm1P.forward: weight + 1, and under autocast everything in its type.
Tensor layer_norm_unit_offset(Tape& tape, const Tensor& input, const Tensor& weight_in, const Tensor& bias_in) {
  Tensor weight = add_scalar(weight_in);
  const bool low = tape.autocast.enabled;
  const DType type = low ? tape.autocast.type : input.dtype();
  const Tensor x = to(input, type);
  if (low) weight = to(weight, type);
  const Tensor bias = low ? to(bias_in, type) : bias_in;
  const AutocastScope off(tape, false, type);
  return layer_norm(x, weight, bias);
}

}  // namespace

Tensor normed_in_fp32(const Tensor& x) {
  const Tensor wide = norm_of_floats(x);
  return to(wide, x.dtype());
}

Norm::Norm(Module& module, Tape& tape, const NormSpec& spec, Rounding rounding)
    : module_(&trained_norm(module)), tape_(&tape), spec_(spec), rounding_(rounding) {}

Tensor Norm::operator()(const Tensor& input) const {
  Tensor x = input;
  ModuleCall call(*module_, *tape_, {&x});
  if (spec_.decomposed) return call.done(layer_norm_eager(x, module_->tensor("weight")));
  if (!spec_.weight && spec_.kind == NormSpec::Kind::rms_norm) return call.done(normed_in_fp32(x));
  if (!spec_.weight) {  // olmo: F.layer_norm in fp32, without weights
    Tensor normed = to(x, DType::fp32);
    normed = layer_norm(normed, {}, {});
    return call.done(to(normed, x.dtype()));
  }
  const Tensor& weight = module_->tensor("weight");
  if (spec_.kind == NormSpec::Kind::layer_norm && spec_.unit_offset)
    return call.done(layer_norm_unit_offset(*tape_, x, weight, module_->tensor("bias")));
  if (spec_.kind == NormSpec::Kind::layer_norm) return call.done(layer_norm(x, weight, module_->tensor("bias")));
  if (rounding_ == Rounding::within) return call.done(multiply(normed_in_fp32(x), weight));
  return call.done(spec_.unit_offset ? rms_norm_unit_offset(x, weight) : rms_norm_eager(x, weight, rounding_));
}

RotaryTables rotary_tables(Module& rotary, Tape& tape, const Tensor& position_ids, DType type, const char* frequencies_name) {
  const GradMode no_grad(tape, false);
  Tensor positions = position_ids;
  ModuleCall call(rotary, tape, {&positions});
  Tensor frequencies;
  {
    const Tensor wide = to(unsqueeze(positions, -1), DType::fp32);
    const Tensor inverse = to(rotary.buffer(frequencies_name), DType::fp32);  // FSDP1 keeps buffers in its compute type
    frequencies = multiply(wide, inverse);
  }
  const Tensor table = cat({frequencies, frequencies}, -1);
  // By attention_scaling, which is 1 but of YaRN's and longrope's tables: a factor of 1 is gone from a traced graph (remove_no_ops).
  const auto scaled = [&](const Tensor& x) {
    return tape.trace ? traced(tape, "mul_by_one", {&x}, x.sizes(), x.dtype()) : multiply_scalar(x);
  };
  const Tensor cosine = scaled(program::cosine(table));
  const Tensor sine = scaled(program::sine(table));
  return {to(cosine, type), to(sine, type)};
}

Tensor rotate_half(const Tensor& x) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor first = slice(x, -1, 0, half);
  const Tensor second = slice(x, -1, half, x.size(-1));
  const Tensor negative = negate(second);
  return cat({negative, first}, -1);
}

namespace {

/// cohere's rotate_half: torch.stack((-x2, x1), -1) of every second element, flattened.
Tensor rotate_neighbours(const Tensor& x) {
  const Tensor first = every_second(x, 0), second = every_second(x, 1);
  const Tensor negative = negate(second);
  const Tensor stacked = cat({unsqueeze(negative, -1), unsqueeze(first, -1)}, -1);
  return view(stacked, x.sizes());
}

}  // namespace

Tensor rotate(const Tensor& x, const Tensor& cosine, const Tensor& sine, bool neighbours) {
  const Tensor kept = multiply(x, cosine);
  Tensor turned = neighbours ? rotate_neighbours(x) : rotate_half(x);
  turned = multiply(turned, sine);
  return add(kept, turned);
}

namespace {

/// Halves of a table, every value twice in a row.
Tensor interleaved(const Tensor& table) {
  const Tensor half = slice(table, -1, 0, table.size(-1) / 2);
  return repeated_in_place(half, 2, half.rank() - 1);
}

/// (x.float() * cos) + (rotate_half(x).float() * sin).
Tensor rotate_then_widen(const Tensor& x, const Tensor& cosine, const Tensor& sine) {
  Tensor kept = to(x, DType::fp32);
  kept = multiply(kept, cosine);
  Tensor turned = rotate_neighbours(x);
  turned = to(turned, DType::fp32);
  turned = multiply(turned, sine);
  return add(kept, turned);
}

}  // namespace

void rotate_pair(Tensor& query, Tensor& key, const RotaryTables& tables, Rotation rotation, std::vector<Tensor>* parts) {
  const Tensor cosine = unsqueeze(tables.cosine, 1), sine = unsqueeze(tables.sine, 1);
  if (rotation == Rotation::neighbours_then_fp32) {
    const Tensor cosines = interleaved(cosine), sines = interleaved(sine);
    const Tensor turned_query = rotate_then_widen(query, cosines, sines), turned_key = rotate_then_widen(key, cosines, sines);
    const Tensor low_query = to(turned_query, query.dtype());
    key = to(turned_key, query.dtype());
    query = low_query;
    return;
  }
  if (rotation == Rotation::neighbours_in_fp32) {
    const Tensor wide_query = to(query, DType::fp32), wide_key = to(key, DType::fp32);
    const Tensor turned_query = rotate(wide_query, cosine, sine, true), turned_key = rotate(wide_key, cosine, sine, true);
    const Tensor low_query = to(turned_query, query.dtype());
    key = to(turned_key, query.dtype());
    query = low_query;
    return;
  }
  if (rotation == Rotation::whole || rotation == Rotation::neighbours) {
    const bool paired = rotation == Rotation::neighbours;
    const Tensor cosines = paired ? interleaved(cosine) : cosine, sines = paired ? interleaved(sine) : sine;
    const Tensor turned_query = rotate(query, cosines, sines, paired);
    key = rotate(key, cosines, sines, paired);
    query = turned_query;
    return;
  }
  const bool neighbours = rotation == Rotation::neighbours_join_last;
  const Tensor cosines = neighbours ? interleaved(cosine) : cosine, sines = neighbours ? interleaved(sine) : sine;
  const std::int64_t turning = cosine.size(-1), width = query.size(-1);
  const Tensor query_part = slice(query, -1, 0, turning), query_rest = slice(query, -1, turning, width);
  const Tensor key_part = slice(key, -1, 0, turning), key_rest = slice(key, -1, turning, width);
  Tensor turned_query = rotate(query_part, cosines, sines, neighbours);
  if (rotation == Rotation::join_each) turned_query = cat({turned_query, query_rest}, -1);
  Tensor turned_key = rotate(key_part, cosines, sines, neighbours);
  if (parts && rotation == Rotation::join_last) *parts = {turned_query, query_rest, turned_key, key_rest};
  if (rotation != Rotation::join_each) turned_query = cat({turned_query, query_rest}, -1);
  turned_key = cat({turned_key, key_rest}, -1);
  query = turned_query;
  key = turned_key;
}

Tensor repeat_kv(const Tensor& x, std::int64_t times) {
  if (times == 1) return x;
  const Tensor wide = expand(unsqueeze(x, 2), {x.size(0), x.size(1), times, x.size(2), x.size(3)});
  return reshape(wide, {x.size(0), x.size(1) * times, x.size(2), x.size(3)});
}

}  // namespace plimsoll::program
