// What differs between the machines that the kernels run on: clang's bare AMD and NVIDIA targets (no vendor header or library), and the
// emulator. All device code lies in the namespace PLIMSOLL_DEVICE, so that several emulated targets live in one program.
#pragma once

#if defined(PLIMSOLL_EMULATE)
#include "calibrate/kernels/emulator/machine.hpp"
#else
#define PLIMSOLL_DEVICE plimsoll_device
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define PLIMSOLL_FUNCTION static __device__ inline __attribute__((always_inline))
#define PLIMSOLL_SHARED_ARRAY(type, name, count) alignas(16) static __shared__ type name[count]
// All of a kernel's shared memory, of the size that its launch gives.
#define PLIMSOLL_LARGE_SHARED_ARRAY(type, name, count) extern __shared__ __attribute__((aligned(1024))) type name[]
#if defined(__HIP__)
#define PLIMSOLL_AMD 1
#define PLIMSOLL_KERNEL(name) extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(256, 256))) void name
#if defined(__gfx950__)
#define PLIMSOLL_GFX 950
#elif defined(__gfx942__)
#define PLIMSOLL_GFX 942
#elif defined(__gfx90a__)
#define PLIMSOLL_GFX 900
#else
#error "no matrix instructions are written for this AMD processor"
#endif
#else
#define PLIMSOLL_NVIDIA 1
#define PLIMSOLL_KERNEL(name) extern "C" __attribute__((global)) __attribute__((launch_bounds(256))) void name
// Takes so few registers that two blocks run on a multiprocessor.
#define PLIMSOLL_KERNEL_OF_TWO(name) extern "C" __attribute__((global)) __attribute__((launch_bounds(256, 2))) void name
#define PLIMSOLL_SM (__CUDA_ARCH__ / 10)
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PLIMSOLL_WARP_GROUPS 1
#endif
#endif
#endif

#if defined(PLIMSOLL_AMD)
#define PLIMSOLL_FP8 (PLIMSOLL_GFX >= 942)
#else
#define PLIMSOLL_FP8 (PLIMSOLL_SM >= 89)
#endif

namespace PLIMSOLL_DEVICE {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;  // not uint64_t: a bare target has no <cstdint>
typedef float f32x2 __attribute__((vector_size(8)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x16 __attribute__((vector_size(64)));
typedef double f64x4 __attribute__((vector_size(32)));
typedef u32 u32x2 __attribute__((vector_size(8)));
typedef u32 u32x4 __attribute__((vector_size(16)));
typedef u32 u32x8 __attribute__((vector_size(32)));
typedef u16 u16x4 __attribute__((vector_size(8)));
typedef u16 u16x8 __attribute__((vector_size(16)));

// Elements as they lie in memory; arithmetic is in fp32.
struct bf16 {
  u16 bits;
};
struct fp16 {
  u16 bits;
};
struct fp8 {
  u8 bits;
};

constexpr int kThreads = 256;  // of every block of every kernel

#if defined(PLIMSOLL_AMD)
constexpr int kWave = 64;
#else
constexpr int kWave = 32;
#endif
constexpr int kWaves = kThreads / kWave;

#if defined(PLIMSOLL_EMULATE)
#include "calibrate/kernels/emulator/functions.hpp"
#else
#if defined(PLIMSOLL_AMD)
PLIMSOLL_FUNCTION int thread_index() { return static_cast<int>(__builtin_amdgcn_workitem_id_x()); }
PLIMSOLL_FUNCTION int block_index() { return static_cast<int>(__builtin_amdgcn_workgroup_id_x()); }
PLIMSOLL_FUNCTION int block_count() { return static_cast<int>(__builtin_amdgcn_grid_size_x() / kThreads); }

PLIMSOLL_FUNCTION void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// What lies between the lanes of one wave, which run together: only the compiler must keep the order.
PLIMSOLL_FUNCTION void wave_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
// Keeps the compiler from moving loads behind the arithmetic that is to hide them.
PLIMSOLL_FUNCTION void issue_before_what_follows() { __builtin_amdgcn_sched_barrier(0); }

PLIMSOLL_FUNCTION float exp2_of(float x) { return __builtin_amdgcn_exp2f(x); }
PLIMSOLL_FUNCTION float log2_of(float x) { return __builtin_amdgcn_logf(x); }
PLIMSOLL_FUNCTION float inverse_root(float x) { return __builtin_amdgcn_rsqf(x); }
PLIMSOLL_FUNCTION float root(float x) { return __builtin_amdgcn_sqrtf(x); }
PLIMSOLL_FUNCTION float inverse(float x) { return __builtin_amdgcn_rcpf(x); }

// The value of lane (own ^ kMask). Within four lanes by DPP, within 32 by the LDS crossbar's swizzle, across the halves by permutation.
template <int kMask>
PLIMSOLL_FUNCTION float lane_xor(float value) {
  const int bits = __builtin_bit_cast(int, value);
  int other;
  if constexpr (kMask == 1) {
    other = __builtin_amdgcn_update_dpp(0, bits, 0xB1, 0xF, 0xF, true);
  } else if constexpr (kMask == 2) {
    other = __builtin_amdgcn_update_dpp(0, bits, 0x4E, 0xF, 0xF, true);
  } else if constexpr (kMask < 32) {
    other = __builtin_amdgcn_ds_swizzle(bits, (kMask << 10) | 0x1F);
  } else {
    other = __builtin_amdgcn_ds_bpermute((thread_index() % kWave ^ kMask) * 4, bits);
  }
  return __builtin_bit_cast(float, other);
}

PLIMSOLL_FUNCTION void store_for_peers(u32* flag, u32 value) {
  __hip_atomic_store(flag, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
PLIMSOLL_FUNCTION u32 load_from_peers(const u32* flag) { return __hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM); }
PLIMSOLL_FUNCTION void system_fence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }
// In the cache, without an answer: the memory is this device's own and no subnormal number counts.
PLIMSOLL_FUNCTION void add_to_memory(float* at, float value) {
  [[clang::atomic(no_remote_memory, no_fine_grained_memory, ignore_denormal_mode)]] {
    __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  }
}
PLIMSOLL_FUNCTION void spin() { __builtin_amdgcn_s_sleep(1); }
#else
PLIMSOLL_FUNCTION int thread_index() { return __nvvm_read_ptx_sreg_tid_x(); }
PLIMSOLL_FUNCTION int block_index() { return __nvvm_read_ptx_sreg_ctaid_x(); }
PLIMSOLL_FUNCTION int block_count() { return __nvvm_read_ptx_sreg_nctaid_x(); }
PLIMSOLL_FUNCTION void barrier() { __syncthreads(); }
PLIMSOLL_FUNCTION void wave_barrier() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }
PLIMSOLL_FUNCTION void issue_before_what_follows() {}  // ptxas orders them itself

PLIMSOLL_FUNCTION float exp2_of(float x) { return __nvvm_ex2_approx_ftz_f(x); }  // one instruction: subnormal results are zero
PLIMSOLL_FUNCTION float larger(float a, float b) { return __nvvm_fmax_f(a, b); }
PLIMSOLL_FUNCTION float log2_of(float x) { return __nvvm_lg2_approx_f(x); }
PLIMSOLL_FUNCTION float inverse_root(float x) { return __nvvm_rsqrt_approx_f(x); }
PLIMSOLL_FUNCTION float root(float x) { return __nvvm_sqrt_rn_f(x); }
PLIMSOLL_FUNCTION float inverse(float x) { return __nvvm_rcp_rn_f(x); }

template <int kMask>
PLIMSOLL_FUNCTION float lane_xor(float value) {
  return __nvvm_shfl_sync_bfly_f32(0xffffffffu, value, kMask, 31);
}

PLIMSOLL_FUNCTION void store_for_peers(u32* flag, u32 value) {
  asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}
PLIMSOLL_FUNCTION u32 load_from_peers(const u32* flag) {
  u32 value;
  asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
}
PLIMSOLL_FUNCTION void system_fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
PLIMSOLL_FUNCTION void add_to_memory(float* at, float value) {
  asm volatile("red.global.add.f32 [%0], %1;" ::"l"(at), "f"(value) : "memory");
}
#if PLIMSOLL_SM >= 90
PLIMSOLL_FUNCTION void add_pair_to_memory(float* at, float first, float second) {
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(at), "f"(first), "f"(second) : "memory");
}
PLIMSOLL_FUNCTION void add_quad_to_memory(float* at, f32x4 values) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3])
               : "memory");
}
#endif
PLIMSOLL_FUNCTION void spin() { asm volatile("nanosleep.u32 64;"); }
#endif

