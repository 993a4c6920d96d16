// The words of the command line, for shells and manuals: read off the table of commands.
#pragma once

#include <string>
#include <vector>

#include "command.hpp"

namespace plimsoll::cli {

/// A command that runs, with the words that name it ("formula zero").
struct NamedCommand {
  std::string path;
  Command command;
};
std::vector<NamedCommand> runnable_commands();

/// How many words of the line are plimsoll's own: those before another program's line, or before its "--"; all where there is none.
int own_words(const std::vector<Command>& commands, int argc, const char* const* argv);

/// The values that an option takes where it takes one of a few: those of the strategy's table, formats, shells.
std::vector<std::string> values_of(const Option& option);

/// Names of shipped models; of accelerators and clusters.
std::vector<std::string> model_names();
std::vector<std::string> hardware_names();

bool takes_value(const Option& option);
bool is_flag(const Option& option);  ///< begins with a dash
bool takes_model(const Option& option);
bool takes_hardware(const Option& option);

}  // namespace plimsoll::cli
