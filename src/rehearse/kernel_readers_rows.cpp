// Reductions, and kernels that work on whole rows (ATen/native/cuda: Reduce.cuh, SoftMax.cu, layer_norm_kernel.cu).
#include <algorithm>

#include "rehearse/kernel_readers.hpp"
#include "rehearse/signature.hpp"
#include "units/text.hpp"

namespace plimsoll::rehearse {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

// ---- reductions ------------------------------------------------------------------------------------------------------

/// ReduceConfig: whole numbers one after the other, and two small ones.
struct ReduceConfig {
  std::int64_t inputs = 0, outputs = 0;  ///< inputs of each output
  bool neighbours = false;               ///< the threads of a warp reduce together
};

/// Finds it behind the operator and its neutral element, whose sizes differ: it holds the launch's own block.
std::optional<ReduceConfig> reduce_config(std::string_view structure, const Launch& launch) {
  constexpr std::size_t kLast = 64, kInputMult = 24, kBlockWidth = 44, kBlockHeight = 48;
  for (std::size_t at = 0; at <= kLast; at += 4) {
    const auto element = word_at(structure, at), inputs = word_at(structure, at + 4), outputs = word_at(structure, at + 8);
    const auto mult = word_at(structure, at + kInputMult);
    const auto width = word_at(structure, at + kBlockWidth), height = word_at(structure, at + kBlockHeight);
    if (!element || !inputs || !outputs || !mult || !width || !height) return {};
    const bool size = *element == 1 || *element == 2 || *element == 4 || *element == 8 || *element == 16;
    if (size && *inputs > 0 && *outputs > 0 && *width == static_cast<std::int64_t>(launch.threads[0]) &&
        *height == static_cast<std::int64_t>(launch.threads[1]))
      return ReduceConfig{*inputs, *outputs, *mult != 0};
  }
  return {};
}

// ---- rows ------------------------------------------------------------------------------------------------------------

/// The parameters of a kernel by what they are: m a matrix of rows × columns, r and c one number for each row or column, R and C how many
/// there are, . anything else. Without R every block of the grid has a row.
struct RowRule {
  std::string_view sign;
  RowWise::Function function;
  std::string_view parameters;
};
constexpr RowRule kRowRules[] = {
    {"softmax_warp_forward<", RowWise::Function::softmax, "mmR.C"},
    {"softmax_warp_backward<", RowWise::Function::softmax_backward, "mmmR.C"},
    {"cunn_SoftMaxForward", RowWise::Function::softmax, "mmC"},
    {"cunn_SoftMaxBackward", RowWise::Function::softmax_backward, "mmmC"},
    {"vectorized_layer_norm_kernel<", RowWise::Function::layer_norm, "C.mccrrm"},
    {"layer_norm_grad_input_kernel", RowWise::Function::layer_norm_backward, "mmrrcmC"},
    {"GammaBetaBackward", RowWise::Function::norm_weight_backward, "RCmmrrcc"},
    {"cuComputePartGradGammaBeta<", RowWise::Function::norm_weight_backward, "mmRCrr.."},
    {"RowwiseMomentsCUDAKernel<", RowWise::Function::layer_norm, "C.mrr"},
    {"LayerNormForwardCUDAKernel<", RowWise::Function::layer_norm, "Cmrrccm"}};

/// log_softmax runs through the kernels of softmax, RMSNorm through those of LayerNorm; a template argument says so.
RowWise::Function as_instantiated(RowWise::Function function, std::string_view name) {
  using Function = RowWise::Function;
  const auto flag = [&](std::string_view opening, std::size_t i) {
    const auto arguments = template_arguments(name, opening);
    return i < arguments.size() && arguments[i] == "true";
  };
  switch (function) {
    case Function::softmax:
      return flag("softmax_warp_forward<", 4) || contains(name, "LogSoftMaxForward") ? Function::log_softmax : function;
    case Function::softmax_backward:
      return flag("softmax_warp_backward<", 4) || contains(name, "LogSoftMaxBackward") ? Function::log_softmax_backward : function;
    case Function::layer_norm:
      return flag("vectorized_layer_norm_kernel<", 2) || flag("RowwiseMomentsCUDAKernel<", 2) ? Function::rms_norm : function;
    case Function::layer_norm_backward:
      return flag("layer_norm_grad_input_kernel_vectorized<", 2) || flag("layer_norm_grad_input_kernel<", 2) ? Function::rms_norm_backward
                                                                                                             : function;
    default:
      return function;
  }
}

std::optional<std::int64_t> count_of(const RowRule& rule, char what, const Arguments& arguments) {
  const std::size_t at = rule.parameters.find(what);
  return at == std::string_view::npos ? std::nullopt : arguments.integer(static_cast<int>(at));
}

std::optional<Kernel> by_rule(const RowRule& rule, std::string_view name, const Launch& launch) {
  const auto columns = count_of(rule, 'C', launch.arguments);
  const auto said = count_of(rule, 'R', launch.arguments);
  if (contains(rule.parameters, "R") && !said) return {};
  const std::int64_t rows = said.value_or(static_cast<std::int64_t>(std::min<std::uint64_t>(launch.blocks[0], 1U << 31U)));
  if (!columns || *columns < 1 || rows < 1 || rows > kMostElements / *columns) return {};
  RowWise kernel{as_instantiated(rule.function, name), rows, *columns, {}};
  const auto types = parameters_of(name);
  for (const bool written : {false, true})
    for (std::size_t i = 0; i < rule.parameters.size() && i < types.size(); ++i) {
      const char what = rule.parameters[i];
      const std::int64_t elements = what == 'm' ? rows * *columns : what == 'r' ? rows : what == 'c' ? *columns : 0;
      const bool read_only = contains(types[i], " const*") || types[i].substr(0, 6) == "const ";
      if (elements == 0 || read_only == written || launch.arguments.integer(static_cast<int>(i)) == 0) continue;  // a null pointer: not given
      const Operand operand{elements, element_type(types[i]).value_or(DType::fp32)};
      written ? kernel.operands.write(operand) : kernel.operands.read(operand);
    }
  return Kernel{kernel};
}

}  // namespace

std::optional<Kernel> read_reduction(std::string_view name, const Launch& launch) {
  const auto arguments = template_arguments(name, "ReduceOp<");
  if (!contains(name, "reduce_kernel<") || arguments.size() < 4) return {};
  const auto config = reduce_config(launch.arguments.bytes(0), launch);
  const auto in = element_type(arguments[0]), out = element_type(arguments[3]);
  if (!config || !in || config->inputs > kMostElements / config->outputs) return {};
  Reduction kernel;
  kernel.axis = config->outputs == 1 ? Reduction::Axis::all : config->neighbours ? Reduction::Axis::inner : Reduction::Axis::outer;
  kernel.outputs = config->outputs;
  kernel.reduced = config->inputs;
  kernel.operands = Operands({{config->inputs * config->outputs, *in}}, {{config->outputs, out.value_or(*in)}});
  return Kernel{kernel};
}

std::optional<Kernel> read_row_wise(std::string_view name, const Launch& launch) {
  for (const RowRule& rule : kRowRules)
    if (contains(name, rule.sign)) return by_rule(rule, name, launch);
  return {};
}

}  // namespace plimsoll::rehearse
