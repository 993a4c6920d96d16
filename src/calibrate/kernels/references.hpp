// The double-precision reference of each kernel (KernelKind → Check), and the fixed numbers that kernels and references share.
#pragma once

#include "calibrate/kernels/kernel_table.hpp"

namespace plimsoll::calibrate {

constexpr int kBlockThreads = 256;     ///< of every launch
constexpr int kVectorRateChains = 16;  ///< independent multiply-adds of one thread
constexpr int kMatrixRateBytes = 128;  ///< of k that one iteration takes
constexpr int kCollectiveBlocks = 64;
constexpr int kCollectiveRanks = 16;  ///< the most ranks of a collective

struct AdamConstants {
  static constexpr double rate = 1e-3, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, decay = 0.1;
  static constexpr int step = 10;  ///< of the bias corrections 1 / (1 − βᵗ)
};
constexpr double kNormEpsilon = 1e-5;

Check check_nothing(const Answer& answer);
Check check_copy(const Answer& answer);
Check check_triad(const Answer& answer);
Check check_cache_read(const Answer& answer);
Check check_piece_sums(const Answer& answer);
Check check_pointer_chase(const Answer& answer);
Check check_vector_rate_fp32(const Answer& answer);
Check check_vector_rate_fp64(const Answer& answer);
Check check_rmsnorm(const Answer& answer);
Check check_softmax(const Answer& answer);
Check check_cross_entropy(const Answer& answer);
Check check_swiglu(const Answer& answer);
Check check_add(const Answer& answer);
Check check_adam_fp32(const Answer& answer);
Check check_adam_mixed(const Answer& answer);
Check check_transpose(const Answer& answer);
Check check_cast_fp32_bf16(const Answer& answer);
Check check_cast_bf16_fp32(const Answer& answer);
Check check_attention(const Answer& answer, DType type, std::int64_t width);
Check check_attention_delta(const Answer& answer, std::int64_t width);
Check check_attention_backward(const Answer& answer, std::int64_t width);
/// Of a library: with the output in the place of δ, and dQ as it is in the end.
Check check_attention_pass_backward(const Answer& answer, DType type, std::int64_t width);
Check check_all_gather(const Answer& answer);
Check check_reduce_scatter(const Answer& answer);
Check check_all_reduce(const Answer& answer, DType type);

/// How operands are read and what their products' sums may lose.
struct Arithmetic {
  DType operand, result;
  double operand_error = 0;  ///< relative, of each product: tf32 drops 13 bits of its factors
};
Check check_gemm(const Answer& answer, const Arithmetic& arithmetic);
/// What each wave (or group of waves) of a matrix rate accumulates: tiles of rows x columns, of one set of rows of A.
struct RateTiles {
  int rows, columns, tiles;
};
Check check_matrix_rate(const Answer& answer, const Arithmetic& arithmetic, const RateTiles& shape);

}  // namespace plimsoll::calibrate
