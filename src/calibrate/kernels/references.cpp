#include "calibrate/kernels/reference_parts.hpp"

namespace plimsoll::calibrate {
namespace {

constexpr std::int64_t kMostElements = 1 << 18;

// The answer of an elementwise kernel with one output.
template <class Expected, class Tolerance>
Check check_elements(std::int64_t count, std::string_view name, const View& output, Expected expected, Tolerance tolerance) {
  Comparison compare;
  visit_sample(count, kMostElements, [&](std::int64_t i) {
    const double value = expected(i);
    compare(name, i, output[i], value, tolerance(value));
  });
  return compare.result();
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

struct RowNorm {
  double maximum, sum;
};
RowNorm row_norm(const View& x, std::int64_t start, std::int64_t columns) {
  double maximum = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) maximum = std::max(maximum, x[start + c]);
  for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(x[start + c] - maximum);
  return {maximum, sum};
}

}  // namespace

Check check_nothing(const Answer&) {
  Check check;
  check.checked = 1;
  return check;
}

Check check_copy(const Answer& answer) {
  const Reader read(answer, 0);
  const View source = read.before(0, DType::fp32);
  return check_elements(
      answer.sizes[0], "destination", read.after(1, DType::fp32), [&](std::int64_t i) { return source[i]; }, [](double) { return 0.0; });
}

Check check_triad(const Answer& answer) {
  const Reader read(answer, 0);
  const View b = read.before(0, DType::fp32), c = read.before(1, DType::fp32);
  return check_elements(
      answer.sizes[0], "a", read.after(2, DType::fp32), [&](std::int64_t i) { return b[i] + 0.4 * c[i]; },
      [](double) { return 4 * kFp32; });
}

Check check_cache_read(const Answer& answer) {
  const Reader read(answer, 0);
  const View source = read.before(0, DType::fp32), sums = read.after(1, DType::fp32);
  const std::int64_t chunks = answer.sizes[0] / (4 * kBlockThreads), passes = answer.sizes[1], blocks = answer.sizes[2];
  Comparison compare;
  visit_sample(blocks * kBlockThreads, kMostElements / passes + 1, [&](std::int64_t i) {
    double sum = 0;
    for (std::int64_t pass = 0; pass < passes; ++pass) {
      const std::int64_t chunk = (i / kBlockThreads * passes + pass) % chunks, vector = chunk * kBlockThreads + i % kBlockThreads;
      for (std::int64_t e = 0; e < 4; ++e) sum += source[4 * vector + e];
    }
    compare("sums", i, sums[i], sum, kFp32 * static_cast<double>(passes * passes) * 4 + 8 * kFp32);
  });
  return compare.result();
}

Check check_piece_sums(const Answer& answer) {
  const Reader read(answer, 0);
  const View source = read.before(0, DType::fp32), sums = read.after(1, DType::fp32);
  constexpr std::int64_t kPiece = 4 * 4 * kBlockThreads;
  const std::int64_t count = answer.sizes[0], pieces = (count + kPiece - 1) / kPiece;
  Comparison compare;
  visit_sample(std::min(pieces, answer.sizes[1]), kMostElements / kPiece + 1, [&](std::int64_t i) {
    double sum = 0;
    for (std::int64_t e = i * kPiece; e < std::min(count, (i + 1) * kPiece); ++e) sum += source[e];
    compare("sums", i, sums[i], sum, kFp32 * static_cast<double>(kPiece));
  });
  return compare.result();
}

Check check_pointer_chase(const Answer& answer) {
  const Reader read(answer, 0);
  const View next = read.before(0, DType::int32), last = read.after(1, DType::int32);
  double at = 0;
  for (std::int64_t i = 0; i < answer.sizes[1]; ++i) at = next[static_cast<std::int64_t>(at)];
  Comparison compare;
  compare("last", 0, last[0], at, 0);
  return compare.result();
}

namespace {
// x → factor·x + summand goes to its fixed point: xₙ = f + (x₀ − f)·factorⁿ.
Check check_vector_rate(const Answer& answer, DType type, double factor, double summand) {
  const Reader read(answer, 0);
  const View out = read.after(0, type);
  const double fixed = summand / (1 - factor), shrunk = std::pow(factor, static_cast<double>(answer.sizes[1]));
  return check_elements(
      answer.sizes[0] * kBlockThreads, "out", out,
      [&](std::int64_t i) {
        const double thread = static_cast<double>(i % kBlockThreads);
        return kVectorRateChains * (fixed + (thread - fixed) * shrunk);
      },
      [&](double) { return kVectorRateChains * 512 * 100 * rounding(type); });
}
}  // namespace

Check check_vector_rate_fp32(const Answer& answer) { return check_vector_rate(answer, DType::fp32, 0.99f, 0.01f); }
Check check_vector_rate_fp64(const Answer& answer) { return check_vector_rate(answer, DType::fp64, 0.99, 0.01); }

Check check_rmsnorm(const Answer& answer) {
  const Reader read(answer, 0);
  const View x = read.before(0, DType::bf16), weight = read.before(1, DType::bf16), y = read.after(2, DType::bf16);
  const std::int64_t rows = answer.sizes[0], columns = answer.sizes[1];
  Comparison compare;
  visit_sample(rows, kMostRows, [&](std::int64_t r) {
    double squares = 0;
    for (std::int64_t c = 0; c < columns; ++c) squares += x[r * columns + c] * x[r * columns + c];
    const double norm = 1 / std::sqrt(squares / static_cast<double>(columns) + kNormEpsilon);
    for (std::int64_t c = 0; c < columns; ++c) {
      const double expected = x[r * columns + c] * norm * weight[c];
      compare("y", r * columns + c, y[r * columns + c], expected, 1.01 * kBf16 * std::fabs(expected) + 1e-30);
    }
  });
  return compare.result();
}

Check check_softmax(const Answer& answer) {
  const Reader read(answer, 0);
  const View x = read.before(0, DType::fp32), y = read.after(1, DType::fp32);
  const std::int64_t rows = answer.sizes[0], columns = answer.sizes[1];
  Comparison compare;
  visit_sample(rows, kMostRows, [&](std::int64_t r) {
    const RowNorm norm = row_norm(x, r * columns, columns);
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t i = r * columns + c;
      const double expected = std::exp(x[i] - norm.maximum) / norm.sum;
      compare("y", i, y[i], expected, 256 * kFp32 * expected);
    }
  });
  return compare.result();
}

