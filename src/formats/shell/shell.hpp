// A shell script followed as bash 5.2 would run it, without running anything: what is pure is evaluated (words, conditions, loops,
// functions, here-documents that write files), what is not known stays unknown, and of a condition that is not known both ways are
// followed.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/foreign/node.hpp"
#include "formats/shell/pattern.hpp"
#include "formats/shell/state.hpp"
#include "formats/shell/unknown.hpp"

namespace plimsoll::formats {

/// The name by which a script's own arguments are given, and marked where they are not.
inline constexpr const char* kArguments = "@";

/// A command that is not the shell's own, as it would be started.
struct Started {
  std::vector<Node> words;                                    ///< with where its line stands
  std::map<std::string, std::string> environment;             ///< exported variables
  const std::map<std::string, std::string>* files = nullptr;  ///< that the script has written until then
  std::string folder;                                         ///< where it runs, seen from where the script does; empty: there
  std::string hangs_on;                                       ///< a mark: whether it is started at all; empty: it is
  std::optional<std::string> input;                           ///< what it reads, where the script says that
};

/// What a script meets outside of itself. Each may be left out.
struct Surroundings {
  std::function<bool(const Started&)> run;                                       ///< true: it is taken to end well
  std::function<std::optional<std::string>(const std::string& path)> read;       ///< a file beside the script
  std::function<std::vector<std::string>(const std::string& folder)> list;       ///< names within a folder
  std::function<std::optional<std::string>(const std::vector<std::string>& words)> printed;  ///< what a command of the machine's prints
  std::function<void(const std::string& text, const std::string& where)> batch;  ///< a script that goes to Slurm
  std::function<void(const std::string& what, const std::string& where)> note;   ///< what was taken for granted
};

class Shell {
 public:
  Shell(std::string where, Surroundings around);

  /// A variable of the environment.
  void set(const std::string& name, const std::string& value);
  /// What stands for a value that is not known: of a variable wherever it is not, an argument ("1"; "@": all of them), "$(a command)",
  /// "-f FILE", a command's outcome.
  void give(const std::string& name, const std::string& value);
  /// Follows a script. Throws Error, with the line: what is no script of bash, more work than a launch script's.
  void follow(const std::string& text, int first_line = 1);
  /// Names that were given and that nothing asked for.
  std::vector<std::string> unused() const;
  std::optional<std::string> value(const std::string& name) const;
  const std::map<std::string, std::string>& files() const { return state_.files; }

 private:
  using Statement = shell::Statement;
  using Word = shell::Word;
  using Outcome = shell::Outcome;
  using Variable = shell::Variable;
  using Words = std::vector<std::string>;
  using Branch = std::function<Outcome()>;

  enum class Flow : std::uint8_t { on, broken, continued, returned, ended };
  enum class Mode : std::uint8_t { fields, text, pattern, expression };
  class Sink;
  friend class Sink;
  /// What a parameter holds.
  struct Fetched {
    bool set = false, list = false, star = false;
    Words items;
  };
  struct Deeper;

  // ---- commands (evaluate.cpp) ----
  Outcome run(const Statement& statement);
  Outcome run_kind(const Statement& statement);
  Outcome sequence(const Statement& statement);
  Outcome chain(const Statement& statement);
  Outcome pipeline(const Statement& statement);
  Outcome condition(const Statement& statement);
  Outcome loop(const Statement& statement);
  Outcome count(const Statement& statement);
  Outcome each(const Statement& statement);
  Outcome choice(const Statement& statement);
  Outcome clause(const Statement& statement, std::size_t index, const std::string& subject);
  Outcome clause_body(const Statement& statement, std::size_t index, const std::string& subject);
  Outcome isolated(const Branch& body);
  Outcome both(const std::string& cause, const Branch& yes, const Branch& no);
  Outcome tested(const Statement& statement);
  Outcome once_or_not(const Outcome& why, const Branch& body);
  Outcome with_redirections(const std::vector<shell::Redirection>& redirections, const Branch& body);
  bool loop_goes_on();
  bool same_as(const shell::State& before);
  void merge(const shell::State& other, const std::string& cause);
  Variable merged(const std::string& name, const Variable& a, const Variable& b, const std::string& cause);
  Outcome unknown_outcome(const std::string& name, const std::string& why);

  // ---- simple commands (commands.cpp) ----
  Outcome simple(const Statement& statement);
  Outcome start(const Words& words, const Statement& statement);
  Outcome call(const shell::StatementPtr& body, const Words& words);
  Outcome external(const Words& words);
  /// A text that another shell is given: its $0 and arguments, the words in front of that shell, where the text stands.
  struct Inner {
    Words arguments, front;
    std::string where;
    int line = 1;
    std::optional<std::string> name = {};  ///< none: the path
  };
  Outcome inner_script(const std::string& text, const Inner& inner);
  Outcome batch(const Words& words, std::size_t at, const Words& front);
  std::optional<Outcome> started_script(const Words& words);
  void assign(const shell::Assignment& assignment);
  void assign_array(const shell::Assignment& assignment);
  void put(const std::string& name, const std::string& index, bool indexed, std::string value, bool adds);
  std::string shaped(const Variable& variable, std::string value);

