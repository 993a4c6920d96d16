// The only file that knows CLI11.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string_view>

#include "command.hpp"
#include "option_words.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
#include "plimsoll/suggestion.hpp"

namespace plimsoll::cli {
namespace {

/// Everything that a command's options are parsed into, in the order of the options.
struct Bound {
  const Command* command;
  std::vector<std::vector<std::string>> values;
  std::vector<CLI::Option*> options;
};

constexpr std::string_view kHelpAll = "--help-all";

constexpr std::size_t kColumns = 80, kNames = 24;  // of a terminal; of those the names of options

/// Broken between words where a line of the help would be longer than a terminal's.
std::string wrapped(const std::string& help) {
  std::istringstream words(help);
  std::string word, text;
  std::size_t column = 0;
  while (words >> word) {
    const auto width = static_cast<std::size_t>(
        std::count_if(word.begin(), word.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
    const bool breaks = column > 0 && column + 1 + width > kColumns - kNames;
    text += column == 0 ? "" : breaks ? "\n" : " ";
    text += word;
    column = breaks ? width : column + (column > 0 ? 1 : 0) + width;
  }
  return text;
}

/// The help of a strategy's key beside dozens of others: one line, --help-all has the rest.
std::string first_line(const std::string& help) {
  const std::string text = wrapped(help);
  const std::size_t end = text.find('\n');
  return end == std::string::npos ? text : text.substr(0, end) + (end + 2 <= kColumns - kNames ? " …" : "");
}

/// CLI11 leaves two empty lines between groups.
void print_help(std::string text) {
  for (std::size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  print(text);
}

/// What --help and --version print.
int print_help(const CLI::App& app, const CLI::Success& wanted) {
  std::ostringstream out;
  const int code = app.exit(wanted, out, std::cerr);
  print_help(out.str());
  return code;
}

constexpr const char* kFirstScreen = R"(Try:
  plimsoll estimate llama-3.1-8b --on 8xmi300x --fsdp full --seq 8192
  plimsoll search llama-3.1-70b --on 8x8xh100-sxm --global-batch 512
  plimsoll rehearse --on 8xh100-sxm -- torchrun --nproc-per-node 8 train.py

plimsoll help COMMAND has examples.
Exit codes: 0 fits, 1 does not fit, 2 bad input, 70 internal.)";

void add_option(CLI::App& app, const Option& option, bool with_rare, Bound& bound, std::size_t index) {
  if (option.kind == Option::rest) return;  // taken off the line before it is parsed
  const std::string help = option.group.empty() || with_rare ? wrapped(option.help) : first_line(option.help);
  CLI::Option* added = nullptr;
  if (option.kind == Option::flag) {
    added = app.add_flag(option.name, help);
  } else {
    added = app.add_option(option.name, bound.values[index], help);
    const bool many = option.kind == Option::positional_list || option.kind == Option::value_list || option.kind == Option::words;
    if (!many) added->expected(1);
    if (option.kind == Option::positional) added->allow_extra_args(false);  // the next word is the next one's
    if (option.kind == Option::value || option.kind == Option::value_list)
      added->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (option.kind == Option::words) added->expected(1, -1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (option.kind != Option::positional_list && option.kind != Option::words)
      added->allow_extra_args(false);  // or CLI11 takes "[a, b]" apart, which is JSON
    added->type_name(option.kind == Option::value || option.kind == Option::value_list || option.kind == Option::words ? "TEXT" : "");
  }
  if (option.required) added->required();
  if (!option.group.empty()) added->group(option.group);
  if (option.rare && !with_rare) added->group("");  // CLI11 hides what is in no group
  bound.options[index] = added;
}

/// What a line is parsed for: the command that it names; whether rare options are among those that help shows; and its words, where no help is asked
/// for.
struct Line {
  bool names_command = false, with_rare = false;
  std::vector<std::string_view> words;

  /// Of hundreds of options those are bound that the line could mean, as CLI11 holds each against all before it: those that a word begins with.
  bool may_mean(const Option& option) const {
    const bool flag = option.name.rfind('-', 0) == 0;
    return !flag || option.required || words.empty() ||
           std::any_of(words.begin(), words.end(), [&](std::string_view word) { return word.rfind(option.name, 0) == 0; });
  }
};

/// Options are bound only where the command is the one that was named: every other's would be in vain.
void add_command(CLI::App& parent, const Command& command, const Line& line, std::vector<std::unique_ptr<Bound>>& all) {
  CLI::App* app = parent.add_subcommand(command.name, command.help);
  if (!command.group.empty()) app->group(command.group);
  if (!command.examples.empty()) app->footer("Examples:\n" + command.examples);
  app->allow_extras();
  for (const Command& child : command.children) add_command(*app, child, line, all);
  if (!command.run || !line.names_command) return;
  auto bound = std::make_unique<Bound>(Bound{&command, {}, {}});
  bound->values.resize(command.options.size());
  bound->options.resize(command.options.size());
  for (std::size_t i = 0; i < command.options.size(); ++i)
    if (line.may_mean(command.options[i])) add_option(*app, command.options[i], line.with_rare, *bound, i);
  all.push_back(std::move(bound));
}

/// The last of several values counts, so that a line is changed by what is added at its end; that there were others is said.
void tell_the_last(const Option& option, const std::vector<std::string>& values) {
  if (option.kind != Option::value || std::all_of(values.begin(), values.end(), [&](const auto& value) { return value == values.front(); }))
    return;
  std::fprintf(stderr, "plimsoll: %s is given more than once: the last one counts\n", option.name.c_str());
}

Arguments arguments_of(const Bound& bound) {
  Arguments arguments;
  for (std::size_t i = 0; i < bound.options.size(); ++i) {
    const Option& option = bound.command->options[i];
    if (bound.options[i] == nullptr) continue;
    if (option.kind == Option::flag && bound.options[i]->count() > 0) arguments.add(option.name, "true");
    tell_the_last(option, bound.values[i]);
    for (const std::string& value : bound.values[i]) arguments.add(option.name, value);
  }
  return arguments;
}

std::vector<std::string> names_of(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  return names;
}

/// What another program's option is here: "--gradient-checkpointing" is --recompute; a value alone ("--bf16") is said of its option.
std::string said_elsewhere(const std::string& flag, const Command& command) {
  const std::string word = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  const auto takes = [&](const std::string& name) {
    return std::any_of(command.options.begin(), command.options.end(), [&](const Option& option) { return option.name == name; });
  };
  if (const auto ours = strategy_key_of(word)) {
    std::string here = "--" + *ours;
    std::replace(here.begin(), here.end(), '_', '-');
    if (takes(here)) return "here it is '" + here + "'";
  }
  for (const bool rare : {false, true})
    for (const Option& option : command.options)
      if (const auto values = values_of(option); option.rare == rare && std::find(values.begin(), values.end(), word) != values.end())
        return "say '" + option.name + " " + word + "'";
  return {};
}

/// Of a word that heads a group of options ("--lora"), those that most runs set, or else its first ones: "say '--lora.r'".
std::string headed_by(const std::string& name, const Command& command) {
  constexpr std::size_t kMost = 3;
  std::vector<std::string> usual, all;
  for (const Option& option : command.options) {
    if (option.name.rfind(name + ".", 0) != 0) continue;
    all.push_back("'" + option.name + "'");
    if (!option.rare) usual.push_back(all.back());
  }
  if (all.empty()) return {};
  const std::vector<std::string>& said = usual.empty() ? all : usual;
  const auto first = said.begin() + static_cast<std::ptrdiff_t>(std::min(said.size(), kMost));
  return fmt::format("say {}{}", fmt::join(said.begin(), first, ", "), first == said.end() ? "" : "; --help-all has more below it");
}

/// What CLI11 calls extras: name the first one, and what was perhaps meant.
void refuse_extras(const CLI::App& app, const Command& command) {
  const auto extras = app.remaining();
  if (extras.empty()) return;
  const std::string name = extras.front().substr(0, extras.front().find('='));
  if (name.rfind('-', 0) != 0) fail("'" + name + "' is one argument too many", command.name);
  std::vector<std::string> flags{"--help"};
  for (const Option& option : command.options)
    if (option.name.rfind('-', 0) == 0) flags.push_back(option.name);
  std::string hint = headed_by(name, command);
  if (hint.empty()) hint = said_elsewhere(name, command);
  if (hint.empty()) hint = meant(name, flags);
  fail("there is no option '" + name + "'", command.name, hint.empty() ? "plimsoll " + command.name + " --help lists them" : hint);
}

/// CLI11 on an option without its value: "--fsdp: 1 required TEXT missing".
[[noreturn]] void refuse_missing_value(const CLI::ArgumentMismatch& wrong, const Command& command) {
  const std::string what = wrong.what(), name = what.substr(0, what.find(':'));
  for (const Option& option : command.options)
    if (option.name == name && is_flag(option)) fail("the value is missing", name, option.help);
  fail(what, command.name, "--help has examples");
}

/// The command that the line names, at the deepest level. Throws Error when a name is unknown or missing.
const Command& find_command(const std::vector<Command>& commands, int argc, const char* const* argv, int at, const std::string& path) {
  if (at >= argc) fail("a command is missing", path, suggest("", names_of(commands)));
  for (const Command& command : commands)
    if (command.name == argv[at])
      return command.children.empty() ? command
                                      : find_command(command.children, argc, argv, at + 1, path + (path.empty() ? "" : " ") + command.name);
  std::vector<std::string> names = names_of(commands);
  if (path.empty()) names.insert(names.end(), {"--help", "--version"});
  fail("there is no command '" + std::string(argv[at]) + "'", path, suggest(argv[at], names));
}

bool takes_rest(const Command& command) {
  return std::any_of(command.options.begin(), command.options.end(), [](const Option& option) { return option.kind == Option::rest; });
}

/// The first word that is neither an option of the command nor the value of one: another program starts there, without "--". An option that
/// takes words takes all of them.
int end_of_options(const Command& command, int argc, const char* const* argv) {
  int at = 2;
  while (at < argc && argv[at][0] == '-') {
    const std::string_view word = argv[at++];
    const auto option = std::find_if(command.options.begin(), command.options.end(), [&](const Option& each) { return each.name == word; });
    if (option != command.options.end() && option->kind == Option::words) return argc;
    if (option != command.options.end() && option->kind != Option::flag && at < argc) ++at;
  }
  return at;
}

/// A command that is nothing without another program's line takes it also without "--".
bool needs_rest(const Command& command) {
  return std::any_of(command.options.begin(), command.options.end(),
                     [](const Option& option) { return option.kind == Option::rest && option.required; });
}

void add_rest(Arguments& arguments, const Command& command, int argc, const char* const* argv, int from) {
  for (const Option& option : command.options)
    if (option.kind == Option::rest)
      for (int i = from; i < argc; ++i) arguments.add(option.name, argv[i]);
}

bool is_given(int argc, const char* const* argv, std::string_view flag) {
  return argc > 1 && std::find(argv + 1, argv + argc, flag) != argv + argc;
}

}  // namespace

int own_words(const std::vector<Command>& commands, int argc, const char* const* argv) {
  const auto end =
      static_cast<int>(std::find_if(argv, argv + argc, [](const char* word) { return std::string_view(word) == "--"; }) - argv);
  for (const Command& command : commands)
    if (argc > 1 && command.name == argv[1] && needs_rest(command)) return std::min(end, end_of_options(command, argc, argv));
  return end;
}

namespace {

int run_words(const std::vector<Command>& commands, int argc, const char* const* argv) {
  CLI::App app("Before a training run leaves port: does it fit, how fast does it go, and why.", "plimsoll");
  app.get_formatter()->column_width(kNames);
  app.set_version_flag("--version", std::string("plimsoll ") + version());
  app.footer(kFirstScreen);
  app.require_subcommand(0, 1);  // a second command's name is an argument: `man estimate`
  std::vector<std::unique_ptr<Bound>> all;
  const int own = own_words(commands, argc, argv);
  const bool help_all = is_given(own, argv, kHelpAll);
  const bool help = help_all || is_given(own, argv, "--help") || is_given(own, argv, "-h");
  Line line{false, help_all, {}};
  if (!help) line.words.assign(argv, argv + argc);
  for (const Command& command : commands) {
    line.names_command = argc > 1 && command.name == argv[1];
    add_command(app, command, line, all);
  }

  if (argc == 1) {  // nothing was asked, so nothing "fits"
    print_help(app.help());
    return kBadInput;
  }
  const bool top_level = argv[1][0] == '-';
  const Command* chosen = top_level || help ? nullptr : &find_command(commands, argc, argv, 1, "");
  std::vector<const char*> words(argv, argv + argc);
  for (int i = 1; i < own; ++i)
    if (kHelpAll == words[static_cast<std::size_t>(i)]) words[static_cast<std::size_t>(i)] = "--help";
  try {
    app.parse(chosen && takes_rest(*chosen) ? own : argc, words.data());
  } catch (const CLI::Success& wanted) {  // --help, --version
    return print_help(app, wanted);
  } catch (const CLI::ExtrasError&) {
    fail("there is no option '" + std::string(argv[1]) + "'", {}, "plimsoll --help lists the commands");
  } catch (const CLI::ArgumentMismatch& wrong) {
    if (chosen) refuse_missing_value(wrong, *chosen);
    fail(wrong.what(), {}, "--help has examples");
  } catch (const CLI::ParseError& wrong) {
    fail(wrong.what(), chosen ? chosen->name : std::string(), "--help has examples");
  }
  for (const auto& bound : all) {
    if (bound->command != chosen) continue;
    const CLI::App* used = &app;
    while (!used->get_subcommands().empty()) used = used->get_subcommands().front();
    refuse_extras(*used, *chosen);
    Arguments arguments = arguments_of(*bound);
    add_rest(arguments, *chosen, argc, argv, own < argc && std::string_view(argv[own]) == "--" ? own + 1 : own);
    arguments.check_output();
    return chosen->run(arguments);
  }
  fail("a command is missing", {}, suggest("", names_of(commands)));
}

}  // namespace

int run(const std::vector<Command>& commands, int argc, const char* const* argv) {
  if (argc < 2 || std::string_view(argv[1]) != "help") return run_words(commands, argc, argv);
  std::vector<const char*> words(argv, argv + argc);  // `help export` is `export --help`
  words.erase(words.begin() + 1);
  const auto is_named = [&](const Command& command) { return words.size() > 1 && command.name == words[1]; };
  if (words.size() > 1 && std::none_of(commands.begin(), commands.end(), is_named))
    find_command(commands, static_cast<int>(words.size()), words.data(), 1, "");  // says what was perhaps meant
  words.push_back("--help");
  return run_words(commands, static_cast<int>(words.size()), words.data());
}

}  // namespace plimsoll::cli