Check check_cross_entropy(const Answer& answer) {
  const Reader read(answer, 0);
  const View x = read.before(0, DType::bf16), target = read.before(1, DType::int32);
  const View loss = read.after(2, DType::fp32), gradient = read.after(3, DType::bf16);
  const std::int64_t rows = answer.sizes[0], columns = answer.sizes[1];
  Comparison compare;
  visit_sample(rows, kMostRows, [&](std::int64_t r) {
    const RowNorm norm = row_norm(x, r * columns, columns);
    const auto wanted = static_cast<std::int64_t>(target[r]);
    const double expected_loss = norm.maximum + std::log(norm.sum) - x[r * columns + wanted];
    compare("loss", r, loss[r], expected_loss, 1e-5 * (1 + std::fabs(expected_loss)));
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t i = r * columns + c;
      const double expected = (std::exp(x[i] - norm.maximum) / norm.sum - (c == wanted ? 1 : 0)) / static_cast<double>(rows);
      compare("gradient", i, gradient[i], expected, 1.01 * kBf16 * std::fabs(expected));
    }
  });
  return compare.result();
}

Check check_swiglu(const Answer& answer) {
  const Reader read(answer, 0);
  const View gate = read.before(0, DType::bf16), up = read.before(1, DType::bf16);
  return check_elements(
      answer.sizes[0], "y", read.after(2, DType::bf16), [&](std::int64_t i) { return gate[i] * logistic(gate[i]) * up[i]; },
      [](double value) { return 1.01 * kBf16 * std::fabs(value) + 1e-30; });
}

Check check_add(const Answer& answer) {
  const Reader read(answer, 0);
  const View a = read.before(0, DType::bf16), b = read.before(1, DType::bf16);
  return check_elements(
      answer.sizes[0], "y", read.after(2, DType::bf16), [&](std::int64_t i) { return a[i] + b[i]; },
      [](double value) { return 1.01 * kBf16 * std::fabs(value) + 4 * kFp32; });
}

