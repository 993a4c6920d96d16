// Shell scripts: which programs they start, and what their directives tell Slurm.
#include <algorithm>

#include "formats/foreign/format.hpp"
#include "formats/foreign/launch.hpp"
#include "formats/foreign/stated_releases.hpp"
#include "formats/foreign/wrappers.hpp"
#include "formats/shell/shell.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

bool among(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* one) { return word == one; });
}

// ---- Slurm -----------------------------------------------------------------------------------------------------------------

/// "gpu:h100:8", "gpu:8", "8": the count behind the last colon.
std::string gpus_of(const std::string& resource) {
  const std::string last = resource.substr(resource.rfind(':') == std::string::npos ? 0 : resource.rfind(':') + 1);
  return last.find_first_not_of("0123456789") == std::string::npos ? last : std::string();
}

/// "--nodes=4 -N 4": options of a line with their values.
std::vector<std::pair<std::string, std::string>> options_in(const std::string& line) {
  std::vector<std::pair<std::string, std::string>> options;
  for (std::size_t at = line.find_first_not_of(" \t"); at != std::string::npos; at = line.find_first_not_of(" \t", at)) {
    const std::size_t end = std::min(line.find_first_of(" \t", at), line.size());
    std::string word = line.substr(at, end - at);
    std::erase(word, '"');
    at = end;
    const std::size_t equals = word.find('=');
    if (!word.empty() && word[0] == '-') {
      options.emplace_back(word.substr(0, equals), equals == std::string::npos ? std::string() : word.substr(equals + 1));
    } else if (!options.empty() && options.back().second.empty()) {
      options.back().second = word;
    }
  }
  return options;
}

void read_directive(Reading& reading, const std::string& name, std::string value, const std::string& place, Shell& shell) {
  const std::string foreign = "#SBATCH " + name;
  if (among(name, {"--nodes", "-N"})) {
    value = value.substr(0, value.find('-'));
    reading.say("cluster.nodes", value, foreign, place);
    for (const char* variable : {"SLURM_NNODES", "SLURM_JOB_NUM_NODES"}) shell.set(variable, value);
  } else if (name == "--ntasks-per-node") {
    reading.say("slurm.tasks_per_node", value, foreign, place);
    shell.set("SLURM_NTASKS_PER_NODE", value);
  } else if (among(name, {"--ntasks", "-n"})) {
    reading.say("slurm.tasks", value, foreign, place);
    shell.set("SLURM_NTASKS", value);
  } else if (name == "--gpus-per-node" || (name == "--gres" && value.rfind("gpu", 0) == 0)) {
    const std::string gpus = gpus_of(value);
    if (gpus.empty()) return;
    reading.say("slurm.gpus_per_node", gpus, foreign, place);
    for (const char* variable : {"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"}) shell.set(variable, gpus);
  }
}

/// The directives of a batch script; Slurm tells their values to it in its own variables.
void read_directives(Reading& reading, const std::string& text, const std::string& where, Shell& shell) {
  int line = 0;
  for (std::size_t at = 0; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string one = text.substr(at, end - at);
    at = end + 1;
    if (one.rfind("#SBATCH", 0) != 0) continue;
    one = one.substr(0, one.find(" #", 7));
    const std::string place = where + ":" + std::to_string(line + 1);
    for (const auto& [name, value] : options_in(one.substr(7))) read_directive(reading, name, value, place, shell);
  }
}

/// A command by its name, of a trainer's with its verb: "swift infer".
Node told_command(const std::vector<Node>& words) {
  const bool verb = words.size() > 1 && among(words[0].text, {"swift", "megatron", "llamafactory-cli", "tune", "trl", "axolotl", "litgpt"});
  return verb ? Node::scalar(words[0].text + " " + words[1].text, words[0].where) : words[0];
}

/// What the script has written until then, by path, and by the path from where the command runs.
std::map<std::string, std::string> files_of(const Started& started) {
  std::map<std::string, std::string> files = *started.files;
  const std::string front = started.folder + "/";
  for (const auto& [path, text] : *started.files)
    if (!started.folder.empty() && path.rfind(front, 0) == 0) files[path.substr(front.size())] = text;
  return files;
}

