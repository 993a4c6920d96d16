#include "formats/foreign/wrappers.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "formats/foreign/example_scripts.hpp"
#include "formats/foreign/swift.hpp"
#include "formats/foreign/trl_trainers.hpp"
#include "formats/shell/unknown.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

bool among(std::string_view word, const std::vector<std::string_view>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// NAME=VALUE
bool is_assignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == 0 || equals == std::string::npos || std::isdigit(static_cast<unsigned char>(word[0])) != 0) return false;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

void drop(std::vector<Node>& words, std::size_t count) {
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(std::min(count, words.size())));
}

// ---- programs that start another one -------------------------------------------------------------------------------------------

/// A program whose words end where those of another begin.
struct Wrapper {
  std::string_view name;
  std::vector<std::string_view> verbs;   ///< "run" of "conda run"; with others it starts nothing. Empty: it has none
  std::vector<std::string_view> valued;  ///< options whose value is the next word; the others are flags, or have it behind "="
  std::size_t own = 0;                   ///< words of its own behind the options: timeout's duration
  bool assigns = false;                  ///< NAME=VALUE stands in front of the program
  bool module = false;                   ///< -m starts a Python module
  bool searched = false;                 ///< its options are many, or an image stands between: the first launcher is the program
};

/// As their manual pages of 2026-08 have them (coreutils 9, util-linux 2.40, numactl 2.0.19, conda 26, poetry 2, uv 0.13, Nsight Systems
/// 2026.2).
const std::vector<Wrapper>& wrappers() {
  static const std::vector<std::string_view> conda{"-n", "--name", "-p", "--prefix", "--cwd"};
  static const std::vector<Wrapper> all{
      {"nohup", {}, {}},
      {"exec", {}, {"-a"}},
      {"command", {}, {}},
      {"time", {}, {"-f", "--format", "-o", "--output"}},
      {"setsid", {}, {}},
      {"catchsegv", {}, {}},
      {"dumb-init", {}, {}},
      {"tini", {}, {"-e", "-p"}},
      {"stdbuf", {}, {"-i", "-o", "-e", "--input", "--output", "--error"}},
      {"nice", {}, {"-n", "--adjustment"}},
      {"ionice", {}, {"-c", "-n", "--class", "--classdata"}},
      {"taskset", {}, {}, 1},
      {"chrt", {}, {"-T", "-P", "-D"}, 1},
      {"numactl",
       {},
       {"-i", "--interleave", "-p", "--preferred", "-P", "--preferred-many", "-w", "--weighted-interleave", "-N", "--cpunodebind", "-m",
        "--membind", "-C", "--physcpubind"}},
      {"timeout", {}, {"-k", "--kill-after", "-s", "--signal"}, 1},
      {"env", {}, {"-u", "--unset", "-C", "--chdir"}, 0, true},
      {"sudo", {}, {"-u", "--user", "-g", "--group", "-h", "--host", "-p", "--prompt", "-C", "-D", "--chdir"}, 0, true},
      {"conda", {"run"}, conda},
      {"mamba", {"run"}, conda},
      {"micromamba", {"run"}, conda},
      {"poetry", {"run"}, {"-C", "--directory", "-P", "--project"}},
      {"pipenv", {"run"}, {}},
      {"rye", {"run"}, {"--pyproject"}},
      {"pdm", {"run"}, {"-p", "--project", "-s", "--site-packages"}},
      {"pixi", {"run"}, {"-e", "--environment", "--manifest-path"}},
      {"uv",
       {"run"},
       {"-w",
        "--with",
        "--with-editable",
        "--with-requirements",
        "--extra",
        "--no-extra",
        "--group",
        "--no-group",
        "--only-group",
        "--env-file",
        "--package",
        "--project",
        "--directory",
        "-p",
        "--python",
        "--index",
        "--default-index",
        "-i",
        "--index-url",
        "--extra-index-url",
        "-f",
        "--find-links",
        "--config-file",
        "--cache-dir",
        "-P",
        "--upgrade-package",
        "--refresh-package",
        "--reinstall-package",
        "-C",
        "--config-setting",
        "--color",
        "--index-strategy",
        "--prerelease",
        "--prerelease-package",
        "--fork-strategy",
        "--exclude-newer",
        "--exclude-newer-package",
        "--upgrade-group",
        "--no-editable-package",
        "--no-sources-package",
        "--no-build-package",
        "--no-build-isolation-package",
        "--no-binary-package",
        "--config-settings-package",
        "--python-platform",
        "--keyring-provider",
        "--allow-insecure-host",
        "--resolution",
        "--link-mode"},
       0,
       false,
       true},
      {"nsys", {"profile", "launch", "start"}, {}, 0, false, false, true},
      {"ncu", {}, {}, 0, false, false, true},
      {"nv-nsight-cu-cli", {}, {}, 0, false, false, true},
      {"rocprof", {}, {}, 0, false, false, true},
      {"rocprofv2", {}, {}, 0, false, false, true},
      {"rocprofv3", {}, {}, 0, false, false, true},
      {"rocprof-sys-run", {}, {}, 0, false, false, true},
      {"omnitrace-run", {}, {}, 0, false, false, true},
      {"py-spy", {"record", "top"}, {}, 0, false, false, true},
      {"memray", {"run"}, {}, 0, false, false, true},
      {"gdb", {}, {}, 0, false, false, true},
      {"ray", {"job"}, {}, 0, false, false, true},
      {"singularity", {"exec", "run"}, {}, 0, false, false, true},
      {"apptainer", {"exec", "run"}, {}, 0, false, false, true},
      {"docker", {"run", "exec", "compose", "container"}, {}, 0, false, false, true},
      {"podman", {"run", "exec"}, {}, 0, false, false, true},
      {"nerdctl", {"run", "exec"}, {}, 0, false, false, true},
      {"enroot", {"start"}, {}, 0, false, false, true},
      {"shifter", {}, {}, 0, false, false, true},
      {"udocker", {"run"}, {}, 0, false, false, true},
      {"kubectl", {"exec", "run"}, {}, 0, false, false, true},
  };
  return all;
}

