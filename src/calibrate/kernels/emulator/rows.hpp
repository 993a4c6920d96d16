// The kernels of one emulated processor; included by one file per processor after it has said which.
#include <tuple>
#include <utility>

#include "calibrate/kernels/device/kernels.hpp"
#include "calibrate/kernels/emulator/emulated.hpp"

namespace PLIMSOLL_DEVICE {
namespace {

template <class>
struct Signature;
template <class... Parameters>
struct Signature<void (*)(Parameters...)> {
  static constexpr std::size_t sizes[sizeof...(Parameters) + 1] = {sizeof(Parameters)..., 0};

  template <std::size_t... I>
  static std::tuple<Parameters...> read(void** arguments, std::index_sequence<I...>) {
    return {*static_cast<Parameters*>(arguments[I])...};
  }
  static std::tuple<Parameters...> read(void** arguments) { return read(arguments, std::index_sequence_for<Parameters...>{}); }
};

template <auto kernel>
emulator::Job job(int blocks, [[maybe_unused]] void** arguments) {
  return {blocks, kThreads, kWave, [values = Signature<decltype(kernel)>::read(arguments)] { std::apply(kernel, values); }};
}

}  // namespace

#define PLIMSOLL_ROW(kernel) \
  { #kernel, job < &kernel>, Signature < decltype(&kernel)> ::sizes }
extern const emulator::EmulatedRow rows[];
const emulator::EmulatedRow rows[] = {
    PLIMSOLL_ROW(empty),
    PLIMSOLL_ROW(copy),
    PLIMSOLL_ROW(triad),
    PLIMSOLL_ROW(cache_read),
    PLIMSOLL_ROW(pointer_chase),
    PLIMSOLL_ROW(vector_rate_fp32),
    PLIMSOLL_ROW(vector_rate_fp64),
    PLIMSOLL_ROW(matrix_rate_bf16),
    PLIMSOLL_ROW(matrix_rate_fp16),
    PLIMSOLL_ROW(matrix_rate_fp64),
    PLIMSOLL_ROW(gemm_bf16),
    PLIMSOLL_ROW(gemm_fp16),
    PLIMSOLL_ROW(gemm_fp64),
#if PLIMSOLL_FP8
    PLIMSOLL_ROW(matrix_rate_fp8),
    PLIMSOLL_ROW(gemm_fp8),
#endif
#if defined(PLIMSOLL_NVIDIA)
    PLIMSOLL_ROW(matrix_rate_tf32),
    PLIMSOLL_ROW(gemm_tf32),
#if defined(PLIMSOLL_WARP_GROUPS)
    PLIMSOLL_ROW(matrix_rate_bf16_wgmma),
    PLIMSOLL_ROW(matrix_rate_fp16_wgmma),
    PLIMSOLL_ROW(matrix_rate_tf32_wgmma),
    PLIMSOLL_ROW(matrix_rate_fp8_wgmma),
    PLIMSOLL_ROW(gemm_bf16_wgmma),
    PLIMSOLL_ROW(gemm_fp16_wgmma),
    PLIMSOLL_ROW(gemm_tf32_wgmma),
    PLIMSOLL_ROW(gemm_fp8_wgmma),
    PLIMSOLL_ROW(attention_bf16_d64_wgmma),
    PLIMSOLL_ROW(attention_bf16_d128_wgmma),
    PLIMSOLL_ROW(attention_backward_bf16_d64_wgmma),
    PLIMSOLL_ROW(attention_backward_bf16_d128_wgmma),
#endif
#else
    PLIMSOLL_ROW(matrix_rate_fp32),
    PLIMSOLL_ROW(gemm_fp32),
    PLIMSOLL_ROW(matrix_rate_bf16_32x32),
    PLIMSOLL_ROW(matrix_rate_fp16_32x32),
    PLIMSOLL_ROW(matrix_rate_fp32_32x32),
#if PLIMSOLL_FP8
    PLIMSOLL_ROW(matrix_rate_fp8_32x32),
#endif
#endif
    PLIMSOLL_ROW(attention_bf16_d64),
    PLIMSOLL_ROW(attention_bf16_d128),
    PLIMSOLL_ROW(attention_delta_bf16_d64),
    PLIMSOLL_ROW(attention_delta_bf16_d128),
    PLIMSOLL_ROW(attention_backward_bf16_d64),
    PLIMSOLL_ROW(attention_backward_bf16_d128),
    PLIMSOLL_ROW(piece_sums),
    PLIMSOLL_ROW(rmsnorm_bf16),
    PLIMSOLL_ROW(softmax_fp32),
    PLIMSOLL_ROW(cross_entropy_bf16),
    PLIMSOLL_ROW(swiglu_bf16),
    PLIMSOLL_ROW(add_bf16),
    PLIMSOLL_ROW(cast_fp32_bf16),
    PLIMSOLL_ROW(cast_bf16_fp32),
    PLIMSOLL_ROW(adam_fp32),
    PLIMSOLL_ROW(adam_mixed),
    PLIMSOLL_ROW(transpose_bf16),
    PLIMSOLL_ROW(all_reduce_fp32),
    PLIMSOLL_ROW(all_reduce_bf16),
    PLIMSOLL_ROW(all_gather_fp32),
    PLIMSOLL_ROW(reduce_scatter_fp32),
    {nullptr, nullptr, nullptr},
};
#undef PLIMSOLL_ROW

}  // namespace PLIMSOLL_DEVICE