/// A launch line that ends too early, as bash reads it too: an option is no command, so that one that begins a line belonged to the line
/// before, whose backslash is missing or stands before a comment; and behind a backslash that ends a line a blank is a word of its own.
void require_whole_line(const std::vector<Node>& words, bool behind_a_launch) {
  const Node& first = words.front();
  if (behind_a_launch && first.text.rfind("--", 0) == 0)
    fail("'" + readable(first.text).substr(0, 60) + "' begins a command of its own", first.where,
         "end the line before it with a backslash, with no comment between");
  const Node& last = words.back();
  if (!last.text.empty() && last.text.find_first_not_of(" \t") == std::string::npos)
    fail("a blank stands behind the backslash that should end this line", last.where, "nothing may follow that backslash");
}

/// What TorchTitan's run_train.sh starts, where it does not lie beside the script: by MODULE and CONFIG since 0.3, by CONFIG_FILE before.
constexpr const char* kTrainByConfig =
    R"(PYTORCH_ALLOC_CONF=expandable_segments:True torchrun --nproc_per_node=${NGPU:-8} -m torchtitan.train --module "$MODULE" --config "$CONFIG" "$@")";
constexpr const char* kTrainByFile =
    R"(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torchrun --nproc_per_node=${NGPU:-8} -m torchtitan.train --job.config_file "$CONFIG_FILE" "$@")";

/// What the tools that count devices and nodes print on the machine that --on says: a line each, or the number.
std::optional<std::string> printed_of_machine(const std::vector<std::string>& words, const ScriptOptions& options) {
  const auto lines = [](std::int64_t count, const std::string& each) {
    std::string text;
    for (std::int64_t i = 0; i < count; ++i) text += each + std::to_string(i) + "\n";
    return count > 0 ? std::optional(text) : std::nullopt;
  };
  const std::string name = base_name_of(words.front());
  if (name == "nvidia-smi" && words.size() == 2 && (words[1] == "-L" || words[1] == "--list-gpus")) return lines(options.gpus_per_node, "GPU ");
  if (name == "scontrol" && words.size() >= 3 && words[1] == "show" && (words[2] == "hostnames" || words[2] == "hostname"))
    return lines(options.nodes, "node");
  const bool counts = words.size() == 3 && words[1] == "-c" && words[2].find("print(torch.cuda.device_count())") != std::string::npos;
  if ((name == "python" || name == "python3") && counts && options.gpus_per_node > 0) return std::to_string(options.gpus_per_node) + "\n";
  return std::nullopt;
}

/// What a script starts, gathered while it is followed.
class Launches {
 public:
  Launches(Reading& reading, std::string where) : reading_(reading), where_(std::move(where)) {}

  std::vector<ScriptLaunch> of(const std::string& text) {
    Surroundings around;
    around.run = [&](const Started& started) { return note(started); };
    around.read = [&](const std::string& path) { return beside(path); };
    around.batch = [&](const std::string& job, const std::string& place) { read_directives(reading_, job, place, *shell_); };
    around.note = [&](const std::string& what, const std::string& place) { reading_.leave_unread(what, place); };
    around.printed = [&](const std::vector<std::string>& words) { return printed_of_machine(words, reading_.script_options()); };
    Shell shell(where_, around);
    shell_ = &shell;
    for (const auto& [name, value] : reading_.script_options().values) shell.give(name, value);
    read_directives(reading_, text, where_, shell);
    shell.follow(text);
    const std::vector<std::string> unused = shell.unused();
    for (const auto& [name, value] : reading_.script_options().values)
      if (std::find(unused.begin(), unused.end(), name) == unused.end()) reading_.use_value(name);
    if (launches_.empty()) refuse_nothing();
    return std::move(launches_);
  }

 private:
  bool note(const Started& started) {
    read_pip_line(reading_, started.words);
    require_whole_line(started.words, !launches_.empty());
    Reading aside;
    if (!is_launcher(unwrapped(aside, started.words).words)) {
      others_.push_back(told_command(started.words));
      return false;
    }
    const bool known = std::any_of(launches_.begin(), launches_.end(), [&](const ScriptLaunch& one) {
      return std::equal(one.words.begin(), one.words.end(), started.words.begin(), started.words.end(),
                        [](const Node& a, const Node& b) { return a.text == b.text; });
    });
    constexpr std::size_t kMostLaunches = 1000;
    if (launches_.size() >= kMostLaunches) fail("the script starts more than 1000 trainings", started.words.front().where);
    if (!known) launches_.push_back({started.words, started.environment, files_of(started), {}, {}});
    return true;
  }

  /// A file beside the script; what lies elsewhere on the machine is none of the script's.
  std::optional<std::string> beside(const std::string& path) const {
    const std::string folder = where_.substr(0, where_.rfind('/') == std::string::npos ? 0 : where_.rfind('/') + 1);
    if (path.empty() || (path[0] == '/' && (folder.empty() || path.compare(0, folder.size(), folder) != 0))) return std::nullopt;
    const std::string found = reading_.located(path, Node::scalar(path, where_));
    if (reading_.has_file(found)) return reading_.text_of(found);
    return torchtitans(path);
  }

