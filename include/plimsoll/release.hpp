/// Releases of the packages that a run stands on: values that compare, read in one place from whatever people write.
///
/// A release is dotted numbers ("4.51.3", "v2.4", "2.15.0+cu132"), or a day or month of the package's main branch ("2024-12-18",
/// "2021-04"). What a pre-release or a build says behind its numbers ("rc1", "a0", "+cu132") orders nothing: its code is nearly that of the
/// numbers. Which packages there are, which of their releases were read, and when each came out is the table models/releases.json.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll {

/// The packages whose releases are told apart, in the order of models/releases.json.
enum class Package : std::uint8_t {
  torch,
  transformers,
  accelerate,
  peft,
  trl,
  bitsandbytes,
  liger_kernel,
  flash_attn,
  deepspeed,
  megatron_core,
  megatron_lm,
  transformer_engine,
  torchtitan,
  torchao,
  torchtune,
  axolotl,
  llama_factory,
  llm_foundry,
  nanotron,
  nemo,
  nemo_container,
  pytorch_container,
  megatron_bridge,
  primus,
  diffusers,
  maxtext,
  jax,
  rocm,
  verl,
};

/// The package's name: "megatron-core".
std::string_view name_of(Package package);

class Release {
 public:
  Release() = default;
  /// Release(4, 51, 3) is 4.51.3.
  explicit Release(int major, int minor, int patch = -1);
  /// The release that a whole text is; nullopt: it is none. A nightly ("2.9.0.dev20250811") has its day besides.
  static std::optional<Release> parse(std::string_view text);
  /// Said by a day, as year · 10000 + month · 100 + day.
  static Release of_day(int day);

  /// Whether its numbers are those or later ones. A release that has only a date is before all of them.
  bool since(int major, int minor = 0, int patch = 0) const;
  /// Whether its code is of that day or later; a date that is not known is before all days.
  bool since_date(int year, int month, int day = 1) const;
  /// Year · 10000 + month · 100 + day; 0: not known. Of a month its middle.
  int date() const { return date_; }
  /// Said by its date; its numbers, if any, are those of the last release before it.
  bool is_dated() const { return dated_; }
  /// Said by a month, not a day.
  bool is_month() const { return dated_ && !to_the_day_; }
  int major() const { return numbers_[0]; }

  /// As it was spelled, without what orders nothing: "4.51.3", "25.04", "2024-12-18".
  std::string text() const;

  /// By numbers, then by date.
  friend bool operator<(const Release& a, const Release& b) {
    return a.numbers_ != b.numbers_ ? a.numbers_ < b.numbers_ : a.date_ < b.date_;
  }
  friend bool operator==(const Release& a, const Release& b) { return a.numbers_ == b.numbers_ && a.date_ == b.date_; }
  friend bool operator!=(const Release& a, const Release& b) { return !(a == b); }

  /// The same with what a table knows of it.
  Release with_numbers_of(const Release& other) const;
  Release with_date(int date) const;

 private:
  static constexpr int kMostNumbers = 4;
  static std::optional<Release> parse_date(std::string_view text);

  std::array<int, kMostNumbers> numbers_{};
  std::uint8_t spelled_ = 0;  ///< how many of the numbers were spelled
  std::uint8_t padded_ = 0;   ///< bit i: number i was spelled with a leading zero ("25.04")
  bool dated_ = false, to_the_day_ = false;
  int date_ = 0;
};

/// What is known of a package.
struct PackageFacts {
  Package package;
  std::vector<std::string> names;  ///< the first is the package's, the others what people call it ("pytorch")
  Release oldest, newest;          ///< the first that a rule knows and the last that was read
  bool older_is_refused = false;   ///< a release before `oldest`; else it is taken as that
  std::string rules;               ///< what depends on it, in words; empty: nothing
  /// From which day on the main branch is a release, and when releases came out, oldest first; a package may have either list.
  std::vector<std::pair<Release, int>> dates, released;
  /// What a release (from each on) brings with it: a container's packages.
  std::vector<std::pair<Release, std::vector<std::pair<Package, Release>>>> holds;
  std::string source;  ///< where that was read
};
const std::vector<PackageFacts>& package_facts();
const PackageFacts& facts_of(Package package);

/// The last release of a package that was out on a day (year · 10000 + month · 100 + day); of a package without dates the newest that was
/// read.
Release release_out_on(Package package, int day);
/// What the main branch of a package was to become then.
Release main_branch_on(Package package, int day);

/// The package of a name, of whose several the release fits ("nemo" 2.1 is the library, "nemo" 25.07 the container). Throws Error, with
/// the nearest name: unknown; with the nearest release: the text is no release.
std::pair<Package, Release> parse_release(const std::string& package, const std::string& release, const std::string& where);

/// "transformers=4.51.3" or "transformers==4.51.3" of the command line: the package's name and its release. Throws Error: another form.
std::pair<std::string, std::string> release_option(const std::string& option);

/// The releases of a text in prose ("torch 2.1.0+cu121, llm-foundry 2023-10", "NeMo 26.04 (v0.4.0)"). A release that stands alone, or in
/// parentheses behind another, is that of the first package of `own` whose numbers it fits; a date behind a commit is its package's.
std::vector<std::pair<Package, Release>> releases_in(const std::string& text, const std::vector<Package>& own);

/// Which releases a run stands on.
class Releases {
 public:
  enum class Origin : std::uint8_t {
    said,
    held,     ///< another release that was said brings it
    assumed,  ///< nobody said it
  };
  struct Entry {
    Package package;
    Release release;
    Origin origin;
    std::string why;  ///< of held and assumed: "NeMo's container 25.07"
    friend bool operator==(const Entry& a, const Entry& b) { return a.package == b.package && a.release == b.release; }
  };

  /// Replaces what was known of the package.
  void put(Package package, Release release, Origin origin = Origin::said, std::string why = {});
  void forget(Package package);
  /// nullptr: nothing is known.
  const Entry* find(Package package) const;
  bool says(Package package) const { return find(package) != nullptr && find(package)->origin == Origin::said; }
  /// The one that counts; where nothing is known the newest that was read.
  Release of(Package package) const;
  const std::vector<Entry>& all() const { return entries_; }
  /// "torch 2.6, transformers 4.51.3".
  std::string text() const;

  friend bool operator==(const Releases& a, const Releases& b) { return a.entries_ == b.entries_; }
  friend bool operator!=(const Releases& a, const Releases& b) { return !(a == b); }

 private:
  std::vector<Entry> entries_;  ///< in the order of Package
};

/// "said", "held", "assumed".
std::string_view name_of(Releases::Origin origin);

}  // namespace plimsoll
