// Launch lines and the scripts around them: how many nodes and processes, whose environment, and which program reads the rest.
#include <algorithm>
#include <functional>

#include "formats/foreign/format.hpp"
#include "formats/foreign/stated_releases.hpp"
#include "formats/shell/shell.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/rehearse.hpp"

namespace plimsoll::formats {
namespace {

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1); }
bool is_python(const std::string& word) { return base_name(word).rfind("python", 0) == 0; }
bool is_unknown(const Node& word) { return formats::is_unknown(word.text); }

bool among(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* one) { return word == one; });
}

// ---- launchers -----------------------------------------------------------------------------------------------------------

/// Options whose values are not known here are left out: how many ranks there are is then --on's to say. Indices of the words that stay.
std::vector<std::size_t> known_words(const std::vector<Node>& words) {
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!is_unknown(words[i])) {
      kept.push_back(i);
    } else if (!kept.empty() && words[kept.back()].text.rfind("--", 0) == 0 && words[i].text.rfind("--", 0) != 0) {
      kept.pop_back();
    }
  }
  return kept;
}

void say_ranks(Reading& reading, std::int64_t nodes, std::int64_t per_node, const std::string& launcher, const std::string& where) {
  if (nodes > 0) reading.say("cluster.nodes", std::to_string(nodes), launcher, where);
  if (per_node > 0) reading.say("cluster.gpus_per_node", std::to_string(per_node), launcher, where);
}

/// "host slots=8" lines of DeepSpeed's hostfile, or of mpirun's.
void read_hostfile(Reading& reading, const std::string& path, const std::string& where) {
  std::int64_t nodes = 0, slots = 0;
  const std::string text = reading.text_of(path);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t") == std::string::npos || line[line.find_first_not_of(" \t")] == '#') continue;
    const std::size_t given = line.find("slots=");
    if (given == std::string::npos) fail("expected \"host slots=8\", found \"" + line.substr(0, 60) + "\"", path);
    const std::int64_t here = std::atoll(line.c_str() + given + 6);
    if (slots != 0 && here != slots) refuse("nodes with different numbers of GPUs are not modelled", path);
    slots = here;
    ++nodes;
  }
  if (nodes == 0) fail("names no host", path);
  say_ranks(reading, nodes, slots, "hostfile", where);
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
  reading.note_format(line.launcher.empty() ? "a program" : line.launcher);
  std::size_t count = line.command.size();
  if (line.launcher == "torchrun" || line.launcher == "deepspeed") --count;  // the interpreter that it puts in front
  const auto hostfile = std::find_if(words.begin(), words.end(), [](const Node& word) { return word.text == "--hostfile"; });
  if (hostfile != words.end() && hostfile + 1 != words.end()) {
    read_hostfile(reading, (hostfile + 1)->text, words.front().where);
  } else if (line.launcher == "torchrun" || line.launcher == "deepspeed") {
    const bool counted = line.every_device || (line.processes_per_node == 0 && words.size() != said.size());
    const std::int64_t per_node = counted ? 0 : std::max<std::int64_t>(1, line.processes_per_node);
    const bool several = line.nodes > 0 || words.size() == said.size();
    say_ranks(reading, several ? std::max<std::int64_t>(1, line.nodes) : 0, per_node, line.launcher, words.front().where);
  } else if (line.launcher == "mpirun" && line.processes_per_node > 0) {
    const std::int64_t ranks = std::max<std::int64_t>(1, line.nodes) * line.processes_per_node;
    reading.say("gpus", std::to_string(ranks), "mpirun", words.front().where);
  }
  for (const auto& [name, value] : line.environment) reading.say("env." + name, value, "-x", words.front().where);
  if (count == 0 || count > known.size()) return;
  read_program(reading, {said.begin() + static_cast<std::ptrdiff_t>(known[known.size() - count]), said.end()});
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

/// A flag by the name that the file has, and its value there.
std::pair<std::string, std::string> as_in_the_file(const std::string& name, const std::string& value) {
  static const std::pair<const char*, const char*> kinds[] = {
      {"use_fsdp", "FSDP"}, {"use_deepspeed", "DEEPSPEED"}, {"use_megatron_lm", "MEGATRON_LM"}, {"multi_gpu", "MULTI_GPU"}};
  for (const auto& [flag, kind] : kinds)
    if (name == flag) return {"distributed_type", kind};
  return {path_of_flag(name == "cpu" ? "use_cpu" : name), value == "True" ? "true" : value == "False" ? "false" : value};
}

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
    const auto [path, word] = as_in_the_file(name, value);
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

