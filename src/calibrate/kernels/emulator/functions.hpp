// The functions of device/target.hpp on an emulated processor; included there, in its namespace.
#pragma once

inline int thread_index() { return emulator::thread_index(); }
inline int block_index() { return emulator::block_index(); }
inline int block_count() { return emulator::block_count(); }
inline void barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { emulator::barrier({file, line}); }
inline void wave_barrier() {
  const std::byte nothing{};
  emulator::exchange(&nothing, sizeof nothing);
}
inline void issue_before_what_follows() {}

inline float exp2_of(float x) { return std::exp2(x); }
inline float log2_of(float x) { return std::log2(x); }
inline float inverse_root(float x) { return 1 / std::sqrt(x); }
inline float root(float x) { return std::sqrt(x); }
inline float inverse(float x) { return 1 / x; }
inline float larger(float a, float b) { return std::fmax(a, b); }

template <int kMask>
float lane_xor(float value) {
  const std::byte* shown = emulator::exchange(&value, sizeof value).shown;
  float other;
  std::memcpy(&other, shown + emulator::kSlot * static_cast<std::size_t>(thread_index() % kWave ^ kMask), sizeof other);
  return other;
}

inline void store_for_peers(u32* flag, u32 value) { __atomic_store_n(flag, value, __ATOMIC_RELEASE); }
inline u32 load_from_peers(const u32* flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
inline void system_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void add_to_memory(float* at, float value) { *at += value; }
inline void add_pair_to_memory(float* at, float first, float second) { at[0] += first, at[1] += second; }
inline void add_quad_to_memory(float* at, f32x4 values) {
  for (int i = 0; i < 4; ++i) at[i] += values[i];
}
inline void spin() { emulator::spin(); }

inline bf16 to_bf16(float x) { return {bf16_of_float(x)}; }
inline fp16 to_fp16(float x) { return {fp16_of_float(x)}; }
