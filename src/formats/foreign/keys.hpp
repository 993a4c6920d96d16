// One table per format: what each of its keys is of ours. The reader, the writer and the pages of docs/formats go through the same rows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

/// `Row::ours` of a key that changes nothing of memory or time.
inline constexpr std::string_view kNothing = "";
/// Of a key that matters and is not modelled, unless its value is one of `words`; `remark` names it.
inline constexpr std::string_view kRefused = "!";
/// Of a key that the format's own code reads; `remark` says what it does.
inline constexpr std::string_view kCode = "@";

/// What a key of another program is of ours.
struct Row {
  const char* foreign;    ///< dotted path; "section.*" is everything below; dashes count as underscores
  std::string_view ours;  ///< a key of docs/rows.md, "model", "model.FIELD", "cluster.nodes" …, or one of the three above
  const char* words =
      "";  ///< "theirs=ours,…"; "*" stands for all other values, as they are; "not" inverts a truth; kRefused: what is harmless
  const char* by_default = nullptr;  ///< what the program takes where the key is absent, in its own words; nullptr: nothing worth saying
  const char* remark = "";           ///< since when, or what is refused
};
using Rows = std::vector<Row>;

/// The value in our words. Throws Error, naming what is valid. An empty text: the value says nothing.
std::string to_ours(const Row& row, const std::string& value, const std::string& where);
/// The value in their words; an empty text where they have none for it.
std::string to_theirs(const Row& row, const std::string& value);

/// Throws Error where a value hangs on what a script does not say, naming that and how it is given.
void require_known(const std::string& key, const std::string& value, const std::string& where);

/// How unknown keys are taken.
enum class Unknown : std::uint8_t {
  unread,   ///< listed
  refused,  ///< the program refuses them itself
  dropped,  ///< the program drops them
  own,      ///< the scripts that read such a file may have keys of their own
};

/// Letters in which a slip of the pen differs from a name; beyond these another name may well be meant.
inline constexpr std::size_t kSlips = 2;
/// The name that `key`, which may well be another's, is a slip of: so many letters off, of a short one a third at most. Empty: none.
std::string slip_of(std::string_view key, const std::vector<std::string>& names);

/// Reads every value of `tree` by its row; `prefix` stands before the names in messages ("fsdp_config."). Keys that are null say nothing.
/// Defaults are not taken here.
void read_rows(Reading& reading, const Rows& rows, const Node& tree, const std::string& prefix = {}, Unknown unknown = Unknown::unread);
/// Takes the defaults of all rows whose keys of ours are not known yet: those of the release that was stated, where releases differ
/// (models/releases.json). `release` is the program's with the one that the rows were read from ("accelerate 1.15"), `prefix` as above.
void take_defaults(Reading& reading, const Rows& rows, const ReadRelease& release, const std::string& prefix = {});
/// The same of one row.
void take_default(Reading& reading, const Row& row, const ReadRelease& release, const std::string& prefix = {});

/// What a program takes for a key where nothing is said.
struct ProgramDefault {
  std::optional<std::string> word;  ///< in its own words; none: nobody knows. An empty text says nothing
  ReadRelease release;                  ///< the one that was stated, or else `read`
  std::string told;                 ///< "optim: adamw_torch", with what earlier releases take where none was stated
};
/// `read` as `release` above; `otherwise` where releases do not differ, as far as is known.
ProgramDefault program_default(const Reading& reading, const std::string& key, const char* otherwise, const ReadRelease& read);

/// The row of a key, or nullptr.
const Row* find_row(const Rows& rows, const std::string& foreign);

/// A table's members that have a row, and the others, each as a table.
std::pair<Node, Node> deal_keys(const Rows& rows, const Node& table);

/// Words of a command line as a table: --a-b 1, --a_b=1, --flag ("true"), --list 1 2 3; a.b=1 is an override as Hydra writes it. What is
/// none of these comes back in `positional`. `where` names the line.
Node table_of_flags(const std::vector<Node>& words, std::vector<Node>& positional);

}  // namespace plimsoll::formats
