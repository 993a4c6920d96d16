/// Element types of tensors.
#pragma once

#include <cstdint>
#include <string_view>

namespace plimsoll {

enum class DType : std::uint8_t { fp32, fp16, bf16, fp8, int64, int32, int8, uint8, boolean, complex64, fp64 };

/// Bytes of one element.
constexpr std::int64_t size_of(DType type) {
  switch (type) {
    case DType::int64:
    case DType::complex64:
    case DType::fp64: return 8;
    case DType::fp32:
    case DType::int32: return 4;
    case DType::fp16:
    case DType::bf16: return 2;
    default: return 1;
  }
}

/// "bf16", "fp32", …
std::string_view name_of(DType type);

}  // namespace plimsoll
