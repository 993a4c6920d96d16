// export: a plan as files of another program, ready to launch.
#include <filesystem>

#include "plimsoll/error.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/plimsoll.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

std::string names_of_formats() {
  std::string names;
  for (const std::string& name : export_formats()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

int run_export(const Arguments& arguments) {
  if (!arguments.has("--to")) fail("--to is missing: the program to write for", "export", "one of " + names_of_formats());
  const Run run = run_of(arguments, "export");
  const ExportedRun exported = export_run(
      {arguments.has("MODEL") ? arguments["MODEL"] : run.model.name, run.model, run.cluster, run.strategy, true}, arguments["--to"]);
  const std::string folder = arguments.has("-o") ? arguments["-o"] : std::string();
  std::string text;
  for (const NamedText& file : exported.files) {
    if (folder.empty()) {
      text += "==> " + file.name + " <==\n" + file.text + "\n";
      continue;
    }
    std::filesystem::create_directories(folder);
    const std::string path = folder + "/" + file.name;
    write_file(path, file.text);
    if (file.text.rfind("#!", 0) == 0)
      std::filesystem::permissions(path, std::filesystem::perms::owner_exec | std::filesystem::perms::group_exec,
                                   std::filesystem::perm_options::add);
    text += "wrote " + path + "\n";
  }
  text += "launch: " + (folder.empty() ? std::string() : "cd " + folder + " && ") + exported.command + "\n";
  if (!exported.no_equal.empty()) text += "without an equal in " + arguments["--to"] + ":\n";
  for (const std::string& line : exported.no_equal) text += "  " + line + "\n";
  print(text);
  return exported.predicted->verdict == Verdict::does_not_fit ? kDoesNotFit : kFits;
}

}  // namespace

Command export_command() {
  Command command{"export",
                  "write a plan as another program's files, ready to launch",
                  "  plimsoll export llama-3.1-8b --on 8xh100-sxm --fsdp full --micro-batch 1 --seq 4096 --to accelerate -o plan\n"
                  "  plimsoll export --from axolotl.yaml --on 8xh100-sxm --to sbatch -o plan",
                  run_options(),
                  run_export,
                  {}};
  command.options.push_back({Option::value, "--to", names_of_formats(), false, {}});
  command.options.push_back({Option::value, "-o", "the folder to write to; without it the files are printed", false, {}});
  command.options.front().required = false;  // --from may say it
  for (Option& option : foreign_options()) command.options.push_back(std::move(option));
  for (Option& flag : strategy_flags()) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli
