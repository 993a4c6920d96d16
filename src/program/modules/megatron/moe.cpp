#include "program/modules/megatron/moe.hpp"

#include <algorithm>
#include <cmath>

#include "framework/megatron.hpp"
#include "plimsoll/error.hpp"
#include "program/checkpoint.hpp"
#include "program/modules/megatron/expert_mlp.hpp"
#include "program/modules/megatron/flex_dispatch.hpp"
#include "program/modules/megatron/mappings.hpp"
#include "program/modules/megatron/ops.hpp"
#include "program/modules/megatron/permutation.hpp"
#include "program/modules/megatron/recompute.hpp"
#include "program/modules/megatron/te.hpp"
#include "program/modules/megatron/te_experts.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

namespace {

/// RouterGatingLinearFunction: [s, b, h] → [s, b, experts]. `bias` may be undefined.
Tensor gating_linear(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  PythonFunction op("router_gating_linear", {&input, &weight, &bias});
  op.save(input);
  op.save(weight);
  const Dims rows{input.elements() / input.size(-1), input.size(-1)};
  Tensor logits;
  {
    const GradMode no_grad(op.tape(), false);
    const Tensor turned = transpose(weight, 0, 1), folded = reshaped(input, rows);
    const Tensor product = bias ? addmm(bias, folded, turned) : mm(folded, turned);
    logits = reshaped(product, {input.size(0), input.size(1), weight.size(0)});
  }
  return op.done(logits, [rows](BackwardCall& b) {
    const Tensor x = b.saved(0), router = b.saved(1);
    const Tensor gradient = reshaped(contiguous(b.grad()), {rows[0], router.size(0)});
    const Tensor wide = mm(gradient, router);
    b.give(0, reshaped(wide, x.sizes()));
    b.give(1, mm(transpose(gradient, 0, 1), reshaped(x, rows)));
    if (b.needs(2)) b.give(2, sum(gradient, {0}, false));
    b.drop_gradients();
  });
}

/// zeros_like(like).scatter(dim, indices, values).
Tensor scatter_into_zeros(const Tensor& like, const Tensor& indices, const Tensor& values) {
  Tape& tape = like.tape();
  const Tensor nothing = zeros(tape, like.sizes(), like.dtype());
  Op op("scatter", {&values});
  op.save(indices);
  Tensor y = clone(nothing);
  in_place(y, {&values});
  return op.done(y, [](BackwardCall& b) {  // gather
    const Tensor where = b.saved(0);
    const Tensor gradient = b.tape.empty(where.sizes(), b.grad().dtype());
    gather(Gather::Function::index, gradient.elements(), {&where, &gradient}, {&gradient});
    b.give(0, gradient);
  });
}

/// zeros_like(like)[.to(type)].scatter(dim, indices, 1).bool().
Tensor map_of(const Tensor& like, DType type) {
  Tape& tape = like.tape();
  Tensor marks;
  {
    const Tensor nothing = zeros(tape, like.sizes(), like.dtype());
    if (type == like.dtype()) {
      marks = clone(nothing);
    } else {
      Tensor integers = to(nothing, type);
      marks = std::move(integers);
    }
  }
  if (type != like.dtype()) {
    Tensor scattered = clone(marks);
    marks = std::move(scattered);
  }
  return to(marks, DType::boolean);
}

/// The indices of x.argsort(dim=-1, stable=True) of 8-bit integers [rows, width] (Sort.cpp, Sort.cu): rows that one block sorts are sorted
/// in place, with the indices of a row filled in from a range; longer ones by cub, from a copy of the keys.
Tensor stable_order(const Tensor& x) {
  constexpr std::int64_t kOneBlock = 4096;  // the longest row that one block sorts
  Tape& tape = x.tape();
  const Tensor values = tape.empty(x.sizes(), x.dtype(), Category::workspace);
  Tensor indices = tape.empty(x.sizes(), DType::int64);
  Tensor first, second, keys, range;
  if (x.size(-1) > kOneBlock) {  // segments are sorted with pairs of indices of their own
    first = tape.empty(x.sizes(), DType::int64, Category::workspace);
    second = tape.empty(x.sizes(), DType::int64, Category::workspace);
    keys = tape.empty(x.sizes(), x.dtype(), Category::workspace);
  } else {
    range = tape.empty({x.size(-1)}, DType::int64, Category::workspace);
  }
  gather(Gather::Function::sort, x.elements(), {&x}, {&values, &indices});
  return indices;
}

}  // namespace

