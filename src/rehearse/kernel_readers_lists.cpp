// Kernels over indices and over lists of tensors (ATen/native/cuda: IndexKernelUtils.cu, Embedding.cu, Loss.cu, ForeachFunctors.cuh).
#include <algorithm>

#include "rehearse/kernel_readers.hpp"
#include "rehearse/signature.hpp"
#include "units/text.hpp"

namespace plimsoll::rehearse {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
/// Elements of a chunk of multi_tensor_apply (ATen/native/cuda/MultiTensorApply.cuh, kChunkSize).
constexpr std::int64_t kForeachChunk = 65536;

/// The product of some parameters; nothing where one was not kept or the product is no sensible size.
std::optional<std::int64_t> product_of(const Arguments& arguments, std::initializer_list<int> parameters) {
  std::int64_t product = 1;
  for (const int parameter : parameters) {
    const auto value = arguments.integer(parameter);
    if (!value || *value < 1 || *value > kMostElements / product) return {};
    product *= *value;
  }
  return product;
}

// ---- gathers ---------------------------------------------------------------------------------------------------------

/// A kernel that moves `size` elements each way, in the order of an index.
struct GatherRule {
  std::string_view sign;
  Gather::Function function;
  std::initializer_list<int> size;  ///< the parameters whose product it is
  bool in_bytes = false;
};
const GatherRule kGatherRules[] = {{"vectorized_gather_kernel<", Gather::Function::embedding, {3, 4}, true},
                                   {"indexSelectLargeIndex<", Gather::Function::embedding, {5}},
                                   {"embedding_backward_feature_kernel<", Gather::Function::embedding_backward, {3, 4}},
                                   {"compute_grad_weight<", Gather::Function::embedding_backward, {3, 4}},
                                   {"nll_loss_forward_reduce_cuda_kernel_2d<", Gather::Function::nll_loss, {6}},
                                   {"nll_loss_backward_reduce_cuda_kernel_2d<", Gather::Function::nll_loss, {6}},
                                   {"tensor_kernel_scan_innermost_dim<", Gather::Function::scan, {2, 3}},
                                   {"index_elementwise_kernel<", Gather::Function::index, {0}}};

/// vLLM's reshape_and_cache_flash_kernel (csrc/libtorch_stable/cache_kernels.cu): a block for each token puts its rows of keys and of
/// values, heads x size of each, into their slots of the cache.
std::optional<Kernel> read_cache_write(std::string_view name, const Launch& launch) {
  constexpr int kHeads = 10, kSize = 11, kRows = 2;
  const auto types = template_arguments(name, "reshape_and_cache_flash_kernel<");
  const auto row = product_of(launch.arguments, {kHeads, kSize});
  const std::int64_t tokens = blocks_of(launch);
  if (types.size() < 2 || !row || *row > kMostElements / kRows / tokens) return {};
  const std::int64_t elements = kRows * *row * tokens;
  const DType from = element_type(types[0]).value_or(DType::bf16), into = element_type(types[1]).value_or(from);
  return Kernel{Gather{Gather::Function::scatter, elements, Operands({{elements, from}}, {{elements, into, Walk::strided}})}};
}

// ---- lists -----------------------------------------------------------------------------------------------------------

/// Lists that a functor walks through: how many it reads, and how many it writes.
struct Lists {
  MultiTensor::Function function = MultiTensor::Function::map;
  std::int64_t reads = 0, writes = 0;
  DType type = DType::fp32;
  std::optional<DType> into = {};  ///< of what is written, where it is another
};

/// ForeachFunctors.cuh: <type, depth, lists read, the one written>, a copy's with the type that it writes before; the fused optimizers write all
/// lists but the gradients'.
std::optional<Lists> lists_of(std::string_view name) {
  for (const std::string_view opening : {"FusedAdamMathFunctor<", "FusedSgdMathFunctor<", "FusedAdagradMathFunctor<"})
    if (const auto arguments = template_arguments(name, opening); arguments.size() >= 2) {
      const auto depth = leading_number(arguments[1]);
      if (!depth || *depth < 2 || *depth > 6) return {};
      return Lists{MultiTensor::Function::fused, *depth, *depth - 1, element_type(arguments[0]).value_or(DType::fp32)};
    }
  if (const auto norm = template_arguments(name, "LpNormFunctor<"); !norm.empty())
    return Lists{MultiTensor::Function::norm, 1, 0, element_type(norm[0]).value_or(DType::fp32)};
  for (const std::string_view functor : {"Functor<", "FunctorScalarList<"})
    for (std::size_t at = name.find(functor); at != std::string_view::npos; at = name.find(functor, at + 1)) {
      auto arguments = template_arguments(name.substr(at), functor);
      if (arguments.size() < 4) continue;
      const bool copies = contains(name, "CopyFunctor<");
      const auto into = element_type(arguments[0]);
      if (copies) arguments.erase(arguments.begin());
      const auto type = element_type(arguments[0]);
      const auto depth = leading_number(arguments[1]), reads = leading_number(arguments[2]);
      if (!type || !depth || !reads || *reads < 0 || *reads > *depth || *depth > 6) continue;
      return Lists{copies ? MultiTensor::Function::copy : MultiTensor::Function::map, *reads, 1, *type, into};
    }
  return {};
}

/// ATen/native/cuda/TensorShape.cu: what was gathered is cut into the tensors (a stride and how many), or tensors are put side by side in slices
/// of so many bytes. Two types are template arguments where a release converts.
std::optional<MultiTensor> read_chunks(std::string_view name, const Launch& launch) {
  constexpr int kStride = 5, kChunks = 6, kSliceBytes = 8;
  const bool cut = contains(name, "split_with_sizes_copy_out_contiguous_no_cast_kernel(");
  if (!cut && !contains(name, "chunk_cat_cuda_kernel")) return {};
  const auto bytes = cut ? product_of(launch.arguments, {kStride, kChunks}) : product_of(launch.arguments, {kSliceBytes});
  const auto slices = cut ? 1 : static_cast<std::int64_t>(std::min<std::uint64_t>(launch.blocks[2], 1U << 16U));
  if (!bytes || slices < 1 || *bytes > kMostElements / slices) return {};
  const auto types = template_arguments(name, "chunk_cat_cuda_kernel<");
  const DType into = types.size() == 2 ? element_type(types[0]).value_or(DType::uint8) : DType::uint8;
  const DType from = types.size() == 2 ? element_type(types[1]).value_or(into) : into;
  const std::int64_t elements = *bytes * slices / size_of(into);
  return MultiTensor{MultiTensor::Function::copy, 1, elements, Operands({{elements, from}}, {{elements, into}})};
}

}  // namespace

