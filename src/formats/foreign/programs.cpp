// The program behind a launcher: which of the formats its own words are of.
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "data/shipped_files.hpp"
#include "formats/foreign/diffusers_scripts.hpp"
#include "formats/foreign/example_scripts.hpp"
#include "formats/foreign/format.hpp"
#include "formats/foreign/read_run.hpp"
#include "formats/foreign/schema.hpp"
#include "formats/foreign/swift.hpp"
#include "formats/foreign/trl.hpp"
#include "formats/foreign/wrappers.hpp"
#include "formats/row_reader.hpp"
#include "formats/shell/unknown.hpp"
#include "plimsoll/error.hpp"
#include "strategy/setting.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::formats {
namespace {

bool has_flag(const Node& flags, std::initializer_list<const char*> names) { return count_of(flags, names) > 0; }

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool is_file(const std::string& text) {
  return ends_with(text, ".yaml") || ends_with(text, ".yml") || ends_with(text, ".json") || ends_with(text, ".toml");
}

/// The first file among the positional words.
const Node* first_file(const std::vector<Node>& positional) {
  const auto found = std::find_if(positional.begin(), positional.end(), [](const Node& word) { return is_file(word.text); });
  return found == positional.end() ? nullptr : &*found;
}

/// What a file says, with what stands beside it in its place.
void read_overridden(Reading& reading, Node tree, const Node& overrides, const std::string& format) {
  for (const auto& [key, value] : overrides.members) {
    const std::function<void(const Node&, const std::string&)> put = [&](const Node& one, const std::string& path) {
      if (!one.is_table()) return tree.set(path, one);
      for (const auto& [inner, below] : one.members) put(below, path + "." + inner);
    };
    put(value, key);
  }
  reading.note_format(format);
  find_format(format).read(reading, tree);
}

/// A program whose file says everything, and overrides beside it.
void read_file_and_overrides(Reading& reading, const Node& file, const Node& overrides, const std::string& format) {
  if (overrides.members.empty()) return reading.include(file.word(), file, format);
  const std::string name = reading.located(file.word(), file);
  if (!reading.has_file(name)) return reading.include(file.word(), file, format);  // which says where it is named
  const std::string text = reading.text_of(name);
  read_overridden(reading, ends_with(name, ".toml") ? parse_toml_text(text, name) : parse_yaml_text(text, name), overrides, format);
}

/// torchrun's options in front of torchtune's recipe; one past the last.
std::size_t read_tune_ranks(Reading& reading, const std::vector<Node>& words) {
  std::size_t at = 0;
  for (; at < words.size() && words[at].text.rfind('-', 0) == 0; ++at) {
    const Node option = words[at];
    const std::size_t equals = option.text.find('=');
    std::string name = option.text.substr(0, equals);
    name.erase(0, name.find_first_not_of('-'));
    std::replace(name.begin(), name.end(), '-', '_');
    if (name == "standalone" || name == "no_python" || name == "run_path") continue;
    const std::string value = equals != std::string::npos ? option.text.substr(equals + 1) : ++at < words.size() ? words[at].text : std::string();
    if (value.empty()) fail("the option --" + name.substr(0, 60) + " has no value", option.where);
    if (name == "nnodes") reading.say("cluster.nodes", value, name, option.where);
    if (name == "nproc_per_node") reading.say("cluster.gpus_per_node", value, name, option.where);
  }
  return at;
}

/// What torchtune's wheel has under that name (models/torchtune-recipes.json). Throws Error with the nearest.
Node torchtune_recipe(const Node& name) {
  constexpr const char* kPath = "models/torchtune-recipes.json";
  static const JsonDocument file = JsonDocument::parse(data::find_shipped_file(kPath)->text, kPath);
  const JsonValue recipes = file.root()["recipes"];
  const std::string release = file.root()["release"].text();
  if (!recipes.has(name.word()))
    fail(release + " has no recipe '" + name.word().substr(0, 80) + "'", name.where, suggest(name.word(), recipes.keys()) + "; a file's name ends in .yaml");
  return parse(Syntax::json, json_text(recipes[name.word()]), release + ", " + name.word());
}

/// tune run [torchrun's options] RECIPE --config FILE [key=value …]
void read_tune(Reading& reading, std::vector<Node> words) {
  const std::string where = words.empty() ? std::string() : words.front().where;
  const std::size_t recipe = read_tune_ranks(reading, words);
  if (recipe < words.size() && words[recipe].text.find("single_device") != std::string::npos)
    for (const char* count : {"cluster.nodes", "cluster.gpus_per_node"})
      reading.derive(count, "1", "the recipe " + words[recipe].text.substr(0, 60));
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(std::min(recipe + 1, words.size())));
  std::optional<Node> config;
  for (std::size_t i = 0; i < words.size() && !config; ++i) {
    const bool joined = words[i].text.rfind("--config=", 0) == 0;
    if (!joined && (words[i].text != "--config" || i + 1 >= words.size())) continue;
    config = joined ? Node::scalar(words[i].text.substr(9), words[i].where) : words[i + 1];
    words.erase(words.begin() + static_cast<std::ptrdiff_t>(i), words.begin() + static_cast<std::ptrdiff_t>(i + (joined ? 1 : 2)));
  }
  if (!config) fail("tune run has no --config", where);
  std::vector<Node> positional;
  const Node flags = table_of_flags(words, positional);
  if (is_file(config->word())) return read_file_and_overrides(reading, *config, flags, "torchtune");
  read_overridden(reading, torchtune_recipe(*config), flags, "torchtune");
}