namespace {

ExpertOptions::Dispatcher dispatcher_of(const Strategy& s) {
  using Dispatcher = ExpertOptions::Dispatcher;
  if (s.ep == 1 || s.moe.dispatcher == "alltoall") return Dispatcher::all_to_all;
  return s.moe.dispatcher == "hybridep" ? Dispatcher::hybrid_ep : Dispatcher::deep_ep;
}

}  // namespace

ExpertOptions expert_options(const MoeSpec& spec, const Strategy& s, std::int64_t nvlink_domain) {
  const auto no = [](bool unknown, const char* what) {
    if (unknown) refuse(std::string(what) + " not modelled for Megatron-core's mixtures of experts", "moe");
  };
  const bool te = s.megatron.layer_spec == "te", grouped = te && s.moe.grouped_gemm;
  if (spec.latent > 0 && !te) refuse("Megatron-core's latent projections of experts are Transformer Engine's", "layer_spec", "use te");
  no(!knows_expert_activation(spec), "experts gated by this activation are");
  no((spec.router_bias || spec.expert_bias) && !grouped, "biases of the router or the experts are, with an MLP per expert,");
  no(spec.expert_bias && s.etp > 1, "biases of experts that are cut are");  // GroupedLinear raises
  const bool flex = s.moe.dispatcher == "deepep" || s.moe.dispatcher == "hybridep";
  no(s.moe.dispatcher != "alltoall" && !flex, "a dispatcher other than alltoall, deepep and hybridep is");
  no(flex && (!te || s.etp > 1 || s.moe.capacity_factor), "this dispatcher with local layers, experts that are cut, or a capacity is");
  no(s.moe.capacity_factor && !s.moe.pad_to_capacity, "dropping tokens without padding to the capacity is");
  no(!s.moe.capacity_factor && !te, "routing that drops no token is, with local layers,");
  no(!s.moe.capacity_factor && !grouped && s.low_precision != LowPrecision::none,
     "padding of an expert's rows for products of few bits is, with an MLP per expert,");
  const std::string& balancing = s.moe.load_balancing;
  no(!balancing.empty() && balancing != "aux_loss" && balancing != "seq_aux_loss" && balancing != "none", "this load balancing is");
  no(!*s.moe.permute_fusion && s.moe.dispatcher == "hybridep", "HybridEP without moe_permute_fusion is");
  no(te && !grouped && recomputes(s.recompute, "moe_act"), "recomputation of moe_act is, with an MLP per expert,");
  no(s.lora && s.moe.fused_mlp, "fused products of experts beside adapters are");
  no(s.etp != 1 && s.etp != s.tp, "a tensor-parallel size of the experts other than 1 or tp is");
  return {.expert_parallel = s.ep,
          .expert_tensor_parallel = s.etp,
          .capacity_factor = s.moe.capacity_factor,
          .imbalance = s.moe.imbalance,
          .te = te,
          .grouped = grouped,
          .permute_fusion = te && (grouped || !s.moe.capacity_factor) && *s.moe.permute_fusion,
          .fuses_swiglu = *s.megatron.bias_swiglu_fusion,
          .fused_mlp = s.moe.fused_mlp,
          .auxiliary_loss = s.moe.load_balancing != "none" && s.moe.aux_loss_coeff > 0,
          .dispatcher = dispatcher_of(s),
          .in_turn = framework::routes_in_turn(s),
          .nvlink_domain = nvlink_domain,
          .recomputes_activation = recomputes(s.recompute, "moe_act"),
          .recomputes_shared = recomputes(s.recompute, "shared_experts"),
          .recomputes_norm = recomputes(s.recompute, "layernorm"),
          .adapter_dropout = s.lora ? s.lora->dropout : 0};
}

