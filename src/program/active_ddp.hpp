/// DistributedDataParallel._active_ddp_module: within whose forward the model runs. Graphs that torch.compile compiles there are cut where
/// its buckets end.
#pragma once

#include <cstdint>
#include <optional>

namespace plimsoll::program {

/// The limits of DDP's buckets of gradients, in bytes.
struct BucketLimits {
  std::int64_t first = 0;  ///< of the bucket whose gradients come first
  std::int64_t rest = 0;
};

/// As a scope of the thread that records the program.
class ActiveDdp {
 public:
  explicit ActiveDdp(const BucketLimits& buckets) : before_(active()) { active() = buckets; }
  ~ActiveDdp() { active() = before_; }
  ActiveDdp(const ActiveDdp&) = delete;
  ActiveDdp& operator=(const ActiveDdp&) = delete;

  /// Of the innermost one; none where the model runs outside of DDP.
  static const std::optional<BucketLimits>& buckets() { return active(); }

 private:
  static std::optional<BucketLimits>& active() {
    thread_local std::optional<BucketLimits> innermost;
    return innermost;
  }

  std::optional<BucketLimits> before_;
};

}  // namespace plimsoll::program