const Wrapper* wrapper_of(const std::vector<Node>& words) {
  const std::string name = base_name_of(words.front());
  for (const Wrapper& one : wrappers())
    if (one.name == name) return &one;
  return nullptr;
}

/// Passes the wrapper's options from `at` on; `module`: one of them was -m.
std::size_t behind_options(const std::vector<Node>& words, std::size_t at, const Wrapper& wrapper, bool& module) {
  for (; at < words.size() && words[at].text.size() > 1 && words[at].text[0] == '-'; ++at) {
    const std::string& word = words[at].text;
    if (word == "--") return at + 1;
    module = module || (wrapper.module && (word == "-m" || word == "--module"));
    if (among(word, wrapper.valued)) ++at;
  }
  return std::min(at, words.size());
}

/// The first word at which a launcher begins.
std::size_t launcher_in(const std::vector<Node>& words) {
  for (std::size_t at = 1; at < words.size(); ++at)
    if (is_launcher({words.begin() + static_cast<std::ptrdiff_t>(at), words.end()})) return at;
  return words.size();
}

/// Takes the wrapper away; false: it starts nothing with such a verb.
bool take_away(const Wrapper& wrapper, Unwrapped& line) {
  std::vector<Node>& words = line.words;
  bool module = false;
  std::size_t at = behind_options(words, 1, wrapper, module);
  if (!wrapper.verbs.empty()) {
    if (at >= words.size() || !among(words[at].text, wrapper.verbs)) return false;
    module = false;
    at = wrapper.searched ? at : behind_options(words, at + 1, wrapper, module);
  }
  if (wrapper.searched) {
    at = launcher_in(words);
    if (at >= words.size()) return false;
  }
  for (at += wrapper.own; wrapper.assigns && at < words.size() && is_assignment(words[at].text); ++at) {
    const std::string& word = words[at].text;
    const std::size_t equals = word.find('=');
    line.environment.emplace_back(word.substr(0, equals), Node::scalar(word.substr(equals + 1), words[at].where));
  }
  const std::string where = words.front().where;
  drop(words, at);
  if (module) words.insert(words.begin(), {Node::scalar("python", where), Node::scalar("-m", where)});
  return true;
}