std::vector<ExpertParameter> expert_parameters(const MoeSpec& spec, std::int64_t hidden, std::int64_t tensor_parallel,
                                               const ExpertOptions& options) {
  std::vector<ExpertParameter> parameters{{"router", "weight", {spec.experts, hidden}, true, false}};
  if (spec.router_bias) parameters.push_back({"router", "bias", {spec.experts}, true, false});
  const std::int64_t inner = spec.expert_intermediate / options.expert_tensor_parallel, local = spec.experts / options.expert_parallel;
  const bool own = options.expert_parallel > 1;  // else their gradients are reduced with all others
  const std::int64_t halves = spec.gated ? 2 : 1;
  const std::int64_t width = spec.width();
  const Dims up{halves * inner, width}, down{width, inner};
  if (spec.latent > 0) {
    parameters.push_back({"fc1_latent_proj", "weight", {spec.latent, hidden}, false, false});
    parameters.push_back({"fc2_latent_proj", "weight", {hidden, spec.latent}, false, false});
  }
  if (options.grouped) {
    const auto grouped = [&](const char* linear, const Dims& sizes) {
      for (std::int64_t i = 0; i < local; ++i) {
        parameters.push_back({linear, "weight" + std::to_string(i), sizes, false, own});
        if (spec.expert_bias) parameters.push_back({linear, "bias" + std::to_string(i), {sizes[0]}, false, own});
      }
    };
    grouped("experts.linear_fc1", up);
    grouped("experts.linear_fc2", down);
  }
  for (std::int64_t i = 0; i < local && !options.grouped; ++i) {
    const std::string expert = "experts.local_experts." + std::to_string(i);
    parameters.push_back({expert + ".linear_fc1", "weight", up, false, own});
    parameters.push_back({expert + ".linear_fc2", "weight", down, false, own});
  }
  if (spec.shared_intermediate > 0) {
    const std::int64_t shared = spec.shared_intermediate / tensor_parallel;
    parameters.push_back({"shared_experts.linear_fc1", "weight", {halves * shared, hidden}, false, false});
    parameters.push_back({"shared_experts.linear_fc2", "weight", {hidden, shared}, false, false});
    if (spec.shared_gate) parameters.push_back({"shared_experts", "gate_weight", {1, hidden}, true, false});
  }
  return parameters;
}

std::int64_t MegatronExperts::capacity(std::int64_t tokens) const {
  const double mean = static_cast<double>(tokens * spec_.top_k) / static_cast<double>(spec_.experts);
  return static_cast<std::int64_t>(std::ceil(mean * *options_.capacity_factor));
}

std::int64_t MegatronExperts::sent_rows(std::int64_t tokens) const {
  return options_.capacity_factor ? std::min(capacity(tokens), tokens) * spec_.experts : tokens * spec_.top_k;
}

Tensor MegatronExperts::all_to_all(const Tensor& x, std::int64_t rows) const {
  if (options_.expert_parallel == 1) return x;
  PythonFunction op("all_to_all", {&x});
  const auto exchange = [&runtime = runtime_](Tape& tape, const Tensor& from, std::int64_t received_rows) {
    const Tensor packed = contiguous(from);
    Dims sizes = packed.sizes();
    sizes[0] = received_rows;
    Tensor received = tape.empty(sizes, packed.dtype());
    runtime.exchange({.kind = CollectiveKind::all_to_all, .group = Group::expert, .bytes = packed.bytes(), .type = packed.dtype()});
    return received;
  };
  Tensor received;
  {
    const GradMode no_grad(op.tape(), false);
    received = exchange(op.tape(), x, rows);
  }
  return op.done(received, [exchange, back = x.size(0)](BackwardCall& b) { b.give(0, exchange(b.tape, b.grad(), back)); });
}

/// topk_routing_with_score_function: softmax over the chosen experts' logits.
MegatronExperts::Routed MegatronExperts::top_k_of(const Tensor& logits) const {
  const TopK chosen = top_k(logits, spec_.top_k);
  Tensor weights = softmax(chosen.values, DType::fp32);
  weights = to(weights, logits.dtype());
  Routed routed;
  routed.probabilities = scatter_into_zeros(logits, chosen.indices, weights);
  routed.map = map_of(logits, DType::int32);
  return routed;
}

/// apply_router_token_dropping with pad_to_capacity: every expert takes its `capacity` tokens of highest probability.
MegatronExperts::Routed MegatronExperts::drop(const Routed& routed) const {
  Tape& tape = runtime_.tape();
  const Tensor& all = routed.probabilities;
  const std::int64_t most = std::min(capacity(all.size(0)), all.size(0));
  Routed kept;
  const Tensor values = tape.empty({most, spec_.experts}, all.dtype()), indices = tape.empty({most, spec_.experts}, DType::int64);
  gather(Gather::Function::top_k, all.elements(), {&all}, {&values, &indices});
  kept.map = map_of(all.detach(), all.dtype());
  kept.probabilities = multiply(all, kept.map);
  return kept;
}

