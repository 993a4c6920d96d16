// What the writers share: rows written backwards, trees as text, and the parts of a run's folder.
#pragma once

#include <string>
#include <vector>

#include "formats/export/values.hpp"
#include "formats/foreign/format.hpp"
#include "plimsoll/formats.hpp"

namespace plimsoll::formats {

/// A plan on its way into a folder.
struct Writing {
  const ExportPlan& plan;
  const Strategy& s;                  ///< resolved for the framework that is written for
  std::string model;                  ///< the model's name on Hugging Face's hub, a path, or our own name
  std::vector<std::string> comments;  ///< what was predicted, a line each
  ExportedRun& out;

  std::string value(const std::string& key) const { return value_of(s, key).value_or(""); }
  bool is(const std::string& key, const char* value_) const { return value(key) == value_; }
  void file(const std::string& name, const std::string& text) const { out.files.push_back({name, text}); }
  /// "# …" lines.
  std::string head() const;
  std::int64_t nodes() const { return plan.cluster.nodes; }
  int per_node() const { return plan.cluster.gpus_per_node; }
};

/// The rows of a format in their own words, each of our keys once; keys that only old releases have are left out.
Node write_rows(const Rows& rows, const Strategy& resolved);

std::string yaml_of(const Node& tree, int indent = 0);
std::string json_of(const Node& tree, int indent = 0);
std::string toml_of(const Node& tree);
/// " \\\n    --name value" each; truths are flags without a value.
std::string flags_of(const Node& tree);

/// torchrun with as many nodes and processes as the plan has; what only the machine knows stands as variables with a default.
std::string torchrun_of(const Writing& w);
/// Exported variables that change memory or time, with the reason.
std::string environment_of(const Writing& w);
/// "#!/bin/bash", the predicted, the environment and a command.
void write_script(const Writing& w, const std::string& command);

/// How many steps a Trainer makes, and how often it saves.
void add_length(const Writing& w, Node& tree);

/// Each writes the files that start the plan with its program; the script's last command is the launch.
void write_trainer(const Writing& w, bool with_accelerate);
void write_torchtitan(const Writing& w);
void write_torchtune(const Writing& w);
void write_megatron(const Writing& w);
void write_axolotl(const Writing& w);
void write_llama_factory(const Writing& w);
/// The folder of the framework's own launcher, started by Slurm, by a PyTorchJob (Kubeflow's training operator 1), a TrainJob (its successor), a JobSet.
void write_sbatch(const Writing& w);
void write_pytorchjob(const Writing& w);
void write_trainjob(const Writing& w);
void write_jobset(const Writing& w);

/// A program of export/templates, which is part of the library: "trainer.py", transformers' Trainer over tokens; "loop.py", a loop of its
/// own with DDP, FSDP or DeepSpeed; "megatron.py", Megatron-core without Megatron-LM.
std::string program_text(const std::string& name);

}  // namespace plimsoll::formats
