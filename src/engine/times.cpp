// Device time of an engine's steps, and of a rollout that drains.
#include <algorithm>
#include <functional>
#include <map>
#include <queue>

#include "engine/parts.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/topology.hpp"

namespace plimsoll::engine {
namespace {

constexpr std::int64_t kLongContext = 8192;  ///< between it and nothing a step's time is a straight line of the context

/// Kernels one behind the other, with the gaps between them, and the collectives that they wait for.
Seconds played(const StepProgram& program, const Cluster& cluster, std::int64_t tp, bool in_graph) {
  const GroupShape group = tp > 1 ? Topology(cluster).group({0, tp, 1}) : GroupShape{};
  const Seconds gap = in_graph ? kernel_gap_in_graph(cluster.accelerator) : kernel_gap(cluster.accelerator);
  std::map<std::uint32_t, Seconds> kernels, collectives;
  Seconds total;
  for (const Instruction& instruction : program.step) {
    if (instruction.kind == InstructionKind::kernel) {
      const auto [known, made] = kernels.try_emplace(instruction.id);
      if (made) known->second = price(program.kernels[instruction.id], cluster.accelerator) + gap;
      total += known->second;
    } else if (instruction.kind == InstructionKind::collective) {
      const auto [known, made] = collectives.try_emplace(instruction.id);
      if (made) known->second = price(program.collectives[instruction.id], group, cluster) + gap;
      total += known->second;
    }
  }
  return total;
}

/// Steps that decode, by their batch: a constant and a rate per token of context. A batch is filled up to the next of which there is a
/// graph.
class DecodeLaw {
 public:
  DecodeLaw(const program::ServedRank& pass, const Cluster& cluster, std::vector<std::int64_t> captured)
      : pass_(pass), cluster_(cluster), captured_(std::move(captured)) {
    std::sort(captured_.begin(), captured_.end());
  }

  Seconds operator()(std::int64_t sequences, double context) {
    const auto graph = std::lower_bound(captured_.begin(), captured_.end(), sequences);
    const std::int64_t batch = graph == captured_.end() ? sequences : *graph;
    const auto [law, made] = laws_.try_emplace(batch);
    if (made) law->second = measured(batch, graph != captured_.end());
    // The cache of rows that only fill up is not read.
    return law->second.fixed + law->second.per_token * (context * static_cast<double>(sequences) / static_cast<double>(batch));
  }

 private:
  struct Law {
    Seconds fixed, per_token;
  };
  Law measured(std::int64_t batch, bool in_graph) const {
    program::ServedRank rank = pass_;
    rank.tokens = rank.sequences = batch;
    rank.context = 1;
    const Seconds least = played(lower_engine_pass(rank), cluster_, rank.tp, in_graph);
    rank.context = kLongContext;
    const Seconds most = played(lower_engine_pass(rank), cluster_, rank.tp, in_graph);
    return {least, (most - least) / static_cast<double>(kLongContext - 1)};
  }

  program::ServedRank pass_;
  const Cluster& cluster_;
  std::vector<std::int64_t> captured_;
  std::map<std::int64_t, Law> laws_;
};

/// Completions of one engine, admitted in their order as long as the cache holds them whole.
class Rollout {
 public:
  Rollout(const RolloutRequest& request, std::int64_t completions, const EnginePlan& plan, const BlockPool& pool)
      : request_(request), left_(completions), plan_(plan), pool_(pool) {}

  RolloutTime run(DecodeLaw& decode, Seconds per_prompt) {
    RolloutTime time;
    std::int64_t step = 0;
    for (admit(step, time, per_prompt); !running_.empty(); admit(step, time, per_prompt)) {
      const auto batch = static_cast<std::int64_t>(running_.size());
      time.largest_batch = std::max(time.largest_batch, batch);
      const std::int64_t steps = running_.top().ends - step;
      const double mean =
          static_cast<double>(request_.prompt_tokens) + static_cast<double>(batch * step - starts_) / static_cast<double>(batch);
      time.decoding += decode(batch, mean + static_cast<double>(steps - 1) / 2) * static_cast<double>(steps);
      step += steps;
      while (!running_.empty() && running_.top().ends == step) leave();
    }
    time.steps = step;
    return time;
  }

 private:
  struct Running {
    std::int64_t ends, blocks, started;
    bool operator>(const Running& other) const { return ends > other.ends; }
  };

