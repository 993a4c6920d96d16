#include "program/modules/adapters/bnb_4bit.hpp"

#include <string>
#include <unordered_set>

#include "plimsoll/error.hpp"
#include "program/modules/linear_modules.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kBlock = 64, kScaleBlock = 256, kCodeEntries = 256, kValues = 16;

const char* const kData = "weight";  // [out, in / 2]
const char* const kMaxima = "weight.absmax";
const char* const kOuterMaxima = "weight.state2.absmax";
const char* const kOuterCode = "weight.state2.code";
const char* const kOffset = "weight.offset";
const char* const kCode = "weight.code";

void add_part(Module& module, const char* name, const Dims& sizes, DType type) {
  module.parameters.push_back(
      std::make_shared<Parameter>(Parameter{.name = name, .sizes = sizes, .type = type, .trainable = false, .tensor = {}}));
}

void quantize(Module& linear, bool doubly) {
  const Dims shape = linear.find_parameter("weight")->sizes;
  const std::int64_t elements = shape.product(), blocks = ceil_div(elements, kBlock);
  std::vector<std::shared_ptr<Parameter>> others;
  for (auto& parameter : linear.parameters)
    if (parameter->name != "weight") others.push_back(std::move(parameter));
  linear.parameters.clear();
  add_part(linear, kData, {shape[0], shape[1] / 2}, DType::uint8);
  add_part(linear, kMaxima, {blocks}, doubly ? DType::uint8 : DType::fp32);
  if (doubly) {
    add_part(linear, kOuterMaxima, {ceil_div(blocks, kScaleBlock)}, DType::fp32);
    add_part(linear, kOuterCode, {kCodeEntries}, DType::fp32);
    add_part(linear, kOffset, {}, DType::fp32);
  }
  add_part(linear, kCode, {kValues}, DType::fp32);
  for (auto& parameter : others) linear.parameters.push_back(std::move(parameter));
}

/// dequantize_blockwise of doubly quantised maxima.
Tensor widened_maxima(Module& linear, Tape& tape) {
  const Tensor& maxima = linear.tensor(kMaxima);
  return maxima.dtype() == DType::fp32 ? Tensor() : elementwise(tape, {&maxima}, DType::fp32);
}

Tensor dequantized(Module& linear, Tape& tape, DType type) {
  const Tensor& data = linear.tensor(kData);
  Tensor weight = tape.empty({data.size(0), 2 * data.size(1)}, type);
  pointwise(Pointwise::Form::fused, {&data, &linear.tensor(kMaxima)}, {&weight});
  return weight;
}

/// MatMul4Bit: above some thousand rows the weight is dequantised for F.linear (_dequant_linear_fallback).
Tensor matmul_4bit(Module& linear, const Tensor& x) {
  PythonFunction op("matmul_4bit", {&x});
  Tensor y;
  {
    const GradMode frozen(op.tape(), false);
    const Tensor wide = widened_maxima(linear, op.tape());
    const Tensor maxima = wide ? elementwise(op.tape(), {&wide}, DType::fp32) : Tensor();  // plus their offset
    const Tensor weight = dequantized(linear, op.tape(), x.dtype());
    y = program::linear(x, weight, linear.tensor("bias"));
  }
  return op.done(y, [&linear, sizes = x.sizes()](BackwardCall& b) {
    Tensor weight;
    {
      const Tensor wide = widened_maxima(linear, b.tape);
      if (wide) in_place(wide, {&wide});  // plus their offset
      weight = dequantized(linear, b.tape, b.grad().dtype());
    }
    const Tensor flat = reshape(b.grad(), {-1, b.grad().size(-1)});
    b.give(0, view(mm(flat, weight), sizes));
  });
}

}  // namespace

void quantize_linears(Module& root, const Model& model, bool doubly) {
  for (const Block& block : model.blocks)
    if (block.moe) refuse("4-bit weights of a mixture of experts are not modelled", "base_weights");
  const std::unordered_set<std::string> paths = linear_paths(model, false);  // the head stays as it is
  if (model.model_type == "gpt2") refuse("4-bit weights of GPT-2's Conv1D are not modelled", "base_weights");
  bool found = false;
  for (Module* module : root.all_modules()) {
    Parameter* weight = module->find_parameter("weight");
    const std::string path = module->name() == "base_layer" ? module->path.substr(0, module->path.rfind('.')) : module->path;
    if (!weight || weight->sizes.rank() != 2 || paths.count(path) == 0) continue;
    if (weight->sizes[1] % 2 != 0) refuse("4-bit weights of an odd width are not modelled", "base_weights");
    quantize(*module, doubly);
    found = true;
  }
  if (doubly) add_part(root, "dynamic_map", {kCodeEntries}, DType::fp32);  // what all maxima are quantised by
  if (!found) refuse("the model has no linears whose weights could be 4-bit", "base_weights");
}

bool is_4bit(Module& linear) {
  const Parameter* weight = linear.find_parameter(kData);
  return weight && weight->type == DType::uint8;
}

Tensor linear_4bit(Module& linear, const Tensor& x, DType compute) {
  const Tensor low = to(x, compute);
  const Tensor y = matmul_4bit(linear, low);
  return to(y, x.dtype());
}

}  // namespace plimsoll::program
