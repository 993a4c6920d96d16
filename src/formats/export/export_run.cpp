// A plan as files of another program, and what reading them back finds different.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "formats/export/writer.hpp"
#include "formats/foreign/read_run.hpp"
#include "model/hub_names.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll {
namespace formats {
namespace {

void accelerate(const Writing& w) { write_trainer(w, true); }
void deepspeed(const Writing& w) { write_trainer(w, false); }

struct Target {
  const char* name;
  std::vector<const char*> frameworks;  ///< which it starts; the first is taken where the plan is for another
  void (*write)(const Writing&);
};

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {{"accelerate", {"accelerate", "deepspeed"}, accelerate},
                                          {"deepspeed", {"deepspeed"}, deepspeed},
                                          {"torchtitan", {"torchtitan"}, write_torchtitan},
                                          {"megatron", {"megatron-lm", "megatron-core"}, write_megatron},
                                          {"torchtune", {"torchtune"}, write_torchtune},
                                          {"axolotl", {"accelerate", "deepspeed"}, write_axolotl},
                                          {"llama-factory", {"accelerate", "deepspeed"}, write_llama_factory}};
  return all;
}

/// Jobs start whatever program the plan is for.
const std::vector<std::pair<const char*, void (*)(const Writing&)>>& jobs() {
  static const std::vector<std::pair<const char*, void (*)(const Writing&)>> all = {
      {"torchrun", nullptr}, {"sbatch", write_sbatch}, {"k8s-pytorchjob", write_pytorchjob}, {"k8s-trainjob", write_trainjob}, {"k8s-jobset", write_jobset}};
  return all;
}

bool starts(const Target& target, const std::string& framework) {
  return std::find(target.frameworks.begin(), target.frameworks.end(), framework) != target.frameworks.end();
}

/// A format's own name, where it is called by its machine, its company or its package.
std::string usual_name(const std::string& name) {
  static const std::map<std::string, std::string> others = {{"slurm", "sbatch"},           {"kubernetes", "k8s-pytorchjob"}, {"kubeflow", "k8s-pytorchjob"},
                                                            {"megatron-lm", "megatron"},   {"megatron-core", "megatron"},    {"trainer", "accelerate"},
                                                            {"llamafactory", "llama-factory"}, {"trainjob", "k8s-trainjob"},     {"jobset", "k8s-jobset"}};
  const auto found = others.find(name);
  return found == others.end() ? name : found->second;
}

/// The format of that name; of a job, the one that starts the plan's own program.
const Target& target_of(const std::string& name, const Strategy& resolved) {
  static const Target loop = {"torchrun", {"transformers"}, deepspeed};  // a loop of its own, without Trainer
  const bool job = std::any_of(jobs().begin(), jobs().end(), [&](const auto& one) { return name == one.first; });
  if (job && starts(loop, resolved.framework)) return loop;
  for (const Target& target : targets())
    if (name == target.name || (job && starts(target, resolved.framework))) return target;
  fail("there is no format '" + name.substr(0, 60) + "' to export to", "--to", suggest(name.substr(0, 60), export_formats()));
}

std::vector<std::string> comments_of(const ExportPlan& plan, const Strategy& resolved, const std::optional<Report>& predicted) {
  std::vector<std::string> lines = {"plimsoll export: " + plan.model.name + " on " + plan.cluster.name, summary(resolved)};
  if (!predicted) return lines;
  const Report& report = *predicted;
  const RankMemory& memory = report.worst_rank().memory;
  lines.push_back(fmt::format(
      "predicted: {:.1f} GiB allocated, {:.1f} GiB reserved, {:.1f} of {:.1f} GiB per GPU ({}); {:.3f} s a step, {:.0f} tokens/s per GPU",
      memory.allocated.gib(), memory.reserved.gib(), memory.device.expected / 1073741824.0, memory.capacity.gib(), name_of(report.verdict),
      report.time.step_seconds.expected, report.time.tokens_per_second_per_gpu));
  return lines;
}

/// Whether the target's files say how often it saves; a loop of one's own saves nothing.
bool saves(const Target& target) {
  const std::string_view name = target.name;
  return name == "accelerate" || name == "axolotl" || name == "llama-factory" || name == "megatron";
}

/// What the target runs: the same strategy, where need be under another framework. Throws Error where that one has no equal for it at all.
Strategy said_for(const ExportPlan& plan, const Target& target, const Strategy& resolved, std::vector<std::string>& changes) {
  Strategy said = plan.strategy;
  if (starts(target, resolved.framework)) return said;
  said.framework = target.frameworks.front();
  said.framework_version.clear();
  changes.push_back("framework: " + resolved.framework + " is " + said.framework + " here");
  return said;
}

/// A config that was handed over has no name by which another program could load it: the shipped model that it describes has.
ExportPlan named(const ExportPlan& plan) {
  const std::vector<std::string> shipped = shipped_models();
  const bool has_name = plan.model_name != plan.model.name || std::find(shipped.begin(), shipped.end(), plan.model_name) != shipped.end();
  if (has_name) return plan;
  for (const std::string& name : shipped) {
    Model known = load_model(name);
    const bool same = known.model_type == plan.model.model_type && known.layers == plan.model.layers && known.hidden_size == plan.model.hidden_size &&
                      known.vocab_size == plan.model.vocab_size && known.parameters() == plan.model.parameters();
    if (same) return {name, beside_teacher(std::move(known), plan.strategy), plan.cluster, plan.strategy, plan.predict, plan.length, plan.to_compare};
  }
  return plan;
}

}  // namespace
}  // namespace formats

