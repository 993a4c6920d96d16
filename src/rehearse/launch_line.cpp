// Launchers' command lines: what they would start once per rank, and what they would tell it.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>

#include "plimsoll/error.hpp"
#include "plimsoll/rehearse.hpp"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostProcesses = 10'000'000;

/// A launcher's options that matter here, and those of its flags that take no value: every other option takes one.
struct Launcher {
  std::string_view name;
  std::vector<std::string_view> per_node, nodes, total, flags;
};

const Launcher& launcher(std::string_view name) {
  static const std::vector<Launcher> kLaunchers{
      {"torchrun",
       {"--nproc-per-node", "--nproc_per_node"},
       {"--nnodes"},
       {},
       {"--standalone", "--no-python", "--no_python", "--run-path", "--run_path", "-m", "--module", "--use-agent-store", "--use_agent_store",
        "--virtual-local-rank", "--virtual_local_rank", "--use-env", "--use_env"}},
      {"accelerate",
       {},
       {"--num_machines"},
       {"--num_processes"},
       {"--cpu", "--multi_gpu", "--tpu", "--ipex", "--quiet", "-q", "--use_deepspeed", "--use_fsdp", "--use_megatron_lm",
        "--use_parallelism_config", "--debug", "-m", "--module", "--no_python", "--same_network", "--enable_cpu_affinity",
        "--use_mps_device"}},
      {"deepspeed",
       {"--num_gpus"},
       {"--num_nodes"},
       {},
       {"--force_multi", "--no_python", "--module", "-m", "--no_local_rank", "--bind_cores_to_rank", "--no_ssh", "--no_ssh_check",
        "--save_pid", "--elastic_training"}},
      {"mpirun",
       {"-npernode", "--npernode", "-ppn"},
       {},
       {"-np", "-n", "-c", "--np", "--n"},
       {"--oversubscribe", "--allow-run-as-root", "--tag-output", "--verbose", "-q", "--report-bindings"}},
  };
  return *std::find_if(kLaunchers.begin(), kLaunchers.end(), [&](const Launcher& each) { return each.name == name; });
}

bool among(const std::vector<std::string_view>& names, std::string_view word) {
  return std::find(names.begin(), names.end(), word) != names.end();
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') == std::string_view::npos ? 0 : path.rfind('/') + 1);
}

std::int64_t count(std::string_view text, const std::string& option) {
  std::int64_t value = 0;
  text = text.substr(text.rfind(':') == std::string_view::npos ? 0 : text.rfind(':') + 1);  // "1:4" nodes: the most
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMostProcesses)
    fail(fmt::format("'{}' is no count of processes", text), option, "give a number, or gpu for every device of --on");
  return value;
}

/// The interpreter that lies beside the launcher, or plain python.
std::string python_beside(const std::string& launcher_path) {
  const std::size_t slash = launcher_path.rfind('/');
  return slash == std::string::npos ? "python" : launcher_path.substr(0, slash + 1) + "python";
}

/// Reads options until the first word that is none; `words[at]` is then the program.
class OptionReader {
 public:
  OptionReader(const std::vector<std::string>& words, std::size_t at, const Launcher& known, LaunchLine& line)
      : words_(words), at_(at), known_(known), line_(line) {}

  std::size_t read() {
    while (at_ < words_.size() && words_[at_].size() > 1 && words_[at_][0] == '-') {
      if (words_[at_] == "--") return at_ + 1;
      if (words_[at_] == "-x" && known_.name == "mpirun") {
        read_export();
        continue;
      }
      option();
    }
    if (!file_.empty() && total_ == 0) read_file();
    if (total_ > 0) {
      line_.nodes = std::max<std::int64_t>(1, line_.nodes);
      line_.processes_per_node = std::max<std::int64_t>(1, total_ / line_.nodes);
    }
    return at_;
  }
  bool module() const { return module_; }

 private:
  void option() {
    std::string name = words_[at_], value;
    const std::size_t equals = name.find('=');
    const bool joined = equals != std::string::npos && name[1] == '-';
    if (joined) {
      value = name.substr(equals + 1);
      name.resize(equals);
    }
    ++at_;
    if (name == "-m" || name == "--module") module_ = true;
    if (among(known_.flags, name)) return;
    if (!joined) {
      if (at_ >= words_.size()) fail("the option " + name + " has no value", std::string(known_.name));
      value = words_[at_++];
    }
    if (known_.name == "accelerate" && name == "--config_file") file_ = value;
    if (among(known_.per_node, name) && (value == "gpu" || value == "auto")) {
      line_.every_device = true;
      return;
    }
    if (among(known_.per_node, name)) line_.processes_per_node = count(value, name);
    if (among(known_.nodes, name)) line_.nodes = count(value, name);
    if (among(known_.total, name)) total_ = count(value, name);
  }

