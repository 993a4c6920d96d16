#include "program/modules/adapters/nf4.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

constexpr std::int64_t kBlock = 64, kScalerBlock = 256, kValues = 16, kChunk = 1 << 20;

const char* const kData = "weight.quantized_data";
const char* const kScalers = "weight.quantized_scalers";
const char* const kFactor = "weight.quantization_factor";
const char* const kMean = "weight.scaler_mean";
const char* const kCodes = "weight.nf4";

void add_part(Module& module, const char* name, const Dims& sizes, DType type) {
  module.parameters.push_back(
      std::make_shared<Parameter>(Parameter{.name = name, .sizes = sizes, .type = type, .trainable = false, .tensor = {}}));
}

/// The parts of an NF4Tensor.
struct Parts {
  Tensor data, scalers, factor, mean, codes;
};

/// get_block_absmax: abs, then the largest of each block and where it is.
Tensor block_maxima(const Tensor& x, std::int64_t block) {
  Tape& tape = x.tape();
  const Tensor magnitudes = elementwise(tape, {&x}, x.dtype());
  const Dims blocks{x.elements() / block};
  const Tensor maxima = tape.empty(blocks, x.dtype());
  const Tensor indices = tape.empty(blocks, DType::int64);
  const Operands operands({operand(magnitudes)}, {operand(maxima), operand(indices)});
  tape.kernel({Reduction{Reduction::Axis::inner, blocks[0], block, operands}});
  return maxima;
}

/// double_quantize_scalers.
void quantize_scalers(const Tensor& flat, Parts& parts) {
  Tape& tape = flat.tape();
  const DType type = flat.dtype();
  Tensor scalers = block_maxima(flat, kBlock);
  parts.mean = tape.empty({}, type);
  scalers = elementwise(tape, {&scalers, &parts.mean}, type);
  const Tensor maxima = block_maxima(scalers, kScalerBlock);
  Tensor factor;
  {
    const Tensor twice = elementwise(tape, {&scalers}, type);
    const Tensor inverse = elementwise(tape, {&twice}, type);
    factor = elementwise(tape, {&inverse}, type);
  }
  Tensor blocks = elementwise(tape, {&scalers, &factor}, type);
  blocks = elementwise(tape, {&blocks}, type);  // round
  blocks = elementwise(tape, {&blocks}, type);  // clamp
  parts.scalers = elementwise(tape, {&blocks}, DType::int8);
  parts.factor = tape.empty({maxima.elements()}, type);
  in_place(parts.factor, {&factor});
}

/// quantize_tensor_nearest of one chunk: its distance to each of the values.
void quantize_chunk(Tape& tape, std::int64_t elements, DType type) {
  Tensor nearest;
  {
    Tensor distances;
    {
      const Tensor differences = tape.empty({elements, kValues}, type);
      distances = elementwise(tape, {&differences}, type);
    }
    const Tensor smallest = tape.empty({elements}, type);
    nearest = tape.empty({elements}, DType::int64);
    const Operands operands({operand(distances)}, {operand(smallest), operand(nearest)});
    tape.kernel({Reduction{Reduction::Axis::inner, elements, kValues, operands}});
  }
  const Tensor bytes = elementwise(tape, {&nearest}, DType::uint8);
}

/// NF4Tensor.from_tensor.
Parts quantized(const Tensor& weight) {
  Tape& tape = weight.tape();
  const DType type = weight.dtype();
  const std::int64_t elements = weight.elements();
  Parts parts;
  parts.codes = tape.empty({kValues}, type);
  const Tensor flat = tape.view(weight, {elements}, {1});
  quantize_scalers(flat, parts);
  const Tensor scalers = block_maxima(flat, kBlock);
  const Tensor scaled = elementwise(tape, {&flat, &scalers}, type);
  const Tensor indices = tape.empty({elements}, DType::uint8);
  for (std::int64_t start = 0; start < elements; start += kChunk) quantize_chunk(tape, std::min(kChunk, elements - start), type);
  const Tensor shifted = tape.empty({elements / 2}, DType::uint8);
  parts.data = elementwise(tape, {&shifted, &shifted}, DType::uint8);
  return parts;
}

}  // namespace

void add_nf4_weight(Module& module, std::int64_t out, std::int64_t in, DType type) {
  const std::int64_t elements = out * in;
  add_part(module, kScalers, {elements / kBlock}, DType::int8);
  add_part(module, kFactor, {elements / kBlock / kScalerBlock}, type);
  add_part(module, kData, {elements / 2}, DType::uint8);
  // Every rank holds the mean and the values whole.
  module.buffers.push_back({.name = kMean, .sizes = {}, .type = type, .tensor = {}});
  module.buffers.push_back({.name = kCodes, .sizes = {kValues}, .type = type, .tensor = {}});
}

void quantize_nf4(Module& module, const Tensor& weight) {
  weight.tape().operator_name = "to_nf4";
  const Parts parts = quantized(weight);
  const auto keep = [&module](const char* name, const Tensor& tensor) {
    Tape::categorize(tensor, Category::parameter);
    module.find_parameter(name)->tensor = tensor;
  };
  keep(kScalers, parts.scalers);
  keep(kFactor, parts.factor);
  keep(kData, parts.data);
  module.buffer(kMean) = parts.mean;
  module.buffer(kCodes) = parts.codes;
}

void load_nf4(Module& module, Tape& tape, std::int64_t out, std::int64_t in, DType type) {
  const LabelScope label(tape, module.label);
  tape.operator_name = "load_nf4";
  const Tensor weight = tape.empty({out, in}, type);
  quantized(weight);
}

Tensor dequantized(Module& module, Tape& tape, std::int64_t out, std::int64_t in, DType type) {
  const char* const before = std::exchange(tape.operator_name, "dequantize_nf4");
  const Tensor& data = module.tensor(kData);
  const auto indices = [&] {
    const Tensor half_bytes = elementwise(tape, {&data}, DType::uint8);
    return elementwise(tape, {&half_bytes}, DType::int64);
  };
  const Tensor first_indices = indices(), second_indices = indices();
  const Tensor first = elementwise(tape, {&first_indices}, type), second = elementwise(tape, {&second_indices}, type);
  Tensor scalers;
  {
    const Tensor& quantized = module.tensor(kScalers);
    const Tensor raw = elementwise(tape, {&quantized}, type);
    scalers = elementwise(tape, {&raw}, type);
  }
  const auto scaled = [&](const Tensor& values) {
    const Tensor repeated = tape.empty(values.sizes(), type);
    in_place(repeated, {&scalers});
    return elementwise(tape, {&values, &repeated}, type);
  };
  const Tensor scaled_first = scaled(first), scaled_second = scaled(second);
  const Tensor both = tape.empty({1, data.elements(), 2}, type);
  in_place(both, {&scaled_first, &scaled_second});
  tape.operator_name = before;
  return view(both, {out, in});
}

Tensor linear_nf4(const Tensor& x, Module& module, Tape& tape, std::int64_t out, std::int64_t in) {
  PythonFunction op("linear_nf4", {&x});
  Tensor y;
  {
    const GradMode frozen(tape, false);
    const Tensor weight = dequantized(module, tape, out, in, x.dtype());
    y = linear(x, weight);
  }
  return op.done(y, [&module, out, in, wide = x.sizes()](BackwardCall& b) {
    const Tensor weight = dequantized(module, b.tape, out, in, b.grad().dtype());
    const Tensor flat = reshape(b.grad(), {-1, out});
    b.give(0, view(mm(flat, weight), wide));
  });
}

}  // namespace plimsoll::program
