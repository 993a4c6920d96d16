#include "plimsoll/units.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

struct UnitScale {
  std::string_view name;
  double scale;
};

constexpr std::array<UnitScale, 10> kByteUnits{{{"B", 1},
                                                {"KiB", 0x1p10},
                                                {"MiB", 0x1p20},
                                                {"GiB", 0x1p30},
                                                {"TiB", 0x1p40},
                                                {"KB", 1e3},
                                                {"kB", 1e3},
                                                {"MB", 1e6},
                                                {"GB", 1e9},
                                                {"TB", 1e12}}};
constexpr std::array<UnitScale, 6> kByteRateUnits{
    {{"B/s", 1}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}, {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8}}};
constexpr std::array<UnitScale, 4> kFlopRateUnits{{{"FLOP/s", 1}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}}};
constexpr std::array<UnitScale, 3> kFrequencyUnits{{{"Hz", 1}, {"MHz", 1e6}, {"GHz", 1e9}}};
constexpr std::array<UnitScale, 2> kPowerUnits{{{"W", 1}, {"kW", 1e3}}};
constexpr std::array<UnitScale, 5> kTimeUnits{{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"min", 60}}};

/// No quantity of a device or a program lies outside, in its unit without prefix: 1e-18 s, 1e24 FLOP/s.
constexpr double kLeast = 1e-18, kMost = 1e24;

/// "number unit" → number · scale of the unit; the unit is required, the number finite, not negative and of a size that can be.
template <std::size_t N>
double parse_quantity(std::string_view text, const std::array<UnitScale, N>& units, const char* what) {
  const std::string owned(text.substr(0, 80));
  char* end = nullptr;
  const double number = std::strtod(owned.c_str(), &end);
  std::string_view unit(end);
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  while (!unit.empty() && unit.back() == ' ') unit.remove_suffix(1);
  const bool number_read = end != owned.c_str();
  for (const auto& candidate : units)
    if (number_read && unit == candidate.name && std::isfinite(number) && number >= 0) {
      const double value = number * candidate.scale;
      if (value != 0 && (value < kLeast || value > kMost)) fail(fmt::format("'{}' is no {} that can be", owned, what));
      return value;
    }
  std::string names;
  for (const auto& candidate : units) names += (names.empty() ? "" : ", ") + std::string(candidate.name);
  fail(fmt::format("'{}' is not a {}", owned, what), {}, fmt::format("a number and a unit: {}", names));
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  const double bytes = parse_quantity(text, kByteUnits, "size");
  if (bytes >= static_cast<double>(std::numeric_limits<std::int64_t>::max())) fail(fmt::format("size '{}' is too large", text));
  return Bytes(std::llround(bytes));
}

namespace {

/// What something is divided by is never nothing.
double at_least_one(double rate, std::string_view text, const char* what) {
  if (rate < 1) fail(fmt::format("'{}' is no {} that can be", text.substr(0, 80), what));
  return rate;
}

}  // namespace

BytesPerSecond parse_bytes_per_second(std::string_view text) {
  return BytesPerSecond(at_least_one(parse_quantity(text, kByteRateUnits, "bandwidth"), text, "bandwidth"));
}

FlopsPerSecond parse_flops_per_second(std::string_view text) {
  return FlopsPerSecond(at_least_one(parse_quantity(text, kFlopRateUnits, "compute rate"), text, "compute rate"));
}

Seconds parse_seconds(std::string_view text) { return Seconds(parse_quantity(text, kTimeUnits, "duration")); }

Hertz parse_hertz(std::string_view text) { return Hertz(parse_quantity(text, kFrequencyUnits, "frequency")); }

Watts parse_watts(std::string_view text) { return Watts(parse_quantity(text, kPowerUnits, "power")); }

std::string to_string(Bytes bytes) {
  const double magnitude = std::abs(static_cast<double>(bytes.count));
  if (magnitude >= 0x1p30) return fmt::format("{:.2f} GiB", static_cast<double>(bytes.count) / 0x1p30);
  if (magnitude >= 0x1p20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes.count) / 0x1p20);
  return with_thousands(bytes.count) + " B";
}

std::string to_string(Seconds seconds) {
  const double magnitude = std::abs(seconds.value);
  if (magnitude >= 1) return fmt::format("{:.2f} s", seconds.value);
  if (magnitude >= 1e-3) return fmt::format("{:.1f} ms", seconds.value * 1e3);
  return fmt::format("{:.2f} us", seconds.value * 1e6);
}

std::string to_string(BytesPerSecond rate) {
  return rate.value >= 1e12 ? fmt::format("{:.2f} TB/s", rate.value / 1e12) : fmt::format("{:.1f} GB/s", rate.value / 1e9);
}

std::string to_string(FlopsPerSecond rate) { return fmt::format("{:.1f} TFLOP/s", rate.value / 1e12); }

std::string to_string(Hertz frequency) { return fmt::format("{:.0f} MHz", frequency.value / 1e6); }

std::string to_string(Watts power) { return fmt::format("{:.0f} W", power.value); }

std::string with_thousands(std::int64_t n) {
  std::string digits = std::to_string(n);
  const std::ptrdiff_t first = n < 0 ? 1 : 0;
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > first; at -= 3) digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

}  // namespace plimsoll