ExportedRun export_run(const ExportPlan& said, const std::string& format) {
  using namespace formats;
  const std::string to = usual_name(format);
  const ExportPlan plan = named(said);
  const Strategy first = resolve(plan.strategy, plan.model, plan.cluster);
  if (first.post_training && !plan.to_compare)
    refuse("runs of TRL's trainers are not written", "--to", "TRL's own arguments: those of the report, which `trl dpo` and its like take by other names");
  const Target& target = target_of(to, first);
  std::vector<std::string> changes;
  const Strategy strategy = said_for(plan, target, first, changes);
  const Strategy resolved = resolve(strategy, plan.model, plan.cluster);
  const auto written = [&](const std::optional<Report>& predicted) {
    ExportedRun files;
    const Writing writing{plan, resolved, plan.model_name.find('/') == std::string::npos ? model::hub_name_of(plan.model_name) : plan.model_name,
                          comments_of(plan, resolved, predicted), files};
    target.write(writing);
    for (const auto& [name, write] : jobs())
      if (to == name && write != nullptr) write(writing);
    return files;
  };
  ExportedRun out = written({});
  const ForeignRun back = read_exported(out, plan);  // what the files say is what is predicted, not what they were meant to say
  const Strategy said_back = resolve(back.strategy, plan.model, plan.cluster);
  if (resolved.lora.has_value() != said_back.lora.has_value())
    refuse(std::string(target.name) + " cannot be told of adapters: its run would train all weights", "--to",
           "export to accelerate, axolotl or llama-factory");
  if (plan.predict) {
    const Report predicted = estimate(plan.model, plan.cluster, back.strategy);
    out = written(predicted);
    out.predicted = predicted;
  }
  out.no_equal = changes;
  if (plan.length.save_every > 0 && !saves(target)) out.no_equal.push_back(fmt::format("save-every: {} steps; {} is told of checkpoints by hand", plan.length.save_every, target.name));
  for (const std::string& line : differences(resolved, said_back)) out.no_equal.push_back(line);
  return out;
}

std::vector<std::string> export_formats() {
  std::vector<std::string> names;
  for (const auto& target : formats::targets()) names.emplace_back(target.name);
  for (const auto& [name, unused] : formats::jobs()) names.emplace_back(name);
  return names;
}

}  // namespace plimsoll