/// What Megatron-LM's programs do beside pretraining a GPT. Their flags are the same, and none of them is a step of training one.
void refuse_other_megatron(const std::string& path, const std::string& where) {
  const std::string name = path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1);
  if (name.rfind("pretrain_", 0) == 0 && name.rfind("pretrain_gpt", 0) != 0)
    refuse("not modelled: what " + name.substr(0, 60) + " trains", where, "pretrain_gpt.py is");
  for (const char* other : {"generat", "inference", "server", "eval", "merge", "convert", "preprocess", "prompt", "analyze"})
    if (name.find(other) != std::string::npos)
      fail("the program " + name.substr(0, 60) + " does not train", where, "give the line that does behind --");
  if (path.find("tasks/") != std::string::npos) refuse("not modelled: " + path.substr(0, 80), where, "pretrain_gpt.py is");
}

/// Megatron-DeepSpeed: Megatron's arguments, whose states DeepSpeed shards.
void read_megatron_deepspeed(Reading& reading, const Node& flags) {
  const Node *stage = flags.find("zero_stage"), *experts = flags.find("num_experts"), *file = flags.find("deepspeed_config");
  reading.say("framework", "megatron-deepspeed", "deepspeed", flags.find("deepspeed")->where);
  if (experts && (experts->is_list() || experts->word() != "1"))
    refuse("not modelled: DeepSpeed's mixture of experts", experts->where, "--num-experts 1");
  if (stage) {
    reading.say("zero_stage", stage->word(), "zero_stage", stage->where);
  } else {
    reading.assume("zero_stage", "1", "zero_stage: 1.0", "Megatron-DeepSpeed 2024-12");
  }
  if (const Node* checkpoints = flags.find("deepspeed_activation_checkpointing"); checkpoints && flags.find("checkpoint_activations"))
    reading.leave_unread("deepspeed_activation_checkpointing", checkpoints->where);
  if (file) read_deepspeed_reference(reading, *file);
}

/// Whose arguments the flags are of the programs that extend TrainingArguments, or its own; nullptr: of none. LLaMA-Factory's scripts are
/// called train.py and train_bash.py; others have keys of its names (cutoff_len of alpaca-lora's finetune.py) and mean something else.
const Format* trainer_of(const Node& flags, const std::string& program) {
  static const std::vector<Format> formats{llama_factory_format(), trl_format(), training_arguments_format()};
  const bool may_be_factory = base_name_of(program).starts_with("train");
  const Format* best = nullptr;
  int most = 1;
  for (const Format& format : formats) {
    if (std::string_view(format.name) == "llama-factory" && !may_be_factory) continue;
    if (const int sure = format.recognises(flags); sure > most) most = sure, best = &format;
  }
  return best;
}

