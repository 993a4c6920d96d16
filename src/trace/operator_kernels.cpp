#include "trace/operator_kernels.hpp"

#include <algorithm>

#include "trace/operator_shapes.hpp"
#include "units/text.hpp"

namespace plimsoll::trace {
namespace {

/// Elements that a thread of a vectorised kernel handles, where neither shapes nor arguments are there (PyTorch 2.7 and later).
constexpr int kPerThread = 8;

bool any_of(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return contains(text, part); });
}

// ---- products --------------------------------------------------------------------------------------------------------

struct Sides {
  std::string_view op;
  std::size_t a, b;  ///< arguments
};
constexpr Sides kProducts[] = {{"aten::mm", 0, 1},         {"aten::bmm", 0, 1},     {"aten::addmm", 1, 2}, {"aten::baddbmm", 1, 2},
                               {"aten::_scaled_mm", 0, 1}, {"aten::addmm_", 1, 2},  {"aten::matmul", 0, 1}, {"aten::linear", 0, 1},
                               {"aten::_addmm_activation", 1, 2}, {"aten::addbmm", 1, 2}};

Epilogue epilogue_in(std::string_view name) {
  if (any_of(name, {"_bias_gelu", "gelu_bias", "BIAS_GELU", "GELU_BIAS"})) return Epilogue::bias_gelu;
  if (any_of(name, {"_bias", "_BIAS", "epilogue_bias"})) return Epilogue::bias;
  return Epilogue::none;
}

/// out = a · b in BLAS's column-major terms: m and the first operand are b's.
std::optional<Kernel> product_of(const Operator& op, std::string_view name) {
  const auto* sides = std::find_if(std::begin(kProducts), std::end(kProducts), [&](const Sides& each) { return each.op == op.name; });
  if (sides == std::end(kProducts) || op.inputs.size() <= sides->b) return {};
  const TensorShape& left = op.inputs[sides->a];
  TensorShape right = op.inputs[sides->b];
  if (left.sizes.size() < 2 || right.sizes.size() < 2 || !left.type || !right.type) return {};
  if (op.name == "aten::linear") exchange_last_two(right);
  Product product;
  product.m = right.sizes.back();
  product.k = left.sizes.back();
  product.n = left.sizes[left.sizes.size() - 2];
  const std::int64_t matrices = left.elements() / std::max<std::int64_t>(product.n * product.k, 1);
  (right.sizes.size() > 2 ? product.batch : product.n) *= matrices;
  product.transpose_a = is_transposed(right);
  product.transpose_b = is_transposed(left);
  product.a = *right.type;
  product.b = *left.type;
  product.result = product.a == DType::fp8 ? DType::bf16 : product.a;
  if (product.a == DType::fp8) product.scaling = Scaling::tensor;
  if (product.a == DType::fp32 && any_of(name, {"tf32", "s1688", "TF32", "_X1_", "xf32"})) product.arithmetic = Arithmetic::tf32;
  product.epilogue = epilogue_in(name);
  product.accumulates = op.name == "aten::baddbmm" || op.name == "aten::addmm_";
  const std::int64_t distances = 16 | leading(right) * size_of(product.a) | leading(left) * size_of(product.b) | product.m * size_of(product.result);
  product.alignment = static_cast<std::int16_t>(distances & -distances);
  return product.m * product.n * product.k > 0 ? std::optional(Kernel{product}) : std::nullopt;
}

// ---- attention -------------------------------------------------------------------------------------------------------

