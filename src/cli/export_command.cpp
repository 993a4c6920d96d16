// export: a plan as files of another program, ready to launch.
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "plimsoll/campaign.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/formats.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/plimsoll.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

std::string names_of_formats() {
  std::string names;
  for (const std::string& name : export_formats()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

/// "36h", "90m", "7d": seconds.
std::int64_t time_limit(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  const double seconds = number * (unit == "d" ? 86400 : unit == "h" ? 3600 : unit == "m" ? 60 : 0);
  if (!(seconds >= 60 && seconds <= 366.0 * 86400)) fail("'" + text + "' is no time limit", "--time-limit", "36h, 90m or 7d, at most a year");
  return static_cast<std::int64_t>(seconds);
}

/// --steps or --tokens, --save-every, --time-limit, --job-name.
RunLength length_of(const Arguments& arguments, const Run& run) {
  constexpr std::int64_t kMost = 1'000'000'000;
  RunLength length;
  if (arguments.has("--steps") && arguments.has("--tokens")) fail("--steps and --tokens both say how long the run is", "--tokens", "one of them");
  length.steps = arguments.integer_or("--steps", length.steps, 1, kMost);
  if (arguments.has("--tokens")) {
    const Strategy resolved = resolve(run.strategy, run.model, run.cluster);
    const double steps = std::ceil(parse_tokens(arguments["--tokens"], "--tokens") / static_cast<double>(resolved.global_batch * resolved.seq_len));
    if (!(steps >= 1 && steps <= static_cast<double>(kMost))) fail("that many tokens are no sensible number of steps", "--tokens", "15T");
    length.steps = static_cast<std::int64_t>(steps);
  }
  length.save_every = arguments.integer_or("--save-every", 0, 1, kMost);
  if (arguments.has("--time-limit")) length.seconds = time_limit(arguments["--time-limit"]);
  if (arguments.has("--job-name")) {
    length.name = arguments["--job-name"];
    const bool plain = !length.name.empty() && length.name.size() <= 60 && length.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
    if (!plain) fail("'" + length.name.substr(0, 60) + "' is no job's name", "--job-name", "small letters, digits and hyphens, at most 60");
  }
  return length;
}

int run_export(const Arguments& arguments) {
  if (!arguments.has("--to")) fail("--to is missing: the program to write for", "export", "one of " + names_of_formats());
  const Run run = run_of(arguments, "export");
  const ExportedRun exported = export_run(
      {arguments.has("MODEL") ? arguments["MODEL"] : run.model.name, run.model, run.cluster, run.strategy, true, length_of(arguments, run)}, arguments["--to"]);
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
  command.options.push_back({Option::value, "--steps", "of the optimizer, 100 unless told", false, {}});
  command.options.push_back({Option::value, "--tokens", "of the whole run, instead: 300B, 15T", false, {}});
  command.options.push_back({Option::value, "--save-every", "steps between two checkpoints", false, {}});
  command.options.push_back({Option::value, "--time-limit", "of the job: 36h, 7d (sbatch)", false, {}});
  command.options.push_back({Option::value, "--job-name", "small letters, digits and hyphens (sbatch and k8s-…)", false, {}});
  command.options.push_back({Option::value, "-o", "the folder to write to; without it the files are printed", false, {}});
  command.options.front().required = false;  // --from may say it
  for (Option& option : foreign_options()) command.options.push_back(std::move(option));
  for (Option& flag : strategy_flags()) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli
