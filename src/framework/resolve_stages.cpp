// How each framework deals the layers of a model to the stages of its pipeline.
#include <algorithm>
#include <numeric>
#include <string>

#include "framework/nanotron.hpp"
#include "framework/resolver.hpp"

namespace plimsoll::framework {
namespace {

using Layers = std::vector<int>;

/// The first `layers % stages` stages take one more.
Layers leading(std::int64_t layers, std::int64_t stages) {
  Layers cut(static_cast<std::size_t>(stages), static_cast<int>(layers / stages));
  for (std::int64_t i = 0; i < layers % stages; ++i) ++cut[static_cast<std::size_t>(i)];
  return cut;
}

/// Embedding and head are counted as one layer each of the first and the last stage (torchtitan: generate_llm_fqn_per_model_part;
/// Megatron: account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split).
Layers counted_ends(std::int64_t layers, std::int64_t stages) {
  Layers cut = leading(layers + 2, stages);
  --cut.front();
  --cut.back();
  return cut;
}

/// The first stage takes the whole quotient, those behind it one more while any is left, the last what remains (torchtitan 2024:
/// generate_split_points).
Layers middle(std::int64_t layers, std::int64_t stages) {
  const auto base = static_cast<int>(layers / stages);
  std::int64_t extra = layers % stages;
  Layers cut(static_cast<std::size_t>(stages), base);
  for (std::size_t i = 1; i + 1 < cut.size(); ++i)
    if (extra-- > 0) ++cut[i];
  cut.back() = static_cast<int>(layers) - std::accumulate(cut.begin(), cut.end() - 1, 0);
  return cut;
}

/// Blocks go to a rank until their summed cost reaches (before: passes) the rank's share; the head is a block, embedding and norm cost
/// nothing (nanotron: build_model and LlamaModel.get_block_compute_costs; published runs, whose sizes of rank 0 tell the ties).
Layers by_cost(const Model& model, std::int64_t stages, bool passes) {
  const double hidden = static_cast<double>(model.hidden_size);
  const double layer = 4 * hidden * hidden + 3 * static_cast<double>(model.intermediate_size) * hidden;
  const double total = layer * static_cast<double>(model.layers) + static_cast<double>(model.vocab_size) * hidden;
  Layers cut(static_cast<std::size_t>(stages), 0);
  std::size_t rank = 0;
  for (std::int64_t i = 1; i <= model.layers; ++i) {
    ++cut[rank];
    const double share = total * static_cast<double>(rank + 1) / static_cast<double>(stages);
    const double cost = layer * static_cast<double>(i);
    if ((cost > share || (cost == share && !passes)) && rank + 1 < cut.size()) ++rank;
  }
  return cut;
}

/// Every stage as full as the fullest must be, the last takes what is left (DeepSpeed before 0.12.5: partition_balanced).
Layers filled(std::int64_t layers, std::int64_t stages) {
  Layers cut;
  const std::int64_t most = ceil_div(layers, stages);
  for (std::int64_t left = layers; cut.size() < static_cast<std::size_t>(stages); left -= cut.back())
    cut.push_back(static_cast<int>(std::min(most, left)));
  return cut;
}

/// DeepSpeed before 0.12.5 (pipe/module.py, partition_balanced).
bool fills_stages(const Strategy& s) { return !s.releases.of(Package::deepspeed).since(0, 12, 5); }

}  // namespace

void resolve_stages(Resolver& r) {
  Strategy& s = r.s;
  const std::int64_t layers = r.model.layers, stages = std::int64_t{s.pp} * s.vp;
  const FrameworkProfile profile = profile_of(s);
  if (s.pp == 1 || !s.pp_layers.empty() || layers == 0 || layers + profile.other_stage_modules < stages) return;
  const bool megatron = !profile.layer_spec.empty();
  switch (profile.stages) {
    case StageSplit::even:
      if (layers % stages == 0) {
        s.pp_layers = leading(layers, stages);
      } else if (megatron && (layers + 2) % stages == 0) {  // Llama-3.1-405B's 126 layers on 16 stages: 7, 14 times 8, 7
        s.pp_layers = counted_ends(layers, stages);
        r.assume("pp_layers: the embedding and the head count as a layer each");
      }
      return;
    case StageSplit::leading:
      s.pp_layers = fills_stages(s) ? filled(layers, stages) : leading(layers, stages);
      return;
    case StageSplit::middle:
      s.pp_layers = middle(layers, stages);
      return;
    case StageSplit::by_cost:
      s.pp_layers = by_cost(r.model, stages, nanotron_waits_for_sends(s));
      return;
    case StageSplit::counted_ends:
      // Megatron's launchers count the ends only where the layers alone do not divide.
      s.pp_layers = megatron && layers % stages == 0 ? leading(layers, stages) : counted_ends(layers, stages);
      if (megatron && layers % stages != 0) r.assume("pp_layers: the embedding and the head count as a layer each");
  }
}

}  // namespace plimsoll::framework
