// What a search has found out so far: what one that was stopped leaves to the one that goes on.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "plimsoll/search.hpp"

namespace plimsoll::searching {

/// What was estimated of a small instance, in seconds and bytes; ranks by stage.
struct Seen {
  double seconds = 0, outside = 0, cache = 0;
  bool played = true;
  std::vector<double> allocated, persistent, passes;
  double of_passes = 0;  ///< of the seconds: kernels of the passes, collectives of layers, three quarters of the waits for the host
  double kept = 0;       ///< of one stage and one micro-batch: bytes that its forward pass leaves for its backward pass
};

/// What a full estimate said of a plan.
struct Outcome {
  enum class What : std::uint8_t { stands, too_large, too_slow, refused, unplayed } what = What::stands;
  double seconds_per_token = 0;
  std::int64_t gpus = 0;
  std::string because;  ///< in words, where it does not stand
};

/// Both by what they are of; threads may ask and tell at once.
class State {
 public:
  State() = default;
  /// Reads what text() wrote. Throws Error: no such object, or of another search or shard. `text` may be empty: nothing is known.
  State(const std::string& text, const SearchRequest& request, const std::string& fingerprint);
  std::string text(const SearchRequest& request, const std::string& fingerprint) const;

  std::optional<Seen> instance(const std::string& key) const;
  /// The first to tell is believed.
  Seen tell(std::string key, Seen seen);
  std::optional<Outcome> outcome(std::uint64_t index) const;
  void tell(std::uint64_t index, Outcome outcome);
  /// The plans that stand, with their outcomes.
  std::vector<std::pair<std::uint64_t, Outcome>> standing() const;

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Seen> instances_;
  std::map<std::uint64_t, Outcome> outcomes_;  ///< by index of the plan
};

}  // namespace plimsoll::searching
