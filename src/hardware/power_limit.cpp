#include "plimsoll/power_limit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

/// Read once: it is the same for every board.
double power_exponent() {
  static const double exponent = [] {
    const JsonDocument document = hardware::shipped_document("hardware/kernels.json");
    return hardware::read_power_exponent(document.root());
  }();
  return exponent;
}

void check_limit(const Accelerator& device, Watts limit, const std::string& where) {
  constexpr double kLeast = 0.25;
  const Watts board = device.power.value;
  if (!(board > Watts(0))) fail("the board power of " + device.name + " is not known, so a limit means nothing", where);
  const std::string range = fmt::format("from {} to {}", to_string(Watts(kLeast * board.value)), to_string(board));
  if (limit > board) fail(fmt::format("{} is above the {} of {}", to_string(limit), to_string(board), device.name), where, range);
  if (limit.value < kLeast * board.value)
    fail(fmt::format("{} is less than any driver holds {} to", to_string(limit), device.name), where, range);
}

}  // namespace

Cluster held_to(Cluster cluster, Watts limit, const std::string& where) {
  Accelerator& device = cluster.accelerator;
  check_limit(device, limit, where);
  const double board = device.power.value.value;
  if (limit.value == board) return cluster;
  const double slower = std::pow(board / limit.value, power_exponent());
  for (ProductKernels& kernels : device.gemm.kernels) kernels.power.value *= slower;
  device.attention.power.value = std::max(1.0, device.attention.power.value) * slower;
  device.attention.slower = slower;
  device.gemm.power_elsewhere.value = std::min(1.0, device.gemm.power_elsewhere.value * board / limit.value);
  for (ComputeRate& rate : device.rates) rate.sustained.value /= slower;
  device.power.value = limit;
  const std::string held = fmt::format("{}@{:g}W", board_of(device.name), limit.value);
  const std::size_t at = cluster.name.find(device.name);
  if (at != std::string::npos) cluster.name.replace(at, device.name.size(), held);
  device.name = held;
  return cluster;
}

std::string_view board_of(std::string_view device) { return device.substr(0, device.find('@')); }

}  // namespace plimsoll
