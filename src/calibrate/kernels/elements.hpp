// Element formats as bits: what the host needs to make inputs, check answers and emulate instructions.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "calibrate/kernels/kernel_table.hpp"

namespace plimsoll::calibrate {

inline float float_of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of_bf16(std::uint16_t bits) { return float_of_bits(static_cast<std::uint32_t>(bits) << 16); }

/// Rounds to nearest even; NaN stays NaN.
inline std::uint16_t bf16_of_float(float value) {
  const std::uint32_t bits = bits_of_float(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

inline float float_of_fp16(std::uint16_t bits) {
  const int sign = bits >> 15, exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  float value;
  if (exponent == 31) {
    value = mantissa ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    value = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  }
  return sign ? -value : value;
}

/// Rounds to nearest even, subnormal results too; beyond 65504 infinity.
inline std::uint16_t fp16_of_float(float value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7E00);
  if (magnitude == 0) return sign;
  if (magnitude >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7C00);
  int exponent;
  std::frexp(magnitude, &exponent);                       // magnitude = f · 2^exponent, f in [0.5, 1)
  const int unit = exponent < -13 ? -24 : exponent - 11;  // of the last place
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
  if (exponent < -13) return static_cast<std::uint16_t>(sign | steps);
  return static_cast<std::uint16_t>(sign + (static_cast<std::uint32_t>(exponent + 13) << 10) + steps);
}

/// 8 bits with 4 of exponent and 3 of mantissa.
inline float float_of_fp8(std::uint8_t bits, Fp8Format format) {
  const bool fnuz = format == Fp8Format::e4m3_fnuz;
  const int sign = bits >> 7, exponent = (bits >> 3) & 15, mantissa = bits & 7, bias = fnuz ? 8 : 7;
  if (fnuz ? bits == 0x80 : (bits & 0x7F) == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  const float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -2 - bias)
                                    : std::ldexp(static_cast<float>(mantissa + 8), exponent - bias - 3);
  return sign ? -value : value;
}

template <class T>
T read_element(const std::byte* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

/// Element `index` of a buffer, exactly.
inline double element_value(DType type, Fp8Format format, const std::byte* data, std::int64_t index) {
  switch (type) {
    case DType::fp64:
      return read_element<double>(data, index);
    case DType::fp32:
      return read_element<float>(data, index);
    case DType::fp16:
      return float_of_fp16(read_element<std::uint16_t>(data, index));
    case DType::bf16:
      return float_of_bf16(read_element<std::uint16_t>(data, index));
    case DType::fp8:
      return float_of_fp8(read_element<std::uint8_t>(data, index), format);
    case DType::int32:
      return read_element<std::int32_t>(data, index);
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

}  // namespace plimsoll::calibrate
