// The table of commands: what each takes and does. parser.cpp turns it into a command line; no command knows the parser.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace plimsoll::cli {

enum ExitCode : int { kFits = 0, kDoesNotFit = 1, kBadInput = 2, kInternal = 70 };

/// What one command line gave.
class Arguments {
 public:
  void add(const std::string& name, std::string value) { values_[name].push_back(std::move(value)); }
  bool has(const std::string& name) const { return values_.count(name) != 0; }
  /// The same line with another value of that option.
  Arguments with(const std::string& name, const std::string& value) const;
  /// The value of an option; empty when it was not given.
  const std::string& operator[](const std::string& name) const;
  const std::vector<std::string>& all(const std::string& name) const;
  /// The value as a number. Throws Error when it is none or outside [least, most].
  double number(const std::string& name, double least, double most) const;
  double number_or(const std::string& name, double otherwise, double least, double most) const;
  std::int64_t integer_or(const std::string& name, std::int64_t otherwise, std::int64_t least, std::int64_t most) const;
  /// Throws Error where -o names a file that the line also reads.
  void check_output() const;

 private:
  std::map<std::string, std::vector<std::string>> values_;
};

struct Option {
  enum Kind { value, value_list, words, flag, positional, positional_list, rest } kind = value;  ///< words: one or more at once; rest: all words behind "--"
  std::string name;  ///< "--micro-batch", or "MODEL" for a positional
  std::string help;
  bool required = false;
  std::string group;  ///< heading in --help; empty: "Options"
  bool rare = false;  ///< --help leaves it out, --help-all does not
};

struct Command {
  std::string name, help, examples;
  std::vector<Option> options;
  int (*run)(const Arguments&);
  std::vector<Command> children;  ///< of `formula`
  std::string group = {};         ///< heading in the list of commands
};

Command estimate_command();
Command engine_command();
Command explain_command();
Command export_command();
Command fix_command();
Command gate_command();
Command models_command();
Command graph_command();
Command hardware_command();
Command frameworks_command();
Command formula_command();
Command validate_command();
Command rehearse_command();
Command calibrate_command();
Command doctor_command();
Command replay_command();
Command compare_trace_command();
Command search_command();
Command merge_command();
Command sweep_command();
Command compare_command();
Command campaign_command();
Command mcp_command();
Command serve_command();
Command completion_command();
Command man_command();

/// All commands, in the order in which --help shows them.
const std::vector<Command>& all_commands();

/// Parses the command line and runs the command. Throws Error on a wrong one, with the nearest valid name.
int run(const std::vector<Command>& commands, int argc, const char* const* argv);

/// Writes to stdout; a closed pipe is no error, a full device is: throws Error.
void print(const std::string& text);

/// Writes to the file that -o names, else (and for "-") to stdout. Throws Error as the two do.
void print_to(const Arguments& arguments, const std::string& text);

/// The text of a file of at most 64 MiB; "-": of stdin. Throws Error: missing, unreadable, too large.
std::string read_file(const std::string& path);

/// Throws Error when the file cannot be written to its end; then, and when the program is ended on the way, what was there stays.
void write_file(const std::string& path, const std::string& bytes);

}  // namespace plimsoll::cli