/// compute_routing_scores_for_aux_loss and switch_load_balancing_loss_func.
Tensor MegatronExperts::with_auxiliary_loss(const Tensor& probabilities, const Tensor& logits) const {
  Tape& tape = runtime_.tape();
  const Tensor scores = softmax(logits, DType::fp32);
  Tensor map;
  {
    const TopK chosen = top_k(scores.detach(), spec_.top_k);
    map = map_of(logits.detach(), DType::int32);
  }
  const Tensor counts = tape.empty({spec_.experts}, DType::int64);
  {
    const Tensor wide = elementwise(tape, {&map}, DType::int64);
    const ReductionScratch scratch = reduction_scratch(tape, wide, {true, false}, 8);
    tape.scratch(scratch.buffer);
    plimsoll::program::reduce(counts, wide, Reduction::Axis::outer);
  }
  runtime_.collective(CollectiveKind::all_reduce, counts.bytes(), DType::int64);
  Tensor loss;
  {
    const Tensor per_expert = sum(scores, {0}, false);
    Tensor total;
    {
      const Tensor products = multiply(per_expert, counts);
      total = sum(products, {}, false);
    }
    loss = multiply_scalar(total);
  }
  runtime_.log_auxiliary_loss();
  return attach_loss(probabilities, loss);
}

MegatronExperts::Routed MegatronExperts::route(const Tensor& hidden) const {
  const LabelScope label(runtime_.tape(), module_.child("router").label);
  runtime_.called();
  Module& router = module_.child("router");
  const Tensor gated = gating_linear(hidden, router.tensor("weight"), router.tensor("bias"));
  const Tensor logits = view(gated, {-1, spec_.experts});
  Routed routed = top_k_of(logits);
  if (options_.capacity_factor) routed = drop(routed);
  if (options_.auxiliary_loss && runtime_.tape().grad_enabled) routed.probabilities = with_auxiliary_loss(routed.probabilities, logits);
  return routed;
}

/// dispatch_preprocess: tokens in the order of their experts, `capacity` each.
MegatronExperts::Permuted MegatronExperts::permute_tokens(const Tensor& hidden, const Routed& routed) const {
  Tape& tape = runtime_.tape();
  remembered_.probabilities = routed.probabilities;
  remembered_.map = routed.map;
  const Tensor rows = view(hidden, {-1, hidden.size(-1)});
  const std::int64_t tokens = rows.size(0), each = std::min(capacity(tokens), tokens), experts = spec_.experts;
  Tensor by_expert;
  {
    const Tensor bytes = to(routed.map, DType::int8);
    by_expert = contiguous(transpose(bytes, 0, 1));
  }
  Tensor order;
  {
    const Tensor sorted = stable_order(by_expert);
    order = contiguous(slice(sorted, -1, 0, each));
  }
  order = reshaped(order, {experts * each});
  const Tensor weights = view(contiguous(transpose(routed.probabilities, 0, 1)), {-1});
  const Tensor range = arange(tape, experts);
  Tensor places;
  {
    const Tensor starts = elementwise(tape, {&range}, DType::int64);
    places = tape.empty({experts * each}, DType::int64);
    pointwise(tape, Pointwise::Form::map, {operand(starts), operand(order)}, {operand(places)});
  }
  Permuted permuted;
  permuted.probabilities = index_select(weights, places);
  permuted.tokens = index_select(rows, order);
  by_expert.reset();
  remembered_.order = order;
  return permuted;
}

/// SequentialMLP.forward: expert after expert, rows in their order.
Tensor MegatronExperts::one_by_one(const Tensor& tokens, const Tensor& probabilities) const {
  runtime_.called();
  Module& experts = module_.child("experts").child("local_experts");
  const auto count = static_cast<std::size_t>(local_experts());
  const ExpertLayers layers{options_.te, options_.fuses_swiglu, beside_experts()};
  if (count == 1) return expert_mlp(runtime_, experts.child("0"), spec_, tokens, probabilities, layers);
  const std::vector<std::int64_t> sizes = even_split(tokens.size(0), count);
  const std::vector<Tensor> parts = split(tokens, sizes, 0), scales = split(probabilities, sizes, 0);
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < count; ++i)
    outputs.push_back(expert_mlp(runtime_, experts.child(std::to_string(i)), spec_, parts[i], scales[i], layers));
  return cat(outputs, 0);
}

