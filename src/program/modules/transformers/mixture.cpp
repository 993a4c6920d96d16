#include "program/modules/transformers/mixture.hpp"

#include "plimsoll/error.hpp"
#include "program/modules/transformers/gpt_oss.hpp"
#include "program/ops/liger.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"
#include "program/ops/routing.hpp"

namespace plimsoll::program {

MixtureOfExperts::Router MixtureOfExperts::router_of(std::string_view model_type, const HfRelease& release) {
  if (model_type == "mixtral") return release.stacks_experts() ? Router::softmax_of_floats : Router::softmax_in_floats;
  if (model_type == "olmoe" || model_type == "flex_olmo" || model_type == "qwen2_moe" || model_type == "qwen3_moe")
    return Router::softmax_in_floats;
  if (model_type == "granitemoe") return Router::top_k_first;
  if (model_type == "gpt_oss") return Router::top_k_softmax;
  if (model_type == "deepseek_v2") return Router::scaled_softmax;
  if (model_type == "ernie4_5_moe") return Router::corrected_softmax;
  if (model_type == "minimax_m2") return Router::corrected_among_all;
  for (const char* corrected : {"deepseek_v3", "glm4_moe", "glm4_moe_lite", "solar_open", "dots1"})
    if (model_type == corrected) return Router::corrected_sigmoid;
  refuse("the router of model type '" + std::string(model_type) + "' is not modelled");
}

MixtureOfExperts::MixtureOfExperts(Module& module, Tape& tape, const MoeSpec& spec, std::string_view model_type, RouterRecord& record,
                                   const HfRelease& release, bool liger)
    : module_(module),
      tape_(tape),
      spec_(spec),
      kind_(router_of(model_type, release)),
      outer_router_(module.child(kind_ == Router::top_k_first || kind_ == Router::top_k_softmax ? "router" : "gate")),
      router_(within_wrappers(outer_router_)),
      outer_experts_(module.child("experts")),
      experts_(within_wrappers(outer_experts_)),
      record_(record),
      masks_absent_(release.masks_absent_experts()),
      liger_(liger) {
  if (release.stacks_experts())
    act_fn_.emplace(experts_, "act_fn", tape, spec_.activation);
  else
    loop_.emplace(experts_, tape, spec_, release.asks_for_hit_experts(model_type));
  if (liger_ && loop_)
    refuse("Liger's kernels in mixtures before transformers 5 are not modelled", "liger_kernel", "leave it out, or releases.transformers 5.0");
  if (liger_ && &outer_experts_ != &experts_)
    refuse("adapters of experts that Liger has replaced are not modelled", "liger_kernel", "list attention's linears");
  if (spec.shared_intermediate == 0) return;
  shared_.emplace(module.child(spec.shared_gate ? "shared_expert" : "shared_experts"), tape, spec.activation);
  if (spec.shared_gate) shared_gate_.emplace(module.child("shared_expert_gate"), tape);
}

Tensor MixtureOfExperts::operator()(const Tensor& input) const {
  Tensor hidden = input;
  ModuleCall call(module_, tape_, {&hidden});
  if (shared_gate_ || (shared_ && kind_ == Router::corrected_softmax)) return call.done(beside_shared_first(hidden));
  return call.done(shared_ ? beside_shared(hidden) : alone(hidden));
}

Tensor MixtureOfExperts::alone(const Tensor& hidden) const {
  const Tensor flat = view(hidden, {-1, hidden.size(-1)});
  const Routing routing = route(flat);
  const Tensor mixed = mix(flat, routing.indices, routing.weights);
  return view(mixed, hidden.sizes());
}

/// Qwen2MoeSparseMoeBlock, Ernie4_5_MoeSparseMoeBlock: the shared expert runs first, its gate, where there is one, last.
Tensor MixtureOfExperts::beside_shared_first(const Tensor& hidden) const {
  const Tensor flat = view(hidden, {-1, hidden.size(-1)});
  Tensor common = (*shared_)(flat);
  const Routing routing = route(flat);
  Tensor mixed = mix(flat, routing.indices, routing.weights);
  if (shared_gate_) common = gated_shared(flat, common);
  mixed = add(mixed, common);
  return view(mixed, hidden.sizes());
}

Tensor MixtureOfExperts::gated_shared(const Tensor& flat, const Tensor& common) const {
  Tensor open = (*shared_gate_)(flat);
  open = sigmoid(open);
  return multiply(open, common);
}

/// DeepseekV3MoE: the shared experts run last.
Tensor MixtureOfExperts::beside_shared(const Tensor& hidden) const {
  const Routing routing = route(hidden);
  const Tensor flat = view(hidden, {-1, hidden.size(-1)});
  Tensor mixed;
  {
    const Tensor rows = mix(flat, routing.indices, routing.weights);
    mixed = view(rows, hidden.sizes());
  }
  const Tensor common = (*shared_)(hidden);
  return add(mixed, common);
}

MixtureOfExperts::Routing MixtureOfExperts::route(const Tensor& input) const {
  Tensor hidden = input;
  WrappedParameters weights(outer_router_, tape_);
  ModuleCall call(router_, tape_, {&hidden});
  Routing routing;
  switch (kind_) {
    case Router::softmax_of_floats:
    case Router::softmax_in_floats:
      routing = softmax_first(hidden, weights("weight"));
      break;
    case Router::top_k_first:
    case Router::top_k_softmax:
      routing = top_k_first(hidden);
      break;
    case Router::scaled_softmax:
      routing = scaled_softmax(hidden);
      break;
    case Router::corrected_sigmoid:
      routing = corrected_sigmoid(hidden);
      break;
    case Router::corrected_softmax:
      routing = corrected_softmax(hidden);
      break;
    case Router::corrected_among_all:
      routing = corrected_among_all(hidden);
      break;
  }
  call.done({&routing.logits, &routing.weights, &routing.indices});
  if (record_.open) record_.logits.push_back(routing.logits);
  return routing;
}

MixtureOfExperts::Routing MixtureOfExperts::softmax_first(const Tensor& hidden, const Tensor& weight) const {
  const Tensor flat = reshape(hidden, {-1, hidden.size(-1)});
  Tensor logits = linear(flat, weight);
  Tensor probabilities;
  if (kind_ == Router::softmax_of_floats) {
    const Tensor wide = to(logits, DType::fp32);
    probabilities = softmax(wide, DType::fp32);
  } else {
    probabilities = softmax(logits, DType::fp32);
  }
  TopK best = top_k(probabilities, spec_.top_k);
  if (spec_.normalized_top_k) {
    const Tensor total = sum(best.values, {-1}, true);
    best.values = divide_in_place(best.values, total);
  }
  if (kind_ == Router::softmax_in_floats) best.values = to(best.values, logits.dtype());
  return {logits, best.values, best.indices};
}

MixtureOfExperts::Routing MixtureOfExperts::top_k_first(const Tensor& hidden) const {
  if (kind_ == Router::top_k_softmax) {
    const Tensor own = linear(hidden, router_.tensor("weight"), router_.tensor("bias"));
    const TopK chosen = top_k(own, spec_.top_k);
    return {own, softmax(chosen.values, chosen.values.dtype()), chosen.indices};
  }
  Tensor logits = linear(hidden, router_.tensor("weight"));
  logits = to(logits, DType::fp32);
  TopK best = top_k(logits, spec_.top_k);
  const Tensor probabilities = softmax(best.values, DType::fp32);
  return {logits, to(probabilities, hidden.dtype()), best.indices};
}

/// F.linear(hidden.float(), weight.float()) of DeepSeek's routers.
Tensor MixtureOfExperts::wide_logits(const Tensor& hidden) const {
  const Tensor wide = to(hidden, DType::fp32);
  const Tensor weight = to(router_.tensor("weight"), DType::fp32);
  return linear(wide, weight);
}

MixtureOfExperts::Routing MixtureOfExperts::scaled_softmax(const Tensor& input) const {
  const Tensor hidden = view(input, {-1, input.size(-1)});
  const Tensor logits = wide_logits(hidden);
  Choice choice;
  choice.scores = softmax(logits, DType::fp32);
  if (spec_.chosen_groups > 0) {  // a group's score is that of its best expert
    const Tensor best = top_k(view(choice.scores, {-1, spec_.groups, spec_.experts / spec_.groups}), 1).values;
    choice.group_scores = view(best, {-1, spec_.groups});
    keep_best_groups(choice);
  }
  TopK best = unsorted_top_k(choice.scores, spec_.top_k);
  best.values = multiply_scalar(best.values);
  return {logits, best.values, best.indices};
}

/// Experts outside of the best groups lose their scores.
void MixtureOfExperts::keep_best_groups(Choice& choice) const {
  choice.groups = unsorted_top_k(choice.group_scores, spec_.chosen_groups).indices;
  choice.group_mask = empty_like(choice.group_scores);
  in_place(choice.group_mask, {&choice.groups});
  choice.mask = reshape(expand(unsqueeze(choice.group_mask, -1), {-1, spec_.groups, spec_.experts / spec_.groups}), {-1, spec_.experts});
  Tensor inside = to(choice.mask, DType::boolean);
  const Tensor outside = elementwise(tape_, {&inside}, DType::boolean);
  inside.reset();
  choice.scores = masked_fill(choice.scores, outside);
}

/// topk_indices of DeepseekV3TopkRouter, whose variables all live until it returns: the best groups by the sum of their two best experts,
/// then the best experts of these.
MixtureOfExperts::Choice MixtureOfExperts::choose_in_groups(const Tensor& scores) const {
  const std::int64_t per_group = spec_.experts / spec_.groups;
  Choice choice;
  choice.scores = add(scores, router_.buffer("e_score_correction_bias"));
  {
    const Tensor best_two = top_k(view(choice.scores, {-1, spec_.groups, per_group}), 2).values;
    choice.group_scores = sum(best_two, {-1}, false);
  }
  keep_best_groups(choice);
  choice.experts = unsorted_top_k(choice.scores, spec_.top_k).indices;
  return choice;
}

MixtureOfExperts::Routing MixtureOfExperts::corrected_sigmoid(const Tensor& input) const {
  const Tensor hidden = view(input, {-1, input.size(-1)});
  const Tensor logits = wide_logits(hidden);
  const Tensor scores = sigmoid(logits);
  const Choice choice = choose_in_groups(scores);
  Tensor weights = gather_last(scores, choice.experts);
  Tensor denominator;
  if (spec_.normalized_top_k) {
    {
      const Tensor total = sum(weights, {-1}, true);
      denominator = add_scalar(total);
    }
    weights = divide_in_place(weights, denominator);
  }
  weights = multiply_scalar(weights);
  return {logits, weights, choice.experts};
}

/// Ernie4_5_MoeTopKRouter, whose autocast is off; Ernie4_5_MoeStatics adds the correction.
MixtureOfExperts::Routing MixtureOfExperts::corrected_softmax(const Tensor& hidden) const {
  Tensor logits, weights;
  TopK best;
  {
    const AutocastScope off(tape_, false, DType::fp32);
    logits = wide_logits(hidden);
    weights = softmax(logits, DType::fp32);
    {
      Module& statics = router_.child("moe_statics");
      Tensor scores = weights;
      ModuleCall call(statics, tape_, {&scores});
      best = top_k(call.done(add(scores, squeeze(statics.tensor("e_score_correction_bias"), 0))), spec_.top_k);
    }
    weights = gather_last(weights, best.indices);
    Tensor least = sum(weights, {-1}, true);
    least = clamp_one_side(least);
    weights = divide(weights, least);
  }
  return {logits, to(weights, hidden.dtype()), best.indices};
}

/// MiniMaxM2TopKRouter.
MixtureOfExperts::Routing MixtureOfExperts::corrected_among_all(const Tensor& input) const {
  const Tensor hidden = reshape(input, {-1, input.size(-1)});
  const Tensor logits = linear(hidden, router_.tensor("weight"));
  Tensor scores;
  {
    const Tensor wide = to(logits, DType::fp32);
    scores = sigmoid(wide);
  }
  const Tensor corrected = add(scores, module_.buffer("e_score_correction_bias"));
  const TopK best = unsorted_top_k(corrected, spec_.top_k);
  Tensor weights = gather_last(scores, best.indices);
  {
    const Tensor total = sum(weights, {-1}, true);
    weights = divide_in_place(weights, total);
  }
  return {logits, weights, best.indices};
}

/// How many tokens every expert is chosen for: of padding that `mask` [tokens] fp32 tells of none.
static Tensor chosen_counts(Tape& tape, const Tensor& experts, const Tensor& mask, const MoeSpec& spec) {
  if (!mask) return histogram(to(experts, DType::int32), spec.experts);
  const Tensor none = zeros(tape, {spec.experts}, DType::fp32);
  return scattered(none, experts, repeated_in_place(mask, spec.top_k, 0), true, true);
}

Tensor load_balancing_loss(Tape& tape, const std::vector<Tensor>& router_logits, const MoeSpec& spec, const Tensor& attention_mask) {
  Tensor assigned = zeros(tape, {spec.experts}, DType::fp32), probability = zeros(tape, {spec.experts}, DType::fp32);
  const Tensor mask = attention_mask ? to(reshape(attention_mask, {-1}), DType::fp32) : Tensor();
  Tensor weights, rows;
  TopK best;
  for (const Tensor& logits : router_logits) {
    weights = softmax(logits, tape.autocast.enabled ? DType::fp32 : logits.dtype());
    best = top_k(weights, spec.top_k);
    {
      const Tensor counts = chosen_counts(tape, reshape(best.indices, {-1}), mask, spec);
      assigned = elementwise(tape, {&assigned, &counts}, DType::fp32);
    }
    Tensor total;
    {
      const Tensor wide = to(weights, DType::fp32);
      total = sum(mask ? multiply(wide, unsqueeze(mask, -1)) : wide, {0}, false);
    }
    probability = add(probability, total);
    if (!mask) continue;
    const Tensor counted = sum(mask, {0}, false);
    rows = rows ? add(rows, counted) : add_scalar(counted);
  }
  const Tensor share = mask ? divide(assigned, rows) : divide_scalar(assigned),
               mean = mask ? divide(probability, rows) : divide_scalar(probability);
  Tensor loss;
  {
    const Tensor products = multiply(share, unsqueeze(mean, 0));
    loss = sum(products, {0, 1}, false);
  }
  return multiply_scalar(loss);
}

/// x.masked_fill_(mask, value): the result has x's storage.
static Tensor masked_fill_into(const Tensor& x, const Tensor& mask) {
  Op op("masked_fill_", {&x});
  op.save(mask);
  in_place(x, {&x, &mask});
  Tensor y = x.detach();
  return op.done(y, [](BackwardCall& b) { b.give(0, masked_fill(b.grad(), b.saved(0))); });
}

/// integrations/moe.py, grouped_mm_experts_forward: pairs of token and expert sorted by expert, both products grouped, back in order,
/// summed per token. Its memory does not depend on the routing.
Tensor MixtureOfExperts::mix(const Tensor& input, const Tensor& top_indices, const Tensor& top_weights) const {
  if (loop_) return (*loop_)(input, top_indices, top_weights);
  Tensor hidden = input;
  WrappedParameters experts_weights(outer_experts_, tape_);
  ModuleCall call(experts_, tape_, {&hidden});
  if (liger_) {
    // LigerExperts.forward: rows of tokens, whatever comes; a gradient that comes back through a view is not added to in place.
    const Tensor rows = view(hidden, {-1, hidden.size(-1)}), weights = view(top_weights, {-1, top_weights.size(-1)});
    const Tensor choices = to(view(top_indices, {-1, top_indices.size(-1)}), DType::int32);
    const Tensor mixed = liger_fused_moe(rows, experts_weights("gate_up_proj"), experts_weights("down_proj"), choices, weights);
    return call.done(view(mixed, hidden.sizes()));
  }
  const Tensor sample_weights = reshape(top_weights, {-1}), expert_ids = reshape(top_indices, {-1});
  const SortedIntegers sorted = sort_integers(expert_ids);
  Tensor selected;
  {
    const Tensor tokens = elementwise(tape_, {&sorted.order}, DType::int64);  // order // top_k
    selected = index_rows(hidden, tokens);
  }
  const Tensor weights = index_rows(sample_weights, sorted.order);
  const Tensor counted = to(sorted.values, DType::int32);
  const Tensor tokens_per_expert = histogram(counted, spec_.experts);
  const Tensor offsets = cumulative_sum(tokens_per_expert, tokens_per_expert.dtype());
  Tensor absent;
  if (masks_absent_) {
    absent = unsqueeze(elementwise(tape_, {&sorted.values}, DType::boolean), -1);
    in_place(sorted.values, {&sorted.values});  // clamp_
    selected = masked_fill_into(selected, absent);
  }
  Tensor biases;  // of the product that ran last: a local variable of the experts' forward
  const Tensor rows = run_experts(experts_weights, selected, {offsets, sorted.values, absent}, biases);
  Tensor weighted = multiply(rows, unsqueeze(weights, -1));
  const Tensor inverse = empty_like(sorted.order);
  {
    const Tensor range = arange(tape_, inverse.size(0));
    in_place(inverse, {&range});
  }
  weighted = index_rows(weighted, inverse);
  const Tensor mixed = sum(view(weighted, {hidden.size(0), top_indices.size(-1), hidden.size(-1)}), {1}, false);
  return call.done(to(mixed, hidden.dtype()));
}

/// The experts' gated MLP on rows in groups.
Tensor MixtureOfExperts::run_experts(WrappedParameters& weights, const Tensor& selected, const Rows& rows, Tensor& biases) const {
  if (spec_.expert_bias) biases = index_rows(experts_.tensor("gate_up_proj_bias"), rows.expert_ids);
  Tensor hidden = grouped_linear(selected, weights("gate_up_proj"), rows, biases);
  hidden = gate(hidden);
  if (spec_.expert_bias) biases = index_rows(experts_.tensor("down_proj_bias"), rows.expert_ids);
  return grouped_linear(hidden, weights("down_proj"), rows, biases);
}

/// _grouped_linear: gpt_oss keeps its weights as [experts, in, out].
Tensor MixtureOfExperts::grouped_linear(const Tensor& selected, const Tensor& stored, const Rows& rows, const Tensor& biases) const {
  const Tensor weight = spec_.transposed ? transpose(stored, 1, 2) : stored;
  Tensor product = grouped_product(selected, weight, rows.offsets);
  if (rows.absent) product = masked_fill(product, rows.absent);
  return biases ? add_into(product, biases) : product;
}

Tensor MixtureOfExperts::gate(const Tensor& rows) const {
  if (spec_.activation == "clamped_swiglu") return clamped_swiglu(rows);
  const std::vector<Tensor> halves = chunk(rows, 2, -1);
  const Tensor active = (*act_fn_)(halves[0]);
  return multiply(active, halves[1]);
}

}  // namespace plimsoll::program
