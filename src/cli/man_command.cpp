// man: manual pages, from the table of commands.
#include <fmt/core.h>

#include "option_words.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"

namespace plimsoll::cli {
namespace {

/// Text in which roff finds no request and no escape.
std::string plain(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((i == 0 || text[i - 1] == '\n') && (text[i] == '.' || text[i] == '\'')) out += "\\&";
    if (text[i] == '\\') out += "\\e";
    else if (text[i] == '-') out += "\\-";
    else out += text[i];
  }
  return out;
}

std::string title(const std::string& name) { return fmt::format(".TH {} 1 \"\" \"plimsoll {}\" \"plimsoll\"\n", name, version()); }

std::string exit_codes() {
  return ".SH EXIT STATUS\n.TP\n.B 0\nit fits, or there was nothing to judge\n.TP\n.B 1\nit does not fit\n.TP\n.B 2\nbad input\n.TP\n.B 70\na "
         "defect of plimsoll\n";
}

std::string option_text(const Option& option) {
  const std::string value = takes_value(option) ? " \\fIVALUE\\fR" : "";
  return ".TP\n\\fB" + plain(option.name) + "\\fR" + value + "\n" + plain(option.help) + "\n";
}

std::string page_of(const NamedCommand& each) {
  std::string name = "plimsoll-" + each.path;
  for (char& c : name) c = c == ' ' ? '-' : c;
  std::string synopsis = "\\fBplimsoll " + plain(each.path) + "\\fR [\\fIOPTIONS\\fR]";
  std::string arguments, options;
  for (const Option& option : each.command.options) {
    if (is_flag(option)) {
      options += option_text(option);
      continue;
    }
    synopsis += option.kind == Option::rest ? " \\-\\- \\fI" + option.name + "\\fR …" : option.required ? " \\fI" + option.name + "\\fR" : " [\\fI" + option.name + "\\fR]";
    arguments += option_text(option);
  }
  std::string text = title(name) + ".SH NAME\n" + plain(name) + " \\- " + plain(each.command.help) + "\n.SH SYNOPSIS\n" + synopsis + "\n";
  if (!arguments.empty()) text += ".SH ARGUMENTS\n" + arguments;
  if (!options.empty()) text += ".SH OPTIONS\n" + options;
  if (!each.command.examples.empty()) text += ".SH EXAMPLES\n.nf\n" + plain(each.command.examples) + "\n.fi\n";
  return text + exit_codes() + ".SH SEE ALSO\n.BR plimsoll (1)\n";
}

std::string overview() {
  std::string text = title("plimsoll") +
                     ".SH NAME\nplimsoll \\- memory and performance planner for distributed training\n.SH SYNOPSIS\n\\fBplimsoll\\fR \\fICOMMAND\\fR "
                     "[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\nSays before a training run whether it fits, how fast it goes, and why.\n.SH COMMANDS\n";
  for (const NamedCommand& each : runnable_commands()) text += ".TP\n\\fB" + plain(each.path) + "\\fR\n" + plain(each.command.help) + "\n";
  return text + exit_codes() +
         ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nwhere it is set and not empty, reports have no colours\n.SH SEE ALSO\n.BR plimsoll\\-estimate (1), "
         ".BR plimsoll\\-explain (1)\n";
}

int run_man(const Arguments& arguments) {
  if (!arguments.has("COMMAND")) return print(overview()), kFits;
  std::string wanted;
  for (const std::string& word : arguments.all("COMMAND")) wanted += (wanted.empty() ? "" : " ") + word;
  std::vector<std::string> names;
  for (const NamedCommand& each : runnable_commands()) {
    if (each.path == wanted) return print(page_of(each)), kFits;
    names.push_back(each.path);
  }
  fail("there is no command '" + wanted + "'", "man", suggest(wanted, names));
}

}  // namespace

Command man_command() {
  return {"man",
          "the manual page of a command",
          "  plimsoll man estimate | man -l -",
          {{Option::positional_list, "COMMAND", "its name; else the overview", false, {}}},
          run_man,
          {}};
}

}  // namespace plimsoll::cli
