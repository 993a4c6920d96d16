#include "program/modules/torchtitan/moe.hpp"

#include <cmath>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/modules/expert_parallel.hpp"
#include "program/modules/torchtitan/gpt_oss.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/routing.hpp"

namespace plimsoll::program {

namespace {

/// x.sum(dim=(0, 1)) of a mask, in 64-bit integers.
Tensor count_mask(const Tensor& mask) { return count(mask, {true, true, false}); }

/// x - y and x + y of integers.
Tensor integers(const Tensor& x, const Tensor& y) { return elementwise(x.tape(), {&x, &y}, DType::int64); }

}  // namespace

std::unique_ptr<TitanMixture> make_titan_mixture(Module& parent, const MoeSpec& spec, const TitanContext& context) {
  if (!spec.gated || spec.shared_gate)
    refuse("TorchTitan's experts without gate or with a gated shared expert are not modelled", parent.path);
  if (context.run.experts == TitanRun::Experts::dispatched) return std::make_unique<TitanMoe>(parent, spec, context);
  return make_sorted_mixture(parent, spec, context);
}

Tensor scores_within_groups(const MoeSpec& spec, const Tensor& scores) {
  Dims sizes = scores.sizes();
  sizes[scores.rank() - 1] = spec.groups;
  sizes.push_back(spec.experts / spec.groups);
  const Tensor grouped = view(scores, sizes);
  const TopK best_two = top_k(grouped, 2);
  const Tensor group_scores = sum(best_two.values, {-1}, false);
  const TopK chosen = unsorted_top_k(group_scores, spec.chosen_groups);
  const Tensor mask = elementwise(scores.tape(), {&group_scores}, DType::boolean);
  in_place(mask, {&chosen.indices});
  const Tensor limited = masked_fill(grouped, unsqueeze(mask, -1));
  return view(limited, scores.sizes());
}

Tensor run_grouped_experts(const Tensor& rows, const Tensor& counts, const Tensor& w1, const Tensor& w2, const Tensor& w3) {
  const Tensor offsets = cumulative_sum(counts, DType::int32);
  Tensor hidden;
  {
    const Tensor gate = grouped_product(rows, w1, offsets);
    hidden = silu(gate);
  }
  {
    const Tensor up = grouped_product(rows, w3, offsets);
    hidden = multiply(hidden, up);
  }
  return grouped_product(hidden, w2, offsets);
}

TitanMoe::TitanMoe(Module& parent, const MoeSpec& spec, const TitanContext& context)
    : context_(context),
      spec_(spec),
      module_(add_titan_module(parent, "moe", context.tape)),
      routed_(add_titan_module(module_, "routed_experts", context.tape)),
      grouped_(add_titan_module(routed_, "inner_experts", context.tape)),
      router_(add_titan_module(module_, "router", context.tape)) {
  add_experts();
  gate_ = add_titan_linear(router_, "gate", spec.hidden, spec.experts, context.tape, spec.router_bias);
  if (spec.shared_intermediate > 0)
    shared_.emplace(module_, "shared_experts", spec.hidden, spec.shared_intermediate, context,
                    context.run.expert_ranks > 1 ? TitanFeedForward::Input::of_block : TitanFeedForward::Input::gathered,
                    TitanFeedForward::Output::summed_outside);
  for (const char* name : {"expert_bias_E", "tokens_per_expert_E"})
    module_.buffers.push_back({.name = name, .sizes = {spec.experts}, .type = DType::fp32, .tensor = {}});
}

/// GroupedExperts' weights, or GptOssGroupedExperts', whose gate and up lie together and which have biases.
void TitanMoe::add_experts() {
  const TensorParallel& tp = context_.run.tensor_parallel;
  const std::int64_t inner = context_.run.expert_ranks > 1 ? spec_.expert_intermediate : tp.share(spec_.expert_intermediate);
  const std::int64_t own = spec_.experts / context_.run.expert_ranks, hidden = spec_.hidden;
  if (spec_.expert_bias) {
    add_titan_parameter(grouped_, "mlp1_weight_EGD", {own, 2 * inner, hidden});
    add_titan_parameter(grouped_, "mlp1_bias_EG", {own, 2 * inner});
    add_titan_parameter(grouped_, "mlp2_weight_EDF", {own, hidden, inner});
    add_titan_parameter(grouped_, "mlp2_bias_ED", {own, hidden});
  } else {
    add_titan_parameter(grouped_, "w1_EFD", {own, inner, hidden});
    add_titan_parameter(grouped_, "w2_EDF", {own, hidden, inner});
    add_titan_parameter(grouped_, "w3_EFD", {own, inner, hidden});
  }
  for (auto& parameter : grouped_.parameters) parameter->expert = true;
}

Tensor TitanMoe::operator()(const Tensor& input) const {
  Tensor x = input;
  ModuleCall call(module_, context_.tape, {&x});
  const TensorParallel& tp = context_.run.tensor_parallel;
  const bool dense = context_.run.expert_ranks == 1;  // the experts' width is cut over the tensor-parallel ranks
  if (tp.on() && dense) x = tp.sequence ? gather_sequence(tp, x) : replicate_input(tp, x);
  Tensor out = mixed(x);
  if (tp.on() && !tp.sequence) out = reduce_partial(tp, out);
  return call.done(out);
}

Tensor TitanMoe::mixed(const Tensor& x) const {
  Tape& tape = context_.tape;
  const Routing routing = route(x);
  tape.operator_name = "routing_map";
  const Tensor map = zeros(tape, routing.scores.sizes(), DType::boolean);
  in_place(map, {&routing.experts});
  const Tensor counts = count_mask(map);
  in_place(module_.buffer("tokens_per_expert_E"), {&counts});
  Tensor out = experts_of(x, routing, counts);
  if (!shared_) return out;
  const Tensor common = (*shared_)(x);
  return add(out, common);
}

/// TokenChoiceTopKRouter.forward.
TitanMoe::Routing TitanMoe::route(const Tensor& input) const {
  Tensor x = input;
  ModuleCall call(router_, context_.tape, {&x});
  Routing routing;
  {
    const AutocastScope autocast(context_.tape, true, DType::fp32);
    const OutsideOfPolicy outside(context_.tape, spec_.router_bias);
    const Tensor own = own_tokens(x);
    routing.scores = gate_(own);
  }
  routing.scores = context_.run.router.softmax ? softmax(routing.scores, DType::fp32) : sigmoid(routing.scores);
  Tensor choice = add(routing.scores, module_.buffer("expert_bias_E"));
  if (spec_.groups > 0) choice = scores_within_groups(spec_, choice);
  const TopK best = unsorted_top_k(choice, spec_.top_k);
  routing.experts = best.indices;
  routing.weights = gather_last(routing.scores, routing.experts);
  Tensor denominator;
  if (context_.run.router.normalized) {
    {
      const Tensor total = sum(routing.weights, {-1}, true);
      denominator = add_scalar(total);
    }
    routing.weights = divide(routing.weights, denominator);
  }
  routing.weights = multiply_scalar(routing.weights);
  call.done({&routing.weights, &routing.experts, &routing.scores});
  return routing;
}

/// The tokens of [batch, length, hidden] that this rank routes: tensor-parallel ranks are expert-parallel ones too, each with a part of the
/// sequence, which replicated activations are cut into at the router and at the experts.
Tensor TitanMoe::own_tokens(const Tensor& x) const {
  const TensorParallel& tp = context_.run.tensor_parallel;
  return tp.on() && !tp.sequence && context_.run.expert_ranks > 1 ? slice_sequence(tp, x) : x;
}

/// RoutedExperts under its redistributions: of the whole sequence's partial sums, or of this rank's part of the sequence.
Tensor TitanMoe::experts_of(const Tensor& input, const Routing& routing, const Tensor& counts) const {
  Tensor x = input;
  ModuleCall call(routed_, context_.tape, {&x});
  x = own_tokens(x);
  const TensorParallel& tp = context_.run.tensor_parallel;
  const bool dense = context_.run.expert_ranks == 1;
  // A batch of one that is gathered by a functional collective is not yet waited for here, and local_map's wait() leaves autograd: the
  // experts give their input no gradient then.
  if (tp.on() && tp.sequence && tp.functional && dense && x.size(0) == 1) x = x.detach();
  Tensor out = routed(x, routing, counts);
  if (tp.on() && tp.sequence && dense) out = scatter_sequence(tp, out);
  if (tp.on() && !tp.sequence && !dense) out = pad_sequence(tp, out);
  return call.done(out);
}

/// RoutedExperts.forward.
Tensor TitanMoe::routed(const Tensor& x, const Routing& routing, const Tensor& counts) const {
  const std::int64_t tokens = x.size(0) * x.size(1);
  const Tensor flat = view(x, {tokens, x.size(2)});
  const Dispatched dispatched = dispatch(flat, view(routing.weights, {tokens, -1}), view(routing.experts, {tokens, -1}), counts);
  const Tensor output = run_experts(dispatched.rows, dispatched.tokens_per_expert);
  const Tensor combined = combine(output, dispatched, flat);
  return view(combined, x.sizes());
}

/// LocalTokenDispatcher.dispatch and AllToAllTokenDispatcher.dispatch: pairs of token and expert sorted by expert.
TitanMoe::Dispatched TitanMoe::dispatch(const Tensor& x, const Tensor& weights, const Tensor& experts, const Tensor& counts) const {
  Tensor rows, tokens, sorted_weights;
  {
    Tensor order;
    {
      const SortedIntegers sorted = sort_integers(view(experts, {-1}));
      order = sorted.order;
    }
    sorted_weights = index_rows(view(weights, {-1}), order);
    tokens = elementwise(context_.tape, {&order}, DType::int64);  // order // top_k
  }
  rows = index_rows(x, tokens);
  Dispatched dispatched;
  if (context_.run.expert_ranks > 1) {
    dispatched = exchange(rows, counts);
  } else {
    dispatched.rows = rows;
    dispatched.tokens_per_expert = counts;
  }
  dispatched.tokens = tokens;
  dispatched.weights = sorted_weights;
  return dispatched;
}

/// Rows to the ranks of their experts, then from the order of ranks to that of experts (_permute). Every rank sends as many rows as it has
/// tokens for; this one gets `imbalance` times as many.
TitanMoe::Dispatched TitanMoe::exchange(const Tensor& rows, const Tensor& counts) const {
  Tape& tape = context_.tape;
  tape.operator_name = "permute";
  const std::int64_t ranks = context_.run.expert_ranks, own = spec_.experts / ranks;
  const ExpertParallel group{ranks, context_.run.tensor_parallel.functional};
  Tensor global;
  {
    const GradMode no_grad(tape, false);
    global = view(all_to_all(group, view(counts, {ranks, own})), {-1});
  }
  const auto share = static_cast<std::int64_t>(std::ceil(static_cast<double>(rows.size(0)) * context_.run.imbalance));
  const Tensor received = all_to_all(group, rows, share);
  const std::int64_t total = received.size(0);
  Tensor starts;
  {
    const Tensor ends = cumulative_sum(global, DType::int64);
    starts = integers(ends, global);
  }
  const Tensor lengths = reshape(transpose(view(global, {ranks, own}), 0, 1), {-1});
  starts = reshape(transpose(view(starts, {ranks, own}), 0, 1), {-1});
  Tensor segments;
  {
    const Tensor numbers = arange(tape, lengths.size(0));
    segments = repeat_interleave(numbers, lengths, total);
  }
  Tensor targets;
  {
    const Tensor ends = cumulative_sum(lengths, DType::int64);
    targets = integers(ends, lengths);
  }
  Dispatched dispatched;
  {
    Tensor moved;
    {
      const Tensor from = index_rows(starts, segments), places = arange(tape, total);
      moved = integers(from, places);
    }
    const Tensor to = index_rows(targets, segments);
    dispatched.order = integers(moved, to);
  }
  dispatched.tokens_per_expert = sum(view(global, {ranks, own}), {0}, false);
  dispatched.rows = index_rows(received, dispatched.order);
  return dispatched;
}

/// GroupedExperts.forward.
Tensor TitanMoe::run_experts(const Tensor& input, const Tensor& counts) const {
  Tensor rows = input;
  ModuleCall call(grouped_, context_.tape, {&rows});
  if (spec_.expert_bias) return call.done(run_gpt_oss_experts(grouped_, rows, counts));
  const Tensor w1 = local_weight("w1_EFD"), w2 = local_weight("w2_EDF"), w3 = local_weight("w3_EFD");
  return call.done(run_grouped_experts(rows, counts, w1, w2, w3));
}

/// A weight of the experts; as a DTensor (over expert or tensor-parallel ranks) its own part, by a node of the graph: gradients of all
/// three weights arrive behind the last product's backward.
Tensor TitanMoe::local_weight(const char* name) const {
  const TensorParallel& tp = context_.run.tensor_parallel;
  const Tensor& weight = grouped_.tensor(name);
  const bool distributed = tp.functional && (context_.run.expert_ranks > 1 || tp.on());
  return distributed ? view(weight, weight.sizes()) : weight;
}

/// LocalTokenDispatcher.combine and AllToAllTokenDispatcher.combine.
Tensor TitanMoe::combine(const Tensor& output, const Dispatched& dispatched, const Tensor& x) const {
  Tensor rows = output;
  if (dispatched.order) {
    rows = place_rows(rows, dispatched.order);
    rows = all_to_all({context_.run.expert_ranks, context_.run.tensor_parallel.functional}, rows, dispatched.tokens.size(0));
  }
  const Tensor sums = zeros(context_.tape, x.sizes(), x.dtype());
  {
    Tensor weighted;
    {
      const Tensor wide = to(rows, DType::fp32);
      weighted = multiply(wide, reshape(dispatched.weights, {-1, 1}));
    }
    rows = to(weighted, rows.dtype());
  }
  return scatter_add_rows(sums, dispatched.tokens, rows);
}

void balance_experts(Tape& tape, const std::vector<Module*>& mixtures, bool recomputed) {
  if (mixtures.empty()) return;
  tape.operator_name = "update_expert_bias";
  std::vector<Tensor> counts;
  for (Module* mixture : mixtures) {
    const Tensor& own = mixture->buffer("tokens_per_expert_E");
    counts.push_back(recomputed ? elementwise(tape, {&own}, own.dtype()) : own);
  }
  const std::int64_t experts = counts.front().size(0), layers = static_cast<std::int64_t>(mixtures.size());
  const Tensor all = tape.empty({layers, experts}, DType::fp32);
  tape.collective({.kind = CollectiveKind::all_reduce, .group = Group::data_shard, .bytes = all.bytes(), .type = DType::fp32},
                  kComputeStream);
  const auto less_mean = [&](const Tensor& x) {
    const Tensor mean = tape.empty({}, DType::fp32);
    return elementwise(tape, {&mean, &x}, DType::fp32);
  };
  Tensor delta;
  for (Module* mixture : mixtures) {
    {
      const Tensor difference = less_mean(select(all, 0));
      const Tensor sign = elementwise(tape, {&difference}, DType::fp32);
      delta = elementwise(tape, {&sign}, DType::fp32);
    }
    delta = less_mean(delta);
    in_place(mixture->buffer("expert_bias_E"), {&delta});
  }
}

}  // namespace plimsoll::program
