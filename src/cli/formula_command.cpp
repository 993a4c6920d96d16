// formula: the textbook, beside what frameworks and libraries really do.
#include <fmt/core.h>

#include <array>
#include <cmath>

#include "command.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/flops.hpp"
#include "plimsoll/formula_answer.hpp"
#include "plimsoll/play.hpp"
#include "plimsoll/plimsoll.hpp"

namespace plimsoll::cli {
namespace {

constexpr std::int64_t kMostRanks = 1'000'000;

/// "7e9", "7B", "350M" parameters.
double parse_count(const std::string& text, const char* where) {
  std::size_t used = 0;
  double value = 0;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const std::string suffix = text.substr(used);
  const double factor = suffix.empty() ? 1 : suffix == "K" ? 1e3 : suffix == "M" ? 1e6 : suffix == "B" ? 1e9 : suffix == "T" ? 1e12 : 0;
  if (used == 0 || factor == 0 || !(value > 0 && value * factor <= 1e16))
    fail("'" + text + "' is no count", where, "for example 7e9 or 7B");
  return value * factor;
}

std::string gb(double bytes) { return bytes >= 100e9 ? fmt::format("{:.0f} GB", bytes / 1e9) : fmt::format("{:.3g} GB", bytes / 1e9); }

constexpr std::array kStages{"no ZeRO", "ZeRO-1", "ZeRO-2", "ZeRO-3"};

FormulaAnswer zero_answer(double parameters, std::int64_t gpus, const StateBytes& bytes) {
  const auto states = zero_model_states(parameters, gpus, bytes);
  FormulaAnswer answer{"zero", {{"parameters", parameters}, {"gpus", static_cast<double>(gpus)}}, {}};
  for (std::size_t stage = 0; stage < kStages.size(); ++stage) answer.results.push_back({kStages[stage], {{"bytes_per_gpu", states[stage]}}});
  for (const FrameworkStates& framework : framework_states(parameters, gpus))
    answer.results.push_back({framework.recipe, {{"bytes_per_gpu", framework.bytes_per_gpu}}});
  return answer;
}

int run_zero(const Arguments& arguments) {
  const double parameters = parse_count(arguments["--params"], "--params");
  const std::int64_t gpus = arguments.integer_or("--gpus", 1, 1, kMostRanks);
  const std::string precision = arguments.has("--precision") ? arguments["--precision"] : "fp32";
  if (precision != "fp32" && precision != "mixed")
    fail("there is no count for '" + precision + "'", "--precision", suggest(precision, {"fp32", "mixed"}));
  const StateBytes bytes = precision == "fp32" ? StateBytes::single_precision() : StateBytes::mixed_precision();
  if (arguments.has("--json")) return print(to_json(zero_answer(parameters, gpus, bytes))), kFits;
  const auto states = zero_model_states(parameters, gpus, bytes);
  print(fmt::format("model states per GPU, {:.4g} parameters on {} GPUs, {} B parameters + {} B gradients + {} B optimizer\n\n", parameters,
                    gpus, bytes.parameter, bytes.gradient, bytes.optimizer));
  print(fmt::format("  no ZeRO   {:>10}\n  ZeRO-1    {:>10}\n  ZeRO-2    {:>10}\n  ZeRO-3    {:>10}\n", gb(states[0]), gb(states[1]),
                    gb(states[2]), gb(states[3])));
  print("\nThe ZeRO paper's count (Rajbhandari 2020, figure 1; GB = 1e9 B). What frameworks keep, per GPU:\n\n");
  for (const FrameworkStates& framework : framework_states(parameters, gpus))
    print(fmt::format("  {:<44}{:>10}\n", framework.recipe, gb(framework.bytes_per_gpu)));
  print("\nBuckets, flat copies, gathered units, activations and the allocator come on top: `plimsoll estimate MODEL --on CLUSTER`.\n");
  return kFits;
}

std::string milliseconds(Seconds time) { return fmt::format("{:.6g} ms", time.value * 1e3); }

std::string ring_line(const char* name, Seconds textbook, const std::string& real) {
  return fmt::format("  {:<15}{:>14}{}\n", name, milliseconds(textbook), real.empty() ? "" : "   " + real);
}

struct Ring {
  Bytes bytes;
  std::int64_t ranks = 1;
  BytesPerSecond bandwidth;
  Seconds latency;
};

struct RingTime {
  const char* name;
  CollectiveKind kind;
  Seconds textbook;
};

std::array<RingTime, 3> ring_times(const Ring& ring) {
  const Seconds gather = ring_all_gather(ring.bytes, ring.ranks, ring.bandwidth, ring.latency);
  return {{{"all-reduce", CollectiveKind::all_reduce, ring_all_reduce(ring.bytes, ring.ranks, ring.bandwidth, ring.latency)},
           {"all-gather", CollectiveKind::all_gather, gather},
           {"reduce-scatter", CollectiveKind::reduce_scatter, gather}}};
}

/// The library's own choice for that size on that cluster.
Seconds library_time(CollectiveKind kind, Bytes bytes, const Cluster& cluster, const GroupShape& group) {
  return price(Collective{kind, Group::world, bytes.count, DType::bf16}, group, cluster);
}

int run_ring(const Arguments& arguments) {
  const Bytes bytes = parse_bytes(arguments["--bytes"]);
  const bool real = arguments.has("--on");
  const Cluster cluster = real ? parse_cluster(arguments["--on"]) : Cluster{};
  const GroupShape group = real ? Topology(cluster).group({0, cluster.gpus(), 1}) : GroupShape{};
  if (!real && !(arguments.has("--ranks") && arguments.has("--bandwidth")))
    fail("--ranks and --bandwidth are missing, or --on", "formula ring", "for example --ranks 8 --bandwidth '450 GB/s'");
  const Ring ring{bytes, arguments.integer_or("--ranks", real ? cluster.gpus() : 1, 1, kMostRanks),
                  arguments.has("--bandwidth") ? parse_bytes_per_second(arguments["--bandwidth"]) : group.ring,
                  arguments.has("--latency") ? parse_seconds(arguments["--latency"]) : Seconds(0)};
  const std::array<RingTime, 3> times = ring_times(ring);
  if (arguments.has("--json")) {
    FormulaAnswer answer{"ring",
                         {{"bytes", static_cast<double>(bytes.count)},
                          {"ranks", static_cast<double>(ring.ranks)},
                          {"bytes_per_second", ring.bandwidth.value},
                          {"latency_seconds", ring.latency.value}},
                         {}};
    for (const RingTime& time : times) {
      answer.results.push_back({time.name, {{"seconds", time.textbook.value}}});
      if (real) answer.results.back().numbers.emplace_back("library_seconds", library_time(time.kind, bytes, cluster, group).value);
    }
    return print(to_json(answer)), kFits;
  }
  print(fmt::format("ring over {} ranks, D = {}, B = {} per direction\n\n", ring.ranks, to_string(bytes), to_string(ring.bandwidth)));
  for (const RingTime& time : times)
    print(ring_line(time.name, time.textbook,
                    real ? fmt::format("on {}: {}", cluster.name, milliseconds(library_time(time.kind, bytes, cluster, group))) : ""));
  print("\nall-reduce 2(N-1)/N * D/B, the others (N-1)/N * D/B; D is the full buffer (Patarasuk and Yuan 2009).\n");
  return kFits;
}

/// One schedule played with equal stages, forward 1 and backward 2; a note where its framework refuses the numbers.
FormulaAnswer::Row played_row(const ScheduleInfo& info, int stages, int micro_batches, int chunks) {
  const int own_chunks = info.default_chunks > 1 ? (chunks > 1 ? chunks : info.default_chunks) : 1;
  const std::string name(info.name);
  if (std::string refusal = schedule_refusal(info.name, stages, micro_batches, own_chunks); !refusal.empty()) return {name, {}, refusal};
  const Schedule schedule = make_schedule(info.name, stages, micro_batches, own_chunks);
  const double per_chunk = static_cast<double>(stages) / schedule.model_stages();
  PipelineTimes times;
  times.stages = {{Seconds(per_chunk), Seconds(2 * per_chunk), Seconds(per_chunk), Seconds(per_chunk)}};
  const PipelineTimeline timeline = play_pipeline(schedule, times);
  return {name,
          {{"bubble_share", timeline.bubble_fraction},
           {"makespan_forwards", timeline.makespan.value},
           {"in_flight_chunks", static_cast<double>(peak_in_flight(schedule, 0))}}};
}

std::string played_line(const FormulaAnswer::Row& row) {
  if (row.numbers.empty()) return fmt::format("  {:<18}{}\n", row.name, row.note);
  return fmt::format("  {:<18}{:>6.1f} %{:>12.2f}{:>10.0f}\n", row.name, 100 * row.numbers[0].second, row.numbers[1].second, row.numbers[2].second);
}

FormulaAnswer bubble_answer(int stages, int micro_batches, int chunks) {
  FormulaAnswer answer{"bubble", {{"stages", stages}, {"micro_batches", micro_batches}, {"chunks", chunks}}, {}};
  answer.results.push_back({"(P-1)/(M+P-1)", {{"bubble_share", bubble_fraction(stages, micro_batches)}}});
  if (chunks > 1) answer.results.push_back({"(P-1)/(vM+P-1)", {{"bubble_share", bubble_fraction(stages, micro_batches, chunks)}}});
  for (const ScheduleInfo& info : schedules()) answer.results.push_back(played_row(info, stages, micro_batches, chunks));
  return answer;
}

int run_bubble(const Arguments& arguments) {
  constexpr int kMostStages = 256, kMostMicroBatches = 4096;  // more slots than a person waits for
  const int stages = static_cast<int>(arguments.integer_or("--stages", 1, 1, kMostStages));
  const int micro_batches = static_cast<int>(arguments.integer_or("--micro-batches", 1, 1, kMostMicroBatches));
  const int chunks = static_cast<int>(arguments.integer_or("--chunks", 1, 1, 64));
  if (arguments.has("--json")) return print(to_json(bubble_answer(stages, micro_batches, chunks))), kFits;
  print(fmt::format("pipeline bubble, P = {} stages, M = {} micro-batches\n\n", stages, micro_batches));
  print(fmt::format("  (P-1)/(M+P-1) = {:.6g}\n", bubble_fraction(stages, micro_batches)));
  if (chunks > 1)
    print(fmt::format("  (P-1)/(vM+P-1) = {:.6g} with v = {} chunks per rank\n", bubble_fraction(stages, micro_batches, chunks), chunks));
  print("\nThe schedules played (equal stages, forward 1, backward 2, no transfers; in flight on rank 0, in chunks):\n\n");
  print(fmt::format("  {:<18}{:>8}{:>12}{:>10}\n", "schedule", "bubble", "makespan", "in flight"));
  for (const ScheduleInfo& info : schedules()) print(played_line(played_row(info, stages, micro_batches, chunks)));
  return kFits;
}

int run_flops(const Arguments& arguments) {
  const Model model = load_model(arguments["MODEL"]);
  flops::Setting setting;
  setting.sequence = arguments.integer_or("--seq", 0, 1, std::int64_t{1} << 32);
  const bool json = arguments.has("--json");
  FormulaAnswer answer{"flops", {{"sequence_tokens", static_cast<double>(setting.sequence)}}, {}};
  if (!json) print(fmt::format("model FLOPs per token of {} at {} tokens, forward and backward\n\n", model.name, setting.sequence));
  for (const flops::Convention& convention : flops::conventions()) {
    if (!flops::conventions_apply(model) && convention.name != "6n" && convention.name != "exact") continue;
    const double flops = convention.per_token(model, setting);
    answer.results.push_back({std::string(convention.name), {{"flops_per_token", flops}}, std::string(convention.source)});
    if (!json) print(fmt::format("  {:<20}{:>14.6e}   {}\n", convention.name, flops, convention.source));
  }
  if (json) print(to_json(answer));
  return kFits;
}

Option required(const char* name, const char* help) { return {Option::value, name, help, true, {}}; }
Option optional(const char* name, const char* help) { return {Option::value, name, help, false, {}}; }

}  // namespace

Command formula_command() {
  Command zero{"zero", "model states of ZeRO stages 0 to 3", "  plimsoll formula zero --params 7e9 --gpus 4", {}, run_zero, {}};
  zero.options = {required("--params", "parameters: 7e9 or 7B"), required("--gpus", "data-parallel GPUs"),
                  optional("--precision", "fp32 (4+4+8 bytes per parameter, default) or mixed (2+2+12)")};
  Command ring{
      "ring",
      "time of ring collectives",
      "  plimsoll formula ring --bytes '1 GB' --ranks 8 --bandwidth '450 GB/s'\n  plimsoll formula ring --bytes '1 GB' --on 8xmi300x",
      {},
      run_ring,
      {}};
  ring.options = {required("--bytes", "the full buffer: '1 GB'"), optional("--ranks", "ranks in the ring"),
                  optional("--bandwidth", "per rank and direction: '450 GB/s'"), optional("--latency", "per step: '3 us'"),
                  optional("--on", "cluster: its bandwidth, and what its collective library takes")};
  Command bubble{"bubble", "idle share of a pipeline", "  plimsoll formula bubble --stages 4 --micro-batches 8", {}, run_bubble, {}};
  bubble.options = {required("--stages", "pipeline stages P"), required("--micro-batches", "micro-batches M of a step"),
                    optional("--chunks", "model chunks v per rank")};
  Command conventions{
      "flops", "model FLOPs per token under every convention", "  plimsoll formula flops llama-3-8b --seq 8192", {}, run_flops, {}};
  conventions.options = {{Option::positional, "MODEL", "a shipped model, a config.json, or a graph file", true, {}},
                         required("--seq", "tokens of a sequence")};
  for (Command* each : {&zero, &ring, &bubble, &conventions})
    each->options.push_back({Option::flag, "--json", "print one plimsoll/formula/1 object", false, {}});
  return {"formula", "textbook formulas, beside the real thing", {}, {}, nullptr, {zero, ring, bubble, conventions}};
}

}  // namespace plimsoll::cli
