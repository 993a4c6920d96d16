/// Quantities with units. A quantity that has a unit has a type: bytes never meet seconds by accident.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll {

/// An exact number of bytes (64-bit).
struct Bytes {
  std::int64_t count = 0;

  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t bytes) : count(bytes) {}
  constexpr double gib() const { return static_cast<double>(count) / 1073741824.0; }
  constexpr double gb() const { return static_cast<double>(count) / 1e9; }

  constexpr Bytes& operator+=(Bytes other) { return count += other.count, *this; }
  constexpr Bytes& operator-=(Bytes other) { return count -= other.count, *this; }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count + b.count); }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return Bytes(a.count - b.count); }
  friend constexpr Bytes operator*(Bytes a, std::int64_t n) { return Bytes(a.count * n); }
  friend constexpr Bytes operator*(std::int64_t n, Bytes a) { return Bytes(a.count * n); }
  friend constexpr bool operator==(Bytes a, Bytes b) { return a.count == b.count; }
  friend constexpr bool operator!=(Bytes a, Bytes b) { return a.count != b.count; }
  friend constexpr bool operator<(Bytes a, Bytes b) { return a.count < b.count; }
  friend constexpr bool operator<=(Bytes a, Bytes b) { return a.count <= b.count; }
  friend constexpr bool operator>(Bytes a, Bytes b) { return a.count > b.count; }
  friend constexpr bool operator>=(Bytes a, Bytes b) { return a.count >= b.count; }
};

namespace detail {
/// A double with a unit; `Tag` keeps the units apart.
template <class Tag>
struct Quantity {
  double value = 0;

  constexpr Quantity() = default;
  constexpr explicit Quantity(double v) : value(v) {}
  constexpr Quantity& operator+=(Quantity other) { return value += other.value, *this; }
  constexpr Quantity& operator-=(Quantity other) { return value -= other.value, *this; }
  constexpr Quantity& operator*=(double factor) { return value *= factor, *this; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value + b.value); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value - b.value); }
  friend constexpr Quantity operator*(Quantity a, double factor) { return Quantity(a.value * factor); }
  friend constexpr Quantity operator*(double factor, Quantity a) { return Quantity(a.value * factor); }
  friend constexpr Quantity operator/(Quantity a, double divisor) { return Quantity(a.value / divisor); }
  friend constexpr double operator/(Quantity a, Quantity b) { return a.value / b.value; }
  friend constexpr bool operator==(Quantity a, Quantity b) { return a.value == b.value; }
  friend constexpr bool operator<(Quantity a, Quantity b) { return a.value < b.value; }
  friend constexpr bool operator<=(Quantity a, Quantity b) { return a.value <= b.value; }
  friend constexpr bool operator>(Quantity a, Quantity b) { return a.value > b.value; }
  friend constexpr bool operator>=(Quantity a, Quantity b) { return a.value >= b.value; }
};
}  // namespace detail

using Seconds = detail::Quantity<struct SecondsTag>;
/// Floating-point operations (a multiply-add is two); a double, since a large step passes 2^63.
using Flops = detail::Quantity<struct FlopsTag>;
using BytesPerSecond = detail::Quantity<struct BytesPerSecondTag>;
using FlopsPerSecond = detail::Quantity<struct FlopsPerSecondTag>;
using Hertz = detail::Quantity<struct HertzTag>;
using Watts = detail::Quantity<struct WattsTag>;

constexpr Seconds operator/(Bytes bytes, BytesPerSecond rate) { return Seconds(static_cast<double>(bytes.count) / rate.value); }
constexpr Seconds operator/(Flops flops, FlopsPerSecond rate) { return Seconds(flops.value / rate.value); }

constexpr Bytes operator""_B(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n)); }
constexpr Bytes operator""_KiB(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n) << 10); }
constexpr Bytes operator""_MiB(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n) << 20); }
constexpr Bytes operator""_GiB(unsigned long long n) { return Bytes(static_cast<std::int64_t>(n) << 30); }

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
/// The smallest multiple of `quantum` that is at least `n`.
constexpr std::int64_t round_up(std::int64_t n, std::int64_t quantum) { return ceil_div(n, quantum) * quantum; }

/// Reads "80 GiB", "141 GB", "512 MiB", "1024 B". Throws Error when the text is no size.
Bytes parse_bytes(std::string_view text);
/// Reads "5.3 TB/s", "64 GB/s", "400 Gbit/s". Throws Error when the text is no rate.
BytesPerSecond parse_bytes_per_second(std::string_view text);
/// Reads "1307.4 TFLOP/s", "2.5 PFLOP/s". Throws Error when the text is no rate.
FlopsPerSecond parse_flops_per_second(std::string_view text);
/// Reads "2.1 us", "3 ms", "1.5 s". Throws Error when the text is no duration.
Seconds parse_seconds(std::string_view text);
/// Reads "2100 MHz", "1.83 GHz". Throws Error when the text is no frequency.
Hertz parse_hertz(std::string_view text);
/// Reads "750 W", "1.4 kW". Throws Error when the text is no power.
Watts parse_watts(std::string_view text);

/// "82.38 GiB", "512.0 MiB", "4,096 B": binary units, named.
std::string to_string(Bytes bytes);
/// "12.3 ms", "1.45 s", "3.20 us".
std::string to_string(Seconds seconds);
/// "5.30 TB/s".
std::string to_string(BytesPerSecond rate);
/// "1307.4 TFLOP/s".
std::string to_string(FlopsPerSecond rate);
/// "2100 MHz".
std::string to_string(Hertz frequency);
/// "750 W".
std::string to_string(Watts power);
/// "8,030,261,248": an integer with thousands separators.
std::string with_thousands(std::int64_t n);

}  // namespace plimsoll
