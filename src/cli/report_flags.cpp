#include "report_flags.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
#include "plimsoll/printable.hpp"
#include "price_options.hpp"

namespace plimsoll::cli {
namespace {

constexpr std::size_t kNarrowest = 40, kWidest = 120;  // lines of text are hard to follow beyond

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value;
}

bool writes_to_terminal(const Arguments& arguments) {
  const bool to_file = arguments.has("-o") && arguments["-o"] != "-";
  return !to_file && isatty(STDOUT_FILENO) == 1;
}

std::size_t terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::clamp<std::size_t>(size.ws_col, kNarrowest, kWidest);
}

/// Whether a command line gives the option.
bool gives(const std::string& line, const std::string& option) { return (" " + line + " ").find(" " + option + " ") != std::string::npos; }

}  // namespace

bool is_of_printing(const std::string& name) {
  constexpr const char* kPrinting[] = {"--format", "--json", "-o", "--verbose", "--quiet", "--color"};
  return std::find(std::begin(kPrinting), std::end(kPrinting), name) != std::end(kPrinting);
}

std::vector<Option> report_flags(const std::string& more) {
  return {{Option::value, "--format", "text, json, html (one file), markdown, csv" + (more.empty() ? "" : ", " + more), false, {}},
          {Option::flag, "--json", "the same as --format json", false, {}},
          {Option::value, "-o", "write to this file", false, {}},
          {Option::flag, "--verbose", "and where every number comes from", false, {}},
          {Option::flag, "--quiet", "the answer alone", false, {}},
          {Option::value, "--color", "auto, always, never; auto: on a terminal, unless NO_COLOR is set", false, {}, true}};
}

std::string format_of(const Arguments& arguments, const std::vector<std::string>& more) {
  std::vector<std::string> names{"text", "json", "html", "markdown", "csv"};
  names.insert(names.end(), more.begin(), more.end());
  const std::string& said = arguments["--format"];
  if (arguments.has("--json") && arguments.has("--format") && said != "json")
    fail("two ways to print at once", "--json --format " + said, "leave one of them out");
  const std::string format = arguments.has("--json") ? "json" : arguments.has("--format") ? said : "text";
  if (std::find(names.begin(), names.end(), format) == names.end())
    fail("there is no format '" + format + "'", "--format", suggest(format, names));
  if (arguments.has("--verbose") && arguments.has("--quiet")) fail("more and less at once", "--verbose --quiet", "leave one of them out");
  return format;
}

TextStyle style_of(const Arguments& arguments) {
  TextStyle style;
  const std::vector<std::string> kinds{"auto", "always", "never"};
  const std::string said = arguments.has("--color") ? arguments["--color"] : kinds.front();
  if (std::find(kinds.begin(), kinds.end(), said) == kinds.end()) fail("there is no way '" + said + "' to colour", "--color", suggest(said, kinds));
  if (writes_to_terminal(arguments)) {
    const char* terminal = std::getenv("TERM");
    style.width = terminal_width();
    style.colour = !is_set("NO_COLOR") && terminal && std::string_view(terminal) != "dumb";
  }
  if (said != "auto") style.colour = said == "always";
  if (arguments.has("--verbose")) style.detail = TextStyle::Detail::full;
  if (arguments.has("--quiet")) style.detail = TextStyle::Detail::brief;
  return style;
}

std::string command_line(const std::string& command, const Arguments& arguments, const std::vector<Option>& options, const std::string& more) {
  std::string line = "plimsoll " + command;
  for (const Option& option : options) {
    const bool positional = option.kind == Option::positional || option.kind == Option::positional_list;
    if (!arguments.has(option.name) || is_of_printing(option.name) || option.kind == Option::rest) continue;
    if (option.kind == Option::value && gives(more, option.name)) continue;  // said anew at the end
    for (const std::string& value : arguments.all(option.name))
      line += option.kind == Option::flag ? " " + option.name : positional ? " " + shell_word(value) : " " + option.name + " " + shell_word(value);
  }
  if (!more.empty()) line += " " + more;
  if (!arguments.all("COMMAND").empty()) line += " --";
  for (const std::string& word : arguments.all("COMMAND")) line += " " + shell_word(word);
  return line;
}

Document dated(Document document) {
  document.made = std::string("plimsoll ") + version() + ", " + today();
  return document;
}

std::string report_in(const std::string& format, const Arguments& arguments, const ReportWriters& writers) {
  if (format == "text") return writers.text(style_of(arguments));
  if (format == "json") return writers.json();
  if (format == "markdown") return to_markdown(dated(writers.document()));
  if (format == "csv") return to_csv(writers.document());
  return to_html(dated(writers.page ? writers.page() : writers.document()));
}

}  // namespace plimsoll::cli