struct AttentionSign {
  std::string_view text;
  AttentionLibrary library;
  Attention::Part part;
};
constexpr AttentionSign kAttentionSigns[] = {
    {"fmha_reduce_head", AttentionLibrary::cudnn, Attention::Part::sum_heads},
    {"convert_dq_to_16bits", AttentionLibrary::cudnn, Attention::Part::convert},
    {"compute_dot_do_o", AttentionLibrary::cudnn, Attention::Part::delta},
    {"sdpa_sm", AttentionLibrary::cudnn, Attention::Part::forward},
    {"flash_bwd_dot_do_o", AttentionLibrary::flash2, Attention::Part::delta},
    {"flash_bwd_convert_dq", AttentionLibrary::flash2, Attention::Part::convert},
    {"flash_bwd", AttentionLibrary::flash2, Attention::Part::backward},
    {"splitkv_combine", AttentionLibrary::flash2, Attention::Part::combine},
    {"flash_fwd", AttentionLibrary::flash2, Attention::Part::forward},
    {"fmha_cutlassB", AttentionLibrary::memory_efficient, Attention::Part::backward},
    {"fmha_cutlassF", AttentionLibrary::memory_efficient, Attention::Part::forward},
    {"bwd_preprocess", AttentionLibrary::aotriton, Attention::Part::delta},
    {"bwd_kernel", AttentionLibrary::aotriton, Attention::Part::backward},
    {"attn_fwd", AttentionLibrary::aotriton, Attention::Part::forward},
    {"FmhaBwdOGradDotO", AttentionLibrary::composable_kernel, Attention::Part::delta},
    {"FmhaBwdConvertQGrad", AttentionLibrary::composable_kernel, Attention::Part::convert},
    {"FmhaBwd", AttentionLibrary::composable_kernel, Attention::Part::backward},
    {"FmhaFwd", AttentionLibrary::composable_kernel, Attention::Part::forward}};

/// Queries [batch, heads, length, dim] come first, or behind a gradient in a backward pass; operators on [batch, length, heads, dim] say so
/// by their names.
std::optional<Kernel> attention_of(const Operator& op, std::string_view name) {
  const auto* sign = std::find_if(std::begin(kAttentionSigns), std::end(kAttentionSigns), [&](const AttentionSign& each) { return contains(name, each.text); });
  if (sign == std::end(kAttentionSigns) || !contains(op.name, "attention")) return {};
  const bool backward = contains(op.name, "backward");
  const std::size_t first = backward ? 1 : 0;
  if (op.inputs.size() < first + 3) return {};
  const TensorShape &query = op.inputs[first], &key = op.inputs[first + 1], &value = op.inputs[first + 2];
  if (query.sizes.size() != 4 || key.sizes.size() != 4 || value.sizes.size() != 4 || !query.type) return {};
  const bool inside = contains(op.name, "_attention_forward") || contains(op.name, "_attention_backward");  // the inner operators
  const bool length_first = inside && !contains(op.name, "cudnn") && !contains(op.name, "scaled_dot_product");
  const std::size_t heads = length_first ? 2 : 1, length = length_first ? 1 : 2;
  Attention a;
  a.library = sign->library;
  a.part = sign->part;
  if (backward && a.part == Attention::Part::forward) a.part = Attention::Part::backward;  // cuDNN's graphs of both directions
  a.type = *query.type;
  a.batch = query.sizes[0];
  a.heads = query.sizes[heads];
  a.kv_heads = key.sizes[heads];
  a.queries = query.sizes[length];
  a.keys = key.sizes[length];
  a.head_dim = query.sizes[3];
  a.value_dim = value.sizes[3];
  const auto causal = flag_of(op, sign->library);
  if (causal) {
    a.causal = *causal;
    return Kernel{a};
  }
  const Kernel whole{a};  // whether half of the pairs count is not told
  return Kernel{Unspecified{whole.kind(), a.type, 0, whole.bytes_read(), whole.bytes_written()}};
}

// ---- bound by memory -------------------------------------------------------------------------------------------------

RowWise row_wise(RowWise::Function function, const TensorShape& matrix, std::int64_t columns) {
  RowWise kernel;
  kernel.function = function;
  kernel.columns = std::max<std::int64_t>(columns, 1);
  kernel.rows = matrix.elements() / kernel.columns;
  return kernel;
}

Operand contiguous(const TensorShape& shape) { return {shape.elements(), shape.type.value_or(DType::fp32)}; }

