#include <fmt/format.h>

#include <algorithm>

#include "engine/parts.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/memory.hpp"

namespace plimsoll::engine {
namespace {

constexpr std::int64_t kShortestFit = 1024;
constexpr std::size_t kMostFits = 12;

std::string gib(Bytes bytes) { return fmt::format("{:.2f} GiB", bytes.gib()); }

EngineBand scaled(const EngineBand& band, std::int64_t times) { return {band.low * times, band.expected * times, band.high * times}; }
EngineBand shifted(const EngineBand& band, Bytes by) { return {band.low + by, band.expected + by, band.high + by}; }

EngineBand context_of(const Accelerator& device) {
  const Bytes context = device.overheads.context.value;
  return {context, context, context};
}

/// Batches of SGLang's graphs: 1, 2, 4, then eights up to 256 (server_args.py, _generate_cuda_graph_batch_sizes).
std::vector<std::int64_t> sglang_batches() {
  std::vector<std::int64_t> batches{1, 2, 4};
  for (std::int64_t batch = 8; batch <= 256; batch += 8) batches.push_back(batch);
  return batches;
}

/// A rank of the stage in that setting, before what a release decides.
program::ServedRank served(const Model& model, const Cluster& cluster, const EngineSetting& setting, const Stage& stage) {
  program::ServedRank rank{.model = model, .device = program::target_device(cluster), .torch = {}};
  rank.tp = setting.tp;
  rank.first_layer = stage.first_layer;
  rank.layers = stage.layers;
  rank.embeds = stage.first;
  rank.samples = stage.last;
  rank.type = compute_type(setting);
  rank.quantizes_inputs = setting.weights != "auto" && weight_format(setting.weights).quantizes_inputs;
  rank.tokens = *setting.max_num_batched_tokens;
  rank.sequences = stage.last ? std::min(setting.max_num_seqs.value_or(0), rank.tokens) : 0;
  return rank;
}

program::ServedRank served_by_vllm(const Model& model, const Cluster& cluster, const EngineSetting& setting, const Stage& stage,
                                   const VllmRelease& release) {
  program::ServedRank rank = served(model, cluster, setting, stage);
  rank.torch = release.torch();
  rank.compiled = release.compiles() && !setting.enforce_eager;
  rank.reduces_in_place = release.reduces_in_place();
  rank.gathers_everywhere = !release.is_v0();
  rank.draws_hidden_states = release.runner() == "v1";
  rank.sampling = release.sampling();
  return rank;
}

/// Graphs of the stage: the largest batch's tensors, which all graphs share, and what each captured graph takes of each layer.
EngineBand graphs_of(const program::ServedRank& rank, const std::vector<std::int64_t>& captured, const VllmRelease& release) {
  if (captured.empty()) return {};
  program::ServedRank largest = rank;
  largest.tokens = captured.front();
  largest.sequences = 0;
  const std::int64_t graphs = static_cast<std::int64_t>(captured.size()) * (release.captures_twice() ? 2 : 1);
  return shifted(scaled(graph_of_layer(), graphs * rank.layers), profile_of(largest).peak);
}

/// What a stage has left, and of what.
struct Rank {
  Bytes weights, cache;
  Profile profile;
  EngineBand graphs;
  std::vector<CacheGroup> groups;
};

void take(EnginePlan& plan, Rank rank) {
  plan.weights = rank.weights;
  plan.cache = rank.cache;
  plan.activation_peak = rank.profile.peak;
  plan.peak_label = rank.profile.label;
  plan.graphs = rank.graphs;
  plan.groups = std::move(rank.groups);
}

/// The plan before any of its stages: what was asked for, settled, and what of the device is not the engine's.
EnginePlan begun(const Model& model, const Cluster& cluster, const EngineSetting& asked) {
  EnginePlan plan;
  plan.setting = settled(model, cluster, asked, plan.assumed);
  plan.total = cluster.accelerator.memory_usable.value;
  plan.context = context_of(cluster.accelerator);
  plan.outside = outside_of(cluster, plan.setting);
  return plan;
}

/// `share` of it, the engine's for weights and cache.
Bytes share_of(Bytes memory, double share) { return Bytes(static_cast<std::int64_t>(static_cast<double>(memory.count) * share)); }

/// The stage with the fewest blocks decides for all.
void keep_fewest(EnginePlan& plan, std::optional<BlockPool>& pool, Rank rank, bool hybrid) {
  const BlockPool own(rank.groups, plan.setting, hybrid);
  const std::int64_t blocks = own.blocks(rank.cache);
  if (pool && blocks >= plan.blocks) return;
  pool = own;
  plan.blocks = blocks;
  plan.tokens = own.tokens(blocks);
  take(plan, std::move(rank));
}

/// What the engine would say instead of starting.
void judge(EnginePlan& plan, const BlockPool& pool, Bytes free, bool wants_free) {
  if (wants_free && free < plan.budget && !plan.setting.cache_bytes) {
    plan.refused = fmt::format("free memory on the device at start ({}) is less than the share asked for ({} of {}, {})", gib(free),
                               *plan.setting.memory_fraction, gib(plan.total), gib(plan.budget));
    return;
  }
  if (plan.cache.count <= 0) {
    plan.refused = fmt::format("no memory is left for the cache: {} are missing", gib(Bytes(-plan.cache.count)));
    return;
  }
  const std::int64_t wanted = *plan.setting.max_model_len;
  plan.longest = pool.longest(plan.blocks, wanted);
  if (plan.longest < wanted)
    plan.refused = fmt::format("one request of {} tokens takes {} of the {} of cache; the longest that fits has {}", wanted,
                               gib(pool.bytes_of(wanted)), gib(plan.cache), plan.longest);
}

std::vector<EngineFit> fits_of(const EnginePlan& plan, const BlockPool& pool) {
  std::vector<EngineFit> fits;
  const std::int64_t most = *plan.setting.max_model_len;
  for (std::int64_t length = std::min(kShortestFit, most); fits.size() < kMostFits; length = std::min(2 * length, most)) {
    const std::int64_t held = plan.blocks / pool.blocks_of(length);
    fits.push_back({length, plan.setting.max_num_seqs ? std::min(held, *plan.setting.max_num_seqs) : held});
    if (length == most) break;
  }
  return fits;
}

std::vector<SleepLevel> sleep_of(const EnginePlan& plan, Bytes stays) {
  if (!plan.setting.sleep_mode) return {};
  const Bytes freed = plan.weights + plan.cache;
  if (plan.setting.engine == RolloutEngine::sglang) return {{1, freed, Bytes(0), stays}};
  return {{1, freed, plan.weights, stays}, {2, freed, Bytes(0), stays}};
}

}  // namespace

Profile profile_of(const program::ServedRank& rank) {
  PlayMemoryOptions options;
  options.steps = 1;
  const MemoryTrace trace = play_memory(program::lower_engine_pass(rank), options);
  return {trace.peak_allocated, trace.peak_label};
}

void finish(EnginePlan& plan, const BlockPool& pool) {
  const std::int64_t request = pool.blocks_of(*plan.setting.max_model_len);
  plan.concurrency = static_cast<double>(plan.blocks) / static_cast<double>(request);
  if (plan.cache.count > 0) plan.fits = fits_of(plan, pool);
  const Bytes stays = plan.context.expected + plan.outside.expected + plan.graphs.expected;
  const Bytes cache = plan.cache.count > 0 ? plan.cache : Bytes(0);
  plan.sleep = sleep_of(plan, stays);
  plan.device = plan.setting.others + stays + plan.weights + plan.activation_peak + cache;
  if (plan.refused.empty() && plan.device > plan.total)
    plan.risks.push_back(fmt::format("{} of {} are in use at a full step: a smaller share leaves room for what is not in it",
                                     gib(plan.device), gib(plan.total)));
}

EnginePlan plan_vllm(const Model& model, const Cluster& cluster, const EngineSetting& asked) {
  EnginePlan plan = begun(model, cluster, asked);
  const EngineSetting& setting = plan.setting;
  const VllmRelease release(*setting.release, *setting.runner);
  plan.runner = release.runner();
  plan.budget = share_of(plan.total, *setting.memory_fraction);
  plan.graphs_in_budget = release.counts_graphs();
  if (!setting.enforce_eager) plan.captured = release.captured(*setting.max_num_seqs, *setting.max_num_batched_tokens);
  const bool all_in_use = release.budget() == Budget::device_in_use;
  std::optional<BlockPool> pool;
  for (const Stage& stage : stages_of(model, setting)) {
    Rank rank;
    const program::ServedRank pass = served_by_vllm(model, cluster, setting, stage, release);
    rank.weights = weights_on_rank(model, setting, stage);
    rank.profile = profile_of(pass);
    rank.graphs = graphs_of(pass, plan.captured, release);
    rank.cache = plan.budget - rank.weights - rank.profile.peak - plan.outside.expected;
    if (all_in_use) rank.cache -= plan.context.expected + setting.others;
    if (plan.graphs_in_budget) rank.cache -= rank.graphs.expected;
    if (setting.cache_bytes) rank.cache = *setting.cache_bytes;
    rank.groups = cache_groups(model, setting, stage);
    keep_fewest(plan, pool, std::move(rank), release.has_hybrid_cache());
  }
  judge(plan, *pool, plan.total - plan.context.expected - setting.others, !all_in_use && !release.is_v0());
  finish(plan, *pool);
  price_steps(plan, model, cluster, served_by_vllm(model, cluster, setting, stages_of(model, setting).front(), release), *pool);
  return plan;
}

EnginePlan plan_sglang(const Model& model, const Cluster& cluster, const EngineSetting& asked) {
  EnginePlan plan = begun(model, cluster, asked);
  EngineSetting& setting = plan.setting;
  plan.runner = "sglang";
  // What is free when the ranks know each other; the fraction of that holds weights and cache (model_runner.py, profile_max_num_token).
  const Bytes free = plan.total - setting.others - plan.context.expected - plan.outside.expected;
  plan.budget = share_of(free, *setting.memory_fraction);
  std::optional<BlockPool> pool;
  for (const Stage& stage : stages_of(model, setting)) {
    Rank rank;
    program::ServedRank pass = served(model, cluster, setting, stage);
    pass.torch = program::TorchRelease(Release(2, 9));
    pass.sampling = program::Sampling::flashinfer;
    pass.sequences = stage.last ? 1 : 0;  // a step that fills its tokens with one prompt
    rank.profile = profile_of(pass);
    rank.weights = weights_on_rank(model, setting, stage);
    rank.cache = plan.budget - rank.weights;
    rank.groups = cache_groups(model, setting, stage);
    if (rank.groups.size() > 1)
      refuse("how SGLang shares its tokens between layers with and without a window is not modelled", model.name,
             "a model whose layers are alike");
    keep_fewest(plan, pool, std::move(rank), false);
  }
  if (!setting.max_num_seqs) setting.max_num_seqs = std::clamp<std::int64_t>(plan.tokens * 512 / *setting.max_model_len, 2048, 4096);
  if (!setting.enforce_eager) {
    plan.captured = sglang_batches();
    plan.graphs = scaled(graph_of_layer(), static_cast<std::int64_t>(plan.captured.size()) * model.layers / setting.pp);
  }
  judge(plan, *pool, free, false);
  if (plan.cache.count <= 0 && free > Bytes(0))
    plan.refused += fmt::format("; the smallest fraction that holds the weights is {:.4f}",
                                static_cast<double>(plan.weights.count) / static_cast<double>(free.count));
  finish(plan, *pool);
  program::ServedRank pass = served(model, cluster, setting, stages_of(model, setting).front());
  pass.torch = program::TorchRelease(Release(2, 9));
  price_steps(plan, model, cluster, pass, *pool);
  return plan;
}

}  // namespace plimsoll::engine

namespace plimsoll {

EnginePlan plan_engine(const Model& model, const Cluster& cluster, const EngineSetting& setting) {
  return setting.engine == RolloutEngine::vllm ? engine::plan_vllm(model, cluster, setting) : engine::plan_sglang(model, cluster, setting);
}

}  // namespace plimsoll
