// TensorIterator's elementwise kernels (ATen/native/cuda/CUDALoops.cuh, Loops.cuh) and their relatives.
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <vector>

#include "rehearse/kernel_readers.hpp"
#include "rehearse/signature.hpp"
#include "units/text.hpp"

namespace plimsoll::rehearse {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

/// Element types of a functor: those that it reads, in order, and of its result.
struct Functor {
  std::vector<DType> inputs;
  DType result = DType::fp32;
};

std::optional<Functor> functor_with(std::string_view name, std::string_view opening, std::initializer_list<std::size_t> inputs,
                                    std::size_t result) {
  const auto arguments = template_arguments(name, opening);
  if (arguments.size() <= result) return {};
  Functor functor;
  for (const std::size_t each : inputs) {
    const auto type = element_type(arguments[each]);
    if (!type) return {};
    functor.inputs.push_back(*type);
  }
  const auto type = element_type(arguments[result]);
  if (!type) return {};
  functor.result = *type;
  return functor;
}

/// "…::{lambda(float, bool)#1}" of a kernel of its own: what it reads; its result has the widest floating type among these, or the first.
std::optional<Functor> lambda_of(std::string_view text) {
  constexpr std::string_view kLambda = "{lambda(";
  const std::size_t at = text.rfind(kLambda);
  if (at == std::string_view::npos) return {};
  const std::size_t from = at + kLambda.size(), to = text.find(")#", from);
  if (to == std::string_view::npos) return {};
  Functor functor;
  for (const std::string_view each : detail::list_parts(text.substr(from, to - from))) {
    const auto type = element_type(each);
    if (!type) return {};
    functor.inputs.push_back(*type);
  }
  if (functor.inputs.empty()) return functor;
  functor.result = functor.inputs.front();
  for (const DType type : functor.inputs)
    if (functor.result == DType::boolean || (type != DType::boolean && size_of(type) > size_of(functor.result))) functor.result = type;
  return functor;
}

/// Copies between types that have kernels of their own (ATen/native/cuda/Copy.cu), whose lambda tells what they read.
std::optional<DType> copied_to(std::string_view text) {
  const auto between = template_arguments(text, "converting_copy_kernel_cuda<");
  if (between.size() >= 2) return element_type(between[1]);
  constexpr std::pair<std::string_view, DType> kCopies[] = {{"bfloat16tofloat32_copy_kernel", DType::fp32},
                                                            {"float16tofloat32_copy_kernel", DType::fp32},
                                                            {"bfloat16_copy_kernel", DType::bf16},
                                                            {"float16_copy_kernel", DType::fp16},
                                                            {"float8_copy_kernel", DType::fp8}};
  for (const auto& [sign, type] : kCopies)
    if (contains(text, sign)) return type;
  return {};
}

std::optional<Functor> functor_of(std::string_view text) {
  if (auto found = functor_with(text, "AUnaryFunctor<", {1}, 2)) return found;
  if (auto found = functor_with(text, "BUnaryFunctor<", {0}, 2)) return found;
  if (auto found = functor_with(text, "BinaryFunctor<", {0, 1}, 2)) return found;
  if (auto found = functor_with(text, "CUDAFunctorOnSelf_add<", {0}, 0)) return found;
  if (auto found = functor_with(text, "CUDAFunctorOnOther_add<", {0}, 0)) return found;
  if (auto found = functor_with(text, "CUDAFunctor_add<", {0, 0}, 0)) return found;
  if (auto found = functor_with(text, "FillFunctor<", {}, 0)) return found;
  auto found = lambda_of(text);
  if (const auto to = copied_to(text); found && to) found->result = *to;
  return found;
}

// ---- strides ---------------------------------------------------------------------------------------------------------

/// An OffsetCalculator (ATen/cuda/detail/OffsetCalculator.cuh): sizes and strides in bytes by dimension, of the result and of each input.
struct Strides {
  std::vector<std::int64_t> sizes;
  std::vector<std::vector<std::int64_t>> of;  ///< by operand, the result first
};

/// Reads one whose arrays have room for `most` dimensions. Nothing where the bytes are none: sizes that are not `elements` together, or a
/// result that does not move.
std::optional<Strides> strides_of(std::string_view bytes, std::size_t operands, std::int64_t elements, std::size_t most) {
  constexpr std::size_t kDivider = 12, kStride = 4;  // IntDivider<unsigned>: divisor, multiplier, shift
  const auto dimensions = word_at(bytes, 0);
  if (!dimensions || *dimensions < 1 || *dimensions > static_cast<std::int64_t>(most)) return {};
  Strides strides;
  strides.of.resize(operands);
  std::int64_t product = 1;
  for (std::size_t d = 0; d < static_cast<std::size_t>(*dimensions); ++d) {
    const auto size = word_at(bytes, 4 + kDivider * d);
    if (!size || *size < 1 || *size > kMostElements / product) return {};
    strides.sizes.push_back(*size);
    product *= *size;
    for (std::size_t i = 0; i < operands; ++i) {
      const auto stride = word_at(bytes, 4 + kDivider * most + kStride * (d * operands + i));
      if (!stride || (i == 0 && *stride == 0 && *size > 1)) return {};
      strides.of[i].push_back(*stride);
    }
  }
  return product == elements ? std::optional(strides) : std::nullopt;
}

/// CUDA's builds have room for 25 dimensions, ROCm's for 16.
std::optional<Strides> strides_of(std::string_view bytes, std::size_t operands, std::int64_t elements) {
  if (auto found = strides_of(bytes, operands, elements, 25)) return found;
  return strides_of(bytes, operands, elements, 16);
}

Operand operand_of(const Strides& strides, std::size_t i, DType type) {
  Operand operand{1, type, Walk::contiguous};
  std::int64_t distance = size_of(type);
  bool repeats = false, in_order = true;
  for (std::size_t d = 0; d < strides.sizes.size(); ++d) {
    const std::int64_t size = strides.sizes[d], stride = strides.of[i][d];
    if (stride != 0) operand.elements *= size;
    repeats = repeats || (stride == 0 && size > 1);
    in_order = in_order && (size == 1 || stride == distance);
    distance *= size;
  }
  operand.walk = repeats ? Walk::broadcast : in_order ? Walk::contiguous : Walk::strided;
  return operand;
}

// ---- kernels ---------------------------------------------------------------------------------------------------------

/// c10::ScalarType, as casting loaders and storers hold it.
std::optional<DType> scalar_type(std::int64_t code) {
  switch (code) {
    case 0: return DType::uint8;
    case 1: return DType::int8;
    case 2: return DType::bf16;  // 16-bit integers: of that size
    case 3: return DType::int32;
    case 4: return DType::int64;
    case 5: return DType::fp16;
    case 6: return DType::fp32;
    case 7: return DType::fp64;
    case 9: return DType::complex64;
    case 11: return DType::boolean;
    case 15: return DType::bf16;
    case 23:
    case 24:
    case 25:
    case 26: return DType::fp8;
    default: return {};
  }
}

/// The types that LoadWithCast and StoreWithCast were given instead of the functor's own; false where they cast and the types were not kept.
bool cast_types(std::string_view name, const Arguments& arguments, Functor& functor) {
  constexpr int kLoader = 5, kStorer = 6;
  if (contains(name, "LoadWithCast<")) {
    const std::string_view types = arguments.bytes(kLoader);
    if (types.size() < functor.inputs.size()) return false;
    for (std::size_t i = 0; i < functor.inputs.size(); ++i) {
      const auto type = scalar_type(types[i]);
      if (!type) return false;
      functor.inputs[i] = *type;
    }
  }
  if (contains(name, "StoreWithCast<")) {
    const std::string_view type = arguments.bytes(kStorer);
    const auto known = type.empty() ? std::nullopt : scalar_type(type.front());
    if (!known) return false;
    functor.result = *known;
  }
  return true;
}

Kernel contiguous(std::int64_t elements, const Functor& functor) {
  Pointwise kernel;
  kernel.elements = elements;
  for (const DType type : functor.inputs) kernel.operands.read({elements, type});
  kernel.operands.write({elements, functor.result});
  return {kernel};
}

/// Elements and types are known, how the operands are walked through is not.
Kernel walk_unknown(std::int64_t elements, const Functor& functor) {
  Unspecified kernel{KernelKind::elementwise, functor.result, static_cast<double>(elements), 0, elements * size_of(functor.result)};
  for (const DType type : functor.inputs) kernel.bytes_read += elements * size_of(type);
  return {kernel};
}

Kernel strided(std::int64_t elements, const Functor& functor, const Strides& strides) {
  Pointwise kernel;
  kernel.elements = elements;
  for (std::size_t i = 0; i < functor.inputs.size(); ++i) kernel.operands.read(operand_of(strides, i + 1, functor.inputs[i]));
  kernel.operands.write(operand_of(strides, 0, functor.result));
  return {kernel};
}

/// elementwise_kernel<threads, elements of a thread, closure>: operands that are not all contiguous. Its closure begins with their strides.
std::optional<Kernel> legacy(std::string_view name, std::string_view opening, const Launch& launch) {
  const auto arguments = template_arguments(name, opening);
  if (arguments.size() < 3) return {};
  const auto threads = leading_number(arguments[0]), each = leading_number(arguments[1]);
  if (!threads || !each || *threads > 1024 || *each > 64) return {};
  const std::int64_t elements = launch.arguments.integer(0).value_or(blocks_of(launch) * *threads * *each);
  if (elements < 0 || elements > kMostElements) return {};
  std::string_view closure = arguments[2];
  for (const std::string_view maker : {"gpu_kernel_impl_nocast<", "gpu_kernel_impl<"})
    if (const auto inner = template_arguments(closure, maker); !inner.empty()) {
      closure = inner[0];
      break;
    }
  const auto functor = functor_of(closure);
  if (!functor) return {};
  const auto strides = strides_of(launch.arguments.bytes(1), functor->inputs.size() + 1, elements);
  const bool casts = !contains(name, "gpu_kernel_impl_nocast<");
  return strides && !casts ? strided(elements, *functor, *strides) : walk_unknown(elements, *functor);
}

/// The arity of the functor and array<char*, n> agree, or the name was read wrong.
bool operands_agree(std::string_view name, const Functor& functor) {
  for (const std::string_view spelling : {"array<char*, ", "Array<char*, "})
    if (const std::size_t at = name.find(spelling); at != std::string_view::npos)
      return leading_number(name.substr(at + spelling.size())) == static_cast<std::int64_t>(functor.inputs.size() + 1);
  return true;
}

std::optional<Kernel> iterated(std::string_view name, const Launch& launch, int per_thread) {
  const bool vectorised = contains(name, "vectorized_elementwise_kernel<"), unrolled = contains(name, "unrolled_elementwise_kernel<");
  if (!vectorised && !unrolled) return {};
  const auto arguments = template_arguments(name, "d_elementwise_kernel<");
  if (arguments.size() < 2) return {};
  auto functor = functor_of(arguments[vectorised ? 1 : 0]);
  constexpr std::int64_t kUnrolled = 4;
  const std::int64_t elements = launch.arguments.integer(0).value_or(threads_of(launch) * (vectorised ? per_thread : kUnrolled));
  if (!functor || !operands_agree(name, *functor) || elements < 0 || elements > kMostElements) return {};
  if (!cast_types(name, launch.arguments, *functor)) return walk_unknown(elements, *functor);
  return contiguous(elements, *functor);
}

/// fused_dropout_kernel(_vec)<scalar, accumulated, index, dimensions, vector, mask>(in, out, mask, elements, …).
std::optional<Kernel> dropout(std::string_view name, const Launch& launch) {
  for (const std::string_view opening : {"fused_dropout_kernel_vec<", "fused_dropout_kernel<"}) {
    const auto arguments = template_arguments(name, opening);
    const auto elements = launch.arguments.integer(3);
    if (arguments.empty() || !elements || *elements < 0 || *elements > kMostElements) continue;
    const DType type = element_type(arguments[0]).value_or(DType::fp32), mask = element_type(arguments.back()).value_or(DType::boolean);
    return Kernel{Pointwise{Pointwise::Form::random, *elements, Operands({{*elements, type}}, {{*elements, type}, {*elements, mask}})}};
  }
  return {};
}

/// Generators of random numbers write and read nothing.
std::optional<Kernel> generator(std::string_view name, const Launch& launch) {
  const auto elements = launch.arguments.integer(0);
  if (!contains(name, "distribution_elementwise_grid_stride_kernel<") || !elements || *elements < 0 || *elements > kMostElements) return {};
  return Kernel{Pointwise{Pointwise::Form::random, *elements, Operands({}, {{*elements, first_type(name)}})}};
}

/// arange and its like, from the index alone.
std::optional<Kernel> indexed(std::string_view name, const Launch& launch) {
  const auto elements = launch.arguments.integer(0);
  if (!contains(name, "elementwise_kernel_with_index<") || !elements || *elements < 0 || *elements > kMostElements) return {};
  const auto functor = lambda_of(name.substr(0, name.rfind('(')));
  const DType type = functor && !functor->inputs.empty() ? functor->result : DType::int64;
  return Kernel{Pointwise{Pointwise::Form::map, *elements, Operands({}, {{*elements, type}})}};
}

/// CatArrayBatchedCopy…(out, metadata of up to 128 inputs, …): grid.y inputs, whose sizes lie behind 8 bytes of address and two times 4 of each.
std::optional<Kernel> concatenation(std::string_view name, const Launch& launch) {
  if (!contains(name, "CatArrayBatchedCopy")) return {};
  const auto arguments = template_arguments(name, "CatArrInputTensorMetadata<");
  if (arguments.size() < 3) return {};
  const auto type = element_type(arguments[0]);
  const auto room = leading_number(arguments[2]);
  const std::string_view metadata = launch.arguments.bytes(1);
  if (!type || !room || *room < 1 || *room > 4096 || metadata.empty() || launch.blocks[1] > static_cast<std::uint64_t>(*room)) return {};
  Pointwise kernel{Pointwise::Form::concatenate, 0, {}};
  for (std::uint64_t i = 0; i < launch.blocks[1]; ++i) {
    const auto elements = word_at(metadata, static_cast<std::size_t>(*room) * 16 + i * 4);
    if (!elements || *elements < 0) return {};
    kernel.operands.read({*elements, *type});
    kernel.elements += *elements;
  }
  kernel.operands.write({kernel.elements, *type});
  return Kernel{kernel};
}

}  // namespace

