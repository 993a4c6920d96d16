/// What people already have: configurations and launch lines of other programs, read as a model, a cluster and a strategy, and written from
/// them.
///
/// Every key that a file sets is kept with where it stands; what a program takes by default, and what follows from other keys, says so.
/// Keys that matter and are not modelled are refused by name; keys that do not matter are listed. Nothing that a file names is ever
/// executed. docs/formats has a page per format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll {

/// One key of ours that foreign files settled.
struct ForeignKey {
  enum class Kind : std::uint8_t {
    said,       ///< a file or a command line says it
    derived,    ///< it follows from other keys
    by_default  ///< what the program takes where nothing is said
  };
  std::string key;      ///< "micro_batch", "model", "model.hidden_size", "cluster.nodes"
  std::string value;    ///< as `set_option` takes it
  std::string foreign;  ///< the program's own name of it: "per_device_train_batch_size"; of a default with its value
  std::string where;    ///< said: "args.yaml:12"; derived: why; by default: the release that was read
  Kind kind = Kind::said;
};

/// A file as it is written, or handed over by who has no disk.
struct NamedText {
  std::string name, text;
};

/// What is given beside the files.
struct ForeignOptions {
  std::string model;                     ///< a model's name or path, in the place of the files'
  std::string on;                        ///< a cluster ("2x8xh100-sxm"), or a device alone ("h100-sxm") where the files say how many
  std::vector<std::string> launch_line;  ///< words of a command that would start the run
  std::vector<std::string> releases{};   ///< "transformers=4.46.3": whose defaults hold; the newest that is known where none is stated
  std::vector<NamedText> texts = {};     ///< files that need not be on the disk; they come before those that are
  /// "NAME=VALUE" for what a script does not say: a variable, "1" for its first argument, "@" for all of them, "$(a command)".
  std::vector<std::string> values = {};
  std::int64_t launch = 0;        ///< which of a script's launch lines, counted from 1; 0: the only one
  /// Keys of a strategy that are said on top of the files, by flags: the files need not say them.
  std::vector<std::string> said_beside = {};
  /// transformers' folder or wheel, and others beside it, whose code plays the model (code.hpp); none: a model that has a family here.
  std::vector<std::string> packages = {};
};

/// A run as files describe it.
struct ForeignRun {
  std::vector<std::string> formats;  ///< what was recognised, in order: "torchrun", "transformers", "deepspeed"
  std::string model_name;            ///< as the files or the options name it; empty where they give its dimensions
  std::string model_config;          ///< the config.json among the files; empty: there is none
  Model model;
  Cluster cluster;
  Strategy strategy;                ///< what was said; not resolved
  std::vector<ForeignKey> keys;     ///< in order of reading
  std::vector<std::string> unread;  ///< "args.yaml:4 logging_steps": they change nothing of memory or time
  std::vector<std::string> unknown = {};  ///< keys of a script's own: nothing is known of what they change
};

/// Reads files of other programs as one run: each a path, or "FORMAT:PATH" where the format shall not be recognised by content.
/// Throws Error: unreadable, no known format, contradictions between files, what is not modelled, or what is missing and has no default
/// (the model, the devices), by name.
ForeignRun read_foreign(const std::vector<std::string>& files, const ForeignOptions& options);

/// A training that a script starts.
struct ForeignLaunch {
  std::string where;    ///< "run.sh:12"
  std::string line;     ///< its words, as far as they are known
  std::string differs;  ///< those that the first has not
};
/// All trainings that the scripts among the files start, in the order in which ForeignOptions::launch counts them. Throws Error.
std::vector<ForeignLaunch> foreign_launches(const std::vector<std::string>& files, const ForeignOptions& options);

/// What a search takes from a run: all that was said of it but how its work is dealt to ranks, cut into micro-batches and recomputed, which
/// is the search's to decide. The global batch is the run's own. Throws Error where the run contradicts itself.
Strategy strategy_to_search(const ForeignRun& run);

/// A command that starts a program, for those that run it.
struct ForeignCommand {
  std::vector<std::string> words;
  Cluster cluster;
  std::int64_t ranks = 0;  ///< where the words do not say it: srun's tasks; 0: not told
};

/// The training program that a script starts, on the machines that it, or the other files, describe; nothing of it is run, and of files
/// that configure the program only their machines are read. `options.launch_line` stands in the script's place. Throws Error: no program,
/// no devices, or an argument of the program that only the machine knows.
ForeignCommand read_foreign_command(const std::vector<std::string>& files, const ForeignOptions& options);

/// What the run's files say of its strategy: keys of docs/rows.md with values as `set_option` takes them, what is said last of a key alone.
std::vector<std::pair<std::string, std::string>> strategy_keys(const ForeignRun& run);

/// The value of a key of docs/rows.md in a resolved strategy, as `set_option` would take it; nothing where the strategy has none of it.
std::optional<std::string> settled_value(const Strategy& resolved, const std::string& key);

/// Every key that the files, the program's defaults and `resolve()` settled: key, value, where from; then the unread keys.
std::string show_resolved(const ForeignRun& run);

/// The key of ours that other programs call so, sections, dashes and what follows aside ("tensor_parallel" of torchtitan's
/// parallelism.tensor_parallel_degree); nothing where no format has it.
std::optional<std::string> strategy_key_of(const std::string& foreign);

/// Names of the formats that are read, in order.
std::vector<std::string> foreign_formats();

/// The table of a format's keys as Markdown, as docs/formats has it. Throws Error: unknown format.
std::string foreign_key_table(const std::string& format);

/// How long a run that is started goes on, and what it leaves.
struct RunLength {
  std::int64_t steps = 100;
  std::int64_t save_every = 0;  ///< steps between two checkpoints; 0: what the program does by itself
  std::int64_t seconds = 0;     ///< the job's limit; 0: none is said
  std::string name = "plan";    ///< the job's
};

/// What is to be started by another program.
struct ExportPlan {
  std::string model_name;  ///< as `load_model` took it
  Model model;
  Cluster cluster;
  Strategy strategy;     ///< as it was said
  bool predict = false;  ///< tell in the files' comments what `estimate` says of what they run
  RunLength length = {};
  bool to_compare = false;  ///< the files are held against those of another plan, not run: a trainer's own script is not written
};

/// A folder that starts a plan.
struct ExportedRun {
  std::vector<NamedText> files;
  std::string command;                ///< to be run in that folder
  std::vector<std::string> reads;     ///< which of the files say the run, as read_foreign takes them
  std::optional<Report> predicted;    ///< of what the files run
  std::vector<std::string> no_equal;  ///< keys that the program cannot be told: "compile: blocks, not false"
};

/// Writes a plan as files of another program. What they say is read back as `read_foreign` does; what comes back different has no equal
/// there. Throws Error: an unknown format, or a plan that the program cannot run at all.
ExportedRun export_run(const ExportPlan& plan, const std::string& to);

/// Names that `export_run` knows, in order.
std::vector<std::string> export_formats();

}  // namespace plimsoll