namespace {
// Buffers: gradient, p, m, v and (mixed) the working copy of p.
Check check_adam(const Answer& answer, DType gradient_type, bool has_copy) {
  using C = AdamConstants;
  const Reader read(answer, 0);
  const View g = read.before(0, gradient_type), p = read.before(1, DType::fp32), m = read.before(2, DType::fp32),
             v = read.before(3, DType::fp32);
  const double correction1 = 1 / (1 - std::pow(C::beta1, C::step)), correction2 = 1 / (1 - std::pow(C::beta2, C::step));
  Comparison compare;
  visit_sample(answer.sizes[0], kMostElements, [&](std::int64_t i) {
    const double new_m = C::beta1 * m[i] + (1 - C::beta1) * g[i], new_v = C::beta2 * v[i] + (1 - C::beta2) * g[i] * g[i];
    const double change = new_m * correction1 / (std::sqrt(new_v * correction2) + C::epsilon);
    const double new_p = p[i] - C::rate * (change + C::decay * p[i]);
    const double tolerance = 4 * kFp32 * std::fabs(p[i]) + C::rate * 32 * kFp32 * (1 + std::fabs(change) + std::fabs(m[i]) * correction1);
    compare("m", i, read.after(2, DType::fp32)[i], new_m, 4 * kFp32 * (std::fabs(m[i]) + std::fabs(g[i])) + 1e-30);
    compare("v", i, read.after(3, DType::fp32)[i], new_v, 8 * kFp32 * new_v + 1e-30);
    compare("p", i, read.after(1, DType::fp32)[i], new_p, tolerance);
    if (has_copy) compare("copy", i, read.after(4, DType::bf16)[i], new_p, 1.01 * kBf16 * std::fabs(new_p) + tolerance);
  });
  return compare.result();
}
}  // namespace

Check check_adam_fp32(const Answer& answer) { return check_adam(answer, DType::fp32, false); }
Check check_adam_mixed(const Answer& answer) { return check_adam(answer, DType::bf16, true); }

Check check_transpose(const Answer& answer) {
  const Reader read(answer, 0);
  const View x = read.before(0, DType::bf16);
  const std::int64_t rows = answer.sizes[0], columns = answer.sizes[1];
  return check_elements(
      rows * columns, "y", read.after(1, DType::bf16), [&](std::int64_t i) { return x[i % rows * columns + i / rows]; },
      [](double) { return 0.0; });
}

Check check_cast_fp32_bf16(const Answer& answer) {
  const Reader read(answer, 0);
  const View x = read.before(0, DType::fp32);
  return check_elements(
      answer.sizes[0], "y", read.after(1, DType::bf16),
      [&](std::int64_t i) { return static_cast<double>(float_of_bf16(bf16_of_float(static_cast<float>(x[i])))); },
      [](double) { return 0.0; });
}

Check check_cast_bf16_fp32(const Answer& answer) {
  const Reader read(answer, 0);
  const View x = read.before(0, DType::bf16);
  return check_elements(
      answer.sizes[0], "y", read.after(1, DType::fp32), [&](std::int64_t i) { return x[i]; }, [](double) { return 0.0; });
}

/// Hopper's 8-bit matrix units add the products of 32 elements at 14 bits and the sum to their accumulator so too (DeepSeek-V3 technical
/// report, arXiv 2412.19437, 3.3.2: "retaining around 14 bits"; cuBLASLt's products on an H100 and an H200 differ by as much): each
/// addition loses up to 2^-13 of what is added. The loss of one multiplication of `k` elements, over the sum of the products' magnitudes.
double short_accumulator(Target target, DType operand, std::int64_t k) {
  constexpr double kLost = 1.0 / (1 << 13), kAtOnce = 32;
  const bool hopper = target == Target::sm_90 || target == Target::sm_90a;
  return hopper && operand == DType::fp8 ? kLost * std::sqrt(std::max(static_cast<double>(k) / kAtOnce, 1.0)) : 0;
}

