// What a script does not say: it stands in a word as a mark that every expansion carries along, and is asked for where it decides
// something.
#pragma once

#include <string>

namespace plimsoll::formats {

/// Begins and ends a mark. Between them stand letters and digits alone, so that no splitting, quoting or path of a word cuts it.
inline constexpr char kUnknown = '\x7f';  // JSON and YAML take it within texts

/// A mark: `name` is what `--set NAME=VALUE` gives a value (a variable, an argument's number, "$(a command)"; empty: nothing does), `why`
/// is for people: "the variable TP, which the script does not set".
std::string unknown_word(const std::string& name, const std::string& why);
bool is_unknown(const std::string& text);
/// The first mark of a text, whole.
std::string mark_of(const std::string& text);
/// Why the first mark of a word stands there.
std::string told(const std::string& unknown);
/// The name of the first mark; empty: it has none.
std::string name_of_unknown(const std::string& unknown);
/// What to do about it: "give it: --set TP=VALUE".
std::string asked_for(const std::string& unknown);
/// One past the mark that begins at `at`.
std::size_t end_of_mark(const std::string& text, std::size_t at);
/// The text with every mark written as what stood there ("$TP"), for people.
std::string readable(const std::string& text);

}  // namespace plimsoll::formats