// ---- srun ----------------------------------------------------------------------------------------------------------------------

/// srun's options without a value, or with one only behind "=" (src/common/slurm_opt.c of Slurm of 2026-08, and pyxis' of 0.21).
bool is_srun_flag(std::string_view name) {
  static const std::vector<std::string_view> flags{"--label",
                                                   "--unbuffered",
                                                   "--kill-on-bad-exit",
                                                   "--exclusive",
                                                   "--overlap",
                                                   "--verbose",
                                                   "--quiet",
                                                   "--pty",
                                                   "--overcommit",
                                                   "--no-kill",
                                                   "--hold",
                                                   "--immediate",
                                                   "--oversubscribe",
                                                   "--disable-status",
                                                   "--no-allocate",
                                                   "--contiguous",
                                                   "--exact",
                                                   "--external-launcher",
                                                   "--interactive",
                                                   "--multi-prog",
                                                   "--propagate",
                                                   "--reboot",
                                                   "--spread-job",
                                                   "--use-min-nodes",
                                                   "--whole",
                                                   "--compress",
                                                   "--bcast",
                                                   "--x11",
                                                   "--resv-ports",
                                                   "--test-only",
                                                   "--preserve-env",
                                                   "--send-libs",
                                                   "--container-mount-home",
                                                   "--no-container-mount-home",
                                                   "--container-remap-root",
                                                   "--no-container-remap-root",
                                                   "--container-entrypoint",
                                                   "--no-container-entrypoint",
                                                   "--container-writable",
                                                   "--container-readonly",
                                                   "--no-container-entrypoint-log",
                                                   "--help",
                                                   "--usage",
                                                   "--async",
                                                   "--bell",
                                                   "--consolidate-segments",
                                                   "--debugger-test",
                                                   "--external",
                                                   "--get-user-env",
                                                   "--nice",
                                                   "--no-bell",
                                                   "--no-requeue",
                                                   "--no-shell",
                                                   "--oom-kill-step",
                                                   "--quit-on-interrupt",
                                                   "--requeue",
                                                   "--spread-segments",
                                                   "--stepmgr",
                                                   "--wait-for-children",
                                                   "--version",
                                                   "--nvmps"};
  constexpr std::string_view kLetters = "EHIKkOQsuVvXZlh";
  return name.substr(0, 2) == "--" ? among(name, flags) : name.size() == 2 && kLetters.find(name[1]) != std::string_view::npos;
}

void say_srun(Reading& reading, const std::string& name, const std::string& value, const std::string& where) {
  if (value.empty() || is_unknown(value)) return;
  const auto say = [&](const char* key) { reading.overriding([&] { reading.say(key, value, "srun " + name, where); }); };
  if (name == "-N" || name == "--nodes") say("cluster.nodes");
  if (name == "--ntasks-per-node") say("slurm.tasks_per_node");
  if (name == "-n" || name == "--ntasks") say("slurm.tasks");
}

/// srun [options] program: how many tasks it starts.
void take_srun(Reading& reading, std::vector<Node>& words) {
  std::size_t at = 1;
  for (; at < words.size() && words[at].text.size() > 1 && words[at].text[0] == '-'; ++at) {
    const std::string where = words[at].where, word = words[at].text;
    if (word == "--") {
      ++at;
      break;
    }
    if (word[1] == '-') {
      const std::size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      std::string value = equals == std::string::npos ? std::string() : word.substr(equals + 1);
      if (equals == std::string::npos && !is_srun_flag(name) && at + 1 < words.size()) value = words[++at].text;
      say_srun(reading, name, value, where);
      continue;
    }
    for (std::size_t i = 1; i < word.size(); ++i) {  // -lu, -N4
      const std::string name = std::string("-") + word[i];
      constexpr std::string_view kJoined = "IKk";  // their values stand in the same word alone: -K1
      if (kJoined.find(word[i]) != std::string_view::npos) break;
      if (is_srun_flag(name)) continue;
      const std::string value = i + 1 < word.size() ? word.substr(i + 1) : at + 1 < words.size() ? words[++at].text : std::string();
      say_srun(reading, name, value, where);
      break;
    }
  }
  drop(words, at);
}

