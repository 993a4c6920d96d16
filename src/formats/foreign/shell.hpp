// A shell script read without a shell: assignments, arrays, conditions on texts and arithmetic of constants are followed; nothing is
// executed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "formats/foreign/node.hpp"

namespace plimsoll::formats {

/// What is not known here stands as "\x01why\x01" in a word: a command substitution, a variable that nobody sets. Where such a word
/// matters, the reader that needs it refuses it by `why`.
inline constexpr char kUnknown = '\x01', kUnknownBlank = '\x02';

class Shell {
 public:
  using Command = std::function<void(const std::vector<Node>& words)>;

  /// `run` is told every simple command in order, its words expanded, the assignments in front of it made.
  Shell(std::string where, Command run) : where_(std::move(where)), run_(std::move(run)) {}

  /// Follows a script. Throws Error: a quote without an end, more commands than a script has.
  void follow(const std::string& text, int first_line = 1);
  void set(const std::string& name, const std::string& value) { variables_[name] = {value}; }
  bool is_set(const std::string& name) const { return variables_.count(name) != 0; }
  const std::map<std::string, std::vector<std::string>>& variables() const { return variables_; }

 private:
  struct Block {  ///< an open if, loop or case
    enum class Kind { condition, loop, selection } kind = Kind::condition;
    bool active = true, taken = false;
    std::string subject;  ///< of a case
  };

  bool active() const;
  void command(std::vector<std::string> raw, int line);
  bool control(std::vector<std::string>& raw);
  void simple(const std::vector<std::string>& raw, int line);
  bool assign(const std::string& raw);
  bool holds(const std::vector<std::string>& raw);
  bool test(const std::vector<std::string>& words);

  std::vector<std::string> expand(const std::string& raw);
  std::string expand_one(const std::string& raw);
  std::size_t expand_reference(const std::string& raw, std::size_t at, bool quoted, std::vector<std::string>& fields, bool& open);
  std::vector<std::string> value_of(const std::string& expression);
  std::string arithmetic(const std::string& expression);

  std::string where_;
  Command run_;
  std::map<std::string, std::vector<std::string>> variables_;
  std::vector<Block> blocks_;
  std::vector<Node> prefix_;  ///< of a command whose shell's commands are being followed
  int line_ = 1, depth_ = 0;
  std::size_t commands_ = 0, expanded_ = 0;
};

/// "\x01why\x01"
std::string unknown_word(std::string why);
/// Why a word with such a mark is not known.
std::string told(const std::string& unknown);

}  // namespace plimsoll::formats
