// What references are made of: answers read as numbers, comparisons of which the worst counts, sums of products.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "calibrate/kernels/elements.hpp"
#include "calibrate/kernels/references.hpp"

namespace plimsoll::calibrate {

/// Half a unit in the last place, relative.
inline constexpr double kFp32 = 1.0 / (1 << 24), kBf16 = 1.0 / (1 << 8);
inline constexpr std::int64_t kMostDots = 4096, kMostRows = 256;

inline double rounding(DType type) {
  switch (type) {
    case DType::fp64:
      return kFp32 * kFp32 * 16;
    case DType::fp32:
      return kFp32;
    case DType::fp16:
      return 1.0 / (1 << 11);
    default:
      return kBf16;
  }
}

/// One buffer of an answer, read as numbers.
struct View {
  const std::byte* data;
  DType type;
  Fp8Format format;
  double operator[](std::int64_t index) const { return element_value(type, format, data, index); }
};

class Reader {
 public:
  Reader(const Answer& answer, std::size_t rank) : answer_(answer), rank_(rank), format_(fp8_format(answer.device.target)) {}
  View before(std::size_t buffer, DType type) const { return {answer_.before.at(rank_).at(buffer).data(), type, format_}; }
  View after(std::size_t buffer, DType type) const { return {answer_.after.at(rank_).at(buffer).data(), type, format_}; }

 private:
  const Answer& answer_;
  std::size_t rank_;
  Fp8Format format_;
};

/// Collects the worst of all comparisons.
class Comparison {
 public:
  void operator()(std::string_view name, std::int64_t index, double actual, double expected, double tolerance, std::size_t rank = 0) {
    const double difference = std::fabs(actual - expected);
    const double error = difference == 0 ? 0 : difference / tolerance;
    ++result_.checked;
    if (std::isnan(actual) || std::isnan(error)) {
      note(name, rank, index, actual, expected, std::numeric_limits<double>::infinity());
    } else if (error > result_.worst) {
      note(name, rank, index, actual, expected, error);
    }
  }
  Check result() const { return result_; }

 private:
  void note(std::string_view name, std::size_t rank, std::int64_t index, double actual, double expected, double error) {
    result_.worst = error;
    result_.where = fmt::format("{}[{}] of rank {} is {:.9g}, expected {:.9g}", name, index, rank, actual, expected);
  }
  Check result_;
};

/// Indices 0 … count - 1, or of so many that `most` are visited, spread by a step that shares no factor with powers of two.
template <class Visit>
void visit_sample(std::int64_t count, std::int64_t most, Visit visit) {
  const std::int64_t step = count <= most ? 1 : count / most | 1;
  for (std::int64_t i = 0; i < count; i += step) visit(i);
  if (step > 1) visit(count - 1);
}

/// Sum of products of row i of a and row j of b, both of k elements, and the sum of their magnitudes.
struct Dot {
  double sum = 0, magnitude = 0;
};
inline Dot dot(const View& a, std::int64_t i, const View& b, std::int64_t j, std::int64_t k) {
  Dot result;
  for (std::int64_t p = 0; p < k; ++p) {
    const double product = a[i * k + p] * b[j * k + p];
    result.sum += product;
    result.magnitude += std::fabs(product);
  }
  return result;
}

}  // namespace plimsoll::calibrate