// ---- Python ----------------------------------------------------------------------------------------------------------------------

/// Drops an interpreter's own options (python --help), and the interpreter in front of a launcher's file: `python -u $(which torchrun)`.
void plain_python(std::vector<Node>& words) {
  while (words.size() > 1 && words[1].text.size() > 1 && words[1].text[0] == '-' && words[1].text != "-m" && words[1].text != "-c") {
    const std::string& word = words[1].text;
    const bool valued = word == "-W" || word == "-X" || word == "--check-hash-based-pycs";
    words.erase(words.begin() + 1, words.begin() + (valued && words.size() > 2 ? 3 : 2));
  }
  if (words.size() < 2) return;
  static const std::vector<std::string_view> scripts{"torchrun", "accelerate", "deepspeed", "tune", "composer"};
  if (among(base_name_of(words[1]), scripts)) return drop(words, 1);
  if (words[1].text != "-m" || words.size() < 3) return;
  const std::string module = words[2].text;
  const auto stands_for = [&](std::initializer_list<const char*> launcher) {
    std::vector<Node> made;
    for (const char* word : launcher) made.push_back(Node::scalar(word, words[2].where));
    made.insert(made.end(), words.begin() + 3, words.end());
    words = std::move(made);
  };
  if (module == "accelerate.commands.launch") return stands_for({"accelerate", "launch"});
  if (module == "deepspeed.launcher.runner" || module == "deepspeed") return stands_for({"deepspeed"});
}

// ---- programs that train ---------------------------------------------------------------------------------------------------------

/// A command that trains, or starts what does.
struct Trainer {
  std::string_view command;
  std::vector<std::string_view> verbs;  ///< with others it does not train; empty: always
  const char* unread = nullptr;         ///< what it is, where its words are not read
};

const std::vector<Trainer>& trainers() {
  static const std::vector<Trainer> all{
      {"torchrun", {}},
      {"deepspeed", {}},
      {"mpirun", {}},
      {"mpiexec", {}},
      {"accelerate", {"launch"}},
      {"tune", {"run"}},
      {"axolotl", {"train"}},
      {"llamafactory-cli", {"train"}},
      {"composer", {}},
      {"swift", {"sft", "pt", "rlhf"}},
      {"megatron", {"sft", "pt", "rlhf"}},
      {"trl", {"sft", "dpo", "grpo", "kto", "orpo", "reward", "rloo", "distillation"}},
      {"litgpt", {"finetune", "finetune_full", "finetune_lora", "finetune_adapter", "finetune_adapter_v2", "pretrain"}, "LitGPT"},
      {"automodel", {}, "NeMo AutoModel"},
      {"nemo", {"llm"}, "NeMo 2"},
      {"xtuner", {"train"}, "XTuner"},
      {"oumi", {"train", "distributed"}, "Oumi"},
      {"colossalai", {"run"}, "Colossal-AI's launcher"},
      {"horovodrun", {}, "Horovod's launcher"},
      {"torchx", {"run"}, "TorchX"},
      {"fabric", {"run"}, "Lightning Fabric"},
      {"lightning", {"run", "fit"}, "Lightning's command line"},
      {"jsrun", {}, "LSF's jsrun"},
      {"aprun", {}, "ALPS' aprun"},
      {"ibrun", {}, "TACC's ibrun"},
      {"flux", {"run", "submit"}, "Flux' launcher"},
  };
  return all;
}

