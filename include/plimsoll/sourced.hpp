/// Numbers with their origin, and the kinds of arithmetic that a device has rates for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plimsoll/dtype.hpp"

namespace plimsoll {

/// How much a number may be trusted, best first.
enum class Provenance : std::uint8_t {
  measured,    ///< read from a device or a published benchmark
  calibrated,  ///< fitted to measurements
  derived,     ///< computed from other numbers of the file
  datasheet,   ///< the vendor's specification
  assumed,     ///< nobody published it: a working value
  rehearsed,   ///< read from the framework itself on a device that computes nothing; never in a hardware file
};
std::string_view name_of(Provenance provenance);

/// A value, how far it may be trusted, and who says so (a key of the file's `sources`).
template <class T>
struct Sourced {
  T value{};
  Provenance provenance = Provenance::assumed;
  std::string source;
};

/// Arithmetic that a device has a peak rate for; dense, with fp32 accumulation.
enum class MathType : std::uint8_t { fp64, fp32, tf32, fp16, bf16, fp8, fp6, fp4, int8 };
std::string_view name_of(MathType type);
/// The arithmetic of a matrix product on operands of that type (fp32 → fp32: tf32 is a choice of the framework).
MathType math_of(DType type);

}  // namespace plimsoll
