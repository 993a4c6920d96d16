#include <algorithm>
#include <array>

#include "plimsoll/error.hpp"
#include "plimsoll/hardware.hpp"

namespace plimsoll {

std::string_view name_of(Provenance provenance) {
  constexpr std::array<std::string_view, 6> kNames{"measured", "calibrated", "derived", "datasheet", "assumed", "rehearsed"};
  return kNames[static_cast<std::size_t>(provenance)];
}

std::string_view name_of(MathType type) {
  constexpr std::array<std::string_view, 9> kNames{"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8"};
  return kNames[static_cast<std::size_t>(type)];
}

std::string_view name_of(Scaling scaling) {
  constexpr std::array<std::string_view, 6> kNames{"none", "tensor", "row", "block", "mxfp8", "nvfp4"};
  return kNames[static_cast<std::size_t>(scaling)];
}

std::string_view name_of(NodeFabric fabric) {
  constexpr std::array<std::string_view, 4> kNames{"mesh", "nvswitch", "pcie_tree", "links"};
  return kNames[static_cast<std::size_t>(fabric)];
}

MathType math_of(DType type) {
  switch (type) {
    case DType::fp64:
    case DType::complex64:
      return MathType::fp64;
    case DType::fp16:
      return MathType::fp16;
    case DType::bf16:
      return MathType::bf16;
    case DType::fp8:
      return MathType::fp8;
    case DType::int8:
    case DType::uint8:
      return MathType::int8;
    default:
      return MathType::fp32;
  }
}

const ProductKernels::Rate* ProductKernels::rate(MathType type, Scaling scaling) const {
  const auto holds = [&](const Rate& rate) {
    const auto& list = rate.scalings;
    return rate.type == type && (list.empty() || std::find(list.begin(), list.end(), scaling) != list.end());
  };
  const auto found = std::find_if(rates.begin(), rates.end(), holds);
  return found == rates.end() ? nullptr : &*found;
}

const ComputeRate& Accelerator::rate(MathType type) const {
  const auto found = std::find_if(rates.begin(), rates.end(), [&](const ComputeRate& candidate) { return candidate.type == type; });
  if (found != rates.end()) return *found;
  std::string known;
  for (const auto& candidate : rates) known += (known.empty() ? "" : ", ") + std::string(name_of(candidate.type));
  refuse("no rate of " + std::string(name_of(type)) + " arithmetic is stated for " + title, name, "of " + known);
}

}  // namespace plimsoll
