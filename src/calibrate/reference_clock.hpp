// How fast a machine is at a moment: processors and devices change their clocks, and neighbours on the same machine take caches and
// memory from each other. Two short kernels are measured beside everything else, so that a prediction can be stated at either clock.
#pragma once

#include <optional>

#include "calibrate/backend.hpp"
#include "plimsoll/hardware.hpp"

namespace plimsoll::calibrate {

/// Seconds of the two kernels.
struct ReferenceTimes {
  double product = 0;  ///< a matrix product whose operands the nearest caches hold: the clock of the arithmetic
  double stream = 0;   ///< per gibibyte, of a pass through more memory than any cache holds: what memory gives
};

class ReferenceClock {
 public:
  explicit ReferenceClock(Backend& backend);
  ~ReferenceClock();
  ReferenceClock(const ReferenceClock&) = delete;
  ReferenceClock& operator=(const ReferenceClock&) = delete;

  /// Medians of some runs, milliseconds in all.
  ReferenceTimes measure();

 private:
  double median_of(const plimsoll::Kernel& kernel, void* from, void* to);

  Backend& backend_;
  plimsoll::Kernel product_, stream_;
  void *from_ = nullptr, *to_ = nullptr;
};

/// As samples, and as a calibrated device's file keeps them; empty where it was not calibrated with them.
Sample reference_sample(const char* kernel, double seconds);
inline constexpr const char* kReferenceProduct = "product";
inline constexpr const char* kReferenceStream = "stream";
std::optional<ReferenceTimes> reference_of(const Accelerator& device);

/// Medians of several readings; must not be empty.
ReferenceTimes median(const std::vector<ReferenceTimes>& readings);

}  // namespace plimsoll::calibrate
