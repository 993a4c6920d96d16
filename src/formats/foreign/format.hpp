// The formats that are read: one file each, and the list of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "formats/foreign/keys.hpp"

namespace plimsoll::formats {

/// A program's file, already a tree.
struct Format {
  const char* name;     ///< "accelerate": what --from NAME:FILE says
  const char* title;    ///< for people
  const char* release;  ///< whose keys and defaults the table has
  const Rows& (*rows)();
  /// How sure it is that a tree is of this format: 0 no, 1 it may be, more: keys that only this format has.
  int (*recognises)(const Node& tree);
  void (*read)(Reading& reading, const Node& tree);
};

/// In the order in which ties are decided.
const std::vector<Format>& tree_formats();
const Format& find_format(const std::string& name);

Format transformers_config_format();
Format training_arguments_format();
Format trl_format();
Format swift_format();
Format swift_megatron_format();
Format peft_format();
Format accelerate_format();
Format deepspeed_format();
Format torchtitan_format();
Format torchtune_format();
Format axolotl_format();
Format llama_factory_format();
Format llm_foundry_format();
Format megatron_format();
Format primus_format();
Format nemo_format();
Format nanotron_format();
Format diffusers_format();
Format verl_format();
Format strategy_format();

/// Throws Error where a tree is of a program whose files are not read, naming it.
void refuse_other_programs(const Node& tree, const std::string& path);

/// How many of `names` (dotted paths) a tree has.
int count_of(const Node& tree, std::initializer_list<const char*> names);

/// Torch's FSDP under Accelerate and transformers: the keys below `fsdp_config`, with or without "fsdp_" before them. `version` is what the
/// program takes where the file says none.
const Rows& fsdp_rows();
void read_fsdp(Reading& reading, const Node& config, const std::string& prefix, int version, const ReadRelease& release);

/// A model as the program names it: a hub name, a folder, or a file; of a folder its config.json.
void say_model(Reading& reading, const Node& value, const std::string& foreign);

/// How the launcher is noted that is called as the format is: that it runs tells of no engine, and gives no file.
inline constexpr const char* kDeepSpeedLauncher = "deepspeed's launcher";

/// DeepSpeed's JSON, by path or in place, as `deepspeed` of TrainingArguments and its like have it.
void read_deepspeed_reference(Reading& reading, const Node& value);

/// A key of training_arguments.json as `plimsoll export` writes it for a program without Trainer.
inline constexpr const char* kOwnLoop = "own_loop";

/// TrainingArguments within the file of a program that takes no keys but its own and these.
void read_training_arguments(Reading& reading, const Node& tree);
/// The same by a table that has some of their rows; `unknown`: what becomes of keys that neither it nor the dataclasses have.
void read_training_arguments(Reading& reading, const Node& tree, const Rows& known, Unknown unknown);

/// The keys of a tree that are a program's own, by its table or its schema (of that name), and those that are TrainingArguments'. What neither
/// has is its own, to be refused as such, unless it is nearly one of theirs.
struct OwnAndTrainers {
  Node own, trainer;
};
OwnAndTrainers split_own(const Node& tree, const Rows& rows, const std::string& schema);

/// Whether a language model has a tower for images beside it.
bool sees_images(const Model& model);
/// Of programs that freeze such a tower and its projector unless they are told otherwise, and take them out of the adapters' targets: refuses a
/// model of several modes once it is known.
void require_language_model(Reading& reading, const std::string& program);

/// Of programs that look for a model's linears themselves: where the adapters' targets are all-linear, their names and those of the list
/// `beside`. A mixture's router and stacked experts are parameters in transformers since 5.0 and are not among them, as they are among those of
/// PEFT's own word.
void name_linears(Reading& reading, const std::string& beside = {});
/// Of programs that hand PEFT a text for the adapters' targets, which is a regular expression over whole paths: the linears that it matches.
/// Throws Error, once the model is known: none, or an expression that is not read.
void expand_expression(Reading& reading);

/// What Trainer does beyond its arguments: which accumulation synchronises, and where DDP looks for unused parameters.
void complete_trainer(Reading& reading);

/// The program's own flags behind a launcher, read by what the words show.
void read_program(Reading& reading, const std::vector<Node>& words);

/// The overrides behind python3 -m verl.trainer.main_ppo.
void read_verl_command(Reading& reading, std::vector<Node> words);

/// A shell script, a launch line, or a file that Slurm runs.
void read_shell_script(Reading& reading, const std::string& text, const std::string& where);
/// A training that a script starts.
struct ScriptLaunch {
  std::vector<Node> words;
  std::map<std::string, std::string> environment, files;  ///< exported variables; what the script has written until then, by path
  std::string line, differs;                              ///< for people: the whole, and what the first has not
};
/// The commands of a script that start a training program, expanded; what its directives say of the machines is said. Throws Error: none.
std::vector<ScriptLaunch> launches_of_script(Reading& reading, const std::string& text, const std::string& where);
/// The words of the one that is meant; its environment and files are said. Throws Error where there are several and none is chosen.
std::vector<Node> launch_of_script(Reading& reading, const std::string& text, const std::string& where);
/// The words of such a command as they can be run, without what only the machines tell its launcher; how many ranks it starts is said.
/// Throws Error, naming it: an argument of the program that is not known.
std::vector<std::string> read_command(Reading& reading, const std::vector<Node>& words);
/// Words of one command, already expanded.
void read_launch_line(Reading& reading, const std::vector<Node>& words);

}  // namespace plimsoll::formats