std::optional<Kernel> read_gather(std::string_view name, const Launch& launch) {
  for (const GatherRule& rule : kGatherRules) {
    if (!contains(name, rule.sign)) continue;
    const auto size = product_of(launch.arguments, rule.size);
    if (!size) return {};
    const DType type = rule.in_bytes ? DType::uint8 : first_type(name);
    return Kernel{Gather{rule.function, *size, Operands({{*size, type, Walk::strided}}, {{*size, type}})}};
  }
  return read_cache_write(name, launch);
}

std::optional<Kernel> read_multi_tensor(std::string_view name, const Launch& launch) {
  if (const auto chunks = read_chunks(name, launch)) return Kernel{*chunks};
  if (!contains(name, "multi_tensor_apply_kernel<")) return {};
  const auto lists = lists_of(name);
  if (!lists) return {};
  MultiTensor kernel;
  kernel.function = lists->function;
  kernel.elements = std::min(blocks_of(launch), kMostElements / kForeachChunk) * kForeachChunk;
  for (std::int64_t i = 0; i < lists->reads; ++i) kernel.operands.read({kernel.elements, lists->type});
  for (std::int64_t i = 0; i < lists->writes; ++i) kernel.operands.write({kernel.elements, lists->into.value_or(lists->type)});
  return Kernel{kernel};
}

}  // namespace plimsoll::rehearse