  /// What accelerate's file says of the world: lines "num_processes: 8" of YAML or JSON. What else it says accelerate reads itself.
  void read_file() {
    std::ifstream file(file_);
    if (!file) fail("cannot be read", file_, "accelerate config writes such a file");
    for (std::string line; std::getline(file, line);) {
      line.erase(std::remove_if(line.begin(), line.end(), [](char letter) { return letter == '"' || letter == ',' || letter == '\r'; }),
                 line.end());
      const std::size_t first = line.find_first_not_of(" \t{"), colon = line.find(':');
      if (first == std::string::npos || colon == std::string::npos || colon < first) continue;
      const std::string key = line.substr(first, colon - first),
                        value = line.substr(std::min(line.size(), line.find_first_not_of(" ", colon + 1)));
      if (key == "num_processes") total_ = count(value.substr(0, value.find_last_not_of(" }") + 1), file_ + ": num_processes");
      if (key == "num_machines" && line_.nodes == 0)
        line_.nodes = count(value.substr(0, value.find_last_not_of(" }") + 1), file_ + ": num_machines");
    }
  }

  /// mpirun -x NAME=VALUE
  void read_export() {
    if (at_ + 1 >= words_.size()) fail("the option -x has no value", "mpirun");
    const std::string& pair = words_[at_ + 1];
    const std::size_t equals = pair.find('=');
    if (equals != std::string::npos) line_.environment.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    at_ += 2;
  }

  const std::vector<std::string>& words_;
  std::size_t at_;
  const Launcher& known_;
  LaunchLine& line_;
  std::string file_;
  std::int64_t total_ = 0;
  bool module_ = false;
};

void take_program(const std::vector<std::string>& words, std::size_t at, bool module, LaunchLine& line) {
  if (at >= words.size()) fail("the line names no program to run", line.launcher, "for example torchrun --nproc-per-node 8 train.py");
  if (line.launcher != "mpirun") {
    line.command = {python_beside(words.front())};
    if (module) line.command.push_back("-m");
  }
  line.command.insert(line.command.end(), words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
}

bool is_python(std::string_view program) { return base_name(program).compare(0, 6, "python") == 0; }

}  // namespace

LaunchLine parse_launch_line(const std::vector<std::string>& words) {
  if (words.empty()) fail("there is no program to rehearse", "rehearse", "for example plimsoll rehearse --on 8xmi300x -- python train.py");
  LaunchLine line;
  const std::string_view name = base_name(words.front());
  std::size_t at = 1;
  if (name == "torchrun" || name == "deepspeed" || name == "mpirun" || name == "mpiexec") {
    line.launcher = name == "mpiexec" ? "mpirun" : std::string(name);
  } else if (name == "accelerate" && words.size() > 1 && words[1] == "launch") {
    line.launcher = "accelerate";
    at = 2;
  } else if (is_python(name) && words.size() > 2 && words[1] == "-m" &&
             (words[2] == "torch.distributed.run" || words[2] == "torch.distributed.launch")) {
    line.launcher = "torchrun";
    at = 3;
  }
  if (line.launcher.empty()) {
    line.command = words;
    return line;
  }
  OptionReader reader(words, at, launcher(line.launcher), line);
  const std::size_t program = reader.read();
  const bool asks_machine = line.launcher == "accelerate" || line.launcher == "deepspeed";
  if (line.processes_per_node == 0 && asks_machine) line.every_device = true;
  if (line.launcher == "accelerate") {
    // accelerate's own code reads its flags and its file and sets their environment, then runs the script (accelerate_launch.py)
    if (program >= words.size()) fail("the line names no program to run", line.launcher, "for example accelerate launch train.py");
    line.command = {python_beside(words.front()), "-m", "plimsoll_rehearse.accelerate_launch"};
    line.command.insert(line.command.end(), words.begin() + 2, words.end());
    return line;
  }
  line.rank_argument = line.launcher == "deepspeed" && std::find(words.begin(), words.end(), "--no_local_rank") == words.end();
  take_program(words, program, reader.module(), line);
  if (is_python(words.front()) && line.launcher == "torchrun") line.command.front() = words.front();
  return line;
}

}  // namespace plimsoll