/// Softmax over the last dimension (these kernels know no other).
std::optional<Kernel> softmax_of(const Operator& op, std::string_view name, DType written) {
  if (!any_of(name, {"softmax_warp_", "cunn_SoftMax"}) || op.inputs.empty() || op.inputs[0].sizes.empty()) return {};
  using Function = RowWise::Function;
  const bool log = contains(op.name, "log_softmax"), backward = contains(op.name, "backward");
  const TensorShape& first = op.inputs[0];
  RowWise kernel = row_wise(log ? backward ? Function::log_softmax_backward : Function::log_softmax : backward ? Function::softmax_backward : Function::softmax,
                            first, first.sizes.back());
  kernel.operands.read(contiguous(first));
  if (backward && op.inputs.size() > 1) kernel.operands.read(contiguous(op.inputs[1]));
  kernel.operands.write({first.elements(), written});
  return Kernel{kernel};
}

std::optional<Kernel> norm_of(const Operator& op, std::string_view name) {
  using Function = RowWise::Function;
  const bool rms = contains(op.name, "rms_norm");
  if (!rms && !contains(op.name, "native_layer_norm")) return {};
  const bool backward = contains(op.name, "backward");
  if (op.inputs.size() < 2 || op.inputs[0].sizes.empty()) return {};
  const TensorShape& x = op.inputs[0];
  const std::int64_t columns = x.sizes.back();  // models norm their last dimension
  const bool weights = any_of(name, {"GammaBeta", "cuComputePartGrad", "cuComputeGradGamma"});
  if (backward && !weights && !contains(name, "grad_input")) return {};
  if (!backward && !any_of(name, {"layer_norm_kernel", "RowwiseMoments", "LayerNormForward"})) return {};
  RowWise kernel = row_wise(weights    ? Function::norm_weight_backward
                            : backward ? rms ? Function::rms_norm_backward : Function::layer_norm_backward
                            : rms      ? Function::rms_norm
                                       : Function::layer_norm,
                            x, columns);
  kernel.operands.read(contiguous(x));
  if (backward) kernel.operands.read(contiguous(op.inputs[1]));
  if (weights)
    kernel.operands.write({columns, DType::fp32});
  else
    kernel.operands.write(contiguous(x));
  return Kernel{kernel};
}

std::optional<Kernel> reduction_of(const Operator& op, std::string_view name) {
  if (!contains(name, "reduce_kernel<") || op.inputs.empty() || !op.inputs[0].type) return {};
  const TensorShape& in = op.inputs[0];
  const auto reduced = reduced_dimensions(op);
  if (!reduced || in.elements() == 0) return {};
  Reduction kernel;
  bool last = false;
  for (const std::size_t dimension : *reduced) {
    if (dimension >= in.sizes.size()) return {};
    last = last || dimension + 1 == in.sizes.size();
  }
  for (std::size_t i = 0; i < in.sizes.size(); ++i)
    if (std::find(reduced->begin(), reduced->end(), i) == reduced->end()) kernel.outputs *= in.sizes[i];
  kernel.reduced = in.elements() / std::max<std::int64_t>(kernel.outputs, 1);
  kernel.axis = kernel.outputs == 1 ? Reduction::Axis::all : last ? Reduction::Axis::inner : Reduction::Axis::outer;
  kernel.operands = Operands({contiguous(in)}, {{kernel.outputs, *in.type}});
  return Kernel{kernel};
}

std::optional<Kernel> gather_of(const Operator& op, std::string_view name) {
  if (op.inputs.size() < 2 || !op.inputs[0].type) return {};
  const TensorShape &table = op.inputs[0], &index = op.inputs[1];
  const bool selects = any_of(name, {"indexSelect", "vectorized_gather_kernel"}) && any_of(op.name, {"embedding", "index_select", "gather"});
  const bool backward = any_of(name, {"embedding_backward_feature", "compute_grad_weight"}) && contains(op.name, "embedding");
  if (!selects && !backward) return {};
  const bool whole = op.name == "aten::gather" && op.inputs.size() > 2;
  const std::int64_t elements = backward ? table.elements() : whole ? op.inputs[2].elements() : index.elements() * (table.sizes.empty() ? 1 : table.sizes.back());
  return Kernel{Gather{backward ? Gather::Function::embedding_backward : Gather::Function::embedding, elements,
                       Operands({{elements, *table.type, Walk::strided}}, {{elements, *table.type}})}};
}

