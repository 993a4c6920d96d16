#include "program/modules/adapters/bitsandbytes.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/kernels.hpp"
#include "program/modules/network_source.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kBlock = 64, kScaleBlock = 256, kCodeEntries = 256, kValues = 16;

// QuantState's tensors, which the module keeps beside its weight.
const char* const kMaxima = "absmax";
const char* const kOuterMaxima = "state2.absmax";
const char* const kOuterCode = "state2.code";
const char* const kOffset = "offset";
const char* const kCode = "code";

const char* const kRowMaxima = "SCB";  // of MatmulLtState

/// Rows and columns of a linear's weight.
struct WeightShape {
  std::int64_t out, in;
};

void keep(Module& module, const char* name, const Dims& sizes, DType type) { module.constants.push_back({name, sizes, type, {}}); }

/// `on_device`: the type that the weight comes to the device in, where it is quantised (Params4bit._quantize, Int8Params._quantize).
void replace_weight(Module& linear, const Dims& sizes, DType type, DType on_device) {
  for (auto& parameter : linear.parameters) {
    if (parameter->name != "weight") continue;
    linear.made_from = ModuleBuffer{"weight", parameter->sizes, on_device, {}};
    parameter = std::make_shared<Parameter>(Parameter{.name = "weight", .sizes = sizes, .type = type, .trainable = false, .tensor = {}});
  }
}

// ---- four bits -------------------------------------------------------------------------------------------------------

/// dequantize_blockwise of doubly quantised maxima.
Tensor widened_maxima(const Module& linear, Tape& tape) {
  const Tensor& maxima = linear.constant(kMaxima);
  return maxima.dtype() == DType::fp32 ? Tensor() : elementwise(tape, {&maxima}, DType::fp32);
}

Tensor dequantized(Module& linear, const WeightShape& shape, Tape& tape, DType type) {
  Tensor weight = tape.empty({shape.out, shape.in}, type);
  pointwise(Pointwise::Form::fused, {&linear.tensor("weight"), &linear.constant(kMaxima)}, {&weight});
  return weight;
}

/// MatMul4Bit: above some thousand rows the weight is dequantised for F.linear (_dequant_linear_fallback).
Tensor matmul_4bit(Module& linear, const WeightShape& shape, const Tensor& x) {
  PythonFunction op("matmul_4bit", {&x});
  Tensor y;
  {
    const GradMode frozen(op.tape(), false);
    const Tensor wide = widened_maxima(linear, op.tape());
    const Tensor maxima = wide ? elementwise(op.tape(), {&wide}, DType::fp32) : Tensor();  // plus their offset
    const Tensor weight = dequantized(linear, shape, op.tape(), x.dtype());
    y = program::linear(x, weight, linear.tensor("bias"));
  }
  return op.done(y, [&linear, shape, sizes = x.sizes()](BackwardCall& b) {
    Tensor weight;
    {
      const Tensor wide = widened_maxima(linear, b.tape);
      if (wide) in_place(wide, {&wide});  // plus their offset
      weight = dequantized(linear, shape, b.tape, b.grad().dtype());
    }
    const Tensor flat = reshape(b.grad(), {-1, b.grad().size(-1)});
    b.give(0, view(mm(flat, weight), sizes));
  });
}

/// Linear4bit.forward: the product in bnb_4bit_compute_dtype, taken to be autocast's type, the result in the type of x.
Tensor linear_4bit(Module& linear, const WeightShape& shape, const Tensor& x, Tape& tape) {
  const Tensor low = to(x, tape.autocast.enabled ? tape.autocast.type : x.dtype());
  const Tensor y = matmul_4bit(linear, shape, low);
  return to(y, x.dtype());
}

