#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "calibrate/kernels/elements.hpp"
#include "calibrate/kernels/kernel_table.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

// xoshiro256+ of Blackman and Vigna, seeded by splitmix64: fast enough to fill gigabytes.
class Random {
 public:
  explicit Random(std::uint64_t seed) {
    for (std::uint64_t& word : state_) {
      seed += 0x9E3779B97F4A7C15u;
      std::uint64_t z = seed;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      word = z ^ (z >> 31);
    }
  }
  std::uint64_t next() {
    const std::uint64_t result = state_[0] + state_[3], shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = (state_[3] << 45) | (state_[3] >> 19);
    return result;
  }
  /// In (-1, 1).
  float symmetric() { return static_cast<float>(static_cast<std::int64_t>(next() >> 40) * 2 + 1 - (1 << 24)) / (1 << 24); }
  std::int64_t below(std::int64_t limit) { return static_cast<std::int64_t>((next() >> 33) % static_cast<std::uint64_t>(limit)); }

 private:
  std::uint64_t state_[4];
};

template <class T, class Value>
void fill(std::vector<std::byte>& bytes, std::int64_t count, Value value) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T element = static_cast<T>(value(i));
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &element, sizeof(T));
  }
}

float real(Random& random, Fill kind) {
  const float value = random.symmetric();
  return kind == Fill::positive ? std::fabs(value) : kind == Fill::small ? value / 1024 : value;
}

// A sign, an exponent below one and any mantissa: never NaN, magnitudes 1/32 … 1.
std::uint8_t random_fp8(Random& random, Fp8Format format) {
  const auto bits = random.next() >> 32;
  const std::uint64_t one = format == Fp8Format::e4m3_fnuz ? 8 : 7;
  return static_cast<std::uint8_t>((bits & 0x87) | ((one - 1 - ((bits >> 8) & 3)) << 3));
}

void fill_reals(std::vector<std::byte>& bytes, std::int64_t count, const Buffer& buffer, Fp8Format format, Random& random) {
  switch (buffer.type) {
    case DType::fp64:
      return fill<double>(bytes, count, [&](std::int64_t) { return real(random, buffer.fill); });
    case DType::fp32:
      return fill<float>(bytes, count, [&](std::int64_t) { return real(random, buffer.fill); });
    case DType::fp16:
      return fill<std::uint16_t>(bytes, count, [&](std::int64_t) { return fp16_of_float(real(random, buffer.fill)); });
    case DType::bf16:
      return fill<std::uint16_t>(bytes, count, [&](std::int64_t) { return bf16_of_float(real(random, buffer.fill)); });
    case DType::fp8:
      return fill<std::uint8_t>(bytes, count, [&](std::int64_t) { return random_fp8(random, format); });
    default:
      fail(fmt::format("no random {} for buffer {}", name_of(buffer.type), buffer.name));
  }
}

// next[i] of one cycle through all elements in random order.
void fill_chain(std::vector<std::byte>& bytes, std::int64_t count, Random& random) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count)), next(order.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t i = count - 1; i > 0; --i)
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(random.below(i + 1))]);
  for (std::size_t i = 0; i < order.size(); ++i) next[static_cast<std::size_t>(order[i])] = order[(i + 1) % order.size()];
  std::memcpy(bytes.data(), next.data(), bytes.size());
}

constexpr std::byte kUnwritten{0xFF};  // NaN in every format

}  // namespace

HostBuffers make_buffers(const Kernel& kernel, const Sizes& sizes, const DeviceShape& device, std::uint64_t seed, int rank,
                         std::int64_t most_bytes) {
  HostBuffers all;
  Random random(seed * 64 + static_cast<std::uint64_t>(rank));
  for (const Buffer& buffer : kernel.buffers) {
    const std::int64_t all_of_it = buffer.count(sizes), most = most_bytes / size_of(buffer.type);
    const std::int64_t count = buffer.fill == Fill::chain ? all_of_it : std::min(all_of_it, most);
    std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_of(buffer.type)),
                                 buffer.role == Role::out ? kUnwritten : std::byte{});
    if (buffer.role != Role::out) {
      switch (buffer.fill) {
        case Fill::zeros:
          break;
        case Fill::target_class:
          fill<std::int32_t>(bytes, count, [&](std::int64_t) { return random.below(sizes.at(1)); });
          break;
        case Fill::chain:
          fill_chain(bytes, count, random);
          break;
        default:
          fill_reals(bytes, count, buffer, fp8_format(device.target), random);
      }
    }
    all.push_back(std::move(bytes));
  }
  return all;
}

}  // namespace plimsoll::calibrate