  /// TorchTitan's launcher, where a variable by which it is told what to train is set.
  std::optional<std::string> torchtitans(const std::string& path) const {
    if (path.substr(path.rfind('/') + 1) != "run_train.sh") return std::nullopt;
    if (shell_->value("CONFIG_FILE")) return kTrainByFile;
    return shell_->value("MODULE") && shell_->value("CONFIG") ? std::optional<std::string>(kTrainByConfig) : std::nullopt;
  }

  [[noreturn]] void refuse_nothing() const {
    std::string told;
    constexpr std::size_t kMostTold = 4;
    for (std::size_t i = 0; i < std::min(others_.size(), kMostTold); ++i)
      told += (i == 0 ? "; it starts '" : ", '") + readable(others_[i].text).substr(0, 60) + "' (" + others_[i].where + ")";
    fail("starts no training program that is known here" + told, where_,
         "give the launch line behind --, or the script that has it with --from; plimsoll rehearse --on … -- COMMAND runs any program");
  }

  Reading& reading_;
  std::string where_;
  Shell* shell_ = nullptr;
  std::vector<ScriptLaunch> launches_;
  std::vector<Node> others_;  ///< commands that are neither the shell's own nor launch lines
};

/// The words of a launch that the first has not, with the options that they are values of.
std::string differing_words(const ScriptLaunch& one, const ScriptLaunch& first) {
  const bool alike = one.words.size() == first.words.size();
  std::string words;
  std::size_t told = one.words.size();  // the last word that is told
  const auto add = [&](const Node& word) { words += (words.empty() ? "" : " ") + readable(word.text); };
  for (std::size_t i = 0; i < one.words.size(); ++i) {
    const Node& word = one.words[i];
    const bool same = alike ? first.words[i].text == word.text
                            : std::any_of(first.words.begin(), first.words.end(), [&](const Node& other) { return other.text == word.text; });
    if (same) continue;
    const bool names_it = i > 0 && told + 1 != i && one.words[i - 1].text.rfind("--", 0) == 0 && word.text.rfind("--", 0) != 0;
    if (names_it) add(one.words[i - 1]);
    add(word);
    told = i;
  }
  return words;
}

}  // namespace

std::vector<ScriptLaunch> launches_of_script(Reading& reading, const std::string& text, const std::string& where) {
  std::vector<ScriptLaunch> launches = Launches(reading, where).of(text);
  for (std::size_t i = 0; i < launches.size(); ++i) {
    std::string line;
    for (const Node& word : launches[i].words) line += (line.empty() ? "" : " ") + readable(word.text);
    launches[i].line = line;
    launches[i].differs = i == 0 ? line : differing_words(launches[i], launches[0]);
  }
  return launches;
}

std::vector<Node> launch_of_script(Reading& reading, const std::string& text, const std::string& where) {
  const std::vector<ScriptLaunch> launches = launches_of_script(reading, text, where);
  const auto chosen = static_cast<std::size_t>(reading.script_options().launch);
  if (chosen > launches.size())
    fail("the script starts " + std::to_string(launches.size()) + " trainings", where, "--launch counts from 1");
  if (chosen == 0 && launches.size() > 1) {
    std::string all;
    constexpr std::size_t kMostTold = 12, kMostWords = 160;
    for (std::size_t i = 0; i < std::min(launches.size(), kMostTold); ++i)
      all += "; " + std::to_string(i + 1) + ": " + launches[i].words.front().where + " " + launches[i].differs.substr(0, kMostWords);
    fail("the script starts " + std::to_string(launches.size()) + " trainings" + all, where,
         "choose one: --launch NUMBER, or estimate each: plimsoll estimate --all");
  }
  const ScriptLaunch& one = launches[chosen == 0 ? 0 : chosen - 1];
  for (const auto& [path, written] : one.files) {
    reading.add_file(path, written);
    for (const Node& word : one.words)
      if (word.text == "./" + path) reading.add_file(word.text, written);
  }
  for (const auto& [name, value] : one.environment) read_environment(reading, name, value, where);
  return one.words;
}

void read_shell_script(Reading& reading, const std::string& text, const std::string& where) {
  read_launch_line(reading, launch_of_script(reading, text, where));
}

}  // namespace plimsoll::formats