/// Python modules and files whose words are not read, by how they begin.
const char* unread_module(const std::string& module) {
  static const std::pair<std::string_view, const char*> modules[] = {{"verl.", "verl"},
                                                                     {"openrlhf.", "OpenRLHF"},
                                                                     {"nemo_automodel.", "NeMo AutoModel"},
                                                                     {"levanter.", "Levanter"},
                                                                     {"litgpt", "LitGPT"},
                                                                     {"MaxText.", "MaxText"},
                                                                     {"maxtext.", "MaxText"},
                                                                     {"slime.", "slime"}};
  for (const auto& [front, name] : modules)
    if (module.compare(0, front.size(), front) == 0) return name;
  return nullptr;
}

const Trainer* trainer_of(const std::vector<Node>& words) {
  const std::string name = base_name_of(words.front());
  for (const Trainer& one : trainers())
    if (one.command == name) return one.verbs.empty() || (words.size() > 1 && among(words[1].text, one.verbs)) ? &one : nullptr;
  return nullptr;
}

/// The module or file that an interpreter runs; none: a text, or what is typed.
const Node* run_by_python(const std::vector<Node>& words) {
  std::size_t at = 1;
  while (at < words.size() && words[at].text.size() > 1 && words[at].text[0] == '-' && words[at].text != "-m" && words[at].text != "-c")
    ++at;
  if (at < words.size() && words[at].text == "-m") return at + 1 < words.size() && words[at + 1].text != "pip" ? &words[at + 1] : nullptr;
  const bool file = at < words.size() && (words[at].text.ends_with(".py") || is_unknown(words[at].text) ||
                                          base_name_of(words[at]) == "torchrun" || base_name_of(words[at]) == "accelerate");
  return file ? &words[at] : nullptr;
}

}  // namespace

std::string base_name_of(const std::string& path) { return path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1); }

std::string base_name_of(const Node& word) { return base_name_of(word.text); }

bool is_python(const Node& word) {
  const std::string name = base_name_of(word);
  return name.rfind("python", 0) == 0 && name.find_first_not_of("0123456789.", 6) == std::string::npos;
}

bool is_torchrun_module(const std::vector<Node>& words) {
  return words.size() > 2 && is_python(words[0]) && words[1].text == "-m" &&
         among(words[2].text, {"torch.distributed.run", "torch.distributed.launch", "torch.distributed.launcher"});
}

bool is_launcher(const std::vector<Node>& words) {
  if (words.empty()) return false;
  if (is_python(words.front())) return run_by_python(words) != nullptr;
  return trainer_of(words) != nullptr || (words.front().text.ends_with(".py") && words.front().text.find('=') == std::string::npos);
}

namespace {

constexpr const char* kElsewhere =
    "say the run by flags (plimsoll estimate MODEL --on …), or rehearse the program itself: plimsoll rehearse --on … -- COMMAND";

/// Whether a word of a name is one of these.
bool has_word(const std::string& name, const std::vector<std::string_view>& kinds) {
  std::string word;
  for (const char c : name + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else {
      if (among(word, kinds)) return true;
      word.clear();
    }
  }
  return false;
}

/// Words of a script's name, or of a verb, that say what it trains by.
bool trains_by_preferences(const std::string& name) {
  static const std::vector<std::string_view> kinds{"dpo", "orpo",   "kto",    "cpo",    "simpo", "bco",  "ppo",  "grpo",         "rloo",
                                                   "xpo", "reward", "prm",    "gkd",    "rlhf",  "gspo", "dapo", "distillation", "ipo",
                                                   "tpo", "mpo",    "nash",   "sdft",   "sdpo",  "ssd"};
  return has_word(name, kinds);
}

/// Scripts called as transformers' own whose model has another head than a language model's, but not read as those: run_squad.py.
bool trains_a_head(const std::string& name) {
  static const std::vector<std::string_view> kinds{"glue", "ner", "qa", "swag", "squad", "xnli", "classification"};
  return name.starts_with("run_") && has_word(name, kinds);
}

/// The words of a path that name a script: its own, or a module's last.
std::string script_name(const std::string& program) {
  const bool file = program.ends_with(".py");
  const std::string path = file ? program.substr(0, program.size() - 3) : program;
  return path.substr(path.find_last_of(file ? "/" : "./") + 1);
}

[[noreturn]] void refuse_preferences(const std::string& told, const std::string& where) {
  refuse("not modelled: training by preferences, rewards or a teacher, which " + told + " does", where, kElsewhere);
}

}  // namespace

