// How the streams of a device share its compute units: what kernels of the compute stream lose to what runs beside them.
//
// * A collective holds compute units of its own as long as it runs, one for each of its channels ("NCCL CTAs won't share an SM with compute
//   kernels", NVIDIA/nccl issue 689). Kernels of many blocks go on on the others.
// * A kernel that is dealt to one block per unit finds some of its units taken: those blocks begin when the collective ends, or when the
//   others are through, and take a second wave. A collective that comes while such a kernel runs waits for its end.
// * Kernels of other streams take turns with those of the compute stream: either fills the device.
#pragma once

#include <array>
#include <cmath>
#include <deque>
#include <vector>

#include "play/score.hpp"

namespace plimsoll {

/// Whether a time is another one, a repetition later.
struct Later {
  double by, tolerance;

  /// `period`: of a repetition, in seconds.
  explicit Later(double period) : by(period), tolerance(1e-9 * period) {}
  bool operator()(double before, double now) const { return std::abs(now - before - by) <= tolerance; }
};

class SharedDevice {
 public:
  explicit SharedDevice(const Pricing& pricing) : pricing_(pricing) {}

  /// The end of a kernel of the compute stream that starts then.
  double run(const Item& kernel, double start);
  /// A kernel or a collective of another stream lies there. How much later the compute stream's last kernel ends for it: kernels that
  /// were issued before it may still run.
  double add(const Item& item, StreamId stream, double start, double end);
  /// All of it comes later.
  void shift(double seconds);

  /// Of another stream, beside the compute stream.
  struct Taken {
    double start, end;
    StreamId stream;
    Claim claim;
  };
  /// A kernel of the compute stream.
  struct Running {
    double start, end;
    double alone;  ///< seconds
    Claim claim;
  };
  /// What may still meet what begins at some time or later.
  struct Afloat {
    std::vector<Taken> taken;
    std::vector<Running> running;  ///< the last first
  };
  Afloat afloat(double from) const;
  /// Whether `b` is `a`, later.
  static bool alike(const Afloat& a, const Afloat& b, const Later& later);

 private:
  /// Of a kernel beside what takes that.
  double slowdown(Claim kernel, Claim taken) const {
    if (kernel == Claim::bandwidth) return pricing_.memory_slowdown;
    return taken == Claim::bandwidth ? 1 : pricing_.product_slowdown;
  }
  double end_of(const Running& kernel, std::size_t first) const;
  double end_of_blocks(const Running& kernel, std::size_t first) const;
  void postpone(std::size_t index, double start);
  std::size_t first_beyond(double time);
  double hold_back(std::size_t first);

  Running& running(std::size_t index) { return running_[index % kRunning]; }
  const Running& running(std::size_t index) const { return running_[index % kRunning]; }

  const Pricing& pricing_;
  std::deque<Taken> taken_;  ///< what may still run beside the compute stream
  /// A ring: the last kernels of the compute stream, which may still run when something else is issued. A launch queue holds as many.
  static constexpr std::size_t kRunning = 1024;
  std::array<Running, kRunning> running_;
  std::size_t begun_ = 0;  ///< kernels, with those that the ring has lost
};

}  // namespace plimsoll