void quantize_4bit(Module& linear, const WeightShape& shape, bool doubly, DType storage, Tape& tape) {
  const std::int64_t elements = shape.out * shape.in, blocks = ceil_div(elements, kBlock);
  replace_weight(linear, {(elements + 1) / (2 * size_of(storage)), 1}, storage, linear.find_parameter("weight")->type);
  keep(linear, kMaxima, {blocks}, doubly ? DType::uint8 : DType::fp32);
  if (doubly) {
    keep(linear, kOuterMaxima, {ceil_div(blocks, kScaleBlock)}, DType::fp32);
    keep(linear, kOuterCode, {kCodeEntries}, DType::fp32);
    keep(linear, kOffset, {}, DType::fp32);
  }
  keep(linear, kCode, {kValues}, DType::fp32);
  linear.replacement = [&linear, shape, &tape](const Tensor& x) { return linear_4bit(linear, shape, x, tape); };
}

// ---- eight bits ------------------------------------------------------------------------------------------------------

/// int8_vectorwise_quant with a threshold: outliers are looked for, which the host waits for, and none are taken to be found (they are a
/// handful of columns of models beyond 6.7e9 parameters).
struct QuantizedRows {
  Tensor maxima, data;
};
QuantizedRows quantize_rows(Tape& tape, const Tensor& half) {
  QuantizedRows rows{tape.empty({half.size(0)}, DType::fp32), tape.empty(half.sizes(), DType::int8)};
  {
    Tensor outliers;
    {
      const Tensor magnitudes = elementwise(tape, {&half}, half.dtype());
      outliers = elementwise(tape, {&magnitudes}, DType::boolean);
    }
    const Tensor any = tape.empty({}, DType::boolean);
    reduce(any, outliers, {true, true});
    tape.read_back();
  }
  pointwise(Pointwise::Form::fused, {&half}, {&rows.data, &rows.maxima});
  return rows;
}

/// int8_scaled_mm: the product in int32, its rows and columns scaled in fp16, then in the input's type.
Tensor scaled_product(Tape& tape, Module& linear, const QuantizedRows& rows, const WeightShape& shape, DType type) {
  const std::int64_t tokens = rows.data.size(0);
  Tensor half;
  {
    const Tensor sums = tape.empty({tokens, shape.out}, DType::int32);
    gemm(tape, matrix(rows.data), matrix(linear.tensor("weight")).t(), matrix(sums), {.workspace = false});  // cigemmlt asks for none
    half = tape.empty({tokens, shape.out}, DType::fp16);
    pointwise(Pointwise::Form::fused, {&sums, &rows.maxima, &linear.constant(kRowMaxima)}, {&half});
    const Tensor& bias = linear.tensor("bias");
    if (bias && bias.dtype() != DType::fp16) in_place(half, {&half, &bias});
    if (type != DType::fp16) half = elementwise(tape, {&half}, type);
  }
  return half;
}

/// MatMul8bitLt. Its context keeps the input as an attribute, so that it lives as long as the graph.
Tensor matmul_8bit(Module& linear, const WeightShape& shape, const Tensor& x) {
  PythonFunction op("matmul_8bit", {&x});
  Tensor flat, y;
  {
    const GradMode frozen(op.tape(), false);
    flat = reshape(x, {-1, shape.in});
    QuantizedRows rows;
    {
      const Tensor half = to(flat, DType::fp16);
      rows = quantize_rows(op.tape(), half);
    }
    y = scaled_product(op.tape(), linear, rows, shape, x.dtype());
    Dims sizes = x.sizes();
    sizes[-1] = shape.out;
    y = view(y, sizes);
  }
  return op.done(y, [&linear, shape, kept = flat, sizes = x.sizes()](BackwardCall& b) {
    const DType type = kept.dtype();
    const Tensor rows = reshape(b.grad(), {-1, shape.out});
    Tensor weight = elementwise(b.tape, {&linear.tensor("weight")}, type);
    {
      const Tensor scales = elementwise(b.tape, {&linear.constant(kRowMaxima)}, DType::fp32);
      in_place(weight, {&weight, &scales});
    }
    const Tensor gradient = to(rows, type);
    b.give(0, view(mm(gradient, weight), sizes));
  });
}

void quantize_8bit(Module& linear, const WeightShape& shape) {
  replace_weight(linear, {shape.out, shape.in}, DType::int8, DType::fp16);
  keep(linear, kRowMaxima, {shape.out}, DType::fp32);
  linear.replacement = [&linear, shape](const Tensor& x) { return matmul_8bit(linear, shape, x); };
}

