// What the rows of the table are made of: where a kernel exists, sizes and arguments, launches, and what several kinds of rows share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/kernels/references.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::calibrate {

void add_memory_rows(std::vector<Kernel>& table);
void add_product_rows(std::vector<Kernel>& table);
void add_collective_rows(std::vector<Kernel>& table);

// ---- targets

using TargetList = std::vector<Target>;
inline const TargetList kAmd{Target::gfx90a, Target::gfx942, Target::gfx950};
inline const TargetList kAmdFp8{Target::gfx942, Target::gfx950};
inline const TargetList kNvidia{Target::sm_80, Target::sm_90, Target::sm_90a};

inline TargetList operator+(TargetList a, const TargetList& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
inline const TargetList kHopper{Target::sm_90a};
inline const TargetList kCpu{Target::cpu};
inline const TargetList kDevices = kAmd + kNvidia;
inline const TargetList kEverywhere = kDevices + kCpu;
inline const TargetList kFp8 = kAmdFp8 + TargetList{Target::sm_90, Target::sm_90a};

// ---- counts and arguments

template <int i>
std::int64_t size(const Sizes& s) {
  return s[i];
}
template <int i, int j>
std::int64_t product(const Sizes& s) {
  return s[i] * s[j];
}
template <std::int64_t count>
std::int64_t fixed(const Sizes&) {
  return count;
}
template <int i>
double scalar(const Sizes& s) {
  return static_cast<double>(s[i]);
}

inline const std::vector<Scalar> kCount{{"count", ScalarType::u64, scalar<0>}};

// ---- launches

inline Launch grid(std::int64_t blocks) { return {static_cast<std::uint32_t>(blocks), kBlockThreads}; }
template <int i>
Launch by_size(const Sizes& s, const DeviceShape&) {
  return grid(s[i]);
}

// ---- what sizes a kernel can run: why not, or empty

inline constexpr std::int64_t kMostInt = 2147483647;
inline std::string any_sizes(const Sizes&) { return {}; }
template <int i, std::int64_t factor>
std::string multiple(const Sizes& s) {
  if (s[i] % factor == 0) return {};
  return fmt::format("size {} ({}) must be a multiple of {}", i + 1, s[i], factor);
}

}  // namespace plimsoll::calibrate
