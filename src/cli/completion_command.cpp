// completion: what a shell offers at Tab, from the table of commands.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "option_words.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::cli {
namespace {

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

std::vector<std::string> flags_of(const Command& command) {
  std::vector<std::string> flags;
  for (const Option& option : command.options)
    if (is_flag(option)) flags.push_back(option.name);
  flags.push_back("--help");
  return flags;
}

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& command : all_commands()) names.push_back(command.name);
  return names;
}

/// In single quotes of a shell.
std::string in_quotes(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

/// A help line as zsh and fish show it: one sentence, without what their syntax means.
std::string help_of(const Option& option) {
  std::string text = option.help;
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '[' || c == ']' || c == ':' || c == '`'; }, ' ');
  return text;
}

bool takes_models(const Command& command) { return std::any_of(command.options.begin(), command.options.end(), takes_model); }

/// Every option with values of its own, once.
std::string bash_values() {
  std::string cases;
  std::set<std::string> done;
  for (const NamedCommand& each : runnable_commands())
    for (const Option& option : each.command.options) {
      const std::vector<std::string> values = values_of(option);
      if (!is_flag(option) || values.empty() || !done.insert(option.name).second) continue;
      cases += fmt::format("    {}) COMPREPLY=($(compgen -W {} -- \"$word\")); return ;;\n", option.name, in_quotes(joined(values)));
    }
  return cases;
}

std::string bash() {
  std::string commands, models;
  for (const NamedCommand& each : runnable_commands()) {
    commands += fmt::format("    {}) flags={} ;;\n", in_quotes(each.path), in_quotes(joined(flags_of(each.command))));
    if (takes_models(each.command)) models += (models.empty() ? "" : "|") + in_quotes(each.path);
  }
  std::vector<std::string> children;
  for (const Command& command : all_commands())
    for (const Command& child : command.children) children.push_back(child.name);
  return fmt::format(
      "# bash completion of plimsoll: plimsoll completion bash > ~/.local/share/bash-completion/completions/plimsoll\n"
      "_plimsoll() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} path=${{COMP_WORDS[1]}} flags\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W {0} -- \"$word\")); return; fi\n"
      "  if [ \"$path\" = formula ]; then\n"
      "    if [ \"$COMP_CWORD\" -eq 2 ]; then COMPREPLY=($(compgen -W {1} -- \"$word\")); return; fi\n"
      "    path=\"$path ${{COMP_WORDS[2]}}\"\n"
      "  fi\n"
      "  case $before in\n"
      "    --on) COMPREPLY=($(compgen -W {2} -P \"${{word%%x*}}x\" -- \"${{word#*x}}\") $(compgen -W {2} -- \"$word\")); return ;;\n"
      "{3}"
      "  esac\n"
      "  case $path in\n{4}  esac\n"
      "  if [[ $word == -* ]]; then COMPREPLY=($(compgen -W \"$flags\" -- \"$word\")); return; fi\n"
      "  COMPREPLY=($(compgen -f -- \"$word\"))\n"
      "  case $path in {5}) COMPREPLY+=($(compgen -W {6} -- \"$word\")) ;; esac\n"
      "}}\n"
      "complete -o filenames -F _plimsoll plimsoll\n",
      in_quotes(joined(command_names())), in_quotes(joined(children)), in_quotes(joined(hardware_names())), bash_values(), commands, models,
      in_quotes(joined(model_names())));
}

std::string zsh_option(const Option& option) {
  if (!is_flag(option)) return {};
  std::string spec = option.name + "[" + help_of(option) + "]";
  const std::vector<std::string> values = values_of(option);
  if (takes_hardware(option))
    spec += ":cluster:_plimsoll_hardware";
  else if (!values.empty())
    spec += ":value:(" + joined(values) + ")";
  else if (takes_value(option))
    spec += ":value:_files";
  return " \\\n        " + in_quotes(spec);
}

std::string zsh() {
  std::string cases, names;
  for (const Command& command : all_commands()) names += " " + in_quotes(command.name + ":" + command.help);
  for (const NamedCommand& each : runnable_commands()) {
    std::string specs;
    for (const Option& option : each.command.options) specs += zsh_option(option);
    specs += " \\\n        " + in_quotes(takes_models(each.command) ? "*:model:_plimsoll_models" : "*:file:_files");
    cases += fmt::format("    {})\n      _arguments{} ;;\n", in_quotes(each.path), specs);
  }
  return fmt::format(
      "#compdef plimsoll\n"
      "_plimsoll_models() {{ compadd -- {0}; _files }}\n"
      "_plimsoll_hardware() {{ compset -P '*x'; compadd -- {1}; _files }}\n"
      "_plimsoll() {{\n"
      "  local -a commands=({2})\n"
      "  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
      "  local path=$words[2]\n"
      "  [[ $path == formula ]] && path=\"$path $words[3]\"\n"
      "  case $path in\n{3}  esac\n"
      "}}\n"
      "_plimsoll \"$@\"\n",
      joined(model_names()), joined(hardware_names()), names, cases);
}

std::string fish() {
  std::string text = "# fish completion of plimsoll\ncomplete -c plimsoll -f\n";
  for (const Command& command : all_commands())
    text += fmt::format("complete -c plimsoll -n __fish_use_subcommand -a {} -d {}\n", command.name, in_quotes(command.help));
  for (const NamedCommand& each : runnable_commands()) {
    const std::string last = each.path.substr(each.path.rfind(' ') == std::string::npos ? 0 : each.path.rfind(' ') + 1);
    const std::string when = in_quotes("__fish_seen_subcommand_from " + last);
    for (const Option& option : each.command.options) {
      if (!is_flag(option)) continue;
      const bool is_short = option.name.size() == 2;
      std::string line = fmt::format("complete -c plimsoll -n {} {} {} -d {}", when, is_short ? "-s" : "-l",
                                     option.name.substr(is_short ? 1 : 2), in_quotes(option.help));
      const std::vector<std::string> values = values_of(option);
      if (takes_hardware(option))
        line += " -r -a " + in_quotes(joined(hardware_names()));
      else if (!values.empty())
        line += " -r -a " + in_quotes(joined(values));
      else if (takes_value(option))
        line += " -r -F";
      text += line + "\n";
    }
    if (takes_models(each.command)) text += fmt::format("complete -c plimsoll -n {} -F -a {}\n", when, in_quotes(joined(model_names())));
  }
  return text;
}

int run_completion(const Arguments& arguments) {
  const std::string& shell = arguments["SHELL"];
  if (shell != "bash" && shell != "zsh" && shell != "fish")
    fail("there is no completion for '" + shell + "'", "completion", suggest(shell, {"bash", "zsh", "fish"}));
  return print(shell == "bash" ? bash() : shell == "zsh" ? zsh() : fish()), kFits;
}

}  // namespace

Command completion_command() {
  return {"completion",
          "the completion script of a shell",
          "  plimsoll completion bash > ~/.local/share/bash-completion/completions/plimsoll",
          {{Option::positional, "SHELL", "bash, zsh, fish", true, {}}},
          run_completion,
          {}};
}

}  // namespace plimsoll::cli