void refuse_unread(const Node& program) {
  if (trl_trainer_of_script(program.text) != TrlTrainer::none) return;
  if (program.text == "verl.trainer.main_ppo" || program.text.ends_with("verl/trainer/main_ppo.py")) return;
  if (swift_script_of(program.text) || is_example_script(program.text)) return;
  if (trains_by_preferences(script_name(program.text))) refuse_preferences(program.text.substr(0, 60), program.where);
  if (const char* what = unmodelled_example(program.text))
    refuse("not modelled: " + std::string(what) + ", which " + program.text.substr(0, 60) + " trains", program.where, kElsewhere);
  if (trains_a_head(script_name(program.text)))
    refuse("not modelled: a head of classes or answers, which " + program.text.substr(0, 60) + " trains", program.where, kElsewhere);
  if (has_word(script_name(program.text), {"analyze", "preprocess", "tokenize"}))
    fail("the program " + program.text.substr(0, 60) + " does not train", program.where, "give the line that does behind --");
  if (const char* unread = unread_module(program.text))
    refuse("'" + program.text.substr(0, 60) + "' (" + unread + ") is not read", program.where, kElsewhere);
}

void require_known_program(const std::vector<Node>& words) {
  const std::string name = base_name_of(words.front());
  if (const Trainer* trainer = trainer_of(words)) {
    const std::string verb = trainer->verbs.empty() ? std::string() : " " + words[1].text;
    const bool read = (trainer->command == "trl" && trl_trainer_of_verb(words[1].text) != TrlTrainer::none) || trainer->command == "swift";
    if (!trainer->verbs.empty() && !read && trains_by_preferences(words[1].text)) refuse_preferences("'" + name + verb + "'", words.front().where);
    if (trainer->unread) refuse("'" + name + verb + "' (" + trainer->unread + ") is not read", words.front().where, kElsewhere);
    return;
  }
  const Node* program = is_python(words.front()) ? run_by_python(words) : &words.front();
  if (program) refuse_unread(*program);
  if (is_python(words.front()) || name.ends_with(".py") || is_unknown(words.front().text)) return;
  std::vector<std::string> known{"python", "srun"};
  for (const Trainer& one : trainers())
    if (!one.unread) known.emplace_back(one.command);
  const std::string near = nearest_name(name, known);
  fail("'" + readable(name).substr(0, 60) + "' starts no training that is known here", words.front().where,
       near.empty() ? kElsewhere : "did you mean '" + near + "'?");
}

Unwrapped unwrapped(Reading& reading, std::vector<Node> said) {
  Unwrapped line{std::move(said), {}, false};
  while (!line.words.empty()) {
    if (line.words.size() > 1 && is_assignment(line.words.front().text)) {  // as a line behind -- may have it
      const std::string& word = line.words.front().text;
      const std::size_t equals = word.find('=');
      line.environment.emplace_back(word.substr(0, equals), Node::scalar(word.substr(equals + 1), line.words.front().where));
      drop(line.words, 1);
    } else if (base_name_of(line.words.front()) == "srun") {
      take_srun(reading, line.words);
      line.slurm = true;
    } else if (is_python(line.words.front())) {
      plain_python(line.words);
      return line;
    } else {
      const Wrapper* wrapper = wrapper_of(line.words);
      if (wrapper == nullptr || !take_away(*wrapper, line)) return line;
    }
  }
  return line;
}

}  // namespace plimsoll::formats
