#include "command.hpp"
#include "plimsoll/hardware_files.hpp"
#include "plimsoll/validate.hpp"
#include "report_flags.hpp"

namespace plimsoll::cli {
namespace {

int run_validate(const Arguments& arguments) {
  const std::string format = format_of(arguments);
  if (arguments.has("--hardware-files")) use_hardware_files(arguments["--hardware-files"]);
  const auto most = static_cast<std::size_t>(arguments.integer_or("--most", 0, 0, 1'000'000'000));
  std::vector<RowSet> sets;
  for (const std::string& path : arguments.all("ROWS")) sets.push_back({path, load_rows(path)});
  const Validation validation = validate(sets);
  const auto document = [&] {
    Document made = document_of(validation);
    made.command = command_line("validate", arguments, validate_command().options);
    return made;
  };
  print_to(arguments, report_in(format, arguments, {[&](const TextStyle& style) {
                                                      return style.detail == TextStyle::Detail::brief ? document_of(validation).answer + "\n"
                                                                                                      : validation_text(validation, most);
                                                    },
                                                    [&] { return validation_json(validation); }, document, {}}));
  return kFits;
}

}  // namespace

Command validate_command() {
  Command command{"validate",
                  "predict measured runs and show the errors, worst first",
                  "  plimsoll validate bench/corpus/torchtitan.json\n  plimsoll validate bench/corpus/*.json --json\n"
                  "  plimsoll validate bench/corpus/torchtitan.json --format html -o errors.html",
                  {},
                  run_validate,
                  {}};
  command.options = {{Option::positional_list, "ROWS", "files of measured rows (docs/rows.md)", true, {}},
                     {Option::value, "--most", "print this many rows at most (text only)", false, {}},
                     {Option::value, "--hardware-files", "a folder whose files stand in the place of hardware/'s", false, {}}};
  for (Option& flag : report_flags()) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli
