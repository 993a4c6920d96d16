// Launch lines and the scripts around them: how many nodes and processes, whose environment, and which program reads the rest.
#include <algorithm>

#include "formats/foreign/format.hpp"
#include "formats/foreign/launch.hpp"
#include "formats/foreign/wrappers.hpp"
#include "formats/shell/unknown.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/rehearse.hpp"

namespace plimsoll::formats {
namespace {

bool is_unknown(const Node& word) { return formats::is_unknown(word.text); }

bool among(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* one) { return word == one; });
}

// ---- launchers -----------------------------------------------------------------------------------------------------------

/// Values that stand behind an option of a launcher.
std::size_t values_behind(const std::string& option) {
  if (option.find('=') != std::string::npos ||
      among(option, {"-m", "--module", "--standalone", "--no-python", "--no_python", "--no_local_rank", "--no-local-rank", "--force_multi",
                     "--run-path", "--run_path", "--use_env", "--use-env", "--no_ssh", "--no_ssh_check", "--elastic_training",
                     "--bind_cores_to_rank", "--allow-run-as-root", "--oversubscribe", "--report-bindings", "--tag-output"}))
    return 0;
  return among(option, {"-mca", "--mca", "-gmca", "--gmca"}) ? 2 : 1;
}

/// Words that name the launcher: "torchrun", "python -u -m torch.distributed.run".
std::size_t words_of_launcher(const std::vector<Node>& words) {
  const auto module = std::find_if(words.begin(), words.end(), [](const Node& word) { return word.text == "-m"; });
  const bool by_module = !words.empty() && is_python(words.front()) && words.end() - module > 1;
  return by_module ? static_cast<std::size_t>(module - words.begin()) + 2 : 1;
}

/// Options of a launcher whose values are not known here are left out: how many ranks there are is then --on's to say. Indices of the words
/// that stay; the program is the first that is neither an option nor a value, and all behind it is its own.
std::vector<std::size_t> known_words(const std::vector<Node>& words) {
  std::vector<std::size_t> kept;
  std::size_t pending = 0, before_option = 0;
  const std::size_t launcher = words_of_launcher(words);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    const bool option = i >= launcher && word.size() > 1 && word[0] == '-', unknown = is_unknown(words[i]);
    const bool program = i >= launcher && !option && (pending == 0 || word.ends_with(".py"));
    if (program) {
      for (; i < words.size(); ++i) kept.push_back(i);
    } else if (option && unknown) {
      pending = 0;
    } else if (option) {
      pending = values_behind(word);
      before_option = kept.size();
      kept.push_back(i);
    } else {
      if (pending > 0) --pending;
      if (unknown) kept.resize(before_option);
      if (!unknown) kept.push_back(i);
    }
  }
  return kept;
}

/// What a launcher starts, behind an interpreter.
void start_program(Reading& reading, const std::vector<Node>& words) {
  const auto program = std::find_if(words.begin(), words.end(), [](const Node& word) { return word.text != "-m" && !is_python(word); });
  if (program != words.end()) refuse_unread(*program);
  read_program(reading, words);
}

/// Without --nproc-per-node torchrun starts one process; with gpu or auto, one per device that is seen.
Ranks torchrun_ranks(const Reading& reading, const LaunchLine& line, bool all_known, const std::string& where) {
  const std::int64_t seen = visible_devices(reading);
  if (seen > 0 && line.processes_per_node > seen)
    fail("torchrun starts " + std::to_string(line.processes_per_node) + " processes per node where the environment shows " +
             std::to_string(seen) + " devices (" + reading.find("env.visible_devices")->foreign + ")",
         where, "--nproc-per-node " + std::to_string(seen));
  const bool machine = line.every_device || (line.processes_per_node == 0 && !all_known);
  const bool several = line.nodes > 0 || all_known;
  return {several ? std::max<std::int64_t>(1, line.nodes) : 0, machine ? seen : std::max<std::int64_t>(1, line.processes_per_node),
          "torchrun"};
}

/// mpirun's ranks are all that it counts; a hostfile says over how many nodes they are.
void say_mpirun(Reading& reading, const std::vector<Node>& words, const LaunchLine& line, const std::string& where) {
  const auto file = std::find_if(words.begin(), words.end(), [](const Node& word) {
    return among(word.text, {"--hostfile", "-hostfile", "--machinefile", "-machinefile"});
  });
  if (file != words.end() && file + 1 != words.end()) {
    const Ranks ranks = hostfile_ranks(reading, *(file + 1));
    const std::int64_t world = line.world() > 0 ? line.world() : ranks.nodes * ranks.per_node;
    if (world > ranks.nodes * ranks.per_node || world % ranks.per_node != 0)
      fail("mpirun starts " + std::to_string(world) + " ranks on hosts of " + std::to_string(ranks.per_node) + " devices", where);
    return say_ranks(reading, {world / ranks.per_node, ranks.per_node, "hostfile"}, where);
  }
  if (line.processes_per_node > 0)
    reading.say("gpus", std::to_string(std::max<std::int64_t>(1, line.nodes) * line.processes_per_node), "mpirun", where);
}

/// torchrun, deepspeed, mpirun: the launcher's own options, then the program.
void read_counted(Reading& reading, const std::vector<Node>& said) {
  const std::vector<std::size_t> known = known_words(said);
  std::vector<Node> words;
  std::vector<std::string> texts;
  for (const std::size_t index : known) {
    words.push_back(said[index]);
    texts.push_back(said[index].text);
  }
  const LaunchLine line = parse_launch_line(texts);
  reading.note_format(line.launcher.empty() ? "a program" : line.launcher == "deepspeed" ? kDeepSpeedLauncher : line.launcher);
  std::size_t count = line.command.size();
  const bool own_python = line.launcher == "torchrun" || line.launcher == "deepspeed";  // which they put in front
  const bool module = own_python && line.command.size() > 1 && line.command[1] == "-m";
  if (own_python) count -= module ? 2 : 1;
  const std::size_t own = count > words.size() ? words.size() : words.size() - count;
  const std::vector<Node> launcher(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(own));
  const bool all_known = words.size() == said.size();
  const std::string where = words.front().where;
  if (line.launcher == "deepspeed") {
    Ranks ranks = deepspeed_ranks(reading, launcher, line);
    if (line.nodes == 0 && !all_known && ranks.told == "deepspeed") ranks.nodes = 0;
    say_ranks(reading, ranks, where);
  } else if (line.launcher == "torchrun") {
    say_ranks(reading, torchrun_ranks(reading, line, all_known, where), where);
  } else if (line.launcher == "mpirun") {
    say_mpirun(reading, launcher, line, where);
  }
  for (const auto& [name, value] : line.environment) read_environment(reading, name, value, where);
  if (count == 0 || count > known.size()) return;
  std::vector<Node> program(said.begin() + static_cast<std::ptrdiff_t>(known[known.size() - count]), said.end());
  if (module) program.insert(program.begin(), Node::scalar("-m", program.front().where));
  start_program(reading, program);
}

/// Accelerate's flags carry the names of its file, sections left out.
std::string path_of_flag(const std::string& name) {
  if (name.rfind("fsdp_", 0) == 0) return "fsdp_config." + name;
  if (name.rfind("parallelism_config_", 0) == 0) return "parallelism_config." + name;
  if (name.rfind("megatron_lm_", 0) == 0) return "megatron_lm_config." + name;
  if (among(name, {"deepspeed_config_file", "zero_stage", "offload_optimizer_device", "offload_param_device", "offload_optimizer_nvme_path",
                   "offload_param_nvme_path", "gradient_clipping", "zero3_init_flag", "zero3_save_16bit_model", "deepspeed_hostfile",
                   "deepspeed_exclusion_filter", "deepspeed_inclusion_filter", "deepspeed_multinode_launcher",
                   "deepspeed_moe_layer_cls_names", "gradient_accumulation_steps"}))
    return "deepspeed_config." + name;
  return name;
}

