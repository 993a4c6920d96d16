#include "estimate/causes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "plimsoll/strategy.hpp"
#include "units/text.hpp"

namespace plimsoll::estimation {
namespace {

constexpr double kWorthSaying = 0.03, kLeast = 0.001;  // of a step

std::string plural(std::int64_t count, const char* one) { return fmt::format("{} {}{}", with_thousands(count), one, count == 1 ? "" : "s"); }

/// What is sent in a group's collectives of a kind.
const char* contents_of(const Collective& collective) {
  switch (collective.group) {
    case Group::data_shard:
    case Group::expert_data:
      return collective.kind == CollectiveKind::all_gather || collective.kind == CollectiveKind::broadcast ? "parameters" : "gradients";
    case Group::data_replicate:
      return "gradients";
    case Group::expert:
      return "tokens of experts";
    case Group::context:
      return "keys and values";
    case Group::tensor:
    case Group::pipeline:
      return "activations";
    case Group::world:
      return collective.kind == CollectiveKind::all_reduce || collective.kind == CollectiveKind::reduce_scatter ? "gradients" : "states";
  }
  return "data";
}

const char* noun_of(CollectiveKind kind) {
  constexpr std::array<const char*, 7> kNouns{"all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send", "receive"};
  return kNouns[static_cast<std::size_t>(kind)];
}

const char* verb_of(CollectiveKind kind) {
  constexpr std::array<const char*, 7> kVerbs{"summed", "gathered", "summed and scattered", "exchanged", "broadcast", "sent", "received"};
  return kVerbs[static_cast<std::size_t>(kind)];
}

std::string place_of(const GroupShape& group) {
  return fmt::format("over {}{}", plural(group.size, "GPU"), group.nodes > 1 ? fmt::format(" of {}", plural(group.nodes, "node")) : std::string());
}

struct Stretch {
  double start, end;
};

/// When the device computes: no collective, no copy.
std::vector<Stretch> computing(const RankTimeline& rank) {
  std::vector<Stretch> busy;
  for (const Event& event : rank.timeline.events)
    if (rank.rank.program.step[event.instruction].kind == InstructionKind::kernel) busy.push_back({event.start.value, event.end.value});
  std::sort(busy.begin(), busy.end(), [](const Stretch& a, const Stretch& b) { return a.start < b.start; });
  std::vector<Stretch> joined;
  for (const Stretch& each : busy)
    if (joined.empty() || each.start > joined.back().end)
      joined.push_back(each);
    else
      joined.back().end = std::max(joined.back().end, each.end);
  return joined;
}

/// How much of start to end lies in none of the stretches, which are in order and apart.
double outside(const std::vector<Stretch>& busy, double start, double end) {
  double free = end - start;
  auto at = std::lower_bound(busy.begin(), busy.end(), start, [](const Stretch& each, double time) { return each.end < time; });
  for (; at != busy.end() && at->start < end; ++at) free -= std::max(0.0, std::min(end, at->end) - std::max(start, at->start));
  return std::max(free, 0.0);
}

struct Gathered {
  DearCollective sum;
  Collective sample;
};

/// Collectives of more than one member by kind, group and type, the longest first.
std::vector<Gathered> gathered(const RankTimeline& rank, const Pricing& pricing) {
  const std::vector<Stretch> busy = computing(rank);
  std::map<std::tuple<CollectiveKind, Group, DType>, Gathered> sums;
  const StepProgram& program = rank.rank.program;
  for (const Event& event : rank.timeline.events) {
    const Instruction& instruction = program.step[event.instruction];
    if (instruction.kind != InstructionKind::collective) continue;
    const Collective& collective = program.collectives[instruction.id];
    if (pricing.groups[static_cast<std::size_t>(collective.group)].size < 2) continue;
    Gathered& of = sums[{collective.kind, collective.group, collective.type}];
    of.sample = collective;
    ++of.sum.launches;
    of.sum.bytes += Bytes(collective.bytes);
    of.sum.seconds += event.end - event.start;
    of.sum.exposed += Seconds(outside(busy, event.start.value, event.end.value));
  }
  std::vector<Gathered> all;
  for (auto& [key, each] : sums) {
    each.sum.what = fmt::format("{} of {} {} {}", noun_of(each.sample.kind), name_of(each.sample.type), contents_of(each.sample),
                                place_of(pricing.groups[static_cast<std::size_t>(each.sample.group)]));
    all.push_back(std::move(each));
  }
  std::stable_sort(all.begin(), all.end(), [](const Gathered& a, const Gathered& b) { return a.sum.seconds > b.sum.seconds; });
  return all;
}

struct Cause {
  double seconds;
  std::string sentence;
};

std::string share_of(double seconds, double step) { return fmt::format("{:.0f} % of the step", 100 * seconds / step); }

Cause collective_cause(const Gathered& each, const Pricing& pricing, const Strategy& resolved, double step) {
  const GroupShape& group = pricing.groups[static_cast<std::size_t>(each.sample.group)];
  const bool of_data = each.sample.group == Group::data_shard || each.sample.group == Group::data_replicate || each.sample.group == Group::expert_data;
  const std::string when = !of_data || resolved.micro_batches == 0 ? "" : resolved.micro_batches == 1 ? " after a single micro-batch"
                                                                            : fmt::format(" in a step of {} micro-batches", resolved.micro_batches);
  return {each.sum.exposed.value,
          fmt::format("{} of {} {} are {} {}{}: {} of their {} are beside nothing, {}", to_string(each.sum.bytes), name_of(each.sample.type), contents_of(each.sample),
                      verb_of(each.sample.kind), place_of(group), when, to_string(each.sum.exposed), to_string(each.sum.seconds),
                      share_of(each.sum.exposed.value, step))};
}

/// What is no collective's.
std::vector<Cause> other_causes(const RankTimeline& rank, const Strategy& resolved, std::int64_t launches, double step) {
  const Timeline& t = rank.timeline;
  std::vector<Cause> causes;
  causes.push_back({t.bubble.value, fmt::format("the device waits {} for other ranks, {}: {} micro-batches through {}", to_string(t.bubble), share_of(t.bubble.value, step),
                                                resolved.micro_batches, plural(resolved.pp, "stage"))});
  causes.push_back({t.host.value, fmt::format("the device waits {} for its host, {}: {} launches", to_string(t.host), share_of(t.host.value, step),
                                              with_thousands(launches))});
  causes.push_back({t.recompute.value, fmt::format("activations are computed again for {}, {}", to_string(t.recompute), share_of(t.recompute.value, step))});
  causes.push_back({t.exposed_copies.value, fmt::format("the device waits {} for copies from or to its host, {}", to_string(t.exposed_copies),
                                                        share_of(t.exposed_copies.value, step))});
  causes.push_back({t.optimizer.value, fmt::format("the optimizer takes {}, {}", to_string(t.optimizer), share_of(t.optimizer.value, step))});
  causes.push_back({t.host_optimizer.value, fmt::format("the optimizer takes the host {}, {}", to_string(t.host_optimizer),
                                                        share_of(t.host_optimizer.value, step))});
  return causes;
}

}  // namespace

void find_causes(const RankTimeline& rank, const Pricing& pricing, const Strategy& resolved, Explanation& explanation) {
  const double step = rank.timeline.step.value;
  if (!(step > 0)) return;
  const auto& work = explanation.explained().work;
  std::vector<Cause> causes = other_causes(rank, resolved, work ? work->launches : 0, step);
  for (Gathered& each : gathered(rank, pricing)) {
    if (each.sum.seconds.value < kLeast * step) continue;
    causes.push_back(collective_cause(each, pricing, resolved, step));
    explanation.collectives.push_back(std::move(each.sum));
  }
  std::stable_sort(causes.begin(), causes.end(), [](const Cause& a, const Cause& b) { return a.seconds > b.seconds; });
  for (Cause& cause : causes)
    if (cause.seconds >= kWorthSaying * step) explanation.causes.push_back(std::move(cause.sentence));
}

}  // namespace plimsoll::estimation
