#include "plimsoll/dtype.hpp"

namespace plimsoll {

std::string_view name_of(DType type) {
  switch (type) {
    case DType::fp32: return "fp32";
    case DType::fp16: return "fp16";
    case DType::bf16: return "bf16";
    case DType::fp8: return "fp8";
    case DType::int64: return "int64";
    case DType::int32: return "int32";
    case DType::int8: return "int8";
    case DType::uint8: return "uint8";
    case DType::boolean: return "bool";
    case DType::complex64: return "complex64";
    case DType::fp64: return "fp64";
  }
  return "?";
}

}  // namespace plimsoll
