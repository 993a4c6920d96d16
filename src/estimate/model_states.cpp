#include "estimate/model_states.hpp"

#include <algorithm>
#include <cmath>

#include "memory/model_states.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"

namespace plimsoll::estimation {
namespace {

double bytes_of(std::optional<DType> type, DType otherwise) { return static_cast<double>(size_of(type.value_or(otherwise))); }

/// The ranks that share one copy of what is not an expert: dp_shard · cp.
double dense_ranks(const Strategy& s) { return static_cast<double>(std::max(1, s.dp_shard)) * std::max(1, s.cp); }

/// Those that share one copy of a rank's experts. Expert parallelism takes its ranks out of tp · cp · dp_shard: what it has cut already is
/// not divided again (torchtitan's efsdp mesh, Megatron's expert_data_parallel group). Without it torchtitan cuts experts by tp like the
/// rest.
double expert_ranks(const Strategy& s) {
  const bool own_mesh = s.ep > 1 || engine_of(s) == Engine::megatron;
  if (!own_mesh) return dense_ranks(s);
  return std::max(1.0, dense_ranks(s) * std::max(1, s.tp) / (static_cast<double>(std::max(1, s.ep)) * std::max(1, s.etp)));
}

double moments_per_element(const Strategy& s) {
  const std::vector<std::int64_t> large{4096, 4096};  // per element of a large matrix: Adafactor's vectors vanish beside it
  return static_cast<double>(memory::optimizer_state_bytes(s.optimizer, large, s.state_dtype.value_or(DType::fp32)).count) /
         (4096.0 * 4096.0);
}

/// PEFT's rule: a module whose path is a target or ends in one behind a dot; "all-linear": all but a language model's head. The share of a
/// block's layers whose linear is one.
double adapted(const Operator& op, const Block& block, const Lora& lora) {
  if (op.kind != OperatorKind::linear) return 0;
  if (lora.targets == std::vector<std::string>{"all-linear"}) return block.role != Block::Role::head ? 1 : 0;
  const auto is_target = [&](const std::string& path) {
    return std::any_of(lora.targets.begin(), lora.targets.end(), [&](const std::string& target) { return ("." + path).ends_with("." + target); });
  };
  if (is_target(op.name)) return 1;
  if (op.parameters.empty()) return 0;
  std::int64_t layers = 0;
  for (std::int64_t i = 0; i < block.repeat; ++i) {
    const std::string tensor = full_name(block, i, op.parameters.front());
    if (is_target(tensor.substr(0, tensor.rfind('.')))) ++layers;
  }
  return static_cast<double>(layers) / static_cast<double>(std::max<std::int64_t>(1, block.repeat));
}

/// Megatron's names of a layer's linears, or MLPerf's phrases for them.
bool names_linear(const Lora& lora, const char* linear, bool of_attention) {
  return std::any_of(lora.targets.begin(), lora.targets.end(),
                     [&](const std::string& target) { return target == linear || (of_attention && target.rfind("attention", 0) == 0); });
}

/// Megatron fuses queries, keys and values, and gate and up: one adapter each, whose halves the tensor-parallel ranks share.
double megatron_adapter_elements(const Block& block, const Strategy& s) {
  const Lora& lora = *s.lora;
  double widths = 0;  // in + out of every adapted linear
  if (block.attention) {
    const AttentionSpec& attention = *block.attention;
    const std::int64_t heads = attention.heads * attention.head_dim, keys = attention.kv_heads * attention.head_dim;
    if (names_linear(lora, "linear_qkv", true)) widths += static_cast<double>(attention.hidden + heads + 2 * keys);
    if (names_linear(lora, "linear_proj", true)) widths += static_cast<double>(heads + attention.hidden);
  }
  const bool feeds = names_linear(lora, "linear_fc1", false) || names_linear(lora, "linear_fc2", false);
  if (feeds && block.moe) refuse("adapters of experts have no closed form", "lora.target_modules");
  if (block.mlp) {
    const std::int64_t inner = block.mlp->intermediate;
    if (names_linear(lora, "linear_fc1", false)) widths += static_cast<double>(block.mlp->hidden + (block.mlp->gated ? 2 : 1) * inner);
    if (names_linear(lora, "linear_fc2", false)) widths += static_cast<double>(inner + block.mlp->hidden);
  }
  return static_cast<double>(lora.r) * widths / s.tp;
}

/// Whether PEFT may take a target for a mixture's router or experts (mixture_targets).
bool may_name_experts(const Lora& lora) {
  return std::any_of(lora.targets.begin(), lora.targets.end(), [](const std::string& target) {
    const std::string leaf = target.substr(target.rfind('.') + 1);
    const auto is = [&](const char* name) { return leaf == name; };
    return is("all-linear") || is("gate") || is("gate_proj") || is("up_proj") || is("down_proj") || is("w1") || is("w2") || is("w3");
  });
}

/// A [r, in] and B [out, r] of every adapted linear of one repeat of a block.
double adapter_elements(const Block& block, const Strategy& s) {
  if (engine_of(s) == Engine::megatron) return is_layer(block) ? megatron_adapter_elements(block, s) : 0;
  if (block.moe && may_name_experts(*s.lora)) refuse("adapters of experts have no closed form", "lora.target_modules");
  double elements = 0;
  for (const Operator& op : block.operators)
    elements += adapted(op, block, *s.lora) * static_cast<double>(s.lora->r) * static_cast<double>(op.in_features + op.out_features);
  return elements;
}

void refuse_unformulated(const Strategy& s) {
  if (s.peft) refuse("PEFT's methods beside LoRA are not modelled for this combination", "task");
  if (s.base_weights != BaseWeights::as_trained) refuse("quantised weights have no closed form", "base_weights");
  if (!s.trained_modules.empty()) refuse("a model of which some modules are frozen has no closed form", "trained_modules");
  if (!s.lora) return;
  if (s.tp > 1 && engine_of(s) != Engine::megatron) refuse("adapters on tensor-parallel ranks have no closed form", "lora");
  if (s.lora->dora || !s.lora->modules_to_save.empty()) refuse("DoRA and modules_to_save have no closed form", "lora");
}

void count_elements(States& states, const std::vector<const Stage*>& chunks, const Strategy& s) {
  for (const Stage* chunk : chunks)
    for (const Part& part : chunk->parts) {
      // A tied head on another stage than its embedding is a tensor of its own.
      const RankElements elements = Stage::elements(*part.block, s, chunk->last && !chunk->first);
      const auto unit = static_cast<double>(elements.total());
      const auto layers = static_cast<double>(part.layers);
      states.held.whole += unit * layers;
      states.held.shard +=
          layers * (static_cast<double>(elements.dense) / dense_ranks(s) + static_cast<double>(elements.expert) / expert_ranks(s));
      if (s.lora) states.adapters.whole += layers * adapter_elements(*part.block, s);
      (is_layer(*part.block) ? states.largest_unit : states.root_unit) =
          is_layer(*part.block) ? std::max(states.largest_unit, unit) : states.root_unit + unit;
    }
  states.adapters.shard = states.adapters.whole / dense_ranks(s);
}

/// DeepSpeed casts the module that it is given as a whole; elsewhere PEFT keeps adapters of 16-bit weights in fp32.
DType adapter_type(const Strategy& s) {
  const DType otherwise = engine_of(s) == Engine::deepspeed ? s.param_dtype.value_or(DType::fp32) : DType::fp32;
  return s.lora->adapter_dtype.value_or(otherwise);
}

}  // namespace

Divided divided_by(const Strategy& s) {
  switch (s.data_parallel) {
    case DataParallel::fsdp1:
    case DataParallel::fsdp2:
    case DataParallel::megatron_fsdp:
    case DataParallel::zero3:
      return engine_of(s) == Engine::fsdp1 && s.fsdp.sharding == FsdpOptions::Sharding::no_shard ? Divided{} : Divided{true, true, true};
    case DataParallel::zero2:
      return {false, true, true};
    case DataParallel::zero1:
    case DataParallel::megatron_distopt:
      return {false, false, true};
    default:
      return {};
  }
}

std::vector<const Stage*> chunks_of(const std::vector<Stage>& stages, int stage, const Strategy& s) {
  std::vector<const Stage*> chunks;
  for (std::size_t i = static_cast<std::size_t>(stage); i < stages.size(); i += static_cast<std::size_t>(s.pp))
    chunks.push_back(&stages[i]);
  return chunks;
}

States states_of(const std::vector<const Stage*>& chunks, const Strategy& s) {
  refuse_unformulated(s);
  States states;
  count_elements(states, chunks, s);
  const Divided divided = divided_by(s);
  const auto share = [](const Elements& elements, bool shared) { return shared ? elements.shard : elements.whole; };
  const Elements& trained = s.lora ? states.adapters : states.held;
  const double trained_width = s.lora ? static_cast<double>(size_of(adapter_type(s))) : bytes_of(s.grad_dtype, DType::fp32);
  states.parameters = share(states.held, divided.parameters) * bytes_of(s.param_dtype, DType::fp32);
  if (s.lora) states.parameters += share(states.adapters, divided.parameters) * trained_width;
  states.gradients = share(trained, divided.gradients) * trained_width;
  const bool master = s.master_weights.value_or(false) && (!s.lora || trained_width < 4);
  states.optimizer = share(trained, divided.optimizer) * ((master ? 4 : 0) + moments_per_element(s));
  states.gradients_persist = engine_of(s) == Engine::megatron || engine_of(s) == Engine::nanotron;
  return states;
}

Bytes host_states(const std::vector<const Stage*>& chunks, const Strategy& s) {
  if (!s.offload.params && !s.offload.optimizer) return {};
  try {
    const States states = states_of(chunks, s);
    // FSDP takes gradients and optimizer states along (CPUOffloadPolicy); an optimizer on the host gets its gradients in fp32.
    const bool together = engine_of(s) == Engine::fsdp1 || engine_of(s) == Engine::fsdp2;
    double bytes = s.offload.params ? states.parameters : 0;
    if (s.offload.optimizer || together) bytes += states.optimizer + states.gradients;
    return Bytes(std::llround(bytes));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::refused) throw;
    return {};
  }
}

}  // namespace plimsoll::estimation