/// dispatch_postprocess, SequentialMLP.forward, combine_preprocess.
Tensor MegatronExperts::compute(const Tensor& dispatched, const Tensor& probabilities) const {
  const std::int64_t local = local_experts(), hidden = dispatched.size(-1);
  const bool cut = options_.expert_tensor_parallel > 1;
  Tensor tokens = dispatched, weights = probabilities;
  if (cut) {
    tokens = gather_sequence(runtime_, tokens);
    weights = gather_sequence(runtime_, weights);
  }
  if (local == 1) {
    const Tensor output = one_by_one(tokens, weights);
    return cut ? reduce_scatter_sequence(runtime_, output) : output;
  }
  const std::int64_t ranks = options_.expert_tensor_parallel * options_.expert_parallel, each = tokens.size(0) / (ranks * local);
  const std::int64_t rows = ranks * each;
  tokens = view(contiguous(transpose(view(tokens, {ranks, local, each, hidden}), 0, 1)), {local * rows, hidden});
  weights = view(contiguous(transpose(view(weights, {ranks, local, each}), 0, 1)), {local * rows});
  const Tensor joined = one_by_one(tokens, weights);
  Tensor restored = view(contiguous(transpose(view(joined, {local, ranks, each, hidden}), 0, 1)), {local * rows, hidden});
  return cut ? reduce_scatter_sequence(runtime_, restored) : restored;
}

// ---- over Transformer Engine ---------------------------------------------------------------------------------------------------

/// MoEAlltoAllTokenDispatcher.preprocess and _maybe_dtoh_and_synchronize: tokens are counted by expert, the counts of all ranks gathered and summed by
/// rank and by local expert; the host reads four of these lists. They have some hundred bytes each, and no block here.
void count_tokens(const MegatronRuntime& runtime, const Tensor& map, std::int64_t ranks) {
  Tape& tape = runtime.tape();
  const std::int64_t experts = map.size(-1);
  const auto list = packed(experts, DType::int64);
  const auto operators = [&](std::int64_t of_the_host, int launches) {
    tape.host(HostWork::operation, of_the_host);
    for (int i = 0; i < launches; ++i) pointwise(tape, Pointwise::Form::map, {list}, {list});
  };
  reduce(tape, Reduction::Axis::outer, experts, {packed(map.elements(), DType::boolean)}, {list});
  operators(4, 2);  // sum, long, and by rank: reshape, sum
  if (ranks > 1) {
    tape.host(HostWork::python_function);
    tape.collective({.kind = CollectiveKind::all_gather, .group = Group::expert, .bytes = 8 * experts * ranks, .type = DType::int64}, kComputeStream);
    operators(9, 4);  // reshape, transpose, slice, contiguous, three sums, an index, view
  }
  operators(8, 0);  // to the host on a stream of its own, each list recorded for it
  tape.read_back();
}

/// dispatch_preprocess where rows go as they come.
MegatronExperts::Permuted MegatronExperts::permute_rows(const Tensor& hidden, const Routed& routed) const {
  remembered_.probabilities = routed.probabilities;
  remembered_.map = routed.map;
  const Tensor rows = view(hidden, {-1, hidden.size(-1)});
  if (!options_.capacity_factor) count_tokens(runtime_, routed.map, options_.expert_parallel);
  const std::int64_t sent = sent_rows(rows.size(0));
  const TePermuted permuted =
      options_.permute_fusion ? te_permute(rows, routed.probabilities, sent) : permute_by_map(rows, routed.probabilities, routed.map, sent);
  remembered_.order = permuted.places;
  return {permuted.tokens, permuted.probabilities};
}

/// [ranks, experts, capacity] → [experts, ranks, capacity] for `outer` = ranks, and back for `outer` = experts.
Tensor MegatronExperts::regrouped(const Tensor& rows, std::int64_t outer, std::int64_t inner) const {
  if (!options_.capacity_factor) return options_.permute_fusion ? te_sort_chunks(rows, {}).rows : swap_chunks(rows, outer, inner);
  const std::int64_t each = rows.size(0) / (outer * inner);
  const bool wide = rows.rank() > 1;
  const Tensor parts = view(rows, wide ? Dims{outer, inner, each, rows.size(1)} : Dims{outer, inner, each});
  return view(contiguous(transpose(parts, 0, 1)), rows.sizes());
}