// Sums of products in fp32 lose up to half a unit of the running sum at each of k additions, in practice √k of them; matrix units add
// several products at once and may truncate.
Check check_gemm(const Answer& answer, const Arithmetic& arithmetic) {
  const Reader read(answer, 0);
  const View a = read.before(0, arithmetic.operand), b = read.before(1, arithmetic.operand), c = read.after(2, arithmetic.result);
  const std::int64_t m = answer.sizes[0], n = answer.sizes[1], k = answer.sizes[2];
  const double accumulation = (arithmetic.result == DType::fp64 ? rounding(DType::fp64) : kFp32) * 4 * std::sqrt(static_cast<double>(k));
  const double lost = short_accumulator(answer.device.target, arithmetic.operand, k);
  const std::int64_t most = std::max<std::int64_t>(kMostDots, (std::int64_t{1} << 24) / k);
  Comparison compare;
  visit_sample(m * n, most, [&](std::int64_t i) {
    const Dot expected = dot(a, i / n, b, i % n, k);
    compare("c", i, c[i], expected.sum,
            1.01 * rounding(arithmetic.result) * std::fabs(expected.sum) +
                (accumulation + arithmetic.operand_error + lost) * expected.magnitude);
  });
  return compare.result();
}

Check check_matrix_rate(const Answer& answer, const Arithmetic& arithmetic, const RateTiles& shape) {
  const Reader read(answer, 0);
  const View a = read.before(0, arithmetic.operand), b = read.before(1, arithmetic.operand), out = read.after(2, arithmetic.result);
  const std::int64_t k = kMatrixRateBytes / size_of(arithmetic.operand), tile = shape.rows * shape.columns;
  const double iterations = static_cast<double>(answer.sizes[1]);
  const double additions = iterations * static_cast<double>(k);
  const double lost = short_accumulator(answer.device.target, arithmetic.operand, static_cast<std::int64_t>(additions));
  Comparison compare;
  for (std::int64_t i = 0; i < tile * shape.tiles; ++i) {
    const Dot once = dot(a, i % tile / shape.columns, b, i / tile * shape.columns + i % shape.columns, k);
    compare("out", i, out[i], iterations * once.sum,
            iterations * once.magnitude * ((additions + 16) * rounding(arithmetic.result) + arithmetic.operand_error + lost));
  }
  return compare.result();
}

namespace {
Dot sum_over_ranks(const Answer& answer, DType type, std::int64_t index) {
  Dot result;
  for (std::size_t rank = 0; rank < answer.before.size(); ++rank) {
    const double value = Reader(answer, rank).before(0, type)[index];
    result.sum += value;
    result.magnitude += std::fabs(value);
  }
  return result;
}

double sum_tolerance(const Answer& answer, DType type, const Dot& sum) {
  return 1.01 * rounding(type) * std::fabs(sum.sum) + static_cast<double>(answer.before.size()) * kFp32 * sum.magnitude;
}
}  // namespace

Check check_all_reduce(const Answer& answer, DType type) {
  Comparison compare;
  visit_sample(answer.sizes[0], kMostElements, [&](std::int64_t i) {
    const Dot expected = sum_over_ranks(answer, type, i);
    for (std::size_t rank = 0; rank < answer.after.size(); ++rank) {
      compare("data", i, Reader(answer, rank).after(0, type)[i], expected.sum, sum_tolerance(answer, type, expected), rank);
    }
  });
  return compare.result();
}

Check check_all_gather(const Answer& answer) {
  const std::int64_t slice = answer.sizes[0] / answer.sizes[1];
  Comparison compare;
  visit_sample(answer.sizes[0], kMostElements, [&](std::int64_t i) {
    const double expected = Reader(answer, static_cast<std::size_t>(i / slice)).before(0, DType::fp32)[i];
    for (std::size_t rank = 0; rank < answer.after.size(); ++rank) {
      compare("data", i, Reader(answer, rank).after(0, DType::fp32)[i], expected, 0, rank);
    }
  });
  return compare.result();
}

Check check_reduce_scatter(const Answer& answer) {
  const std::int64_t slice = answer.sizes[0] / answer.sizes[1];
  Comparison compare;
  visit_sample(answer.sizes[0], kMostElements, [&](std::int64_t i) {
    const Dot sum = sum_over_ranks(answer, DType::fp32, i);
    for (std::size_t rank = 0; rank < answer.after.size(); ++rank) {
      const Reader read(answer, rank);
      const bool own = i / slice == static_cast<std::int64_t>(rank);
      const double expected = own ? sum.sum : read.before(0, DType::fp32)[i];
      compare("data", i, read.after(0, DType::fp32)[i], expected, own ? sum_tolerance(answer, DType::fp32, sum) : 0, rank);
    }
  });
  return compare.result();
}

}  // namespace plimsoll::calibrate
