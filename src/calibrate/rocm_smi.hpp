// librocm_smi64 by dlopen, in both generations of its binary interface.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "calibrate/dynamic_library.hpp"

namespace plimsoll::calibrate {

struct SmiLink {
  int type = 0;  ///< 1 PCIe, 2 xGMI
  std::int64_t hops = 0, weight = 0;
};

/// Every reading is empty where the library or the device does not give it.
class RocmSmi {
 public:
  /// Opens and starts the library; `why_not` says why it cannot be used.
  RocmSmi();
  ~RocmSmi();
  RocmSmi(const RocmSmi&) = delete;
  RocmSmi& operator=(const RocmSmi&) = delete;

  bool usable() const { return started_; }
  const std::string& why_not() const { return why_not_; }
  /// "librocm_smi64.so.7 7.3.0".
  std::string version() const;

  std::uint32_t devices() const;
  std::optional<std::string> name(std::uint32_t device) const;
  std::optional<std::int64_t> memory_total(std::uint32_t device) const;
  std::optional<std::int64_t> memory_used(std::uint32_t device) const;
  /// Now; system clock of the compute units.
  std::optional<double> clock_hertz(std::uint32_t device) const;
  std::optional<double> watts(std::uint32_t device) const;
  std::optional<double> cap_watts(std::uint32_t device) const;
  std::optional<int> busy_percent(std::uint32_t device) const;
  std::optional<int> numa_node(std::uint32_t device) const;
  std::optional<SmiLink> link(std::uint32_t from, std::uint32_t to) const;

 private:
  template <class... Types, class... Arguments>
  bool call(const char* symbol, Arguments... arguments) const;

  DynamicLibrary library_;
  bool started_ = false;
  std::uint32_t major_ = 0, minor_ = 0, patch_ = 0;
  std::string why_not_;
};

}  // namespace plimsoll::calibrate