/// TEGroupedMLP.forward or SequentialMLP.forward.
Tensor MegatronExperts::run_experts(const Tensor& tokens, const Tensor& probabilities) const {
  if (!options_.grouped) return one_by_one(tokens, probabilities);
  runtime_.called();
  return grouped_expert_mlp(runtime_, module_.child("experts"), spec_, tokens, probabilities, grouped_experts());
}

/// dispatch_postprocess, the experts, combine_preprocess where rows go as they come.
Tensor MegatronExperts::compute_rows(const Tensor& dispatched, const Tensor& probabilities) const {
  const std::int64_t local = local_experts(), ranks = options_.expert_tensor_parallel * options_.expert_parallel;
  const bool cut = options_.expert_tensor_parallel > 1;
  Tensor tokens = dispatched, weights = probabilities;
  if (cut) {
    tokens = gather_sequence(runtime_, tokens);
    weights = gather_sequence(runtime_, weights);
  }
  if (local > 1) {
    tokens = regrouped(tokens, ranks, local);
    weights = regrouped(weights, ranks, local);
  }
  const Tensor output = run_experts(tokens, weights);
  Tensor restored = local > 1 ? regrouped(output, local, ranks) : output;
  return cut ? reduce_scatter_sequence(runtime_, restored) : restored;
}

/// HybridEP and DeepEP's permutation pad the rows of experts themselves.
GroupedExperts MegatronExperts::grouped_experts() const {
  const bool flex = options_.dispatcher != ExpertOptions::Dispatcher::all_to_all;
  return {local_experts(), options_.recomputes_activation, runtime_.quantization().enabled && !options_.capacity_factor && !flex,
          options_.fuses_swiglu, options_.fused_mlp && runtime_.quantization().scaling == Scaling::mxfp8, beside_experts()};
}

/// Adapters of experts know the expert-tensor-parallel ranks alone, and no cut sequence.
AdapterPlace MegatronExperts::beside_experts() const {
  return {.parallel = options_.expert_tensor_parallel > 1,
          .sequence = runtime_.sequence_parallel(),
          .expert = true,
          .dropout = options_.adapter_dropout};
}

/// MoEFlexTokenDispatcher around the experts.
Tensor MegatronExperts::run_flex(const Tensor& hidden) const {
  const Routed routed = route(hidden);
  const Tensor narrow = to_latent(hidden);
  const Tensor rows = view(narrow, {-1, narrow.size(-1)});
  const FlexDispatch flex(runtime_, {.hybrid = options_.dispatcher == ExpertOptions::Dispatcher::hybrid_ep,
                                     .ranks = options_.expert_parallel,
                                     .domain = options_.nvlink_domain,
                                     .experts = spec_.experts,
                                     .top_k = spec_.top_k,
                                     .in_turn = options_.in_turn,
                                     .imbalance = options_.imbalance,
                                     .permute_fusion = options_.permute_fusion});
  const auto received = static_cast<std::int64_t>(std::ceil(static_cast<double>(rows.size(0) * spec_.top_k) * options_.imbalance));
  const std::int64_t padded = runtime_.quantization().enabled ? padded_rows(runtime_, received, local_experts()) : received;
  const TePermuted dispatched = flex.dispatch(rows, routed.probabilities, padded);
  const Tensor output = run_experts(dispatched.tokens, dispatched.probabilities);
  return from_latent(view(flex.combine(output, dispatched, rows.size(0)), narrow.sizes()));
}

Tensor MegatronExperts::latent(const Tensor& rows, const char* name) const {
  if (spec_.latent == 0) return rows;
  Module& linear = module_.child(name);
  const LabelScope label(runtime_.tape(), linear.label);
  const QuantizationScope recipe(runtime_, linear);
  return te_linear(runtime_, rows, linear.tensor("weight"), {}, TeParallel::none);
}

Tensor MegatronExperts::to_latent(const Tensor& hidden) const { return latent(hidden, "fc1_latent_proj"); }

Tensor MegatronExperts::from_latent(const Tensor& rows) const { return latent(rows, "fc2_latent_proj"); }

/// SharedExpertMLP.forward. Its input is saved by the router as well.
Tensor MegatronExperts::shared(const Tensor& hidden) const {
  Module& mlp = module_.child("shared_experts");
  const QuantizationScope recipe(runtime_, mlp);
  const LabelScope label(runtime_.tape(), mlp.label);
  constexpr std::int64_t kOwnLinears = 2;  // Transformer Engine's count their own
  runtime_.called(options_.te ? 1 : 1 + kOwnLinears);
  const Tensor up = mlp.child("linear_fc1").tensor("weight"), down = mlp.child("linear_fc2").tensor("weight");
  const bool sequence = runtime_.sequence_parallel();
  const TeQuantization& bits = runtime_.quantization();
  const bool shares = bits.enabled && !options_.recomputes_shared && (bits.shares_inputs || options_.recomputes_norm);
  const auto with_adapter = [&](const Tensor& output, const Tensor& x, const char* linear, TeParallel beside) {
    Module* adapter = mlp.child(linear).find_child("adapter");
    if (adapter == nullptr) return output;
    return adapted(runtime_, output, x, *adapter, {.beside = beside, .parallel = runtime_.tp() > 1, .sequence = sequence, .dropout = options_.adapter_dropout});
  };
  Tensor inner = options_.te ? te_linear(runtime_, hidden, up, {}, TeParallel::column, shares ? TeInput::original : TeInput::cast)
                             : megatron_linear(runtime_, hidden, up, {}, {.gather_input = sequence, .reduce_gradient = false});
  inner = with_adapter(inner, hidden, "linear_fc1", TeParallel::column);
  Tensor active = !spec_.gated ? squared_relu(inner) : options_.fuses_swiglu ? bias_swiglu(inner, {}) : eager_swiglu(inner);
  inner = std::move(active);
  const auto gated = [&](const Tensor& output) {
    if (!spec_.shared_gate) return output;
    const Tensor logits = linear(hidden, mlp.tensor("gate_weight"));
    const Tensor score = sigmoid(logits);
    return multiply(output, score);
  };
  if (options_.te) return gated(with_adapter(te_linear(runtime_, inner, down, {}, TeParallel::row), inner, "linear_fc2", TeParallel::row));
  const Tensor partial = megatron_linear(runtime_, inner, down, {}, {});
  const Tensor output = sequence ? reduce_scatter_sequence(runtime_, partial) : reduce_over_tensor_parallel(runtime_, partial);
  return gated(with_adapter(output, inner, "linear_fc2", TeParallel::row));
}

Tensor MegatronExperts::operator()(const Tensor& hidden) const {
  const LabelScope label(runtime_.tape(), module_.label);
  runtime_.called();
  const Region sharing = [this](const std::vector<Tensor>& in) { return shared(in[0]); };
  Tensor common;
  if (spec_.shared_intermediate > 0)
    common = options_.recomputes_shared ? checkpoint_reentrant(runtime_.tape(), sharing, {hidden}) : sharing({hidden});
  const QuantizationScope recipe(runtime_, module_.child("experts"));
  const Tensor output = options_.dispatcher == ExpertOptions::Dispatcher::all_to_all ? run_all_to_all(hidden) : run_flex(hidden);
  return common ? add(output, common) : output;
}

/// MoEAlltoAllTokenDispatcher around the experts.
Tensor MegatronExperts::run_all_to_all(const Tensor& hidden) const {
  Permuted permuted;
  Dims sizes = hidden.sizes();
  {
    const Routed routed = route(hidden);
    const Tensor narrow = to_latent(hidden);
    sizes = narrow.sizes();
    permuted = by_rows() ? permute_rows(narrow, routed) : permute_tokens(narrow, routed);
  }
  const std::int64_t sent = permuted.tokens.size(0);
  const bool even = options_.capacity_factor.has_value();
  const auto received = even ? sent : static_cast<std::int64_t>(std::ceil(static_cast<double>(sent) * options_.imbalance));
  const Tensor dispatched = all_to_all(permuted.tokens, received);
  permuted.probabilities = all_to_all(permuted.probabilities, received);
  Tensor output = by_rows() ? compute_rows(dispatched, permuted.probabilities) : compute(dispatched, permuted.probabilities);
  output = all_to_all(output, sent);
  output = options_.permute_fusion ? te_unpermute(output, remembered_.order)
                                   : unpermute_by_order(output, remembered_.order, hidden.elements() / hidden.size(-1));
  return from_latent(view(output, sizes));
}

}  // namespace plimsoll::program
