#include <algorithm>
#include <numeric>

#include "framework/resolver.hpp"
#include "plimsoll/schedule.hpp"

namespace plimsoll::framework {
namespace {

std::string number(std::int64_t n) { return std::to_string(n); }

template <class List, class Value>
bool contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// "1, 2, 4 or 8 do": the divisors of n up to `most` that are at most n.
std::string divisors(std::int64_t n, std::int64_t most) {
  std::string text;
  for (std::int64_t d = 1; d <= std::min(n, most); ++d)
    if (n % d == 0) text += (text.empty() ? "" : ", ") + number(d);
  return text;
}

std::int64_t experts_of(const Model& model) {
  std::int64_t experts = 0;
  for (const auto& block : model.blocks)
    if (block.moe) experts = std::max(experts, block.moe->experts);
  return experts;
}

void check_tensor(Resolver& r) {
  const Strategy& s = r.s;
  const Model& model = r.model;
  if (model.heads > 0 && model.heads % s.tp != 0)
    r.complaints.add("tp " + number(s.tp) + " does not divide the " + number(model.heads) + " attention heads",
                     "tp of " + divisors(model.heads, 64) + " does");
  else if (model.kv_heads > 0 && model.kv_heads % s.tp != 0 && s.tp % model.kv_heads != 0)
    r.complaints.add("tp " + number(s.tp) + " neither divides the " + number(model.kv_heads) + " key-value heads nor is a multiple of them",
                     "tp of " + divisors(model.kv_heads, 64) + " does");
  if (s.sequence_parallel && s.tp > 1 && s.seq_len % (std::int64_t{s.tp} * s.cp) != 0)
    r.complaints.add("sequence parallelism cuts the sequence by tp · cp = " + number(std::int64_t{s.tp} * s.cp) +
                         ", which does not divide seq_len " + number(s.seq_len),
                     "pad the sequence or leave sequence_parallel out");
  if (s.cp > 1 && s.seq_len % s.cp != 0)
    r.complaints.add("cp " + number(s.cp) + " does not divide seq_len " + number(s.seq_len), "choose a cp that does");
}

void check_pipeline(Resolver& r) {
  const Strategy& s = r.s;
  const std::int64_t layers = r.model.layers, stages = std::int64_t{s.pp} * s.vp;
  if (layers > 0 && layers + r.profile().other_stage_modules < stages)
    r.complaints.add("pp · vp = " + number(stages) + " stages for " + number(layers) + " layers", "lower pp or vp");
  if (!s.pp_layers.empty()) {
    const std::int64_t sum = std::accumulate(s.pp_layers.begin(), s.pp_layers.end(), std::int64_t{0});
    if (static_cast<std::int64_t>(s.pp_layers.size()) != stages || sum != layers)
      r.complaints.add(
          "pp_layers lists " + number(static_cast<std::int64_t>(s.pp_layers.size())) + " stages with " + number(sum) + " layers",
          "list " + number(stages) + " stages with " + number(layers) + " layers in all");
  } else if (s.pp > 1 && layers >= stages && layers % stages != 0 && r.profile().stages == StageSplit::even) {
    r.complaints.add("pp · vp = " + number(stages) + " does not divide the " + number(layers) + " layers",
                     "give pp_layers, or a pp that divides them");
  }
  if (s.pp_rank && *s.pp_rank >= s.pp)
    r.complaints.add("pp_rank " + number(*s.pp_rank) + " of " + number(s.pp) + " pipeline ranks", "give one below pp");
  if (s.rank && *s.rank >= s.dp)
    r.complaints.add("rank " + number(*s.rank) + " of " + number(s.dp) + " data-parallel ranks", "give one below dp");
  if (s.pp == 1) return;
  const auto& known = r.profile().schedules;
  const std::int64_t per_run = std::max<std::int64_t>(1, s.micro_batches / std::max<std::int64_t>(1, s.grad_accum));
  if (contains(known, s.pp_schedule)) {
    const std::string refusal = schedule_refusal(s.pp_schedule, s.pp, static_cast<int>(std::min<std::int64_t>(per_run, INT32_MAX)), s.vp);
    if (!refusal.empty()) r.complaints.add("pp_schedule " + s.pp_schedule, refusal);
  } else if (!known.empty()) {
    std::string list;
    for (const auto& name : known) list += (list.empty() ? "" : ", ") + name;
    r.complaints.add(r.profile().name + " has no pp_schedule " + s.pp_schedule, "it has " + list);
  }
}

void check_experts(Resolver& r) {
  const Strategy& s = r.s;
  const std::int64_t experts = experts_of(r.model);
  if (s.ep > 1 && experts == 0) r.complaints.add("ep " + number(s.ep) + " for a model without experts", "leave ep out");
  if (experts > 0 && experts % s.ep != 0)
    r.complaints.add("ep " + number(s.ep) + " does not divide the " + number(experts) + " experts",
                     "ep of " + divisors(experts, 256) + " does");
  const std::int64_t ranks = std::int64_t{s.tp} * s.cp * s.dp;
  if (s.ep > 1 && ranks % (std::int64_t{s.ep} * s.etp) != 0)
    r.complaints.add("ep · etp = " + number(std::int64_t{s.ep} * s.etp) + " does not divide tp · cp · dp = " + number(ranks),
                     "choose an ep that does");
}

}  // namespace

void check_shapes(Resolver& r) {
  Strategy& s = r.s;
  if (s.sequence_parallel && s.tp == 1) {
    // Megatron-core raises; the launchers over it switch it off.
    if (r.profile().name == "megatron-core") {
      r.complaints.add("sequence_parallel without tensor parallelism", "set tp above 1 or leave it out");
    } else {
      s.sequence_parallel = false;
      r.assume("sequence_parallel: false, since tp is 1");
    }
  }
  check_tensor(r);
  check_pipeline(r);
  check_experts(r);
  if (s.lora && s.lora->r == 0) r.complaints.add("lora.r, the adapters' rank, is missing", "give it");
  if (s.lora && s.lora->targets.empty()) r.complaints.add("lora.target_modules is missing", "list the linears that get an adapter");
}

void check_abilities(Resolver& r) {
  const Strategy& s = r.s;
  const FrameworkProfile& p = r.profile();
  auto lacks = [&](const std::string& what, const std::string& has) { r.complaints.add(p.name + " has no " + what, has); };
  if (!contains(p.kinds, s.data_parallel)) lacks("data_parallel " + std::string(name_of(s.data_parallel)), "it has " + either(p.kinds));
  if (!contains(p.attentions, s.attention)) lacks("attention " + std::string(name_of(s.attention)), "it has " + either(p.attentions));
  if (!contains(p.losses, s.loss)) lacks("loss " + std::string(name_of(s.loss)), "it has " + either(p.losses));
  if (!contains(p.low_precisions, s.low_precision))
    lacks(std::string(name_of(s.low_precision)) + " products", "it has " + either(p.low_precisions));
  if (!contains(p.recomputes, s.recompute.kind)) lacks("such recompute", "use none or full");
  if (s.tp > 1 && !p.tensor) lacks("tensor parallelism", "use megatron-core, torchtitan or nanotron");
  if (s.pp > 1 && p.schedules.empty()) lacks("pipeline parallelism", "use megatron-core, torchtitan or nanotron");
  if (s.cp > 1 && !p.context) lacks("context parallelism", "use megatron-core or torchtitan");
  if (s.ep > 1 && !p.expert) lacks("expert parallelism", "use megatron-core or torchtitan");
  if (s.sequence_parallel && !p.sequence_parallel) lacks("sequence parallelism", "leave it out");
  if (s.peft && p.name != "transformers") lacks("PEFT's ways of fine-tuning", "use transformers");
  if (s.lora && !p.adapters) lacks("adapters", "use transformers, torchtune, nemo or megatron-bridge");
  if (s.liger_kernel && p.code != ModelCode::transformers) lacks("liger_kernel", "Liger patches transformers' modules; leave it out");
  if (s.quant_storage && p.code != ModelCode::transformers) lacks("bnb_4bit_quant_storage", "it is transformers'; leave it out");
  if (s.offload.activations && !p.offload_activations) lacks("activation offload", "use torchtune, nemo or megatron-bridge");
}

}  // namespace plimsoll::framework
