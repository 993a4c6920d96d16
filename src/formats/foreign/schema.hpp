// All keys of a program's own schema at a named release, as models/keys/FORMAT.json has them: facts that bench/format_keys.py reads out of the
// program's package, each marked by somebody as neutral or as not modelled unless the format's table of rows uses it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/foreign/keys.hpp"

namespace plimsoll::formats {

/// What answers for a run as it is, where a feature is not modelled.
inline constexpr const char* kRehearsal = "rehearse the program itself: plimsoll rehearse --on … -- COMMAND";

/// What is known of a key that no row speaks of.
struct KeyMark {
  enum class Kind : std::uint8_t {
    absent,       ///< the program has no such key
    unjudged,     ///< it has, and nobody has said what it means: refused
    neutral,      ///< it cannot change memory or time; `why`
    told,         ///< it changes them by a little; the answer is without it and says so
    not_modelled  ///< it can: any value but the program's own default is refused; `why` names it
  };
  Kind kind = Kind::absent;
  std::string why;
  std::optional<std::string> by_default;  ///< in the program's own words; none: nothing, or what is only known as it runs
  std::string instead = {};  ///< what to do about it; empty: to set its default
};

class Schema {
 public:
  /// The schema of a format by its name; nullptr: none was read.
  static const Schema* of(const std::string& format);
  /// Reads a document of models/keys. Throws Error.
  explicit Schema(const std::string& text, const std::string& where);

  /// "axolotl 0.19.0".
  const std::string& release() const { return release_; }
  /// Whether the program has a key, or any below it.
  bool has(const std::string& key) const { return mark(key).kind != KeyMark::Kind::absent || has_below(key); }
  KeyMark mark(const std::string& key) const;
  /// Whether the program has keys below this one ("fsdp_config.version").
  bool has_below(const std::string& key) const;
  /// All keys, those that only earlier releases have too.
  std::vector<std::string> keys() const;
  /// The marks as Markdown, for the format's page.
  std::string page() const;

 private:
  struct Group {
    KeyMark::Kind kind;
    std::string why;
    std::vector<std::string> keys;  ///< "eval_*" for all that begin so
    std::string instead = {};       ///< KeyMark::instead
  };

  std::string release_;
  std::map<std::string, std::optional<std::string>> keys_;
  std::vector<Group> groups_;
};

/// What HfArgumentParser makes of `--no_KEY`: false for a field that is on by default, by the rows or by the schema; of others it has none.
Node with_switches_off(const Reading& reading, const Node& flags, const Rows& rows, const Schema& schema, const ReadRelease& release);

/// The hint of a refusal: the run without the feature, by `value` or, empty, without the key; or the program itself.
std::string way_without(const std::string& value);

/// Reads every value of `tree` by its row, and by its mark in the schema where no row has it. Throws Error: a key that is not modelled and is
/// not as the program has it by default, and a key that the program has not, with the nearest. Where `unknown` says that the program drops such
/// keys, or that a script may have its own, only those are errors whose name is nearly one of the program's; what a script's own key may
/// decide is refused by the key of ours that other programs call so, and else kept as unknown.
void read_rows(Reading& reading, const Rows& rows, const Schema& schema, const Node& tree, Unknown unknown = Unknown::refused);
/// The same of one key that no row speaks of.
void judge(Reading& reading, const Schema& schema, const Rows& rows, const std::string& key, const Node& value, Unknown unknown);

}  // namespace plimsoll::formats