/// What stands between "accelerate launch" and the program.
struct AccelerateFlags {
  Node flags;        ///< by the names that the file has
  std::string file;  ///< --config_file
  bool module = false;
  std::size_t end = 0;  ///< index of the first word of the program
};

}  // namespace

std::pair<std::string, std::string> as_in_accelerate_file(const std::string& name, const std::string& value) {
  static const std::pair<const char*, const char*> kinds[] = {
      {"use_fsdp", "FSDP"}, {"use_deepspeed", "DEEPSPEED"}, {"use_megatron_lm", "MEGATRON_LM"}, {"multi_gpu", "MULTI_GPU"}};
  for (const auto& [flag, kind] : kinds)
    if (name == flag) return {"distributed_type", kind};
  return {path_of_flag(name), value == "True" ? "true" : value == "False" ? "false" : value};
}

namespace {

AccelerateFlags accelerate_flags(const std::vector<Node>& words) {
  AccelerateFlags read;
  read.flags = Node::table(words.front().where);
  std::size_t& at = read.end;
  for (at = 2; at < words.size() && words[at].text.rfind('-', 0) == 0; ++at) {
    std::string name = words[at].text;
    const std::string& where = words[at].where;
    const std::size_t equals = name.find('=');
    std::string value = equals == std::string::npos ? "true" : name.substr(equals + 1);
    name = name.substr(0, equals);
    const bool flag = among(name, {"--cpu", "--multi_gpu", "--tpu", "--ipex", "--quiet", "-q", "--use_deepspeed", "--use_fsdp",
                                   "--use_megatron_lm", "--use_parallelism_config", "--debug", "-m", "--module", "--no_python",
                                   "--same_network", "--enable_cpu_affinity", "--use_mps_device"});
    if (!flag && equals == std::string::npos) {
      if (at + 1 >= words.size()) fail("the option " + name.substr(0, 60) + " has no value", where);
      value = words[++at].text;
    }
    read.module = read.module || name == "-m" || name == "--module";
    name.erase(0, name.find_first_not_of('-'));
    std::replace(name.begin(), name.end(), '-', '_');
    if (name == "config_file") read.file = value;
    const bool unread = among(name, {"config_file", "m", "module", "use_parallelism_config", "quiet", "q", "no_python", "same_network"});
    if (unread || value.find(kUnknown) != std::string::npos) continue;
    const auto [path, word] = as_in_accelerate_file(name, value);
    read.flags.set(path, Node::scalar(word, where));
  }
  at = std::min(at, words.size());
  return read;
}

/// Puts the scalars and lists of `table` over those of `tree`, path by path.
void overlay(Node& tree, const Node& table, const std::string& path = {}) {
  for (const auto& [name, value] : table.members) {
    if (value.is_table()) {
      overlay(tree, value, path + name + ".");
    } else {
      tree.set(path + name, value);
    }
  }
}

}  // namespace

void read_accelerate_options(Reading& reading, const std::string& file, const Node& flags, const Node& from) {
  const bool given = reading.has_format("accelerate");
  const std::string path = file.empty() ? std::string() : reading.located(file, from);
  const bool there = !path.empty() && reading.has_file(path);
  Node tree = Node::table(from.where);
  if (there) tree = parse_yaml_text(reading.text_of(path), readable(path));
  if (there || file.empty()) reading.note_format("accelerate");
  if (!there && !file.empty() && !given) reading.miss(file, from, "accelerate");  // --from may give it yet
  overlay(tree, flags);
  reading.overriding([&] { accelerate_format().read(reading, tree); });
}

bool is_launch_option(const std::string& name) {
  return find_row(accelerate_format().rows(), as_in_accelerate_file(name, {}).first) != nullptr;
}