  void admit(std::int64_t step, RolloutTime& time, Seconds per_prompt) {
    while (left_ > 0 && static_cast<std::int64_t>(running_.size()) < *plan_.setting.max_num_seqs) {
      const bool new_prompt = taken_ % request_.group == 0;
      const std::int64_t length = request_.lengths[static_cast<std::size_t>(taken_) % request_.lengths.size()];
      const std::int64_t shared = new_prompt ? 0 : pool_.blocks_of(request_.prompt_tokens);
      const std::int64_t blocks = std::max<std::int64_t>(1, pool_.blocks_of(request_.prompt_tokens + length) - shared);
      if (used_ + blocks > plan_.blocks) return;
      if (new_prompt) time.prompts += per_prompt;
      running_.push({step + length, blocks, step});
      used_ += blocks, starts_ += step, ++taken_, --left_;
    }
  }

  void leave() {
    used_ -= running_.top().blocks;
    starts_ -= running_.top().started;
    running_.pop();
  }

  const RolloutRequest& request_;
  std::int64_t left_, taken_ = 0, used_ = 0, starts_ = 0;
  const EnginePlan& plan_;
  const BlockPool& pool_;
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
};

void price_rollout(EnginePlan& plan, const Cluster& cluster, const BlockPool& pool, DecodeLaw& decode) {
  const RolloutRequest& request = plan.setting.rollout;
  const std::int64_t longest = request.prompt_tokens + *std::max_element(request.lengths.begin(), request.lengths.end());
  if (longest > *plan.setting.max_model_len)
    fail("a prompt and its completion have " + std::to_string(longest) + " tokens, more than max_model_len", "--lengths",
         "at most " + std::to_string(*plan.setting.max_model_len));
  const Seconds per_prompt =
      plan.prompt_step * (static_cast<double>(request.prompt_tokens) / static_cast<double>(*plan.setting.max_num_batched_tokens));
  const std::int64_t engines = std::max<std::int64_t>(1, cluster.gpus() / (plan.setting.tp * plan.setting.pp));
  RolloutTime time = Rollout(request, ceil_div(request.completions, engines), plan, pool).run(decode, per_prompt);
  time.engines = engines;
  double tokens = 0;
  for (const std::int64_t length : request.lengths) tokens += static_cast<double>(length);
  tokens *= static_cast<double>(request.completions) / static_cast<double>(request.lengths.size());
  time.tokens_per_second = tokens / (time.prompts + time.decoding).value;
  plan.rollout = time;
}

}  // namespace

void price_steps(EnginePlan& plan, const Model& model, const Cluster& cluster, const program::ServedRank& pass, const BlockPool& pool) {
  const EngineSetting& setting = plan.setting;
  const auto not_priced = [&](const std::string& why) { plan.assumed.push_back("steps are not priced: " + why); };
  if (!plan.refused.empty()) return not_priced("the engine does not start");
  const auto unpriced = [&](const std::string& why) {
    if (setting.rollout.completions > 0) refuse("the time of a rollout is not known: " + why, "--completions");
    not_priced(why);
  };
  if (setting.pp > 1) return unpriced("stages of a pipeline wait for each other");
  if (setting.enforce_eager) return unpriced("without graphs the host decides");
  if (setting.weights != "auto" && !pass.quantizes_inputs) return unpriced("no law of products reads weights in " + setting.weights);
  program::ServedRank rank = pass;
  rank.cache = cache_type(setting);
  rank.compiled = true;
  rank.sampling = program::Sampling::direct;  // a rollout draws from the whole distribution: no top-k, no top-p
  rank.samples = true;
  program::ServedRank prompts = rank;
  prompts.prompt = std::min({setting.rollout.prompt_tokens, rank.tokens, model.max_positions});
  prompts.sequences = std::max<std::int64_t>(1, rank.tokens / prompts.prompt);
  plan.prompt_step = played(lower_engine_pass(prompts), cluster, rank.tp, false);
  const std::int64_t context = std::min<std::int64_t>(2048, *setting.max_model_len);
  const std::int64_t most = std::min({*setting.max_num_seqs, rank.tokens, plan.blocks / pool.blocks_of(context)});
  DecodeLaw decode(rank, cluster, plan.captured);
  for (std::int64_t sequences = 1; sequences <= most; sequences *= 4) {
    plan.decode.push_back({sequences, context, decode(sequences, static_cast<double>(context))});
  }
  if (setting.rollout.completions > 0) price_rollout(plan, cluster, pool, decode);
}

}  // namespace plimsoll::engine