/// Throws Error where a line says which model, and nothing of a training of it: scripts that convert, merge, answer or evaluate.
void require_training(const Node& flags, const std::string& program) {
  static const std::vector<std::string_view> of_the_model{
      "model_name_or_path", "config_name", "output_dir",   "trust_remote_code",    "model_revision", "dtype",
      "torch_dtype",        "seed",        "local_rank",   "report_to",            "max_length",     "attn_implementation",
      "load_in_4bit",       "load_in_8bit", "dataset_name", "overwrite_output_dir", "per_device_eval_batch_size"};
  static constexpr std::array<std::string_view, 6> kBesideTraining{"eval_", "push_to_hub", "hub_", "save_", "logging_", "dataset_"};
  for (const char* other : {"do_eval", "do_predict"})
    if (const Node* value = flags.find(other); is_on(value) && !is_on(flags.find("do_train")))
      fail(std::string("--") + other + " without --do_train does not train", value->where, "give the line that trains");
  const Schema& schema = *Schema::of("transformers");
  const bool trains = std::any_of(flags.members.begin(), flags.members.end(), [&](const auto& member) {
    const std::string& name = member.first;
    const bool known = schema.has(name) || find_row(training_arguments_format().rows(), name) != nullptr;
    const bool beside = std::any_of(kBesideTraining.begin(), kBesideTraining.end(), [&](std::string_view front) { return name.starts_with(front); });
    return known && !beside && std::find(of_the_model.begin(), of_the_model.end(), name) == of_the_model.end();
  });
  if (!trains)
    fail("the words of " + readable(program).substr(0, 60) + " say nothing of a training: no batch, length, number of steps or precision", flags.where,
         "give the line that trains, or MODEL and the run by flags");
}

/// Whether a strategy's key takes such a word: another program's switch may have a name of ours.
bool is_value_of(const std::string& key, const std::string& text) {
  Strategy strategy;
  strategy::Source source;
  try {
    strategy::set_text(strategy, key, text, {}, source);
  } catch (const Error&) {
    return false;
  }
  return true;
}

/// Throws Error where a program has words of its own that nobody here can read. What other programs call so is offered, not used.
void refuse_unknown_program(const Node& flags, const std::vector<Node>& positional, const std::string& program) {
  if (flags.members.empty() && positional.empty()) return;  // it says nothing: the model and the strategy are given beside it
  std::string said, offered;
  constexpr std::size_t kMostTold = 6;
  for (std::size_t i = 0; i < flags.members.size() && i < kMostTold; ++i) {
    const auto& [name, value] = flags.members[i];
    said += (said.empty() ? ": --" : ", --") + readable(name).substr(0, 40);
    const auto ours = value.is_scalar() && !is_unknown(value.text) ? strategy_key_of(name) : std::nullopt;
    if (ours && is_value_of(*ours, value.text)) offered += " --" + [&] {
      std::string flag = *ours;
      std::replace(flag.begin(), flag.end(), '_', '-');
      return flag;
    }() + " " + value.text.substr(0, 40);
  }
  fail("the program " + readable(program).substr(0, 60) + " is not known, and nothing of its words can be used" + said,
       flags.where.empty() && !positional.empty() ? positional.front().where : flags.where,
       "say the run by flags" + (offered.empty() ? std::string() : ", to be checked: plimsoll estimate MODEL --on …" + offered) +
           ", or rehearse the program itself: plimsoll rehearse --on … -- COMMAND");
}

