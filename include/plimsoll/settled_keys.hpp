/// What every key of a strategy became, and who decided it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct ForeignRun;
struct Strategy;

/// Who decided a key's value.
enum class SettledBy : std::uint8_t {
  user,        ///< an option, or a key of the caller's strategy
  file,        ///< a file that the user gave
  derived,     ///< it follows from other keys, the cluster or the model
  by_default,  ///< the framework takes it where nothing is said
  assumed      ///< nobody says it: listed among the report's assumptions
};
std::string_view name_of(SettledBy by);

/// A key that was said, under its own name ("seq_len", not "seq"), and where.
struct SaidKey {
  std::string key;
  SettledBy by = SettledBy::user;
  std::string where;
};
/// What a strategy's own file says (its path; empty: the caller handed the strategy over), and the options that came on top, in this order.
std::vector<SaidKey> said_keys(const Strategy& said, const std::string& file);
/// What files of other programs say, what follows from them and what those programs take by default.
std::vector<SaidKey> said_keys(const ForeignRun& run);

/// One key of docs/rows.md in a resolved strategy.
struct SettledKey {
  std::string key;    ///< "fsdp.units"
  std::string value;  ///< as `set_option` takes it
  SettledBy by = SettledBy::by_default;
  std::string where;  ///< user: "--tp"; file: "train.json#/tp", "args.yaml:12"; derived and by_default: from what, whose; assumed: why
};

/// Every key that has a value in a resolved strategy, in the order of docs/rows.md. Of keys that were said twice the last stands.
std::vector<SettledKey> settled_keys(const Strategy& resolved, const std::vector<SaidKey>& said);

}  // namespace plimsoll