void read_accelerate(Reading& reading, const std::vector<Node>& words) {
  const bool given = reading.has_format("accelerate");
  const AccelerateFlags said = accelerate_flags(words);
  const std::string path = said.file.empty() ? std::string() : reading.located(said.file, words.front());
  const bool there = !path.empty() && reading.has_file(path);
  Node tree = Node::table(words.front().where);
  if (there) tree = parse_yaml_text(reading.text_of(path), path);
  if (there || said.file.empty()) reading.note_format("accelerate");
  if (!there && !said.file.empty() && !given) reading.miss(said.file, words.front(), "accelerate");  // --from may give it yet
  overlay(tree, said.flags);
  std::vector<Node> program(words.begin() + static_cast<std::ptrdiff_t>(said.end), words.end());
  if (said.module && !program.empty()) program.insert(program.begin(), Node::scalar("-m", program.front().where));
  reading.overriding([&] { accelerate_format().read(reading, tree); });
  read_program(reading, program);
}

/// srun [options] program: how many tasks it starts.
std::vector<Node> read_srun(Reading& reading, const std::vector<Node>& words) {
  std::size_t at = 1;
  for (; at < words.size() && words[at].text.rfind('-', 0) == 0; ++at) {
    std::string name = words[at].text;
    const std::size_t equals = name.find('=');
    std::string value = equals == std::string::npos ? std::string() : name.substr(equals + 1);
    name = name.substr(0, equals);
    const bool flag = among(name, {"-l", "--label", "-u", "--unbuffered", "-K", "--exclusive", "--overlap", "-v", "-Q", "--quiet", "--pty",
                                   "-O", "--overcommit", "--kill-on-bad-exit", "--no-container-mount-home", "--container-writable"});
    const bool joined = name.size() > 2 && name[0] == '-' && name[1] != '-';  // -N4
    if (joined) value = name.substr(2), name = name.substr(0, 2);
    if (!flag && !joined && equals == std::string::npos && at + 1 < words.size()) value = words[++at].text;
    if (value.empty() || value.find(kUnknown) != std::string::npos) continue;
    if (among(name, {"-N", "--nodes"})) reading.overriding([&] { reading.say("cluster.nodes", value, "srun " + name, words[at].where); });
    if (name == "--ntasks-per-node")
      reading.overriding([&] { reading.say("slurm.tasks_per_node", value, "srun " + name, words[at].where); });
    if (among(name, {"-n", "--ntasks"})) reading.overriding([&] { reading.say("slurm.tasks", value, "srun " + name, words[at].where); });
  }
  return {words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size())), words.end()};
}

/// A program that srun starts once per rank, without a launcher of its own.
void say_slurm_tasks(Reading& reading, const std::string& where) {
  if (reading.has("slurm.tasks")) return reading.say("gpus", reading.value("slurm.tasks"), "ntasks", where);
  if (reading.has("slurm.tasks_per_node"))
    reading.say("cluster.gpus_per_node", reading.value("slurm.tasks_per_node"), "ntasks-per-node", where);
}

bool is_launcher(const std::vector<Node>& words) {
  if (words.empty()) return false;
  const std::string name = base_name(words[0].text);
  if (among(name, {"torchrun", "deepspeed", "mpirun", "mpiexec", "tune", "axolotl", "llamafactory-cli", "composer"})) return true;
  if (name == "accelerate") return words.size() > 1 && words[1].text == "launch";
  return is_python(name) && words.size() > 1;
}

