#include "estimate/played_time.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "estimate/host_pace.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll::estimation {
namespace {

Seconds exposed(const Timeline& timeline, std::initializer_list<Group> groups) {
  Seconds sum;
  for (const Group group : groups) sum += timeline.exposed[static_cast<std::size_t>(group)];
  return sum;
}

/// What the scopes of transformer_engine's graphs capture of a layer, by its labels (cuda_graph_scope). moe_preprocess captures no kernel
/// that is worth naming; without scopes whole layers are captured.
std::vector<std::string> captured_by(const std::string& graphs) {
  constexpr std::pair<std::string_view, std::string_view> kScopes[] = {
      {"attn", ".self_attention"}, {"moe_router", ".mlp.router"}, {"mlp", ".mlp"}, {"mamba", ".mixer"}};
  std::vector<std::string> captured;
  for (const auto& [scope, label] : kScopes)
    if (graphs.find(scope) != std::string::npos) captured.emplace_back(label);
  if (captured.empty()) captured.emplace_back(".layers.");
  return captured;
}

/// What the host has left to do where CUDA graphs replay a step: nothing of a whole iteration's or of whole layers', whose kernels follow one
/// another sooner.
void replay_graphs(Pricing& pricing, const std::string& graphs) {
  if (graphs.empty()) return;
  if (graphs.rfind("transformer_engine", 0) == 0) {
    pricing.replayed = captured_by(graphs);
    return;
  }
  for (std::size_t i = 0; i < kHostWorks; ++i)
    if (static_cast<HostWork>(i) != HostWork::memory_traffic) pricing.host.work[i] = {};
  pricing.host.launch = {};
  pricing.gap = kernel_gap_in_graph(pricing.cluster.accelerator);
}

}  // namespace

Seconds StepTime::total() const {
  Seconds sum;
  for (const TimePart& part : parts()) sum += part.seconds;
  return sum;
}

std::vector<TimePart> StepTime::parts() const {
  return {{"compute", compute},
          {"recompute", recompute},
          {"exposed_tensor_parallel", tensor_parallel},
          {"exposed_context_parallel", context_parallel},
          {"exposed_expert_parallel", expert_parallel},
          {"exposed_data_parallel", data_parallel},
          {"pipeline_transfers", pipeline_transfers},
          {"bubble", bubble},
          {"exposed_copies", copies},
          {"host", host},
          {"optimizer", optimizer},
          {"host_optimizer", host_optimizer}};
}

StepTime parts_of(const Timeline& timeline) {
  StepTime step;
  step.compute = timeline.compute;
  step.recompute = timeline.recompute;
  step.tensor_parallel = exposed(timeline, {Group::tensor});
  step.context_parallel = exposed(timeline, {Group::context});
  step.expert_parallel = exposed(timeline, {Group::expert});
  step.data_parallel = exposed(timeline, {Group::data_shard, Group::data_replicate, Group::expert_data, Group::world, Group::pipeline});
  step.pipeline_transfers = timeline.transfers;
  step.bubble = timeline.bubble;
  step.copies = timeline.exposed_copies;
  step.host = timeline.host;
  step.optimizer = timeline.optimizer;
  step.host_optimizer = timeline.host_optimizer;
  return step;
}

Pricing run_pricing(const Cluster& cluster, const Strategy& resolved, const std::array<GroupShape, kGroups>& groups) {
  const ModelCode code = profile_of(resolved).code;
  Pricing pricing = pricing_of(cluster, groups, name_of(code));
  pricing.blocking = resolved.launch_blocking;
  set_software_pace(pricing, resolved);
  if (code == ModelCode::nanotron) set_nanotron_pace(pricing, resolved);
  if (code == ModelCode::megatron_te) replay_graphs(pricing, resolved.cuda_graph);
  return pricing;
}

void PlayedTime::add(int stage, const StepProgram& program) {
  std::unique_lock lock(taking_);
  taken_.wait(lock, [&] { return given_up_ || ranks_.size() == static_cast<std::size_t>(stage); });
  if (given_up_) return;
  ranks_.push_back(pricer_.score(program));
  taken_.notify_all();
}

void PlayedTime::give_up() {
  const std::lock_guard lock(taking_);
  given_up_ = true;
  taken_.notify_all();
}

std::int64_t PlayedTime::pieces() const {
  std::int64_t sum = 0;
  for (const Score& rank : ranks_) sum += rank.pieces();
  return sum;
}

Timeline PlayedTime::busiest() const {
  std::vector<Timeline> timelines = play_ranks(ranks_, pricer_.pricing());
  return std::move(
      *std::min_element(timelines.begin(), timelines.end(), [](const Timeline& a, const Timeline& b) { return a.bubble < b.bubble; }));
}

void PlayedTime::describe(const Timeline& timeline, TimeReport& report) const {
  constexpr double kWorthSaying = 0.01;  // of a step
  const Accelerator& device = pricer_.pricing().cluster.accelerator;
  const Surroundings around = pricer_.around();
  report.board_power = timeline.power;
  double spared = 0;
  std::int64_t odd = 0, whole = 0;
  for (const KernelShare& each : timeline.dearest) {
    report.dearest.push_back({plimsoll::describe(each.kernel), each.label, each.launches, each.seconds,
                              std::string(name_of(limit_of(each.kernel, device, around)))});
    const Product* product = each.kernel.product();
    const std::optional<Product> padding = product ? padded(*product) : std::nullopt;
    if (!padding) continue;
    const double saved = each.seconds.value - static_cast<double>(each.launches) * price(*padding, device, around).value;
    if (saved <= 0) continue;
    spared += saved;
    for (const auto& [from, to] : {std::pair{product->m, padding->m}, {product->n, padding->n}, {product->k, padding->k}})
      if (from != to && from > odd) odd = from, whole = to;
  }
  if (odd > 0 && spared > kWorthSaying * timeline.step.value)
    report.advice.push_back(
        fmt::format("pad the dimension of {} to {}: products that are no multiple of 16 bytes run without matrix units' "
                    "widest loads, -{:.0f} % of the step",
                    with_thousands(odd), with_thousands(round_up(whole, 64)), 100 * spared / timeline.step.value));
}

}  // namespace plimsoll::estimation
