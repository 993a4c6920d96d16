#include "command.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/validate.hpp"

namespace plimsoll::cli {
namespace {

int run_validate(const Arguments& arguments) {
  if (arguments.has("--residuals") && arguments.has("--json"))
    fail("two ways to print at once", "--residuals --json", "--residuals prints JSON of its own");
  std::vector<RowSet> sets;
  for (const std::string& path : arguments.all("ROWS")) sets.push_back({path, load_rows(path)});
  const Validation validation = validate(sets);
  const auto most = static_cast<std::size_t>(arguments.integer_or("--most", 0, 0, 1'000'000'000));
  if (arguments.has("--residuals")) {
    print(residuals_json(validation));
    return kFits;
  }
  print(arguments.has("--json") ? validation_json(validation) : validation_text(validation, most));
  return kFits;
}

}  // namespace

Command validate_command() {
  Command command{"validate",
                  "predict measured runs and show the errors, worst first",
                  "  plimsoll validate bench/corpus/torchtitan.json\n  plimsoll validate bench/corpus/*.json --json",
                  {},
                  run_validate,
                  {}};
  command.options = {{Option::positional_list, "ROWS", "files of measured rows (docs/rows.md)", true, {}},
                     {Option::value, "--most", "print this many rows at most (text only)", false, {}},
                     {Option::flag, "--json", "print one plimsoll/validation/1 object", false, {}},
                     {Option::flag, "--residuals", "print the errors by kind of run, as hardware/residuals.json holds them", false, {}}};
  return command;
}

}  // namespace plimsoll::cli