/// diffusers' scripts train one part of a pipeline, beside others that rest on the device.
void refuse_diffusers(const Node& flags) {
  const Node* model = flags.find("pretrained_model_name_or_path");
  if (!model || !has_flag(flags, {"resolution", "instance_data_dir", "instance_prompt", "train_data_dir", "dataset_name", "train_batch_size"})) return;
  refuse("not modelled: the loop of this script of diffusers; those of DreamBooth for FLUX and Stable Diffusion 3 are read", model->where,
         "say the part that is trained by flags (plimsoll estimate MODEL --on …), or rehearse the program itself: plimsoll rehearse --on … -- COMMAND");
}

/// llamafactory-cli train FILE [key=value …], or train --flags (llamafactory/hparams/parser.py, read_args).
void read_llama_factory(Reading& reading, std::vector<Node> words) {
  const Node program = words.front();
  words.erase(words.begin());
  if (words.empty() || words.front().text != "train")
    fail("llamafactory-cli " + (words.empty() ? std::string("alone") : words.front().text.substr(0, 40)) + " does not train", program.where,
         "llamafactory-cli train FILE");
  words.erase(words.begin());
  std::vector<Node> positional;
  const Node flags = table_of_flags(words, positional);
  if (const Node* file = first_file(positional)) return read_file_and_overrides(reading, *file, flags, "llama-factory");
  if (flags.members.empty()) fail("llamafactory-cli train names no file and no argument", program.where);
  reading.note_format("llama-factory");
  llama_factory_format().read(reading, flags);
}

/// A file of what TrainingArguments takes, which flags override. Of another: false.
bool read_trainers_file(Reading& reading, const std::string& name, const Node& flags, const std::string& program) {
  const std::string text = reading.text_of(name);
  const Node tree = ends_with(name, ".toml") ? parse_toml_text(text, name) : parse_yaml_text(text, name);
  const Format* owner = tree.is_table() ? trainer_of(tree, program) : nullptr;
  if (!owner) return false;
  refuse_other_programs(tree, name);
  read_overridden(reading, tree, flags, owner->name);
  return true;
}

/// --config FILE of TrlParser, in a script of one's own.
bool read_config_flag(Reading& reading, const Node& flags, const std::string& program) {
  const Node* file = flags.find("config");
  if (file && file->is_list())  // words behind it that are not known may be flags of their own
    for (const auto& [unused, word] : file->members) require_known("what stands behind --config", word.text, word.where);
  if (!file || !file->is_scalar() || !is_file(file->word())) return false;
  const std::string name = reading.located(file->word(), *file);
  if (!reading.has_file(name)) return false;
  Node rest = flags;
  std::erase_if(rest.members, [](const auto& member) { return member.first == "config"; });
  return read_trainers_file(reading, name, rest, program);
}

/// A file that stands alone in front of flags. Where it says what TrainingArguments takes (H4ArgumentParser of the alignment handbook, and
/// scripts after it), the flags override it. Of another file they may be the program's still: false.
bool read_leading_file(Reading& reading, const Node& file, const Node& flags, const std::string& program) {
  if (program.find("axolotl") != std::string::npos) {
    read_file_and_overrides(reading, file, flags, "axolotl");
    return true;
  }
  const std::string name = reading.located(file.word(), file);
  if (flags.members.empty() || !reading.has_file(name)) {
    reading.include(file.word(), file);
    return flags.members.empty() || !trainer_of(flags, program);
  }
  if (read_trainers_file(reading, name, flags, program)) return true;
  if (trainer_of(flags, program)) {
    reading.leave_unknown(file.word() + ": what it says", file.where);
    return false;
  }
  reading.include(file.word(), file);
  for (const auto& [flag, value] : flags.members) reading.leave_unknown("--" + flag, value.where);
  return true;
}