namespace {

void read_accelerate(Reading& reading, const std::vector<Node>& words) {
  const AccelerateFlags said = accelerate_flags(words);
  std::vector<Node> program(words.begin() + static_cast<std::ptrdiff_t>(said.end), words.end());
  if (said.module && !program.empty()) program.insert(program.begin(), Node::scalar("-m", program.front().where));
  read_accelerate_options(reading, said.file, said.flags, words.front());
  start_program(reading, program);
}

/// A program that srun starts once per rank, without a launcher of its own.
void say_slurm_tasks(Reading& reading, const std::string& where) {
  if (reading.has("slurm.tasks")) return reading.say("gpus", reading.value("slurm.tasks"), "ntasks", where);
  if (reading.has("slurm.tasks_per_node"))
    reading.say("cluster.gpus_per_node", reading.value("slurm.tasks_per_node"), "ntasks-per-node", where);
}

}  // namespace

namespace {

/// The line without what stands in front of its launcher, whose environment is said.
Unwrapped started_by(Reading& reading, const std::vector<Node>& said) {
  for (const Node& word : said)
    if (word.text == "..." || word.text == "…") fail("'" + word.text + "' stands for what is left out", word.where, "write the rest of the line in its place");
  Unwrapped line = unwrapped(reading, said);
  if (line.words.empty())
    fail("the line names no program to run", said.empty() ? std::string() : said.front().where,
         "for example torchrun --nproc-per-node 8 train.py");
  for (const auto& [name, value] : line.environment) read_environment(reading, name, value.text, value.where);
  return line;
}

}  // namespace

void read_launch_line(Reading& reading, const std::vector<Node>& said) {
  const Unwrapped line = started_by(reading, said);
  const std::vector<Node>& words = line.words;
  const std::string name = base_name_of(words[0]);
  if (name == "accelerate" && words.size() > 1 && words[1].text == "launch") {
    read_accelerate(reading, words);
  } else if (is_torchrun_module(words) || among(name, {"torchrun", "deepspeed", "mpirun", "mpiexec"})) {
    read_counted(reading, words);
  } else {
    require_known_program(words);
    if (line.slurm) say_slurm_tasks(reading, words[0].where);
    if (!line.slurm && name.starts_with("python")) reading.say(kLoneProcess, "1", name, words[0].where);
    read_program(reading, words);
  }
  derive_ranks(reading);
}

std::vector<std::string> read_command(Reading& reading, const std::vector<Node>& said) {
  const Unwrapped started = started_by(reading, said);
  const std::vector<Node>& words = started.words;
  const std::vector<std::size_t> known = known_words(words);
  std::vector<std::string> texts;
  for (const std::size_t index : known) texts.push_back(words[index].text);
  const LaunchLine line = parse_launch_line(texts);
  const auto differs =
      std::mismatch(texts.rbegin(), texts.rend(), line.command.rbegin(), line.command.rend());  // an interpreter stands in front
  std::size_t own = static_cast<std::size_t>(differs.first - texts.rbegin());
  if (line.launcher == "accelerate") {  // whose own flags are handed on
    std::vector<Node> kept;
    for (const std::size_t index : known) kept.push_back(words[index]);
    own = kept.size() - accelerate_flags(kept).end;
  }
  for (std::size_t i = own == 0 ? words.size() : known[known.size() - own]; i < words.size(); ++i)
    if (is_unknown(words[i]))
      fail("an argument of the program comes from " + told(words[i].text) + " and is not known here", words[i].where,
           "give the line behind --, with its value");
  say_ranks(reading, {line.nodes, line.every_device ? 0 : line.processes_per_node, line.launcher}, words.front().where);
  if (line.launcher.empty() && started.slurm) say_slurm_tasks(reading, words.front().where);
  derive_ranks(reading);
  return texts;
}

}  // namespace plimsoll::formats