/// _keep_in_fp32_modules, which are not converted.
bool keeps_fp32(const std::string& path, const Model& model) {
  return (model.model_type == "t5" || model.model_type == "mt5") && path.ends_with(".wo");
}

/// The path of the module that an adapter's base layer was.
std::string path_within_adapters(const Module& module) {
  return module.name() == "base_layer" ? module.path.substr(0, module.path.rfind('.')) : module.path;
}

/// Names of modules that stay as they are: of a class those of its heads; of a text what get_keys_to_not_convert finds, weights that several
/// modules hold, whatever holds the last parameter, the output embeddings, and what is kept in fp32.
std::vector<std::string> unconverted(const Model& model, Module& root) {
  std::vector<std::string> names;
  const NetworkSource* const source = network_source(model);
  for (const Block& block : model.blocks) {
    if (block.role != Block::Role::head) continue;
    for (const Operator& op : block.operators)
      for (const ParameterTensor& tensor : op.parameters) {
        const std::string full = full_name(block, 0, tensor);
        names.push_back(full.substr(0, full.rfind('.')));
      }
  }
  if (!source) return names;
  const ModelParts parts = source->parts();
  names = parts.kept_in_fp32;
  if (!parts.head.empty()) names.push_back(parts.head);
  std::unordered_map<const Parameter*, std::string> known;
  std::string last;
  for (const Module* module : root.all_modules()) {
    for (const auto& parameter : module->parameters) {
      if (parameter->trainable) continue;  // of an adapter
      std::string name = path_within_adapters(*module);
      if (parameter->name != "weight") name += "." + parameter->name;
      const auto [first, is_new] = known.emplace(parameter.get(), name);
      if (!is_new) names.insert(names.end(), {first->second, name});
      if (is_new) last = name;
    }
  }
  names.push_back(last);
  return names;
}

/// should_convert_module.
bool is_converted(const std::string& path, const std::vector<std::string>& names) {
  return std::none_of(names.begin(), names.end(), [&](const std::string& name) { return path.starts_with(name + ".") || path.ends_with(name); });
}

}  // namespace

void quantize_linears(Module& root, const Model& model, BaseWeights kind, DType storage, Tape& tape) {
  const std::vector<std::string> kept = unconverted(model, root);
  bool found = false;
  for (Module* module : root.all_modules()) {
    const Parameter* weight = module->find_parameter("weight");
    const std::string path = path_within_adapters(*module);
    if (!weight || !module->linear || !is_converted(path, kept) || keeps_fp32(path, model)) continue;
    const bool turned = module->linear == WeightLayout::in_out;
    const WeightShape shape{weight->sizes[turned ? 1 : 0], weight->sizes[turned ? 0 : 1]};
    if (kind == BaseWeights::int8)
      quantize_8bit(*module, shape);
    else
      quantize_4bit(*module, shape, kind == BaseWeights::nf4_double_quant, storage, tape);
    found = true;
  }
  if (!found) refuse("the model has no linears whose weights could be quantised", "base_weights");
  if (kind == BaseWeights::nf4_double_quant) keep(root, "dynamic_map", {kCodeEntries}, DType::fp32);  // what all maxima are quantised by
}

Tensor dequantized_4bit(Module& linear, const Dims& sizes, Tape& tape) {
  Tensor weight = tape.empty(sizes, linear.made_from->type);
  const Tensor& maxima = linear.constant(kMaxima);
  Tensor wide;
  if (maxima.dtype() != DType::fp32) {
    wide = elementwise(tape, {&maxima}, DType::fp32);
    in_place(wide, {&wide});  // plus their offset
  }
  pointwise(Pointwise::Form::fused, {&linear.tensor("weight"), wide ? &wide : &maxima}, {&weight});
  return weight;
}

bool is_4bit(const Module& linear) { return linear.constant(kMaxima).defined(); }

bool is_quantized(const Module& linear) { return is_4bit(linear) || linear.constant(kRowMaxima).defined(); }

}  // namespace plimsoll::program
