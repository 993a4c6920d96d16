// The project on one screen: what was chosen is resolved, each distinct rank is lowered, memory and time are read, a verdict falls.
#include "plimsoll/estimate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "estimate/host_memory.hpp"
#include "estimate/model_states.hpp"
#include "estimate/nearest_played.hpp"
#include "estimate/notes.hpp"
#include "estimate/played_time.hpp"
#include "estimate/rank_groups.hpp"
#include "estimate/rank_memory.hpp"
#include "estimate/read_programs.hpp"
#include "estimate/residuals.hpp"
#include "estimate/rollout.hpp"
#include "estimate/stages.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/flops.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/strategy.hpp"
#include "plimsoll/topology.hpp"
#include "program/target_device.hpp"
#include "units/threads.hpp"

namespace plimsoll {
namespace {

using namespace estimation;

flops::Lengths lengths_of(const Strategy& strategy) {
  return {strategy.seq_len, strategy.tgt_len > 0 ? strategy.tgt_len : strategy.text_tokens};
}

/// Positions of a step that something is learnt at, of all ranks together.
double tokens_of(const Strategy& strategy) {
  return static_cast<double>(strategy.global_batch * strategy.sequences_per_sample()) * static_cast<double>(strategy.seq_len);
}

/// The rank with the least margin; ranks that ran out of memory come first.
std::size_t worst_of(const std::vector<RankReport>& ranks) {
  const auto worse = [](const RankReport& a, const RankReport& b) {
    if (a.memory.out_of_memory != b.memory.out_of_memory) return a.memory.out_of_memory;
    return a.memory.margin() < b.memory.margin();
  };
  return static_cast<std::size_t>(std::min_element(ranks.begin(), ranks.end(), worse) - ranks.begin());
}

/// Tight: less is left than 2 % of capacity + 0.5 GiB, which fragmentation and uneven batches take on a bad day, or one run in twenty of
/// this kind would need more than there is.
Verdict verdict_of(const RankMemory& memory) {
  if (memory.out_of_memory || memory.margin() < Bytes(0)) return Verdict::does_not_fit;
  const Bytes reserve = Bytes(memory.capacity.count / 50) + Bytes(512LL << 20);
  const bool may_not_fit = memory.device.high > static_cast<double>(memory.capacity.count);
  return memory.margin() < reserve || may_not_fit ? Verdict::tight : Verdict::fits;
}

TimeReport time_of(const StepTime& step, Basis basis, const Model& model, const Cluster& cluster, const Strategy& strategy) {
  TimeReport time;
  time.basis = basis;
  const RunKind kind = time_kind(model, cluster, strategy, basis, step.host / step.total());
  time.step_seconds = band_of("step_seconds", kind, step.total().value);
  for (const TimePart& part : step.parts())
    if (part.seconds.value > 0) time.breakdown.push_back(part);
  const double tokens = tokens_of(strategy);
  time.tokens_per_second_per_gpu = tokens / time.step_seconds.expected / strategy.gpus;
  if (model.task == Model::Task::image_classification || model.task == Model::Task::diffusion)
    time.images_per_second_per_gpu = static_cast<double>(strategy.global_batch) / time.step_seconds.expected / strategy.gpus;
  return time;
}

/// What the kernels of a step do, of all ranks together.
double kernel_flops(const std::vector<RankReport>& ranks) {
  double flops = 0;
  for (const RankReport& rank : ranks) flops += static_cast<double>(rank.count) * rank.work->flops;
  return flops;
}

/// The arithmetic that products run in: what a model FLOP utilisation is held against.
MathType arithmetic_of(const Strategy& strategy) {
  const MathType type = math_of(strategy.compute_dtype.value_or(DType::bf16));
  return type == MathType::fp32 && strategy.tf32 ? MathType::tf32 : type;
}

FlopsReport flops_of(const Model& model, const Cluster& cluster, const Strategy& strategy, const std::vector<RankReport>& ranks,
                     double tokens_per_second, Basis basis) {
  FlopsReport report;
  const bool adapters = strategy.lora || strategy.peft;
  const double sequence = static_cast<double>(strategy.seq_len), tokens = tokens_of(strategy);
  const double frozen_gradients = adapters ? flops::weight_products(model, lengths_of(strategy)) / sequence : 0;
  report.peak_flops_per_second = cluster.accelerator.peak(arithmetic_of(strategy)).value;
  flops::Setting setting;
  setting.sequence = strategy.seq_len;
  for (const flops::Convention& convention : flops::conventions()) {
    const bool counted =
        convention.name == "6n" || (convention.name == "exact" && !model.source);  // code's attention is counted in its kernels alone
    if (!flops::conventions_apply(model) && !counted) continue;
    const double per_token = convention.per_token(model, setting) - frozen_gradients;
    report.conventions.push_back(
        {std::string(convention.name), per_token, flops::mfu(tokens_per_second, per_token, report.peak_flops_per_second)});
  }
  report.hardware_basis = basis;
  report.hardware_flops_per_token = kernel_flops(ranks) / tokens;
  report.hfu = flops::mfu(tokens_per_second, report.hardware_flops_per_token, report.peak_flops_per_second);
  return report;
}

/// Who else reads the programs of an estimate, whether it ends with the first rank that does not fit, and the longest step that matters.
struct Asked {
  ProgramReader reader;
  bool only_if_fits = false;
  std::optional<double> most_seconds{};
};

/// Ranks of one pipeline stage hold the same program.
RankReport rank_of(RankPrograms& programs, const Model& model, const std::vector<Stage>& stages, int stage, const Cluster& cluster,
                   const Strategy& strategy, Basis basis, PlayedTime& time) {
  RankReport rank;
  rank.stage = stage;
  rank.count = strategy.gpus / strategy.pp;
  for (std::size_t chunk = static_cast<std::size_t>(stage); chunk < stages.size(); chunk += static_cast<std::size_t>(strategy.pp))
    rank.parameters += stages[chunk].parameters(strategy);
  rank.memory = rank_memory(programs, model, stage, cluster, strategy, basis, rank.work, time);
  rank.host = std::max(rank.memory.host, host_states(chunks_of(stages, stage, strategy), strategy));
  return rank;
}

/// Threads on which ranks are estimated: one where somebody reads their programs in order, or where the first that does not fit is the last.
int threads_for(const Asked& asked) {
  constexpr int kMost = 4;  // each has a rank's program and its score in memory
  return asked.reader || asked.only_if_fits ? 1 : std::min(machine_threads(), kMost);
}

/// The ranks of all stages; up to and with the first that does not fit, where no more is asked.
std::vector<RankReport> ranks_of(const Model& model, const std::vector<Stage>& stages, const Cluster& cluster, const Strategy& strategy,
                                 Basis basis, const Asked& asked, PlayedTime& time) {
  std::vector<RankReport> ranks(static_cast<std::size_t>(strategy.pp));
  const int threads = std::min(threads_for(asked), strategy.pp);
  std::vector<RankPrograms> programs;
  for (int thread = 0; thread < threads; ++thread) programs.emplace_back(model, strategy, cluster, asked.reader);
  std::size_t ends = ranks.size();
  on_threads(ranks.size(), threads, [&](std::uint64_t stage, int thread) {
    try {
      ranks[stage] = rank_of(programs[static_cast<std::size_t>(thread)], model, stages, static_cast<int>(stage), cluster, strategy, basis, time);
    } catch (...) {
      time.give_up();
      throw;
    }
    const bool goes_on = !asked.only_if_fits || verdict_of(ranks[stage].memory) != Verdict::does_not_fit;
    if (!goes_on) ends = stage + 1;
    return goes_on;
  });
  ranks.resize(ends);
  return ranks;
}

/// Expected seconds of a step of several ranks, by the time of all and the memory of the first; nothing where that does not fit.
std::optional<double> seconds_if_first_fits(const Model& model, const Cluster& cluster, const Strategy& strategy, Basis basis,
                                            PlayedTime& time) {
  RankPrograms programs(model, strategy, cluster);
  std::optional<StepWork> work;
  if (verdict_of(rank_memory(programs, model, 0, cluster, strategy, basis, work, time)) == Verdict::does_not_fit) return {};
  for (int stage = 1; stage < strategy.pp; ++stage) {
    StepProgram program = programs.work_of_stage(stage);
    time.add(stage, program);
    programs.give_back(std::move(program));
  }
  return time_of(parts_of(time.busiest()), basis, model, cluster, strategy).step_seconds.expected;
}

std::vector<Origin> provenance_of(const Report& report, const Cluster& cluster, const Strategy& strategy) {
  const Accelerator& device = cluster.accelerator;
  const ComputeRate& rate = device.rate(math_of(strategy.compute_dtype.value_or(DType::bf16)));
  const RankMemory& memory = report.worst_rank().memory;
  const bool played = report.time.basis == Basis::played;
  const char* how = played ? "played through the allocator" : "the uncompiled step, played through the allocator";
  std::vector<Origin> origins{
      {"model.parameters", Provenance::derived, "shapes of the model's tensors"},
      {"memory.allocated_bytes", Provenance::derived, how},
      {"memory.reserved_bytes", Provenance::derived, how},
      {"memory.capacity_bytes", device.memory_usable.provenance, device.memory_usable.source},
      {"memory.categories.context", device.overheads.context.provenance, device.overheads.context.source},
      {"memory.categories.communicators", device.overheads.first_communicator.provenance, device.overheads.first_communicator.source},
      {"time.step_seconds", Provenance::derived,
       played ? "played: the program on its streams, and its host" : "the uncompiled step, played on its streams with its host"},
      {"flops.hfu", Provenance::derived, "products, attention and convolutions of all ranks' programs"},
      {fmt::format("accelerator.peak.{}", name_of(rate.type)), rate.peak.provenance, rate.peak.source},
      {fmt::format("accelerator.sustained.{}", name_of(rate.type)), rate.sustained.provenance, rate.sustained.source},
      {"accelerator.memory_bandwidth", device.memory_bandwidth.provenance, device.memory_bandwidth.source},
  };
  for (const MemoryPart& part : memory.parts)
    if (part.name != "context" && part.name != "communicators")  // these two have the device file's own
      origins.push_back({"memory.categories." + part.name, part.basis == Basis::profile ? Provenance::assumed : Provenance::derived,
                         std::string(name_of(part.basis))});
  return origins;
}

void refuse_what_is_not_modelled(const Model& model) {
  if (!model.activations_modelled)
    refuse(fmt::format("the parameters of {} ({}) are exact, but a training step of it is not modelled", model.name, model.architecture),
           {}, "`plimsoll models NAME` shows its layers; transformers' own code plays its types, --code WHEEL (docs/code.md)");
}

/// The step of a resolved strategy, whose ranks' programs stand for what `basis` says; no report where not all of them were asked for.
Sought predict(const Model& model, const Cluster& cluster, const Strategy& strategy, Basis basis, const Asked& asked) {
  const std::vector<Stage> stages = stages_of(model, strategy);
  const auto groups = group_shapes(strategy, Topology(cluster));
  if (asked.most_seconds && strategy.pp > 1) {
    PlayedTime time(run_pricing(cluster, strategy, groups));
    const auto seconds = seconds_if_first_fits(model, cluster, strategy, basis, time);
    if (!seconds) return {};
    if (*seconds > *asked.most_seconds) return {{}, seconds};
  }

  Report report;
  report.model_name = model.name;
  report.cluster_name = cluster.name;
  report.framework = std::string(name_of(profile_of(strategy).code));
  report.strategy = summary(strategy);
  report.parameters = model.parameters();
  report.active_parameters = model.active_parameters();
  report.gpus = strategy.gpus;
  report.gpus_per_node = cluster.gpus_per_node;
  PlayedTime time(run_pricing(cluster, strategy, groups));
  report.ranks = ranks_of(model, stages, cluster, strategy, basis, asked, time);
  if (report.ranks.size() < static_cast<std::size_t>(strategy.pp)) return {};
  report.worst = worst_of(report.ranks);
  report.host = host_memory_of(report.ranks, model, cluster, strategy);
  report.verdict = std::max(verdict_of(report.worst_rank().memory), report.host.verdict);
  const Timeline timeline = time.busiest();
  report.time = time_of(parts_of(timeline), basis, model, cluster, strategy);
  time.describe(timeline, report.time);
  report.flops = flops_of(model, cluster, strategy, report.ranks, report.time.tokens_per_second_per_gpu, basis);
  report.notes = notes_of(report, model, strategy);
  for (std::string& note : host_notes(report.host, model, cluster, strategy)) report.notes.push_back(std::move(note));
  if (std::string note = rollout_note(model, cluster, strategy); !note.empty()) report.notes.push_back(std::move(note));
  report.provenance = provenance_of(report, cluster, strategy);
  if (std::string note = note_of_own_device(report.provenance, cluster.accelerator); !note.empty()) report.notes.push_back(std::move(note));
  report.releases = strategy.releases.all();
  report.assumptions = strategy.assumed;
  report.assumptions.insert(report.assumptions.end(), model.assumed.begin(), model.assumed.end());
  if (program::is_processor(cluster.accelerator))
    report.assumptions.push_back(
        fmt::format("program: that of {} (what frameworks run on a processor is not modelled)", program::kProgramOfProcessors));
  report.unread_keys = model.unread_keys;
  report.unread_keys.insert(report.unread_keys.end(), strategy.unread_keys.begin(), strategy.unread_keys.end());
  return {std::move(report), {}};
}

/// The one closed form: where no rule lowers a compiled program yet, the same step without torch.compile stands in for it, and says so.
/// Throws Error (refused) where that step has no lowering either.
Report predict_uncompiled(const Model& model, const Cluster& cluster, const Strategy& said, const std::string& because,
                          const ProgramReader& reader) {
  Strategy eager = said;
  eager.compile = Strategy::Compile::no;
  const Strategy played = resolve(eager, model, cluster);
  Report report = *predict(model, cluster, played, Basis::closed_form, {reader}).report;
  note_idle_options_of_both(model, played, resolve(said, model, cluster), report.notes);
  report.time.closed_form_because = because;
  for (RankReport& rank : report.ranks) rank.memory.closed_form_because = because;
  report.notes.insert(report.notes.begin(),
                      fmt::format("closed form: the step without torch.compile, played, stands in for the compiled one: "
                                  "{}. It usually needs more memory and time",
                                  because));
  return report;
}

/// What estimate_and_read says; no report where not all of it was asked for.
Sought estimate_asked(const Model& model, const Cluster& cluster, const Strategy& said, const Asked& asked, Strategy* resolved) {
  const bool rewards = said.post_training && said.post_training->kind == PostTraining::Kind::reward;
  if (rewards && (model.task != Model::Task::classification || model.labels != 1))
    return estimate_asked(with_auto_head(model, AutoHead::sequences, 1), cluster, said, asked, resolved);
  refuse_what_is_not_modelled(model);
  const Strategy strategy = resolve(said, model, cluster);
  if (resolved) *resolved = strategy;
  try {
    return predict(model, cluster, strategy, Basis::played, asked);
  } catch (const Error& refusal) {
    if (refusal.code() != ErrorCode::refused || strategy.compile == Strategy::Compile::no) throw;
    try {
      return {predict_uncompiled(model, cluster, said, refusal.message(), asked.reader), {}};
    } catch (const Error& other) {
      if (other.code() == ErrorCode::internal) throw;
    }
    throw;
  }
}

}  // namespace

Report estimation::estimate_and_read(const Model& model, const Cluster& cluster, const Strategy& said, const ProgramReader& reader,
                                     Strategy* resolved) {
  return *estimate_asked(model, cluster, said, {reader}, resolved).report;
}

estimation::Sought estimation::estimate_sought(const Model& model, const Cluster& cluster, const Strategy& said,
                                               std::optional<double> most_seconds) {
  return estimate_asked(model, cluster, said, {{}, true, most_seconds}, nullptr);
}

Report estimate(const Model& model, const Cluster& cluster, const Strategy& said) { return estimate_and_read(model, cluster, said, {}); }

Report estimate_or_nearest(const Model& model, const Cluster& cluster, const Strategy& said, Strategy* resolved) {
  try {
    return estimate_and_read(model, cluster, said, {}, resolved);
  } catch (const Error& refusal) {
    if (refusal.code() != ErrorCode::refused) throw;
    const std::string nearest = nearest_played(refusal, model, cluster, said);
    if (nearest.empty()) throw;
    const std::string hint = "played: the same with " + nearest;
    throw Error(ErrorCode::refused, refusal.message(), refusal.where(), refusal.hint().empty() ? hint : refusal.hint() + "; " + hint);
  }
}

}  // namespace plimsoll