std::int64_t blocks_of(const Launch& launch) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  std::uint64_t blocks = 1;
  for (const std::uint64_t each : launch.blocks) blocks = std::min(kMost, blocks * std::min(kMost >> 20U, std::max<std::uint64_t>(each, 1)));
  return static_cast<std::int64_t>(blocks);
}

std::optional<std::int64_t> leading_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return {};
  return value;
}

std::int64_t threads_of(const Launch& launch) {
  std::uint64_t threads = 1;
  for (const std::uint64_t each : launch.threads) threads *= std::clamp<std::uint64_t>(each, 1, 1024);
  return blocks_of(launch) * static_cast<std::int64_t>(std::min<std::uint64_t>(threads, 1024));
}

std::optional<Kernel> read_pointwise(std::string_view name, const Launch& launch, int per_thread) {
  if (contains(name, "index_elementwise_kernel<")) return {};
  std::optional<Kernel> kernel = iterated(name, launch, per_thread);
  for (const std::string_view opening : {"::elementwise_kernel<", "::elementwise_kernel_manual_unroll<"})
    if (!kernel) kernel = legacy(name, opening, launch);
  for (const auto read : {dropout, generator, indexed, concatenation})
    if (!kernel) kernel = read(name, launch);
  return kernel;
}

}  // namespace plimsoll::rehearse