void read_flags(Reading& reading, const Node& flags, const std::vector<Node>& positional, const std::string& program) {
  if (const Node* file = flags.find("job.config_file"); file) {
    Node rest = flags;
    for (auto& [name, job] : rest.members)
      if (name == "job") std::erase_if(job.members, [](const auto& member) { return member.first == "config_file"; });
    const Node path = *file;
    return read_file_and_overrides(reading, path, rest, "torchtitan");
  }
  const auto by = [&](const Format& format, const Node& tree) {
    reading.note_format(format.name);
    format.read(reading, tree);
  };
  if (program.find("torchtitan") != std::string::npos || (flags.find("module") && flags.find("config")))
    return by(torchtitan_format(), flags);
  if (program.find("pretrain_") != std::string::npos || has_flag(flags, {"tensor_model_parallel_size", "num_attention_heads"})) {
    refuse_other_megatron(program, flags.where);
    if (flags.find("deepspeed")) read_megatron_deepspeed(reading, flags);
    return by(megatron_format(), flags);
  }
  if (const Node* file = first_file(positional); file && positional.size() == 1)
    if (read_leading_file(reading, *file, flags, program)) return;
  if (const DiffusersScript script = diffusers_script_of(program); script != DiffusersScript::none) return read_diffusers_script(reading, flags, script);
  refuse_diffusers(flags);
  if (const Node* file = flags.find("config_file"); file && ends_with(program, "run_train.py") && is_file(file->word()))
    return reading.include(file->word(), *file);  // nanotron's
  if (const TrlTrainer trainer = trl_trainer_of_script(program); trainer != TrlTrainer::none) return read_trl_script(reading, flags, trainer, program);
  if (is_example_script(program)) {
    require_training(flags, program);
    return read_example_script(reading, flags, program);
  }
  if (read_config_flag(reading, flags, program)) return;
  if (const Format* trainer = trainer_of(flags, program)) {
    require_training(flags, program);
    return by(*trainer, flags);
  }
  for (const char* key : {"deepspeed_config", "deepspeed"}) {
    const Node* deepspeed = flags.find(key);
    if (!deepspeed || (key == std::string_view("deepspeed") && !is_file(deepspeed->word()))) continue;
    for (const auto& [name, value] : flags.members)
      if (name != "deepspeed" && name != "deepspeed_config") reading.leave_unknown("--" + name, value.where);
    return read_deepspeed_reference(reading, *deepspeed);
  }
  refuse_unknown_program(flags, positional, program);
}

}  // namespace

void read_program(Reading& reading, const std::vector<Node>& said) {
  std::vector<Node> words = said;
  const auto base = [&] {
    return words.front().text.substr(words.front().text.rfind('/') == std::string::npos ? 0 : words.front().text.rfind('/') + 1);
  };
  while (!words.empty() && (base().rfind("python", 0) == 0 || words.front().text == "-u" || words.front().text == "-m"))
    words.erase(words.begin());
  if (words.empty()) return;
  const std::string program = words.front().text, name = base();
  if (name == "tune" && words.size() > 1 && words[1].text == "run") return read_tune(reading, {words.begin() + 2, words.end()});
  if (name == "llamafactory-cli" || program == "llamafactory.cli") return read_llama_factory(reading, words);
  if ((name == "swift" || name == "megatron") && words.size() > 1)
    return read_swift_command(reading, {words[1].text, name == "megatron", false}, {words.begin() + 2, words.end()});
  if (const std::optional<SwiftCommand> command = swift_script_of(program))
    return read_swift_command(reading, *command, {words.begin() + 1, words.end()});
  words.erase(words.begin());
  if (program == "verl.trainer.main_ppo" || ends_with(program, "verl/trainer/main_ppo.py")) return read_verl_command(reading, words);
  const bool trl = name == "trl" && !words.empty();
  const TrlTrainer trainer = trl ? trl_trainer_of_verb(words.front().text) : TrlTrainer::none;
  if (trl) words.erase(words.begin());
  std::vector<Node> positional;
  const Node flags = table_of_flags(words, positional);
  if (trl) return read_trl_command(reading, flags, trainer);
  if (name == "axolotl" || name == "composer" || program.find("axolotl.cli") == 0) {
    const Node* file = first_file(positional);
    if (!file) fail(name + " names no file", said.front().where);
    return read_file_and_overrides(reading, *file, flags, name == "composer" ? "llm-foundry" : "axolotl");
  }
  read_flags(reading, flags, positional, program);
}

}  // namespace plimsoll::formats