/// Words in front of a launcher that change nothing of it: nohup, env A=B, a container's own line.
std::vector<Node> without_wrappers(Reading& reading, std::vector<Node> words, bool& slurm) {
  while (!words.empty()) {
    const std::string name = base_name(words[0].text);
    if (name == "srun") {
      words = read_srun(reading, words);
      slurm = true;
    } else if (among(name, {"exec", "nohup", "time", "env", "command", "numactl", "nsys", "uv", "run"})) {
      words.erase(words.begin());
      while (!words.empty() && (words[0].text.find('=') != std::string::npos || words[0].text.rfind('-', 0) == 0))
        words.erase(words.begin());
    } else if (among(name, {"singularity", "apptainer", "docker", "podman", "enroot"})) {
      std::size_t at = 1;
      while (at < words.size() && !is_launcher({words.begin() + static_cast<std::ptrdiff_t>(at), words.end()})) ++at;
      words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      return words;
    }
  }
  return words;
}

/// PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:512
void read_environment(Reading& reading, const std::string& name, const std::string& value, const std::string& where) {
  if (!among(name, {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})) return;
  static const Rows rows = {{"expandable_segments", "allocator.expandable_segments", "True=true,False=false"},
                            {"max_split_size_mb", "allocator.max_split_size_mb"},
                            {"roundup_power2_divisions", "allocator.roundup_power2_divisions"},
                            {"garbage_collection_threshold", "allocator.garbage_collection_threshold"},
                            {"backend", kRefused, "native", nullptr, "another allocator than PyTorch's own"}};
  Node tree = Node::table(where);
  for (std::size_t at = 0; at < value.size();) {
    const std::size_t end = std::min(value.find(',', at), value.size()), colon = value.find(':', at);
    if (colon < end) tree.set(value.substr(at, colon - at), Node::scalar(value.substr(colon + 1, end - colon - 1), where));
    at = end + 1;
  }
  read_rows(reading, rows, tree, name + " ");
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

/// A line that nothing known starts is a misspelling, or a program whose flags nobody here understands.
void require_known_program(const Node& word) {
  const std::string name = base_name(word.text);
  if (is_python(name) || name.ends_with(".py")) return;
  const std::vector<std::string> known{"torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "python", "tune", "axolotl", "llamafactory-cli", "composer"};
  if (std::find(known.begin(), known.end(), name) != known.end() || is_unknown(word)) return;
  fail("'" + name.substr(0, 60) + "' starts no training that is known here", word.where, suggest(name.substr(0, 60), known));
}

}  // namespace

void read_launch_line(Reading& reading, const std::vector<Node>& said) {
  bool slurm = false;
  const std::vector<Node> words = without_wrappers(reading, said, slurm);
  if (words.empty())
    fail("the line names no program to run", said.empty() ? std::string() : said.front().where,
         "for example torchrun --nproc-per-node 8 train.py");
  const std::string name = base_name(words[0].text);
  if (name == "accelerate" && words.size() > 1 && words[1].text == "launch") return read_accelerate(reading, words);
  const bool module = is_python(name) && words.size() > 2 && words[1].text == "-m" &&
                      among(words[2].text, {"torch.distributed.run", "torch.distributed.launch"});
  if (module || among(name, {"torchrun", "deepspeed", "mpirun", "mpiexec"})) return read_counted(reading, words);
  require_known_program(words[0]);
  if (slurm) say_slurm_tasks(reading, words[0].where);
  read_program(reading, words);
}

std::vector<std::vector<Node>> launches_of_script(Reading& reading, const std::string& text, const std::string& where) {
  struct Launch {
    std::vector<Node> words;
    std::map<std::string, std::string> environment, files;
  };
  std::vector<Launch> launched;
  Shell* followed = nullptr;
  Surroundings around;
  around.run = [&](const Started& started) {
    read_pip_line(reading, started.words);
    Reading aside;
    bool slurm = false;
    const std::vector<Node> plain = without_wrappers(aside, started.words, slurm);
    const bool python = !plain.empty() && is_python(plain[0].text);
    const auto program = std::find_if(plain.begin() + (python ? 1 : 0), plain.end(), [](const Node& word) { return word.text != "-u"; });
    const bool module = program != plain.end() && program->text == "-m" && program + 1 != plain.end() && (program + 1)->text != "pip";
    const bool trains = !python || (program != plain.end() && (program->text.ends_with(".py") || module));
    if (!is_launcher(plain) || !trains) return false;
    const bool known = std::any_of(launched.begin(), launched.end(), [&](const Launch& one) {
      return std::equal(one.words.begin(), one.words.end(), started.words.begin(), started.words.end(),
                        [](const Node& a, const Node& b) { return a.text == b.text; });
    });
    constexpr std::size_t kMostLaunches = 1000;
    if (launched.size() >= kMostLaunches) fail("the script starts more than 1000 trainings", started.words.front().where);
    if (!known) launched.push_back({started.words, started.environment, *started.files});
    return true;
  };
  around.read = [&](const std::string& path) -> std::optional<std::string> {
    const std::string folder = where.substr(0, where.rfind('/') == std::string::npos ? 0 : where.rfind('/') + 1);
    if (path.empty() || (path[0] == '/' && (folder.empty() || path.compare(0, folder.size(), folder) != 0))) return std::nullopt;
    const std::string found = reading.located(path, Node::scalar(path, where));
    return reading.has_file(found) ? std::optional<std::string>(reading.text_of(found)) : std::nullopt;
  };
  around.batch = [&](const std::string& job, const std::string& place) { read_directives(reading, job, place, *followed); };
  around.note = [&](const std::string& what, const std::string& place) { reading.leave_unread(what, place); };
  Shell shell(where, around);
  followed = &shell;
  for (const auto& [name, value] : reading.script_options().values) shell.give(name, value);
  read_directives(reading, text, where, shell);
  shell.follow(text);
  const std::vector<std::string> unused = shell.unused();
  for (const auto& [name, value] : reading.script_options().values)
    if (std::find(unused.begin(), unused.end(), name) == unused.end()) reading.use_value(name);
  if (launched.empty())
    fail("starts no training program: no torchrun, accelerate, deepspeed, srun or python is in it", where,
         "give the launch line behind --");
  const auto chosen = static_cast<std::size_t>(reading.script_options().launch);
  if (chosen > launched.size()) fail("the script starts " + std::to_string(launched.size()) + " trainings", where, "--launch counts from 1");
  if (chosen == 0 && launched.size() > 1) {
    std::string all;
    constexpr std::size_t kMostTold = 12, kMostWords = 160;
    for (std::size_t i = 0; i < std::min(launched.size(), kMostTold); ++i) {
      std::string words;
      for (const Node& word : launched[i].words)
        if (i == 0 || std::none_of(launched[0].words.begin(), launched[0].words.end(), [&](const Node& one) { return one.text == word.text; }))
          words += " " + readable(word.text);
      all += "; " + std::to_string(i + 1) + ": " + launched[i].words.front().where + words.substr(0, kMostWords);
    }
    fail("the script starts " + std::to_string(launched.size()) + " trainings" + all, where, "choose one: --launch NUMBER");
  }
  const Launch& one = launched[chosen == 0 ? 0 : chosen - 1];
  for (const auto& [path, written] : one.files) {
    reading.add_file(path, written);
    for (const Node& word : one.words)
      if (word.text == "./" + path) reading.add_file(word.text, written);
  }
  for (const auto& [name, value] : one.environment) read_environment(reading, name, value, where);
  return {one.words};
}

namespace {

/// A job whose launcher leaves the count to the machine has a rank per GPU that Slurm gives it.
void derive_gpus_of_job(Reading& reading) {
  if (reading.has("slurm.gpus_per_node") && !reading.has("cluster.gpus_per_node"))
    reading.derive("cluster.gpus_per_node", reading.value("slurm.gpus_per_node"), "a rank per GPU of the job");
}

}  // namespace

void read_shell_script(Reading& reading, const std::string& text, const std::string& where) {
  const std::vector<std::vector<Node>> launched = launches_of_script(reading, text, where);
  read_launch_line(reading, launched.front());
  for (std::size_t i = 1; i < launched.size(); ++i) reading.leave_unread("another launch line", launched[i].front().where);
  derive_gpus_of_job(reading);
}

std::vector<std::string> read_command(Reading& reading, const std::vector<Node>& said) {
  bool slurm = false;
  const std::vector<Node> words = without_wrappers(reading, said, slurm);
  if (words.empty()) fail("the line names no program to run", said.empty() ? std::string() : said.front().where);
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
  say_ranks(reading, line.nodes, line.every_device ? 0 : line.processes_per_node, line.launcher, words.front().where);
  if (line.launcher.empty() && slurm) say_slurm_tasks(reading, words.front().where);
  derive_gpus_of_job(reading);
  return texts;
}

}  // namespace plimsoll::formats
