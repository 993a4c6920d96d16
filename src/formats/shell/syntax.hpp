// A script as bash's grammar has it (bash 5.2, "Shell Grammar" of its manual): a tree of commands whose words are not expanded yet.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace plimsoll::formats::shell {

/// A word as it stands, quotes and all.
struct Word {
  std::string raw;
  int line = 1;
};

/// NAME=word, NAME[index]=word, NAME+=word, NAME=(words)
struct Assignment {
  std::string name, index;
  bool adds = false, array = false, indexed = false;
  Word value;
  std::vector<Word> items;  ///< of an array: words, or [key]=word
};

struct Redirection {
  int descriptor = -1;                    ///< in front of the operator; -1: the operator's own
  std::string operation;                  ///< ">", ">>", "<", "<<", "<<-", "<<<", ">&", "<&", "&>", "&>>", ">|", "<>"
  Word target;                            ///< of a here-document: its end
  std::shared_ptr<std::string> document;  ///< of a here-document: its lines
};

struct Statement;
using StatementPtr = std::shared_ptr<const Statement>;

struct Clause {
  std::vector<Word> patterns;
  StatementPtr body;
  std::string end;  ///< ";;", ";&", ";;&"
};

struct Statement {
  enum class Kind : std::uint8_t {
    simple,      ///< assignments, words, redirections
    sequence,    ///< parts one behind the other; joints "&" of those in the background
    chain,       ///< parts joined by joints "&&" and "||"
    pipeline,    ///< parts joined by |
    group,       ///< { parts[0] }
    subshell,    ///< ( parts[0] )
    condition,   ///< parts: condition, body, …, and an odd one for else
    loop,        ///< while parts[0] do parts[1]; `negated`: until
    each,        ///< for text in words do parts[0]; `negated`: without "in"
    count,       ///< for ((words)) do parts[0]
    choice,      ///< case words[0] in clauses
    function,    ///< text () parts[0]
    arithmetic,  ///< ((text))
    test         ///< [[ words ]]
  };
  Kind kind = Kind::simple;
  int line = 1;
  bool negated = false;
  std::string text;
  std::vector<Assignment> assignments;
  std::vector<Word> words;
  std::vector<Redirection> redirections;
  std::vector<StatementPtr> parts;
  std::vector<std::string> joints;
  std::vector<Clause> clauses;
};

/// How deep commands may stand in commands, and substitutions in words.
inline constexpr int kMostNested = 100;

/// Parses a whole script whose first line is `line`. Throws Error, with the line: a quote, bracket or command without an end, what is no
/// command, deeper than kMostNested.
StatementPtr parse_script(const std::string& text, const std::string& where, int line = 1);

/// One past the end of what begins at `at` of a word: a quote, `…`, $(…), $((…)), ${…}, <(…).
std::size_t end_of_quote(const std::string& text, std::size_t at, const std::string& where, int line);

bool is_name_start(char c);
bool is_name_char(char c);
/// Length of the name that begins a text; 0: none does.
std::size_t name_length(const std::string& text, std::size_t at = 0);

}  // namespace plimsoll::formats::shell