// Rounds to nearest even, by the processor's own conversion where it has one.
PLIMSOLL_FUNCTION bf16 to_bf16(float x) { return {__builtin_bit_cast(u16, static_cast<__bf16>(x))}; }
PLIMSOLL_FUNCTION fp16 to_fp16(float x) { return {__builtin_bit_cast(u16, static_cast<_Float16>(x))}; }
#endif

PLIMSOLL_FUNCTION int lane_index() { return thread_index() % kWave; }
PLIMSOLL_FUNCTION int wave_index() { return thread_index() / kWave; }

PLIMSOLL_FUNCTION float to_float(bf16 x) { return __builtin_bit_cast(float, static_cast<u32>(x.bits) << 16); }
PLIMSOLL_FUNCTION float to_float(float x) { return x; }

template <class T>
PLIMSOLL_FUNCTION T from_accumulator(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else if constexpr (__is_same(T, bf16)) {
    return to_bf16(x);
  } else {
    return to_fp16(x);
  }
}
template <class T>
PLIMSOLL_FUNCTION T from_accumulator(double x) {
  return x;
}

// The eight bf16 or four fp32 elements of one 16-byte access.
PLIMSOLL_FUNCTION float bf16_lane(u16x8 v, int i) { return to_float(bf16{v[i]}); }

// First vector of this thread, and the distance to its next, when all threads of the grid stream through memory together.
PLIMSOLL_FUNCTION u64 grid_thread() { return static_cast<u64>(block_index()) * kThreads + static_cast<u64>(thread_index()); }
PLIMSOLL_FUNCTION u64 grid_threads() { return static_cast<u64>(block_count()) * kThreads; }

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kLn2 = 0.69314718055994530942f;
PLIMSOLL_FUNCTION float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }  // a·b + c, rounded once
PLIMSOLL_FUNCTION float exp_of(float x) { return exp2_of(x * kLog2E); }

struct Sum {
  PLIMSOLL_FUNCTION float join(float a, float b) { return a + b; }
};
struct Maximum {
  PLIMSOLL_FUNCTION float join(float a, float b) { return a > b ? a : b; }
};

template <class Operation>
PLIMSOLL_FUNCTION float wave_reduce(float value) {
  if constexpr (kWave == 64) value = Operation::join(value, lane_xor<32>(value));
  value = Operation::join(value, lane_xor<16>(value));
  value = Operation::join(value, lane_xor<8>(value));
  value = Operation::join(value, lane_xor<4>(value));
  value = Operation::join(value, lane_xor<2>(value));
  return Operation::join(value, lane_xor<1>(value));
}

}  // namespace PLIMSOLL_DEVICE
