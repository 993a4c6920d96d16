#include "rehearse/kernel_names.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace plimsoll::rehearse {
namespace {

/// Bytes that a thread of an unknown kernel moves: one vector load or store.
constexpr std::int64_t kVectorBytes = 16;
/// Elements of a chunk of multi_tensor_apply (ATen/native/cuda/MultiTensorApply.cuh, kChunkSize).
constexpr std::int64_t kForeachChunk = 65536;

std::string demangled(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text ? std::string(text.get()) : mangled;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// The whole number that follows the first `before` in the text.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return {};
  std::int64_t value = 0;
  const char* first = text.data() + at + before.size();
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), value);
  if (error != std::errc() || end == first) return {};
  return value;
}

/// The element type that a name mentions first; float where it mentions none.
DType type_of(std::string_view name) {
  struct Spelling {
    std::string_view text;
    DType type;
  };
  constexpr Spelling kSpellings[] = {{"c10::BFloat16", DType::bf16}, {"cutlass::bfloat16_t", DType::bf16},
                                     {"__nv_bfloat16", DType::bf16}, {"__hip_bfloat16", DType::bf16},
                                     {"c10::Half", DType::fp16},     {"cutlass::half_t", DType::fp16},
                                     {"__half", DType::fp16},        {"Float8_e", DType::fp8},
                                     {"OpaqueType<2", DType::bf16},  {"OpaqueType<4", DType::fp32},
                                     {"OpaqueType<8", DType::int64}, {"OpaqueType<1", DType::int8},
                                     {"float", DType::fp32},         {"double", DType::fp64},
                                     {"long", DType::int64},         {"bool", DType::boolean},
                                     {"(int", DType::int32}};
  std::size_t first = std::string_view::npos;
  DType type = DType::fp32;
  for (const Spelling& spelling : kSpellings) {
    const std::size_t at = name.find(spelling.text);
    if (at < first) {
      first = at;
      type = spelling.type;
    }
  }
  return type;
}

std::int64_t product(const std::uint64_t (&extent)[3]) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40;
  std::uint64_t result = 1;
  for (const std::uint64_t each : extent) result = std::min(kMost, result * std::min(kMost >> 20U, std::max<std::uint64_t>(each, 1)));
  return static_cast<std::int64_t>(result);
}

/// Reads and writes of `elements` in each of `tensors` operands, the last of them the result.
NamedKernel with_traffic(Unspecified kernel, std::int64_t elements, std::int64_t tensors) {
  const std::int64_t each = elements * size_of(kernel.type);
  kernel.bytes_written = each;
  kernel.bytes_read = each * std::max<std::int64_t>(tensors - 1, 0);
  return {{kernel}, true};
}

/// Operands of an elementwise kernel: array<char*, N> where the name has it, else two inputs for a binary functor and one otherwise.
std::int64_t operands(std::string_view name) {
  for (const std::string_view spelling : {"array<char*, ", "Array<char*, "})
    if (const auto count = number_after(name, spelling)) return *count;
  return contains(name, "BinaryFunctor<") || contains(name, "CUDAFunctor_") ? 3 : 2;
}

std::optional<std::int64_t> elementwise_elements(std::string_view name, const Launch& launch, int per_thread) {
  if (contains(name, "vectorized_elementwise_kernel<")) return product(launch.blocks) * product(launch.threads) * per_thread;
  if (contains(name, "unrolled_elementwise_kernel<")) return product(launch.blocks) * product(launch.threads) * 4;
  const std::size_t at = name.find("elementwise_kernel<");
  if (at == std::string_view::npos) return {};
  const std::string_view arguments = name.substr(at);
  const auto threads = number_after(arguments, "elementwise_kernel<");
  const auto each = number_after(arguments, ", ");
  if (!threads || !each || *threads > 1024 || *each > 64) return {};
  return product(launch.blocks) * *threads * *each;
}

/// FlashAttention-2: grid (blocks of kBlockM queries, batch, heads) forward and (blocks of keys, batch, heads) backward; traits are
/// <head dimension, kBlockM, kBlockN, …>, then <dropout, causal, …>. Products: 2 forward, 5 backward (Dao 2023), half of them when causal.
std::optional<NamedKernel> flash(std::string_view name, const Launch& launch) {
  const bool backward = contains(name, "flash_bwd_dq_dk_dv");
  const bool forward = contains(name, "flash_fwd_kernel") || contains(name, "flash_fwd_splitkv_kernel");
  if (!backward && !forward) return {};
  const std::string_view traits = name.substr(std::min(name.find("kernel_traits<"), name.size()));
  const auto head = number_after(traits, "kernel_traits<");
  if (!head) return {};
  const auto rows = number_after(traits.substr(traits.find(',')), ", ");
  if (!rows || *rows <= 0 || *rows > 1024) return {};
  const double sequence = static_cast<double>(launch.blocks[0]) * static_cast<double>(*rows);
  const std::size_t flags = name.find(">, ", name.find("kernel_traits<"));
  const bool causal = flags != std::string_view::npos && contains(name.substr(flags, 24), ", true");
  constexpr double kMost = 1 << 24;
  Attention attention;
  attention.part = backward ? Attention::Part::backward : Attention::Part::forward;
  attention.type = type_of(name);
  attention.causal = causal;
  attention.batch = static_cast<std::int64_t>(std::min<std::uint64_t>(launch.blocks[1], 1 << 20));
  attention.heads = attention.kv_heads = static_cast<std::int64_t>(std::min<std::uint64_t>(launch.blocks[2], 1 << 20));
  attention.queries = attention.keys = static_cast<std::int64_t>(std::min(sequence, kMost));
  attention.head_dim = attention.value_dim = std::min<std::int64_t>(*head, 1024);
  return NamedKernel{{attention}, true};
}

/// Tensors that a foreach kernel walks through at once: the depth of its list.
std::optional<std::int64_t> foreach_depth(std::string_view name) {
  for (const std::string_view spelling : {"TensorListMetadata<", "FusedOptimizerTensorListMetadata<"})
    if (const auto depth = number_after(name, spelling)) return depth;
  const std::size_t at = name.find("ScalarListMetadata<");
  return at == std::string_view::npos ? std::optional<std::int64_t>() : number_after(name.substr(at), ", ");
}

KernelKind kind_of(std::string_view name) {
  struct Sign {
    std::string_view text;
    KernelKind kind;
  };
  constexpr Sign kSigns[] = {{"fmha_cutlassB", KernelKind::attention_backward},
                             {"attention_kernel_backward", KernelKind::attention_backward},
                             {"fmha_cutlassF", KernelKind::attention},
                             {"attention_kernel", KernelKind::attention},
                             {"multi_tensor_apply", KernelKind::multi_tensor},
                             {"reduce_kernel", KernelKind::reduction},
                             {"oftMax", KernelKind::reduction},
                             {"softmax", KernelKind::reduction},
                             {"norm", KernelKind::reduction},
                             {"nll_loss", KernelKind::reduction},
                             {"triton_red", KernelKind::reduction},
                             {"triton_per", KernelKind::reduction},
                             {"embedding", KernelKind::gather},
                             {"gather", KernelKind::gather},
                             {"index", KernelKind::gather},
                             {"scatter", KernelKind::gather},
                             {"sort", KernelKind::gather},
                             {"convolution", KernelKind::convolution}};
  for (const Sign& sign : kSigns)
    if (contains(name, sign.text)) return sign.kind;
  return KernelKind::elementwise;
}

/// Where the template arguments and the parameter list of a demangled name begin.
std::string without_arguments(std::string_view name) {
  std::string text;
  int depth = 0;
  for (const char letter : name) {
    if (letter == '<' || letter == '(') ++depth;
    if (depth == 0) text += letter;
    if (letter == '>' || letter == ')') --depth;
  }
  return text;
}

/// The functor or the function that a generic kernel was made for: "silu_kernel" of elementwise_kernel<…silu_kernel(…)…>.
std::string functor_of(std::string_view name) {
  constexpr std::string_view kEndings[] = {"_kernel_cuda", "_kernel_impl", "_kernel", "Functor", "Ops", "functor", "_cuda_out"};
  constexpr std::string_view kGeneric[] = {"elementwise_kernel", "gpu_kernel_impl", "reduce_kernel", "multi_tensor_apply_kernel",
                                           "ReduceOp"};
  std::string best;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    if (i < name.size() && (std::isalnum(static_cast<unsigned char>(name[i])) || name[i] == '_')) continue;
    const std::string_view word = name.substr(start, i - start);
    start = i + 1;
    const auto within = [&](std::string_view part) { return contains(word, part); };
    if (std::any_of(std::begin(kGeneric), std::end(kGeneric), within)) continue;
    if (std::any_of(std::begin(kEndings), std::end(kEndings), within)) best = std::string(word);
  }
  return best;
}

}  // namespace

std::string short_name(const std::string& mangled) {
  const std::string full = demangled(mangled);
  std::string text = full;
  for (const std::string_view noise : {"(anonymous namespace)::", "void ", "at::native::", "c10::cuda::"})
    for (std::size_t at = text.find(noise); at != std::string::npos; at = text.find(noise)) text.erase(at, noise.size());
  std::string name = without_arguments(text);
  const bool generic = contains(name, "elementwise_kernel") || contains(name, "reduce_kernel") || contains(name, "multi_tensor_apply");
  if (!generic) return name;
  const std::string functor = functor_of(text.substr(std::min(text.find('<'), text.size())));
  return functor.empty() ? name : name + " " + functor;
}

NamedKernel classify_kernel(const std::string& mangled, const Launch& launch, int per_thread) {
  const std::string name = demangled(mangled);
  if (const auto attention = flash(name, launch)) return *attention;
  Unspecified kernel;
  kernel.kind = kind_of(name);
  kernel.type = type_of(name);
  if (kernel.kind == KernelKind::multi_tensor) {
    if (const auto depth = foreach_depth(name)) return with_traffic(kernel, product(launch.blocks) * kForeachChunk, *depth);
  }
  if (const auto elements = elementwise_elements(name, launch, per_thread)) {
    kernel.kind = KernelKind::elementwise;
    return with_traffic(kernel, *elements, operands(name));
  }
  kernel.bytes_read = product(launch.blocks) * product(launch.threads) * kVectorBytes;
  return {{kernel}, false};
}

}  // namespace plimsoll::rehearse
