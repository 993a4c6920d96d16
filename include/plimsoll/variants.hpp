/// One program rehearsed with several settings: what is put into its command line, and what came out of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/document.hpp"
#include "plimsoll/text_style.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

/// "bs=1,2,4": what stands for {bs} in the command line, one after the other.
struct VariedKey {
  std::string key;
  std::vector<std::string> values;
};

/// Throws Error: no name before a "=", no values, a value given twice.
VariedKey parse_varied_key(const std::string& text);

using Settings = std::vector<std::pair<std::string, std::string>>;  ///< a value of each key

/// Every combination, the last key's values next to each other. Throws Error where a key is given twice, or they are more than a thousand.
std::vector<Settings> combinations_of(const std::vector<VariedKey>& keys);

/// The words with {key} replaced wherever it stands; a word that becomes empty so is left out. Throws Error where no word has a {key}.
std::vector<std::string> with_settings(const std::vector<std::string>& words, const Settings& settings);

/// The largest whole number with which a program fits, found by as few runs as it takes: memory grows in a straight line, more or less.
class LargestSearch {
 public:
  /// Between these, both tried if need be; `most` 0: no bound is given.
  LargestSearch(std::int64_t least, std::int64_t most) : least_(least), most_(most) {}

  /// What to try next; nothing when it is known.
  std::optional<std::int64_t> next() const;
  /// `number` was tried and takes so much; it fits where that is at most the capacity, and it did not run out of memory.
  void tried(std::int64_t number, bool fits, Bytes device, Bytes capacity);
  /// The largest that fits; nothing where not even the least does.
  std::optional<std::int64_t> largest() const { return fitting_.empty() ? std::nullopt : std::optional(fitting_.back().number); }

 private:
  struct Trial {
    std::int64_t number;
    double bytes, capacity;
  };
  std::int64_t guess() const;

  std::int64_t least_, most_;
  std::vector<Trial> fitting_;             ///< ascending
  std::optional<std::int64_t> too_large_;  ///< the least that does not fit
  int guesses_ = 0;                        ///< since the interval was last halved
};

/// What one setting came to.
struct RehearsedVariant {
  Settings settings;
  std::string device;   ///< of --on
  std::string command;  ///< the command line that rehearses it alone
  std::string failure;  ///< why it did not do its steps; empty where it did
  std::string verdict;  ///< "fits", "tight", "does_not_fit"; empty where it failed
  Bytes memory, capacity;
  Bytes allocated, reserved;  ///< of the allocator at its peak, on the rank with the most
  Seconds step;
  double tokens_per_second = 0;  ///< of a GPU; 0 where the program did not say what it read

  bool fits() const { return verdict == "fits" || verdict == "tight"; }
  Bytes left() const { return capacity - memory; }
  /// It got no further than to an allocation that failed: what it took until then says nothing of what it needs.
  bool ran_out() const { return verdict == "does_not_fit" && memory <= capacity; }
};

/// Those of a list, by index, than which no other that fits is better in speed and memory left together: tokens a second of a GPU where every
/// one says them, else the time of a step.
std::vector<std::size_t> front_of(const std::vector<RehearsedVariant>& variants);

/// The fastest that fits, all of them, and the front.
std::string to_text(const std::vector<RehearsedVariant>& variants, const TextStyle& style);
/// One object "plimsoll/variants/1".
std::string to_json(const std::vector<RehearsedVariant>& variants);
Document document_of(const std::vector<RehearsedVariant>& variants);

}  // namespace plimsoll
