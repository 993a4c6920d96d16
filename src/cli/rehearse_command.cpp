// rehearse: the user's own training command on a GPU that is not there.
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "child_process.hpp"
#include "command.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/plimsoll.hpp"
#include "plimsoll/rehearse.hpp"
#include "report_flags.hpp"
#include "strategy_flags.hpp"

namespace plimsoll::cli {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

constexpr std::int64_t kMostRanks = 10'000'000;
constexpr double kMostSeconds = 7 * 24 * 3600.0;

bool is_file(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0;
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string own_path() {
  std::string program(4096, '\0');
  const ssize_t length = readlink("/proc/self/exe", program.data(), program.size());
  program.resize(length > 0 ? static_cast<std::size_t>(length) : 0);
  return program;
}

/// lib/plimsoll/rehearse of the build folder or of the installed prefix.
std::string library_folder() {
  const std::string here = folder_of(own_path());
  for (const std::string& folder : {here + "/lib/plimsoll/rehearse", here + "/../lib/plimsoll/rehearse"})
    if (is_file(folder + "/libplimsoll_device.so") && is_file(folder + "/python/sitecustomize.py")) return folder;
  fail("the stand-in device's libraries are not beside plimsoll", here + "/lib/plimsoll/rehearse",
       "build or install plimsoll as a whole: ./dev build");
}

// ---- the program's toolkit -----------------------------------------------------------------------------------------------------

/// Reads what the program's Python says about its PyTorch, without importing it: "cuda 13", "hip 6", "cpu" or "none".
std::string toolkit_of(const std::string& python) {
  constexpr const char* kQuestion =
      "import importlib.util,os,re\n"
      "s=importlib.util.find_spec('torch')\n"
      "t=open(os.path.join(os.path.dirname(s.origin),'version.py')).read() if s and s.origin else None\n"
      "f=lambda n:(re.search(r'(?m)^'+n+r'\\b[^=\\n]*= *[\"\\']([0-9]+)',t) or [0,''])[1]\n"
      "print('none' if t is None else 'cuda '+f('cuda') if f('cuda') else 'hip '+f('hip') if f('hip') else 'cpu')\n";
  const std::string answer = output_of({python, "-c", kQuestion});
  if (answer.empty()) fail("the program's Python does not run", python, "is it on PATH, in this environment?");
  const std::string line = answer.substr(0, answer.find('\n'));
  if (line == "none")
    fail("PyTorch is not installed for the program's Python", python, "install torch there, or name another Python in the command");
  if (line == "cpu") fail("the program's PyTorch is built for the CPU alone", python, "install a CUDA or ROCm build of torch");
  return line;
}

/// Throws Error (bad_input) where there is no such program on PATH, or at its path.
void require_program(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    if (!is_file(program)) fail("there is no such program", program, "the command behind -- is run as it is typed");
    return;
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (is_file(folder + "/" + program)) return;
  fail("there is no such program on PATH", program, "the command behind -- is run as it is typed");
}

/// The Python that will run the program: the command itself, its script's first line, or the one on PATH.
std::string python_of(const std::vector<std::string>& command) {
  const std::string& program = command.front();
  if (program.substr(program.rfind('/') + 1).compare(0, 6, "python") == 0) return program;
  if (std::FILE* file = std::fopen(program.c_str(), "rb")) {
    char line[512] = "";
    const bool read = std::fgets(line, sizeof line, file) != nullptr;
    std::fclose(file);
    const std::string first = read ? std::string(line, std::strcspn(line, "\r\n")) : std::string();
    if (first.compare(0, 2, "#!") == 0 && first.find("python") != std::string::npos && first.find(' ') == std::string::npos)
      return first.substr(2);
  }
  return output_of({"python", "--version"}).empty() ? "python3" : "python";
}

/// The libraries of the toolkit that are preloaded, those of them that there are.
std::string preload(const std::string& folder, const std::string& toolkit) {
  const std::string major = toolkit.substr(toolkit.find(' ') + 1);
  std::vector<std::string> names{"libplimsoll_device.so", "libplimsoll_torch.so"};
  if (toolkit.compare(0, 4, "cuda") == 0) {
    for (const char* versioned : {"libcudart.so.", "libcublas.so.", "libcublasLt.so.", "libcupti.so."}) names.push_back(versioned + major);
    names.insert(names.end(), {"libnccl.so.2", "libcudnn.so.9", "libcuda.so.1"});
  } else {
    const bool six = major == "6";  // each ROCm library counts its versions by itself
    names.push_back("libamdhip64.so." + major);
    names.insert(names.end(), {six ? "librocblas.so.4" : "librocblas.so.5", six ? "libhipblas.so.2" : "libhipblas.so.3",
                               six ? "libhipblaslt.so.0" : "libhipblaslt.so.1", "librccl.so.1"});
  }
  const std::string runtime = folder + "/" + names[2];
  if (!is_file(runtime))
    refuse("there is no stand-in for the program's runtime, " + names[2], "rehearse", "CUDA 12 and 13 and ROCm 6 and 7 have one");
  std::string list;
  for (const std::string& name : names)
    if (is_file(folder + "/" + name)) list += (list.empty() ? "" : ":") + folder + "/" + name;
  return list;
}

// ---- one rank ------------------------------------------------------------------------------------------------------------------

struct Settings {
  Cluster cluster;
  LaunchLine line;
  std::int64_t world = 1, per_node = 1;
  std::vector<std::int64_t> ranks;
  std::int64_t steps = 4;
  double timeout = 600;
  bool until_peak = false, synthetic_data = false;
  std::string snapshot;  // where PyTorch itself writes its allocator's history with stacks
  std::string folder, toolkit;
};

std::string joined(const std::string& first, const char* variable) {
  const char* had = std::getenv(variable);
  return had && *had ? first + ":" + had : first;
}

Environment device_environment(const Settings& settings, const std::string& record) {
  const Accelerator& device = settings.cluster.accelerator;
  const bool nvidia = !device.is_amd();
  const std::string& target = device.target;  // "sm_90", "gfx942"
  Environment environment{
      {"PLIMSOLL_REHEARSE_RECORD", record},
      {"PLIMSOLL_REHEARSE_DEVICES", std::to_string(settings.per_node)},
      {"PLIMSOLL_REHEARSE_NAME", device.title},
      {"PLIMSOLL_REHEARSE_MEMORY", std::to_string(device.memory_usable.value.count)},
      {"PLIMSOLL_REHEARSE_CONTEXT", std::to_string(device.overheads.context.value.count)},
      {"PLIMSOLL_REHEARSE_COMMUNICATOR", std::to_string(device.overheads.further_communicator.value.count)},
      {"PLIMSOLL_REHEARSE_PROCESSORS", std::to_string(device.compute_units)},
  };
  const std::size_t digits = target.find_first_of("0123456789");
  if (nvidia && digits != std::string::npos && target.size() - digits >= 2) {
    const std::string number = target.substr(digits, target.find_first_not_of("0123456789", digits) - digits);
    environment.emplace_back("PLIMSOLL_REHEARSE_CAPABILITY", number.substr(0, number.size() - 1) + "." + number.back());
  }
  if (!nvidia) environment.emplace_back("PLIMSOLL_REHEARSE_ARCH", target);
  return environment;
}

Environment rank_environment(const Settings& settings, std::int64_t rank) {
  const std::int64_t local = rank % settings.per_node, node = rank / settings.per_node,
                     nodes = (settings.world + settings.per_node - 1) / settings.per_node;
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  Environment environment{{"RANK", text(rank)},        {"WORLD_SIZE", text(settings.world)},
                          {"LOCAL_RANK", text(local)}, {"LOCAL_WORLD_SIZE", text(std::min(settings.per_node, settings.world))},
                          {"GROUP_RANK", text(node)},  {"GROUP_WORLD_SIZE", text(nodes)},
                          {"NODE_RANK", text(node)},   {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", "29500"}};
  if (settings.line.launcher == "mpirun")
    for (const auto& [name, value] : Environment{{"OMPI_COMM_WORLD_RANK", text(rank)},
                                                 {"OMPI_COMM_WORLD_SIZE", text(settings.world)},
                                                 {"OMPI_COMM_WORLD_LOCAL_RANK", text(local)},
                                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", text(settings.per_node)}})
      environment.emplace_back(name, value);
  if (settings.line.launcher == "torchrun") {
    environment.emplace_back("ROLE_RANK", text(rank));
    environment.emplace_back("TORCHELASTIC_RUN_ID", "rehearsal");
    environment.emplace_back("TORCHELASTIC_RESTART_COUNT", "0");
    environment.emplace_back("TORCHELASTIC_MAX_RESTARTS", "0");
  }
  if (settings.world == 1 && settings.line.launcher.empty()) return {};  // as the program would be run: without any launcher
  return environment;
}

/// "F", or "F.rank3" when there are several.
std::string per_rank(const std::string& path, std::int64_t rank, bool several) {
  return several ? fmt::format("{}.rank{}", path, rank) : path;
}

/// What the program's helpers say at its end, where it never used the device and so has no record.
std::string summary_path(const std::string& record) { return record + ".summary"; }

Environment helper_environment(const Settings& settings, std::int64_t rank, const std::string& record) {
  Environment environment{{"PLIMSOLL_REHEARSE", "1"},
                          {"PLIMSOLL_REHEARSE_STEPS", std::to_string(settings.steps)},
                          {"PLIMSOLL_REHEARSE_UNTIL_PEAK", settings.until_peak ? "1" : "0"},
                          {"PLIMSOLL_REHEARSE_PROGRAM", own_path()},
                          {"PLIMSOLL_REHEARSE_SUMMARY", summary_path(record)},
                          {"PLIMSOLL_REHEARSE_SYNTHETIC", settings.synthetic_data ? "1" : "0"},
                          {"PYTHONPATH", joined(settings.folder + "/python", "PYTHONPATH")},
                          {"LD_LIBRARY_PATH", joined(settings.folder, "LD_LIBRARY_PATH")},
                          {"LD_PRELOAD", joined(preload(settings.folder, settings.toolkit), "LD_PRELOAD")},
                          {"PYTORCH_NVML_BASED_CUDA_CHECK", "1"},  // asking the runtime would forbid forks
                          {"TORCH_NCCL_ENABLE_MONITORING", "0"},   // no peer will ever answer a heartbeat
                          {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
                          {"WANDB_MODE", "disabled"},
                          {"TOKENIZERS_PARALLELISM", "false"}};
  if (is_file(settings.folder + "/libcudnn.so.9")) environment.emplace_back("PLIMSOLL_REHEARSE_CUDNN", "1");
  if (!settings.snapshot.empty())
    environment.emplace_back("PLIMSOLL_REHEARSE_SNAPSHOT", per_rank(settings.snapshot, rank, settings.ranks.size() > 1));
  if (settings.synthetic_data) environment.emplace_back("HF_HUB_OFFLINE", "1");
  return environment;
}

std::vector<std::string> command_of(const Settings& settings, std::int64_t rank) {
  std::vector<std::string> command = settings.line.command;
  if (settings.line.rank_argument) {
    const auto script =
        std::find_if(command.begin() + 1, command.end(), [](const std::string& word) { return word.empty() || word[0] != '-'; });
    if (script != command.end()) command.insert(script + 1, "--local_rank=" + std::to_string(rank % settings.per_node));
  }
  return command;
}

std::string last_line_of(const Recording& recording) {
  return recording.error_stack.empty() ? std::string() : recording.error_stack.back();
}

/// The innermost place of the program's own code in the stack of its error.
std::string own_line_of(const Recording& recording) {
  for (auto frame = recording.error_stack.rbegin(); frame != recording.error_stack.rend(); ++frame)
    if (frame->find("site-packages") == std::string::npos && frame->find("/lib/python") == std::string::npos &&
        frame->find("/plimsoll_rehearse/") == std::string::npos && frame->find("<frozen ") == std::string::npos)
      return *frame;
  return last_line_of(recording);
}

/// The program's own name: its script or its module, else what is run.
const std::string& script_of(const std::vector<std::string>& command) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (command[i] == "-m" && i + 1 < command.size() && command[i + 1] != "plimsoll_rehearse.accelerate_launch") return command[i + 1];
    if (command[i].size() > 3 && command[i].compare(command[i].size() - 3, 3, ".py") == 0) return command[i];
  }
  return command.front();
}

/// What to do about the error that ended the program.
std::string advice_on(const Recording& recording) {
  if (recording.error.find("undefined symbol") != std::string::npos || recording.error.find("symbol not found") != std::string::npos)
    return "a library of the program wants a function that the stand-in device does not have: its version is newer than this plimsoll's";
  if (recording.error.find("ModuleNotFoundError") == 0) return "install it for the Python of the command";
  return recording.read.empty() ? "its own output is above" : "it read values that no device computed: " + recording.read.back().what;
}

/// The program ended, or was ended, before it finished a step.
[[noreturn]] void explain_failure(const Settings& settings, const Recording& recording, const ChildResult& child, bool recorded) {
  const std::string& program = script_of(settings.line.command);
  if (child.timed_out)
    fail(fmt::format("the program reached the end of no step within {:.0f} s", settings.timeout), program,
         "the stacks of its threads are printed above; --timeout gives it longer");
  if (!recording.error.empty())
    fail("the program failed before the end of its first step: " + recording.error, own_line_of(recording), advice_on(recording));
  if (child.exit_code > 128)
    fail(fmt::format("the program was ended by a signal ({}) before the end of its first step", strsignal(child.exit_code - 128)), program,
         child.exit_code - 128 == SIGKILL ? "is the host's memory full?" : "its stack is printed above");
  if (child.exit_code != 0)
    fail(fmt::format("the program ended with exit code {} before the end of its first step", child.exit_code), program,
         "its own output is above");
  if (!recorded) fail("the program ended without using the device", program, "does it train on a GPU, in this process?");
  fail("the program ended without a whole step of an optimizer", program,
       "rehearse follows torch.optim's optimizers: does the script reach optimizer.step()?");
}

/// A folder for records that nobody asked to keep, gone with all that is in it when they were read, and when the rehearsal failed: every
/// process of a program that uses the device leaves its own.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const char* temporary = std::getenv("TMPDIR");
    path_ = std::string(temporary && *temporary ? temporary : "/tmp") + "/plimsoll-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) fail("a temporary folder cannot be made", path_, "set TMPDIR to one that can be written");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Runs one rank and reads its record; the record stays at `path`.
Recording rehearse_rank(const Settings& settings, std::int64_t rank, const std::string& path) {
  std::remove(path.c_str());
  Environment environment = device_environment(settings, path);
  for (const Environment& more : {settings.line.environment, rank_environment(settings, rank), helper_environment(settings, rank, path)})
    environment.insert(environment.end(), more.begin(), more.end());
  const ChildResult child = run_child(command_of(settings, rank), environment, settings.timeout, SIGRTMIN + 7);
  if (!child.started) fail("cannot be run: " + child.problem, settings.line.command.front(), "is it on PATH?");
  if (child.interrupted_by != 0) fail(fmt::format("interrupted: {}", strsignal(child.interrupted_by)), script_of(settings.line.command));
  const bool recorded = is_file(path);
  Recording recording;
  if (recorded) {
    recording = read_recording(path);
  } else if (is_file(summary_path(path))) {
    recording = read_summary(summary_path(path));
  }
  std::remove(summary_path(path).c_str());
  recording.rank = rank;
  recording.world = settings.world;
  if (!recording.out_of_memory && recording.steps.empty()) explain_failure(settings, recording, child, recorded);
  if (!recording.error.empty() && !recording.out_of_memory)
    recording.notes.push_back(
        {fmt::format("the program failed after {} steps: {} at {}", recording.steps.size(), recording.error, own_line_of(recording)), 1});
  if (child.timed_out) recording.notes.push_back({fmt::format("stopped after {:.0f} s (--timeout)", settings.timeout), 1});
  std::fprintf(stderr,
               "plimsoll: rank %lld: %zu steps in %.1f s, %.0f MB of host memory, %lld events, %lld bytes of record, %.1f an event\n",
               static_cast<long long>(rank), recording.steps.size(), child.seconds, static_cast<double>(child.peak_kilobytes) / 1e3,
               static_cast<long long>(recording.events), static_cast<long long>(recording.bytes),
               static_cast<double>(recording.bytes) / static_cast<double>(std::max<std::int64_t>(1, recording.events)));
  return recording;
}

// ---- the command ---------------------------------------------------------------------------------------------------------------

std::int64_t world_of(const Arguments& arguments, const LaunchLine& line, const Cluster& cluster) {
  const std::int64_t nodes = line.nodes > 0 ? line.nodes : std::max<std::int64_t>(1, cluster.gpus() / cluster.gpus_per_node);
  const std::int64_t said = line.every_device ? nodes * cluster.gpus_per_node : line.world();
  const std::int64_t world = arguments.integer_or("--world", said > 0 ? said : 1, 1, kMostRanks);
  if (said > 0 && world != said)
    fail(fmt::format("--world is {}, and the {} line starts {} processes", world, line.launcher, said), "--world", "leave one of them out");
  if (world > cluster.gpus())
    fail(fmt::format("a world of {} does not fit on the {} GPUs of {}", world, cluster.gpus(), cluster.name), "--world");
  return world;
}

/// The ranks asked for; else the first, the middle and the last, which in a pipeline hold different stages.
std::vector<std::int64_t> ranks_of(const Arguments& arguments, std::int64_t world) {
  if (arguments.has("--rank")) return {arguments.integer_or("--rank", 0, 0, world - 1)};
  std::vector<std::int64_t> ranks{0, world / 2, world - 1};
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

Settings settings_of(const Arguments& arguments) {
  Settings settings;
  settings.cluster = parse_cluster(cluster_name(arguments, "rehearse"));
  settings.line = parse_launch_line(arguments.all("COMMAND"));
  settings.world = world_of(arguments, settings.line, settings.cluster);
  settings.ranks = ranks_of(arguments, settings.world);
  settings.per_node = std::min({settings.world, static_cast<std::int64_t>(settings.cluster.gpus_per_node),
                                settings.line.processes_per_node > 0 ? settings.line.processes_per_node : settings.world});
  settings.steps = arguments.integer_or("--steps", arguments.has("--until-peak") ? 20 : 4, 1, 1'000'000);
  settings.timeout = arguments.number_or("--timeout", 600, 0.1, kMostSeconds);
  settings.until_peak = arguments.has("--until-peak");
  settings.synthetic_data = arguments.has("--synthetic-data");
  if (arguments.has("--stacks")) {
    if (!arguments.has("--memory-viz")) fail("stacks go into a snapshot", "--stacks", "add --memory-viz FILE");
    settings.snapshot = arguments["--memory-viz"];
  }
  settings.folder = library_folder();
  require_program(settings.line.command.front());
  settings.toolkit = toolkit_of(python_of(settings.line.command));
  return settings;
}

/// Where a rank's record goes: beside the others when it is kept, else among temporary files.
std::string record_path(const Arguments& arguments, const TemporaryFolder& folder, std::int64_t rank, bool several) {
  if (arguments.has("--record")) return per_rank(arguments["--record"], rank, several);
  return fmt::format("{}/rank{}.record", folder.path(), rank);
}

void write_views(const Arguments& arguments, const Rehearsal& rehearsal) {
  const Recording& recording = rehearsal.recordings[rehearsal.report.worst];
  if (arguments.has("--trace")) write_file(arguments["--trace"], to_timeline_trace(rehearsal, rehearsal.report.worst));
  if (!arguments.has("--memory-viz") || arguments.has("--stacks")) return;  // with stacks, PyTorch has written it
  PlayMemoryOptions options;
  options.steps = 2;
  write_file(arguments["--memory-viz"], to_memory_viz(record_memory(recording.program, options), recording.program.labels));
}

int run_rehearse(const Arguments& arguments) {
  const std::string format = format_of(arguments);
  const Settings settings = settings_of(arguments);
  const std::vector<std::int64_t>& ranks = settings.ranks;
  const TemporaryFolder folder;
  std::vector<Recording> recordings;
  for (const std::int64_t rank : ranks)
    recordings.push_back(rehearse_rank(settings, rank, record_path(arguments, folder, rank, ranks.size() > 1)));
  Rehearsal rehearsal = rehearsal_of(std::move(recordings), settings.cluster);
  if (settings.cluster.accelerator.is_amd() && settings.toolkit.compare(0, 4, "cuda") == 0)
    rehearsal.report.notes.push_back("the program's PyTorch is a CUDA build: which kernels it launches is CUDA's choice, not ROCm's");
  write_views(arguments, rehearsal);
  const std::size_t launches = arguments.has("--verbose") ? 1000 : 15;
  const auto document = [&] {
    Document made = document_of(rehearsal);
    made.command = command_line("rehearse", arguments, rehearse_command().options);
    return made;
  };
  print_to(arguments, report_in(format, arguments, {[&](const TextStyle& style) { return to_text(rehearsal, launches, style); },
                                                    [&] { return to_json(rehearsal.report); }, document, {}}));
  return rehearsal.report.verdict == Verdict::does_not_fit ? kDoesNotFit : kFits;
}

}  // namespace

Command rehearse_command() {
  Command command{"rehearse",
          "your own training command on a GPU that is not there",
          "  plimsoll rehearse --on 8xmi300x --rank 0 --world 8 -- python train.py --batch-size 4\n"
          "  plimsoll rehearse --on 8xh100-sxm -- torchrun --nproc-per-node 8 train.py\n"
          "  plimsoll rehearse --on 1xh100-sxm --trace step.json --memory-viz peak.pickle -- python train.py",
          {{Option::value, "--on", "cluster: 8xmi300x, 16x8xh100-sxm, a shipped cluster, or a file", false, {}},
           {Option::value, "--rank", "the rank to stand for; else the first, the middle and the last", false, {}},
           {Option::value, "--world", "ranks in all; else what the launcher's line says, or 1", false, {}},
           {Option::value, "--steps", "optimizer steps to follow, 4 unless told", false, {}},
           {Option::flag, "--until-peak", "stop as soon as a step's peak recurs", false, {}},
           {Option::value, "--timeout", "seconds per rank, 600 unless told; then the stacks of all threads are printed", false, {}},
           {Option::flag, "--synthetic-data", "stand-ins for tokenizers and datasets that are not there", false, {}},
           {Option::flag,
            "--stacks",
            "let PyTorch write the --memory-viz snapshot itself, with the Python stack of every allocation",
            false,
            {}},
           {Option::value, "--trace", "write the step's timeline to this file (Perfetto)", false, {}},
           {Option::value, "--memory-viz", "write a snapshot for pytorch.org/memory_viz to this file", false, {}},
           {Option::value, "--record", "keep the record in this file (.rankN behind it for several ranks)", false, {}},
           {Option::rest, "COMMAND", "behind --: the program, or a torchrun, accelerate launch, deepspeed or mpirun line", true, {}}},
          run_rehearse,
          {}};
  for (Option& flag : report_flags()) command.options.push_back(std::move(flag));
  return command;
}

}  // namespace plimsoll::cli
