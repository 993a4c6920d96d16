#include "rehearse/kernel_names.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "rehearse/kernel_readers.hpp"
#include "units/text.hpp"

namespace plimsoll::rehearse {
namespace {

/// Bytes that a thread of an unknown kernel moves: one vector load or store.
constexpr std::int64_t kVectorBytes = 16;

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

std::string demangled(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 && text ? std::string(text.get()) : mangled;
}

std::optional<DType> element_type(std::string_view text) {
  for (const std::string_view noise : {"*", " const", "&"})
    while (text.size() > noise.size() && text.substr(text.size() - noise.size()) == noise) text.remove_suffix(noise.size());
  constexpr std::pair<std::string_view, DType> kTypes[] = {{"float", DType::fp32},
                                                           {"double", DType::fp64},
                                                           {"c10::BFloat16", DType::bf16},
                                                           {"cutlass::bfloat16_t", DType::bf16},
                                                           {"__nv_bfloat16", DType::bf16},
                                                           {"__hip_bfloat16", DType::bf16},
                                                           {"c10::Half", DType::fp16},
                                                           {"cutlass::half_t", DType::fp16},
                                                           {"__half", DType::fp16},
                                                           {"c10::Float8_e4m3fn", DType::fp8},
                                                           {"c10::Float8_e5m2", DType::fp8},
                                                           {"c10::Float8_e4m3fnuz", DType::fp8},
                                                           {"c10::Float8_e5m2fnuz", DType::fp8},
                                                           {"long", DType::int64},
                                                           {"unsigned long", DType::int64},
                                                           {"int", DType::int32},
                                                           {"unsigned int", DType::int32},
                                                           {"short", DType::bf16},
                                                           {"unsigned char", DType::uint8},
                                                           {"signed char", DType::int8},
                                                           {"char", DType::int8},
                                                           {"bool", DType::boolean},
                                                           {"c10::complex<float>", DType::complex64}};
  for (const auto& [name, type] : kTypes)
    if (text == name) return type;
  constexpr std::pair<std::string_view, DType> kOpaque[] = {
      {"OpaqueType<1", DType::int8}, {"OpaqueType<2", DType::bf16}, {"OpaqueType<4", DType::fp32}, {"OpaqueType<8", DType::int64}};
  for (const auto& [name, type] : kOpaque)
    if (contains(text, name)) return type;
  return {};
}

/// The element type that a name mentions first; float where it mentions none.
DType first_type(std::string_view name) {
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
  std::optional<Kernel> kernel = read_pointwise(name, launch, per_thread);
  for (const auto read : {read_reduction, read_row_wise, read_gather, read_attention, read_multi_tensor})
    if (!kernel) kernel = read(name, launch);
  if (kernel) return {*std::move(kernel), true};
  Unspecified unknown;
  unknown.kind = kind_of(name);
  unknown.type = first_type(name);
  unknown.bytes_read = threads_of(launch) * kVectorBytes;
  return {{unknown}, false};
}

}  // namespace plimsoll::rehearse