std::optional<Kernel> concatenation_of(const Operator& op, std::string_view name, DType type) {
  if (!contains(name, "CatArrayBatchedCopy") || op.inputs.empty()) return {};
  Pointwise kernel{Pointwise::Form::concatenate, 0, {}};
  for (const TensorShape& each : op.inputs) {
    if (each.sizes.empty()) continue;
    kernel.operands.read({each.elements(), type});
    kernel.elements += each.elements();
  }
  kernel.operands.write({kernel.elements, type});
  return Kernel{kernel};
}

/// Inductor gives its kernels the shapes of all their tensors, inputs before outputs; which of them are both is not told.
std::optional<Kernel> fused_of(const Operator& op, std::string_view name) {
  if (name.substr(0, 7) != "triton_") return {};
  std::vector<TensorShape> tensors;
  for (const TensorShape& each : op.inputs)
    if (each.type && !each.sizes.empty()) tensors.push_back(each);
  if (tensors.empty()) return {};
  Pointwise kernel{Pointwise::Form::fused, 0, {}};
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    i + 1 < tensors.size() || tensors.size() == 1 ? kernel.operands.read(contiguous(tensors[i])) : kernel.operands.write(contiguous(tensors[i]));
    kernel.elements = std::max(kernel.elements, tensors[i].elements());
    bytes += contiguous(tensors[i]).bytes();
  }
  if (any_of(name, {"triton_red", "triton_per"}))
    return Kernel{Unspecified{KernelKind::reduction, tensors.back().type.value_or(DType::fp32), static_cast<double>(kernel.elements), bytes, 0}};
  return Kernel{kernel};
}

/// An elementwise kernel over its operator's tensors, broadcast against each other.
std::optional<Kernel> pointwise_of(const Operator& op, std::string_view name, DType written) {
  if (!contains(name, "elementwise_kernel") && !contains(name, "fused_dropout_kernel")) return {};
  const PointwiseShapes shapes = pointwise_shapes(op);
  if (shapes.elements == 0) return {};
  const bool dropout = contains(name, "dropout"), in_order = any_of(name, {"vectorized_", "unrolled_"}) || dropout;
  Pointwise kernel{dropout ? Pointwise::Form::random : Pointwise::Form::map, shapes.elements, {}};
  for (const TensorShape& each : shapes.reads) kernel.operands.read({each.elements(), *each.type, in_order ? Walk::contiguous : walk_of(each, shapes.elements)});
  kernel.operands.write({shapes.elements, written});
  if (dropout) kernel.operands.write({shapes.elements, DType::boolean});
  return Kernel{kernel};
}

}  // namespace

bool is_product(std::string_view name) {
  if (any_of(name, {"splitKreduce", "splitK_reduce", "PostGSU", "fmha", "attention", "reduce_kernel", "elementwise", "sdpa"})) return false;
  return any_of(name, {"nvjet", "gemm", "Cijk_", "xmma", "gemv", "cutlass::Kernel2", "GemmUniversal", "wgrad2d", "_mm_", "dot_kernel"});
}

ReadKernel read_kernel(const std::string& name, const rehearse::Launch& launch, const Operator* op) {
  const rehearse::NamedKernel named = rehearse::classify_kernel(name, launch, kPerThread);
  if (op != nullptr && op->shaped) {
    if (is_product(name))
      if (auto kernel = product_of(*op, name)) return {*std::move(kernel), true};
    if (auto kernel = attention_of(*op, name)) return {*kernel, kernel->attention() != nullptr};
    const DType type = named.kernel.type();
    std::optional<Kernel> kernel = softmax_of(*op, name, type);
    for (const auto read : {norm_of, reduction_of, gather_of, fused_of})
      if (!kernel) kernel = read(*op, name);
    if (!kernel) kernel = concatenation_of(*op, name, type);
    if (!kernel) kernel = pointwise_of(*op, name, type);
    if (kernel) return {*std::move(kernel), true};
  }
  if (is_product(name)) return {{Unspecified{KernelKind::gemm, named.kernel.type(), 0, 0, 0}}, false};
  return {named.kernel, named.bytes_known};
}

}  // namespace plimsoll::trace
