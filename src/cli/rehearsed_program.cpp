// The program's processes: what they are told, how long they run, and what they leave behind.
#include "rehearsed_program.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <sstream>

#include "child_process.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::cli {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

constexpr std::int64_t kMostDevices = 64;   // of one process: as many as the stand-in has
constexpr std::int64_t kMostTogether = 16;  // ranks of a world that run at once: each is a process of some 700 MB
constexpr double kSecondsToLeave = 20;      // for a process that has written its summary

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

/// A folder for what the processes leave behind, gone with all that is in it in the end: every process that uses the device has its record.
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

// ---- what processes are told ---------------------------------------------------------------------------------------------------

std::int64_t per_node_of(const Rehearse& wanted) {
  const std::int64_t said = wanted.line.processes_per_node;
  return std::min({wanted.world, static_cast<std::int64_t>(wanted.cluster.gpus_per_node), said > 0 ? said : wanted.world});
}

std::string joined(const std::string& first, const char* variable) {
  const char* had = std::getenv(variable);
  return had && *had ? first + ":" + had : first;
}

Environment device_environment(const Rehearse& wanted, const std::string& record) {
  const Accelerator& device = wanted.cluster.accelerator;
  const bool nvidia = !device.is_amd();
  const std::string& target = device.target;  // "sm_90", "gfx942"
  Environment environment{
      {"PLIMSOLL_REHEARSE_RECORD", record},
      {"PLIMSOLL_REHEARSE_DEVICES", std::to_string(std::min<std::int64_t>(wanted.cluster.gpus_per_node, kMostDevices))},
      {"PLIMSOLL_REHEARSE_GPUS", std::to_string(wanted.cluster.gpus())},
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

Environment rank_environment(const Rehearse& wanted, std::int64_t rank) {
  const std::int64_t per_node = per_node_of(wanted);
  const std::int64_t local = rank % per_node, node = rank / per_node, nodes = (wanted.world + per_node - 1) / per_node;
  const auto text = [](std::int64_t number) { return std::to_string(number); };
  Environment environment{{"RANK", text(rank)},        {"WORLD_SIZE", text(wanted.world)},
                          {"LOCAL_RANK", text(local)}, {"LOCAL_WORLD_SIZE", text(std::min(per_node, wanted.world))},
                          {"GROUP_RANK", text(node)},  {"GROUP_WORLD_SIZE", text(nodes)},
                          {"NODE_RANK", text(node)},   {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", "29500"}};
  if (wanted.line.launcher == "mpirun")
    for (const auto& [name, value] : Environment{{"OMPI_COMM_WORLD_RANK", text(rank)},
                                                 {"OMPI_COMM_WORLD_SIZE", text(wanted.world)},
                                                 {"OMPI_COMM_WORLD_LOCAL_RANK", text(local)},
                                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", text(per_node)}})
      environment.emplace_back(name, value);
  if (wanted.line.launcher == "torchrun") {
    environment.emplace_back("ROLE_RANK", text(rank));
    environment.emplace_back("TORCHELASTIC_RUN_ID", "rehearsal");
    environment.emplace_back("TORCHELASTIC_RESTART_COUNT", "0");
    environment.emplace_back("TORCHELASTIC_MAX_RESTARTS", "0");
  }
  return environment;
}

/// Where no rank is given, those that a launcher outside left behind must not be taken for the program's own.
Environment without_rank() {
  Environment environment;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
    environment.emplace_back(name, "");
  return environment;
}

/// Those of a known world that are rehearsed.
std::vector<std::int64_t> ranks_of(const Rehearse& wanted) {
  std::vector<std::int64_t> ranks = wanted.ranks;
  if (ranks.empty()) ranks = {0, wanted.world / 2, wanted.world - 1};  // in a pipeline they hold different stages
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

std::string listed(const std::vector<std::int64_t>& ranks) {
  std::string text;
  for (const std::int64_t rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

std::vector<std::string> command_of(const Rehearse& wanted, const std::string& local_rank) {
  std::vector<std::string> command = wanted.line.command;
  if (wanted.line.rank_argument) {
    const auto script =
        std::find_if(command.begin() + 1, command.end(), [](const std::string& word) { return word.empty() || word[0] != '-'; });
    if (script != command.end()) command.insert(script + 1, "--local_rank=" + local_rank);
  }
  return command;
}

Environment helper_environment(const Rehearse& wanted, const std::string& folder, const std::vector<std::int64_t>& ranks) {
  const std::string libraries = library_folder();
  std::string values;
  for (const std::string& value : wanted.values) values += value + "\n";
  Environment environment{{"PLIMSOLL_REHEARSE", "1"},
                          {"PLIMSOLL_REHEARSE_STEPS", std::to_string(wanted.steps)},
                          {"PLIMSOLL_REHEARSE_UNTIL_PEAK", wanted.until_peak ? "1" : "0"},
                          {"PLIMSOLL_REHEARSE_UNTIL_EXIT", wanted.until_exit ? "1" : "0"},
                          {"PLIMSOLL_REHEARSE_MARK", wanted.mark},
                          {"PLIMSOLL_REHEARSE_VALUES", values},
                          {"PLIMSOLL_REHEARSE_RANKS", wanted.together ? "all" : listed(ranks)},
                          {"PLIMSOLL_REHEARSE_TOGETHER", wanted.together ? "1" : "0"},
                          {"PLIMSOLL_REHEARSE_PROGRAM", own_path()},
                          {"PLIMSOLL_REHEARSE_FOLDER", folder},
                          {"PLIMSOLL_REHEARSE_SYNTHETIC", wanted.synthetic_data ? "1" : "0"},
                          {"PATH", joined(libraries + "/python/bin", "PATH")},
                          {"PYTHONPATH", joined(libraries + "/python", "PYTHONPATH")},
                          {"LD_LIBRARY_PATH", joined(libraries, "LD_LIBRARY_PATH")},
                          {"PYTORCH_NVML_BASED_CUDA_CHECK", "1"},  // asking the runtime would forbid forks
                          {"TORCH_NCCL_ENABLE_MONITORING", "0"},   // no peer will ever answer a heartbeat
                          {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "0"},
                          {"WANDB_MODE", "disabled"},
                          {"TOKENIZERS_PARALLELISM", "false"}};
  if (wanted.synthetic_data) environment.emplace_back("HF_HUB_OFFLINE", "1");
  return environment;
}

// ---- what they leave behind ------------------------------------------------------------------------------------------------------

/// "1234.summary" of a folder: the numbers of processes that left such a file.
std::vector<pid_t> processes_with(const std::string& folder, const std::string& kind) {
  std::vector<pid_t> processes;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().extension() == "." + kind) processes.push_back(std::atoi(entry.path().stem().c_str()));
  std::sort(processes.begin(), processes.end());
  return processes;
}

std::string file_of(const std::string& folder, pid_t process, const char* kind) { return fmt::format("{}/{}.{}", folder, process, kind); }

/// One that has ended and was left to us by its parent answers signals until we ask for its status.
bool lives(pid_t process) {
  siginfo_t ended{};
  const bool ours = waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOHANG | WNOWAIT) == 0;
  return kill(process, 0) == 0 && !(ours && ended.si_pid == process);
}

/// Seconds since the process wrote its summary; negative before.
double seconds_since_summary(const std::string& folder, pid_t process) {
  struct stat facts {};
  if (stat(file_of(folder, process, "summary").c_str(), &facts) != 0) return -1;
  return std::difftime(std::time(nullptr), facts.st_mtime);
}

ChildWatch watch_of(const std::string& folder) {
  ChildWatch watch;
  watch.is_done = [folder](pid_t child) { return seconds_since_summary(folder, child) > kSecondsToLeave; };
  watch.others_run = [folder] {
    for (const pid_t process : processes_with(folder, "rank"))
      if (lives(process) && seconds_since_summary(folder, process) <= kSecondsToLeave) return true;
    return false;
  };
  return watch;
}

/// What is known of each process that used PyTorch, whatever became of it; of each of its devices, where it has several.
std::vector<Recording> read_processes(const std::string& folder) {
  std::map<pid_t, std::vector<Recording>> recordings;
  for (const char* kind : {"summary", "progress"})
    for (const pid_t process : processes_with(folder, kind))
      if (recordings.count(process) == 0) recordings[process].push_back(read_summary(file_of(folder, process, kind)));
  for (const pid_t process : processes_with(folder, "record")) {
    std::string summary = file_of(folder, process, "summary");
    if (!is_file(summary)) summary = file_of(folder, process, "progress");
    recordings[process] = read_devices(file_of(folder, process, "record"), is_file(summary) ? summary : std::string());
  }
  std::vector<Recording> all;
  for (auto& [process, its] : recordings) std::move(its.begin(), its.end(), std::back_inserter(all));
  return all;
}

/// Where a process of the program that finished steps is better to report on than another.
bool tells_more(const Recording& a, const Recording& b) {
  if (a.out_of_memory.has_value() != b.out_of_memory.has_value()) return a.out_of_memory.has_value();
  return a.steps.size() != b.steps.size() ? a.steps.size() > b.steps.size() : a.events > b.events;
}

void sort_processes(std::vector<Recording> processes, Rehearsed& rehearsed) {
  std::stable_sort(processes.begin(), processes.end(), tells_more);
  for (Recording& each : processes) {
    const bool whole = each.out_of_memory || (!each.steps.empty() && each.launches > 0);
    const bool known = std::any_of(rehearsed.recordings.begin(), rehearsed.recordings.end(), [&](const Recording& other) {
      return other.rank == each.rank && other.world == each.world && (other.path != each.path || other.device == each.device);
    });
    (whole && !known ? rehearsed.recordings : rehearsed.others).push_back(std::move(each));
  }
}

// ---- why it did not work ----------------------------------------------------------------------------------------------------------

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

std::string advice_on_reads(const Recording& recording) {
  return "it read values that no device computed, and --value NAME=NUMBER says what they are: " + recording.read.back().what;
}

/// What to do about the error that ended the program.
std::string advice_on(const Recording& recording) {
  if (recording.error.find("undefined symbol") != std::string::npos || recording.error.find("symbol not found") != std::string::npos)
    return "a library of the program wants a function that the stand-in device does not have: its version is newer than this plimsoll's";
  for (const char* name : {"No module named 'flash_attn'", "FlashAttention2 has been toggled on"})  // as Python and transformers say it
    if (recording.error.find(name) != std::string::npos)
      return "its Python is enough: FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE pip install --no-build-isolation flash-attn";
  if (recording.error.find("ModuleNotFoundError") == 0) return "install it for the Python of the command";
  return recording.read.empty() ? "its own output is above" : advice_on_reads(recording);
}

std::string when(const Rehearsed& rehearsed) {
  std::size_t steps = 0;
  for (const Recording& each : rehearsed.recordings) steps = std::max(steps, each.steps.size());
  return steps == 0 ? "before the end of its first step" : fmt::format("after {} steps", steps);
}

const char* const kOwnSteps =
    "rehearse follows torch.optim's optimizers, fastai's and Keras'. For steps without one, call plimsoll_rehearse.step() at the end of each, or give "
    "--mark FUNCTION; --until-exit takes the whole run as one";

/// A process of the program that failed, if there is one: the first that an exception ended.
Failure failure_of_process(const Rehearsed& rehearsed) {
  for (const auto* list : {&rehearsed.others, &rehearsed.recordings})
    for (const Recording& each : *list)
      if (!each.error.empty() && !each.out_of_memory)
        return {fmt::format("the program failed {}: {}", when(rehearsed), each.error), own_line_of(each), advice_on(each)};
  return {};
}

/// What went wrong with the program that ran as `child`; empty where nothing did.
Failure failure_of(const Rehearse& wanted, const ChildResult& child, const Rehearsed& rehearsed) {
  const std::string& program = script_of(wanted.line.command);
  const bool out_of_memory = std::any_of(rehearsed.recordings.begin(), rehearsed.recordings.end(),
                                         [](const Recording& each) { return each.out_of_memory.has_value(); });
  if (out_of_memory) return {};
  if (child.timed_out) {
    const std::string reached = rehearsed.recordings.empty() ? "the program reached the end of no step" : "the program did not end";
    return {fmt::format("{} within {:.0f} s", reached, wanted.timeout), program,
            "the stacks of its threads are printed above; --timeout gives it longer; " + std::string(kOwnSteps)};
  }
  if (Failure failure = failure_of_process(rehearsed); !failure.what.empty()) return failure;
  if (child.exit_code > 128)
    return {fmt::format("the program was ended by a signal ({}) {}", strsignal(child.exit_code - 128), when(rehearsed)), program,
            child.exit_code - 128 == SIGKILL ? "is the host's memory full?" : "its stack is printed above"};
  if (child.exit_code != 0)
    return {fmt::format("the program ended with exit code {} {}", child.exit_code, when(rehearsed)), program, "its own output is above"};
  if (!rehearsed.recordings.empty()) return {};
  std::int64_t launches = 0, told = 0;
  for (const Recording& each : rehearsed.others) {
    launches += each.launches;
    told = std::max(told, each.steps_told);
  }
  if (launches == 0 && told > 0)
    return {fmt::format("the program trained for {} steps and never used the device", told), program,
            "its model lies on the CPU: does the script move it to the GPU, with .to(\"cuda\") or by its framework's settings?"};
  if (launches == 0) return {"the program ended without using the device", program, "does it train on a GPU?"};
  const auto decides =
      std::find_if(rehearsed.others.begin(), rehearsed.others.end(), [](const Recording& each) { return !each.read.empty(); });
  return {"the program ended without a whole step of an optimizer", program,
          decides == rehearsed.others.end() ? kOwnSteps : advice_on_reads(*decides) + "; " + kOwnSteps};
}

void print_facts(const std::vector<Recording>& recordings, const ChildResult& child) {
  for (const Recording& each : recordings) {
    if (each.device && *each.device != each.devices.front()) continue;
    std::fprintf(stderr,
                 "plimsoll: rank %lld: %zu steps in %.1f s, %.0f MB of host memory, %lld events, %lld bytes of record, %.1f an event\n",
                 static_cast<long long>(each.rank), each.steps.size(), child.seconds, static_cast<double>(child.peak_kilobytes) / 1e3,
                 static_cast<long long>(each.events), static_cast<long long>(each.bytes),
                 static_cast<double>(each.bytes) / static_cast<double>(std::max<std::int64_t>(1, each.events)));
  }
}

/// All ranks of a known world at once: started by the package's own launcher.
std::vector<std::string> command_of_all(const Rehearse& wanted) {
  if (wanted.line.launcher == "mpirun") refuse("ranks of mpirun that run together", "--together", "start them by torchrun");
  const bool python = wanted.line.command.front().find("python") != std::string::npos;
  const std::int64_t per_node = per_node_of(wanted);
  std::vector<std::string> command{python ? wanted.line.command.front() : "python3", "-m", "plimsoll_rehearse.together",
                                   std::to_string((wanted.world + per_node - 1) / per_node), std::to_string(per_node)};
  const std::vector<std::string> one = command_of(wanted, "@local_rank@");
  command.insert(command.end(), one.begin(), one.end());
  return command;
}

/// Runs the program once, as the one rank or as it comes.
Rehearsed run_once(const Rehearse& wanted, const std::vector<std::int64_t>& ranks, std::int64_t rank) {
  const TemporaryFolder folder;
  Environment environment = device_environment(wanted, folder.path() + "/%p.record");
  const bool all = wanted.together, one = wanted.world_is_known && !all;
  const Environment place = one ? rank_environment(wanted, rank) : without_rank();
  const std::vector<std::string> command =
      all && wanted.world_is_known ? command_of_all(wanted) : command_of(wanted, std::to_string(rank % per_node_of(wanted)));
  if (!wanted.snapshot.empty())
    environment.emplace_back("PLIMSOLL_REHEARSE_SNAPSHOT", per_rank(wanted.snapshot, rank, one && ranks_of(wanted).size() > 1));
  for (const Environment& more : {wanted.line.environment, place, helper_environment(wanted, folder.path(), ranks)})
    environment.insert(environment.end(), more.begin(), more.end());
  const ChildResult child = run_child(command, environment, wanted.timeout, SIGRTMIN + 7, watch_of(folder.path()));
  if (!child.started) fail("cannot be run: " + child.problem, wanted.line.command.front(), "is it on PATH?");
  if (child.interrupted_by != 0) fail(fmt::format("interrupted: {}", strsignal(child.interrupted_by)), script_of(wanted.line.command));
  Rehearsed rehearsed;
  sort_processes(read_processes(folder.path()), rehearsed);
  rehearsed.failure = failure_of(wanted, child, rehearsed);
  print_facts(rehearsed.recordings, child);
  for (const Recording& each : rehearsed.recordings) {
    if (wanted.record.empty()) break;
    const bool several = std::any_of(rehearsed.recordings.begin(), rehearsed.recordings.end(),
                                     [&](const Recording& other) { return other.path != each.path; }) || (wanted.world_is_known && ranks_of(wanted).size() > 1);
    std::filesystem::copy_file(each.path, per_rank(wanted.record, each.rank, several), std::filesystem::copy_options::overwrite_existing);
  }
  return rehearsed;
}

/// Whether a process failed for want of others, of which not too many are to be.
bool waits_for_peers(const Rehearsed& rehearsed) {
  for (const auto* list : {&rehearsed.others, &rehearsed.recordings})
    for (const Recording& each : *list)
      if (each.needs_peers && each.world > 1 && each.world <= kMostTogether) return true;
  return false;
}

}  // namespace

std::unique_ptr<WarmPython> imported_ahead(const Rehearse& wanted) {
  Environment environment = device_environment(wanted, {});
  for (const Environment& more : {wanted.line.environment, without_rank(), helper_environment(wanted, {}, {})})
    environment.insert(environment.end(), more.begin(), more.end());
  return std::make_unique<WarmPython>(command_of(wanted, "0"), environment);
}

std::string per_rank(const std::string& path, std::int64_t rank, bool several) {
  return several ? fmt::format("{}.rank{}", path, rank) : path;
}

/// Throws Error (bad_input) where there is no such program on PATH, or at its path.
void require_program(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    if (!is_file(program)) fail("there is no such program", program, "the command behind -- is run as it is typed");
    if (std::filesystem::is_directory(program)) fail("this is a folder, and no program", program);
    return;
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (is_file(folder + "/" + program)) return;
  fail("there is no such program on PATH", program, "the command behind -- is run as it is typed");
}

std::vector<std::string> with_python(std::vector<std::string> command) {
  const std::string& program = command.front();
  const bool script = program.size() > 3 && program.compare(program.size() - 3, 3, ".py") == 0;
  if (script && (program.find('/') == std::string::npos || access(program.c_str(), X_OK) != 0))
    command.insert(command.begin(), output_of({"python", "--version"}).empty() ? "python3" : "python");
  return command;
}

Rehearsed rehearse(const Rehearse& wanted) {
  if (wanted.together && wanted.world_is_known && wanted.world > kMostTogether)
    fail(fmt::format("a world of {} ranks is too large to run together", wanted.world), "--together",
         fmt::format("at most {}", kMostTogether));
  Rehearsed all;
  if (!wanted.world_is_known || wanted.together) {
    all = run_once(wanted, wanted.ranks, 0);
  } else {
    for (const std::int64_t rank : ranks_of(wanted)) {
      Rehearsed one = run_once(wanted, {rank}, rank);
      std::move(one.recordings.begin(), one.recordings.end(), std::back_inserter(all.recordings));
      std::move(one.others.begin(), one.others.end(), std::back_inserter(all.others));
      all.failure = std::move(one.failure);
      if (!all.failure.what.empty()) break;
    }
  }
  all.together = wanted.together;
  if (wanted.together || all.failure.what.empty() || !waits_for_peers(all)) return all;
  std::fprintf(stderr, "plimsoll: the program waits for what other ranks say: again, with all of them together\n");
  Rehearse again = wanted;
  again.together = true;
  return rehearse(again);
}

}  // namespace plimsoll::cli