  // ---- the shell's own commands (builtins.cpp) ----
  std::optional<Outcome> builtin(const Words& words, const Statement& statement);
  Outcome declare(const Words& words, const Statement& statement);
  Outcome read_words(const Words& words);
  Outcome map_lines(const Words& words);
  Outcome print(const Words& words);
  Outcome print_formatted(const Words& words);
  std::string formatted(const Words& words, std::size_t at, bool& numbers);
  Outcome set_options(const Words& words);
  Outcome next_option(const Words& words);
  Outcome change_folder(const Words& words);
  Outcome unset(const Words& words);
  Outcome source(const Words& words);
  Outcome shift(const Words& words);
  Outcome leave(Flow flow, const Words& words);
  std::optional<Outcome> pure(const Words& words);
  Outcome edit_files(const Words& scripts, const Words& files, bool known);
  std::optional<std::string> text_of_file(const std::string& path) const;
  std::string path_of(const std::string& path) const;
  std::string folder_text();
  void note(const std::string& what);
  Outcome assign_alone(const Statement& statement);
  std::vector<std::pair<std::string, std::optional<Variable>>> assign_in_front(const Statement& statement);
  std::string next_line(char end, bool raw, bool& ended, std::string& literal);
  void put_fields(const Words& names, const std::string& text, const std::string& literal);
  Words split(const std::string& text, const std::string& literal, std::size_t most);

  // ---- conditions (conditions.cpp) ----
  Outcome test(const Words& words, std::size_t from, std::size_t to);
  Outcome test_brackets(const std::vector<Word>& words);
  Outcome unary(const std::string& sign, const std::string& word);
  Outcome binary(const std::string& a, const std::string& sign, const std::string& b);
  class BracketReader;
  friend class BracketReader;

  // ---- words (expand.cpp, parameters.cpp) ----
  Words fields_of(const std::vector<Word>& words);
  void fields_of(const Word& word, Words& into);
  std::string text_of(const Word& word, Mode mode = Mode::text);
  std::string document_of(const shell::Redirection& redirection);
  void expand(const std::string& raw, Sink& sink, bool in_double);
  std::size_t dollar(const std::string& raw, std::size_t at, Sink& sink, bool in_double);
  void emit(const Fetched& found, Sink& sink, bool in_double);
  void parameter(const std::string& content, Sink& sink, bool in_double);
  void operate(Fetched found, const std::string& name, const std::string& index, const std::string& rest, Sink& sink, bool in_double);
  bool instead(const Fetched& found, const std::string& name, const std::string& index, const std::string& rest, Sink& sink,
               bool in_double);
  std::string changed(const std::string& value, const std::string& rest);
  std::string cut(const std::string& value, const std::string& rest);
  std::string replaced(const std::string& value, const std::string& rest);
  std::string cased(const std::string& value, const std::string& rest);
  Fetched part_of_list(const Fetched& found, const std::string& rest, bool arguments);
  std::string part(const std::string& value, const std::string& rest);
  Fetched fetch(const std::string& name, const std::string& index);
  Fetched fetch_special(char name);
  Fetched fetch_argument(std::size_t number);
  Fetched keys_of(const std::string& content);
  std::string unset_mark(const std::string& name);
  std::string substitution(const std::string& text);
  std::string arithmetic_text(const std::string& expression);
  std::optional<std::int64_t> arithmetic(const std::string& expression, std::string& unknown);
  Words paths_of(const std::string& pattern);
  std::string separators();

  const std::string* given(const std::string& name);
  std::string place() const { return where_ + ":" + std::to_string(line_); }
  void spend(std::size_t steps) { effort_.spend(steps); }
  void spend_on_state();
  [[noreturn]] void wrong(const std::string& what) const;
  void print_text(const std::string& text);

  std::string where_;
  Surroundings around_;
  std::map<std::string, std::string> given_;
  std::map<std::string, bool> used_;
  shell::State state_;
  Flow flow_ = Flow::on;
  int levels_ = 0;  ///< loops that `break` or `continue` still has to leave
  int loops_ = 0, calls_ = 0, tested_ = 0;
  std::string* out_ = nullptr;  ///< what commands print goes here; nullptr: to whoever looks
  std::shared_ptr<shell::Input> in_;
  std::vector<std::string> conditions_;      ///< marks of what is not known and is taken both ways
  Words front_;                              ///< words in front of a shell that is followed: srun's
  std::optional<Outcome> substituted_;       ///< of the last $( ) of a command
  std::map<std::string, std::string> told_;  ///< notes already made
  bool list_seen_ = false;
  int line_ = 1, depth_ = 0;
  shell::Effort effort_;
};

}  // namespace plimsoll::formats
