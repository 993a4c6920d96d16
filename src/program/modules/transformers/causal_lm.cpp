#include "program/modules/transformers/causal_lm.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"
#include "program/attention_library.hpp"
#include "program/checkpoint.hpp"
#include "program/modules/transformers/compiled_layer.hpp"
#include "program/modules/transformers/text_heads.hpp"
#include "program/ops/choosing.hpp"
#include "program/ops/cut_cross_entropy.hpp"
#include "program/ops/ops.hpp"
#include "program/ops/placing.hpp"
#include "program/ops/pointwise.hpp"
#include "program/ops/routing.hpp"
#include "program/ops/token_scores.hpp"
#include "program/traced_operator.hpp"

namespace plimsoll::program {

Tensor position_ids(Tape& tape, std::int64_t length) {
  const Tensor positions = arange(tape, length);
  return unsqueeze(add_scalar(positions), 0);
}

void find_packed_sequences(Tape& tape) {
  if (tape.trace) return;  // part of the mask, which nobody can look at
  tape.operator_name = "causal_mask";
  tape.copy({Copy::Direction::device_to_host, 1}, tape.stream);
  tape.synchronize();
}

namespace {

/// masking_utils.sdpa_mask: index ranges, compared by broadcasting; [batch, 1, length, length] of bools, expanded over the batch.
Tensor boolean_mask(Tape& tape, std::int64_t batch, std::int64_t length, bool windowed) {
  const Tensor batch_range = arange(tape, batch), head_range = arange(tape, 1);
  const Tensor queries = add_scalar(arange(tape, length)), keys = add_scalar(arange(tape, length));
  const Tensor query = view(queries, {1, 1, length, 1}), key = view(keys, {1, 1, 1, length});
  const auto compare = [&](const Tensor& a, const Tensor& b) { return elementwise(tape, {&a, &b}, DType::boolean); };
  if (!windowed) return expand(compare(key, query), {batch, -1, -1, -1});
  // and_masks(sliding_window_overlay, causal_mask_function), starting from a scalar true
  Tensor within;
  {
    const Tensor one = filled(tape, {}, DType::boolean);
    Tensor edge = add_scalar(query);
    const Tensor inside = compare(key, edge);
    edge.reset();
    within = compare(one, inside);
  }
  const Tensor causal = compare(key, query);
  return expand(compare(within, causal), {batch, -1, -1, -1});
}

/// masking_utils.eager_mask: zeros where attended, the type's minimum elsewhere.
Tensor additive_mask(Tape& tape, const Tensor& allowed, DType type) {
  const Tensor zero = zeros(tape, {}, type);
  const Tensor least = filled(tape, {}, type);
  return elementwise(tape, {&allowed, &zero, &least}, type);
}

/// masking_utils.py where it is traced: find_packed_sequence_indices cannot look whether a batch is packed, so that each is taken for one
/// whose positions [1, length] tell its documents, and attended as such.
Tensor traced_mask(Tape& tape, const Tensor& position_ids, std::int64_t batch, bool windowed) {
  const std::int64_t length = position_ids.size(1);
  const Dims rows{batch, length}, square{batch, 1, length, length};
  const Tensor positions = expand(position_ids, {batch, -1});
  Tensor documents;
  {
    const Tensor first = slice(positions, 1, 0, 1);
    const Tensor before = traced(tape, "sub_number", {&first}, {batch, 1}, DType::int64);
    const Tensor joined = cat({before, positions}, -1);
    const Tensor previous = slice(joined, -1, 0, length), own = slice(joined, -1, 1, length + 1);
    const Tensor step = traced(tape, "sub", {&own, &previous}, rows, DType::int64);
    const Tensor starts = traced(tape, "ne_number", {&step}, rows, DType::boolean);
    documents = traced(tape, "cumsum", {&starts}, rows, DType::int64);
  }
  const Tensor samples = unsqueeze(unsqueeze(unsqueeze(arange(tape, batch), 1), 2), 3), all = unsqueeze(unsqueeze(arange(tape, length), 0), 1);
  const Tensor queries = unsqueeze(all, 3), keys = unsqueeze(all, 2);
  const auto of_queries = [&](const Tensor& x) { return traced(tape, "index_pairs", {&x, &samples, &queries}, {batch, 1, length, 1}, x.dtype()); };
  const auto of_keys = [&](const Tensor& x) { return traced(tape, "index_pairs", {&x, &samples, &keys}, {batch, 1, 1, length}, x.dtype()); };
  const auto both = [&](const Tensor& a, const Tensor& b) { return traced(tape, "bitwise_and", {&a, &b}, square, DType::boolean); };
  const Tensor everything = traced(tape, "full_true", {}, {}, DType::boolean);
  const Tensor document = of_queries(documents), other = of_keys(documents);
  Tensor allowed = both(everything, traced(tape, "eq", {&document, &other}, square, DType::boolean));
  const Tensor query = of_queries(positions), key = of_keys(positions);
  allowed = both(allowed, traced(tape, "le", {&key, &query}, square, DType::boolean));
  if (windowed) {
    const Tensor first_seen = traced(tape, "sub_number", {&query}, query.sizes(), DType::int64);
    allowed = both(allowed, traced(tape, "le", {&first_seen, &key}, square, DType::boolean));
  }
  return expand(allowed, {batch, -1, length, length});
}

Tensor traced_causal_mask(Tape& tape, const RunOptions& options, const Tensor& embeddings, const Tensor& positions, bool windowed) {
  const Tensor allowed = traced_mask(tape, positions, embeddings.size(0), windowed);
  if (options.attention == RunOptions::Attention::sdpa) return allowed;
  return traced(tape, "mask_numbers", {&allowed}, allowed.sizes(), embeddings.dtype());
}

}  // namespace

Tensor causal_mask(Tape& tape, const RunOptions& options, const Tensor& embeddings, std::optional<std::int64_t> window) {
  const std::int64_t batch = embeddings.size(0), length = embeddings.size(1);
  if (RunOptions::is_flash(options.attention)) return {};
  if (tape.trace) return traced_causal_mask(tape, options, embeddings, unsqueeze(arange(tape, length), 0), window.has_value());
  if (options.attention == RunOptions::Attention::sdpa && !(window && length >= *window)) return {};
  tape.operator_name = "causal_mask";
  const Tensor allowed = boolean_mask(tape, batch, length, window.has_value());
  return options.attention == RunOptions::Attention::sdpa ? allowed : additive_mask(tape, allowed, embeddings.dtype());
}

Tensor model_mask(Tape& tape, const RunOptions& options, const Tensor& embeddings, const Tensor& positions,
                  std::optional<std::int64_t> window) {
  if (!options.compiled_frames || RunOptions::is_flash(options.attention)) {
    find_packed_sequences(tape);
    if (tape.trace && positions && !RunOptions::is_flash(options.attention))
      return traced_causal_mask(tape, options, embeddings, positions, window.has_value());
    return causal_mask(tape, options, embeddings, window);
  }
  if (!positions)
    refuse("torch.compile under FSDP2 of a model whose masks are made around its text model is not modelled", "compile", "blocks, or false");
  Module none;
  const auto make = [&](Module&, Tape& own) -> FrameForward {
    return [&](const std::vector<Tensor>& given) {
      return std::vector<Tensor>{traced_causal_mask(own, options, given[1], given[0], window.has_value())};
    };
  };
  return run_frame(options, window ? "create_sliding_window_causal_mask" : "create_causal_mask", none, {positions, embeddings}, make).front();
}

/// and_masks(chunked_overlay, causal_mask_function), starting from a scalar true.
static Tensor boolean_chunks(Tape& tape, const Tensor& left_padding, std::int64_t length) {
  const std::int64_t batch = left_padding.size(0);
  const Tensor batch_range = arange(tape, batch), head_range = arange(tape, 1);
  const Tensor queries = add_scalar(arange(tape, length)), keys = add_scalar(arange(tape, length));
  const Tensor query = view(queries, {1, 1, length, 1}), key = view(keys, {1, 1, 1, length}), sample = view(batch_range, {batch, 1, 1, 1});
  const auto compare = [&](const Tensor& a, const Tensor& b) { return elementwise(tape, {&a, &b}, DType::boolean); };
  const auto chunk_of = [&](const Tensor& place) {  // (place - left_padding[sample]) // chunk
    Tensor from;
    {
      const Tensor padding = view(index_rows(left_padding, view(sample, {batch})), {batch, 1, 1, 1});
      from = elementwise(tape, {&place, &padding}, DType::int64);
    }
    return elementwise(tape, {&from}, DType::int64);
  };
  Tensor within;
  {
    const Tensor one = filled(tape, {}, DType::boolean);
    Tensor same;
    {
      const Tensor key_chunk = chunk_of(key), query_chunk = chunk_of(query);
      same = compare(key_chunk, query_chunk);
    }
    within = compare(one, same);
  }
  const Tensor causal = compare(key, query);
  return compare(within, causal);
}

Tensor chunked_causal_mask(Tape& tape, const RunOptions& options, const Tensor& embeddings, std::int64_t chunk) {
  const std::int64_t batch = embeddings.size(0), length = embeddings.size(1);
  tape.operator_name = "causal_mask";
  const Tensor left_padding = zeros(tape, {batch}, DType::int64);
  if (options.attention == RunOptions::Attention::sdpa && length < chunk) return {};
  const Tensor allowed = boolean_chunks(tape, left_padding, length);
  return options.attention == RunOptions::Attention::sdpa ? allowed : additive_mask(tape, allowed, embeddings.dtype());
}

Tensor materialized_causal_mask(Tape& tape, const RunOptions& options, const Tensor& embeddings) {
  tape.operator_name = "causal_mask";
  const Tensor allowed = boolean_mask(tape, embeddings.size(0), embeddings.size(1), false);
  return options.attention == RunOptions::Attention::sdpa ? allowed : additive_mask(tape, allowed, embeddings.dtype());
}

Tensor alibi_slopes(Tape& tape, std::int64_t heads) {
  std::int64_t closest = 1;
  while (2 * closest <= heads) closest *= 2;
  const auto powers_of = [&](std::int64_t count) {
    const Tensor base = filled(tape, {}, DType::fp32), powers = arange(tape, count, DType::int32);
    return elementwise(tape, {&base, &powers}, DType::fp32);
  };
  const Tensor slopes = powers_of(closest);
  return closest == heads ? slopes : cat({slopes, powers_of(heads - closest)}, 0);
}

Tensor bidirectional_mask(Tape&, const RunOptions&, const Tensor&) { return {}; }

namespace {

/// sliding_window_bidirectional_mask_function on index ranges: |query - key| <= window.
Tensor boolean_window_mask(Tape& tape, std::int64_t batch, std::int64_t length) {
  const Tensor batch_range = arange(tape, batch), head_range = arange(tape, 1);
  const Tensor queries = add_scalar(arange(tape, length)), keys = add_scalar(arange(tape, length));
  const Tensor query = view(queries, {1, 1, length, 1}), key = view(keys, {1, 1, 1, length});
  const auto compare = [&](const Tensor& a, const Tensor& b) { return elementwise(tape, {&a, &b}, DType::boolean); };
  Tensor within;
  {
    const Tensor one = filled(tape, {}, DType::boolean);
    Tensor distance = elementwise(tape, {&query, &key}, DType::int64);
    distance = elementwise(tape, {&distance}, DType::int64);
    const Tensor inside = elementwise(tape, {&distance}, DType::boolean);
    distance.reset();
    within = compare(one, inside);
  }
  const Tensor real = elementwise(tape, {&query}, DType::boolean);
  return expand(compare(within, real), {batch, -1, -1, -1});
}

}  // namespace

Tensor bidirectional_window_mask(Tape& tape, const RunOptions& options, const Tensor& embeddings, std::int64_t window) {
  if (embeddings.size(1) < window || RunOptions::is_flash(options.attention)) return {};
  tape.operator_name = "bidirectional_mask";
  const Tensor allowed = boolean_window_mask(tape, embeddings.size(0), embeddings.size(1));
  return options.attention == RunOptions::Attention::sdpa ? allowed : additive_mask(tape, allowed, embeddings.dtype());
}

namespace {

/// eager_attention_forward of llama.
Tensor attend_eagerly(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, const AttentionCall& call) {
  const std::int64_t groups = query.size(1) / key.size(1);
  const Tensor keys = repeat_kv(key, groups);
  const Tensor values = repeat_kv(value, groups);
  Tensor weights = matmul(query, transpose(keys, 2, 3));
  weights = multiply_scalar(weights);
  if (call.softcap) {
    weights = divide_scalar(weights);
    weights = tanh(weights);
    weights = multiply_scalar(weights);
  }
  if (mask) weights = add(weights, mask);
  if (call.softmax_in_fp32) {
    const Tensor probabilities = softmax(weights, DType::fp32);
    weights = to(probabilities, query.dtype());
  } else {
    weights = softmax(weights, weights.dtype());
  }
  weights = dropout(weights, call.dropout);
  if (call.weights) *call.weights = weights;
  Tensor output = matmul(weights, values);
  return contiguous(transpose(output, 1, 2));
}

/// modeling_flash_attention_utils._is_packed_sequence: how far positions lie from counting up, read by the host.
void look_for_packed_sequences(const Tensor& positions) {
  Tape& tape = positions.tape();
  const auto integers = [&](std::initializer_list<const Tensor*> from) { return elementwise(tape, from, DType::int64); };
  const Tensor counted = arange(tape, positions.size(-1));
  const Tensor first = tape.empty({}, DType::int64);
  reduce(first, positions, Reduction::Axis::all);
  const Tensor increasing = integers({&counted, &first});
  const Tensor apart = integers({&increasing, &positions});
  const Tensor distance = integers({&apart});
  const Tensor sum = tape.empty({}, DType::int64);
  reduce(sum, distance, Reduction::Axis::all);
  const Tensor packed = elementwise(tape, {&sum}, DType::boolean);
  tape.copy({Copy::Direction::device_to_host, 1}, tape.stream);
  tape.synchronize();
}

/// prepare_fa_kwargs_from_position_ids, by each layer anew: where sequences start, whose number and greatest length the host waits for.
Tensor sequence_starts(const Tensor& positions, std::int64_t sequences) {
  Tape& tape = positions.tape();
  const auto integers = [&](std::int64_t n, DType type) { return tape.empty({n}, type); };
  const Tensor is_start = compare(positions, {}, DType::boolean);
  tape.copy({Copy::Direction::device_to_host, size_of(DType::int64)}, tape.stream);
  tape.synchronize();
  Tensor starts;
  {
    const Tensor places = integers(sequences, DType::int64);
    const Tensor narrow = elementwise(tape, {&places}, DType::int32), end = integers(1, DType::int32);
    tape.copy({Copy::Direction::host_to_device, size_of(DType::int32)}, tape.stream);
    starts = cat({narrow, end}, 0);
  }
  const Tensor lengths = elementwise(tape, {&starts}, DType::int32), longest = tape.empty({}, DType::int32);
  reduce(longest, lengths, Reduction::Axis::all);
  tape.copy({Copy::Direction::device_to_host, size_of(DType::int32)}, tape.stream);
  tape.synchronize();
  return starts;
}

/// Whose kernels attn_implementation names: flash_attention_2, _3 and _4, or the hub's kernels of the same.
AttentionLibrary flash_library(const Tape& tape, const AttentionCall& call) {
  switch (call.kind) {
    case RunOptions::Attention::flash3:
      return packaged_flash(tape.device, AttentionKernel::flash3);
    case RunOptions::Attention::flash4:
      return packaged_flash(tape.device, AttentionKernel::flash4);
    default:
      return packaged_flash(tape.device);
  }
}

/// flash_attention_forward of [batch, heads, length, dim]. The kernels take one head size and 16 bits: narrower values are padded, what
/// rotation has widened to fp32 goes back to autocast's type.
Tensor attend_by_flash(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionCall& call) {
  Tape& tape = query.tape();
  Tensor q = transpose(query, 1, 2), k = transpose(key, 1, 2), v = transpose(value, 1, 2);
  const std::int64_t width = q.size(-1), value_width = v.size(-1);
  if (value_width != width) v = pad_last(v, 0, width - value_width);
  if (q.dtype() == DType::fp32) {
    if (!tape.autocast.enabled)
      fail("flash attention takes 16-bit numbers, and these are fp32", "attention", "bf16 parameters or autocast, or sdpa");
    for (Tensor* x : {&q, &k, &v}) *x = to(*x, tape.autocast.type);
  }
  if (call.positions && *call.positions && call.positions->size(-1) > 1 && call.release.looks_for_packed_sequences(q.size(0)))
    look_for_packed_sequences(*call.positions);
  const std::int64_t length = call.packed_length > 0 ? std::min(call.packed_length, k.size(1)) : k.size(1);
  const std::int64_t window = call.window < length ? call.window : 0, sequences = length < k.size(1) ? ceil_div(k.size(1), length) : 0;
  Tensor starts;
  if (sequences > 0) {
    if (call.kind != RunOptions::Attention::flash || !call.positions || !*call.positions)
      refuse("packed sequences are modelled for flash-attention 2 and layers that are given their positions alone", "attention", "flash");
    starts = sequence_starts(*call.positions, sequences);
    for (Tensor* x : {&q, &k, &v}) *x = contiguous(*x);
  }
  const Tensor output = flash_attn(q, k, v, {.causal = call.causal,
                                             .dropout = call.dropout,
                                             .window = window,
                                             .library = flash_library(tape, call),
                                             .sequences = sequences});
  return value_width == width ? output : slice(output, -1, 0, value_width);
}

}  // namespace

AttentionCall causal_call(const RunOptions& options, const AttentionSpec& spec, const Tensor& positions, Tensor* weights) {
  return {.kind = options.attention,
          .causal = true,
          .dropout = spec.dropout,
          .positions = &positions,
          .packed_length = options.packed_length,
          .release = options.release,
          .weights = weights};
}

Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, const AttentionCall& call) {
  if (RunOptions::is_flash(call.kind)) return attend_by_flash(query, key, value, call);
  if (call.softcap && call.kind != RunOptions::Attention::eager) {
    fail("sdpa attention does not support softcap", {}, "use eager attention, as transformers itself demands");
  }
  if (call.kind == RunOptions::Attention::eager) return attend_eagerly(query, key, value, mask, call);
  const std::int64_t groups = query.size(1) / key.size(1);
  const bool can_group = call.release.groups_heads_in_sdpa() && query.tape().torch.takes_grouped_heads();
  const bool grouped = can_group && groups > 1 && !mask && key.size(-1) == value.size(-1) && key.size(-1) <= 256;
  Tensor queries = query, keys = grouped ? key : repeat_kv(key, groups), values = grouped ? value : repeat_kv(value, groups);
  if (call.release.packs_for_sdpa())
    for (Tensor* x : {&queries, &keys, &values}) *x = contiguous(*x);
  const Tensor output = scaled_dot_product_attention(
      queries, keys, values, mask, {.causal = call.causal && !mask && query.size(2) > 1, .dropout = call.dropout, .enable_gqa = grouped});
  return contiguous(transpose(output, 1, 2));
}

namespace {

/// Hooks of modules within a compiled layer would cut its graph.
void refuse_wrapped_parts(Module& layer) {
  for (const Module* part : layer.all_modules()) {
    const bool hooked = !part->pre_forward.empty() || !part->post_forward.empty();
    if (part != &layer && hooked)
      refuse("compiled blocks whose parts are wrapped on their own are not modelled", part->path, "wrap whole blocks");
  }
}

}  // namespace

Tensor run_layer(Module& module, Tape& tape, const RunOptions& options, const Tensor& input,
                 const std::function<Tensor(const Tensor&)>& forward, const std::vector<Tensor*>& keywords) {
  Tensor hidden = input;
  std::vector<Tensor*> hooked{&hidden};
  hooked.insert(hooked.end(), keywords.begin(), keywords.end());
  ModuleCall call(module, tape, hooked);
  const Region region = [&forward](const std::vector<Tensor>& arguments) { return forward(arguments[0]); };
  if (options.compiled_blocks) refuse_wrapped_parts(module);
  if (options.checkpoints_in_graph()) return call.done(region({hidden}));
  switch (options.checkpointing) {
    case RunOptions::Checkpointing::non_reentrant: {
      // The region outlives this call: it holds its own copy of the forward function.
      const Region kept = [forward](const std::vector<Tensor>& arguments) { return forward(arguments[0]); };
      return call.done(checkpoint(tape, kept, {hidden}));
    }
    case RunOptions::Checkpointing::reentrant: {
      if (tape.grad_enabled && !hidden.requires_grad())
        fail("re-entrant checkpointing gives a layer's weights no gradient where its input asks for none: everything before " +
                 module.path + " is frozen",
             "recompute_reentrant", "false");
      const Region kept = [forward](const std::vector<Tensor>& arguments) { return forward(arguments[0]); };
      return call.done(checkpoint_reentrant(tape, kept, {hidden}));
    }
    case RunOptions::Checkpointing::none:
      break;
  }
  return call.done(region({hidden}));
}

Tensor causal_lm_loss(const Tensor& logits_in, const Tensor& labels_in, const HfRelease::CausalLoss& code) {
  Tensor logits = code.upcasts_within ? to(logits_in, DType::fp32) : logits_in;
  if (code.copies_shifted) {
    const Tensor predicting = contiguous(slice(logits, 1, 0, logits.size(1) - 1));
    const Tensor predicted = contiguous(slice(labels_in, -1, 1, labels_in.size(-1)));
    return cross_entropy(view(predicting, {-1, predicting.size(-1)}), view(predicted, {-1}));
  }
  const Tensor labels = pad_last(labels_in, 0, 1);
  Tensor shifted = contiguous(slice(labels, -1, 1, labels.size(-1)));
  logits = view(logits, {-1, logits.size(-1)});
  shifted = view(shifted, {-1});
  return cross_entropy(logits, shifted);
}

Tensor model_loss(const RunOptions& options, const Tensor& hidden, const Tensor& logits, const Tensor& labels,
                  const HfRelease::CausalLoss& code) {
  Tape& tape = logits.tape();
  if (tape.trace && code.warns) tape.trace->breaks({hidden});
  Module none;
  const auto make = [&](Module&, Tape&) -> FrameForward {
    return [&](const std::vector<Tensor>& given) { return std::vector<Tensor>{causal_lm_loss(given[0], given[1], code)}; };
  };
  Tensor loss = run_frame(options, "causal_lm_loss", none, {logits, labels}, make).front();
  const bool compiles = options.compiled_frames && tape.part() == Tape::Part::first_step && tape.in_cycles.empty();
  if (compiles && code.warns) tape.in_cycles = {logits, loss};  // the exception by which Dynamo finds the warning holds the frame
  return loss;
}

Tensor cut_causal_lm_loss(const Tensor& hidden, Module& head, const Tensor& labels, bool softcap) {
  if (head.read_from_outside)
    refuse("cut cross entropy under ZeRO-3, whose backward gathers the head anew, is not modelled", "loss", "ce or liger-fused-linear");
  if (!head.tensor("weight"))
    fail("cut cross entropy reads the head's weight without calling the module, whose unit is not gathered then", "fsdp.units",
         "leave lm_head in the root");
  if (head.find_child("base_layer") || head.find_child("modules_to_save"))
    refuse("cut cross entropy of an adapted head is not modelled", "lora.target_modules");
  return cut_cross_entropy(slice(hidden, 1, 0, hidden.size(1)), head.tensor("weight"), labels, softcap);
}

namespace {

/// The head's weight; where its unit is not gathered (FSDP2), DTensor.full_tensor(), of which a frozen one needs no gradient.
Tensor whole_weight(Module& head, Tape& tape) {
  if (const Tensor& weight = head.tensor("weight")) return weight;
  const Parameter& parameter = *head.find_parameter("weight");
  if (parameter.trainable)
    refuse("TRL's fused head over a trained weight whose unit is not gathered is not modelled", "fsdp.units", "leave lm_head in the root");
  const Tensor whole = tape.empty(parameter.sizes, parameter.type, Category::communication_buffer);
  tape.collective({.kind = CollectiveKind::all_gather, .group = Group::data_shard, .bytes = whole.bytes(), .type = parameter.type}, tape.stream);
  return whole;
}

}  // namespace

Tensor token_scores(const RunOptions& options, const Tensor& states, Module& head, const Tensor& labels_in) {
  if (head.find_child("base_layer"))
    fail("TRL's fused head reads the head's weight and not its adapter, and refuses one", "lora.target_modules", "leave lm_head out");
  if (head.read_from_outside)
    for (const auto& parameter : head.parameters) head.read_from_outside(*parameter);
  Tape& tape = states.tape();
  const Tensor hidden = slice(states, 1, 0, states.size(1) - 1), labels = slice(labels_in, 1, 1, labels_in.size(1));
  const Tensor mask = compare(labels, {}, DType::boolean);
  TokenScores scores;
  {
    const Tensor targets = masked_rows(labels, mask, options.scored_tokens), scored = masked_rows(hidden, mask, options.scored_tokens);
    scores = chunked_token_scores(scored, whole_weight(head, tape), head.tensor("bias"), targets, options.metrics);
  }
  for (Tensor* each : {&scores.log_probs, &scores.entropy, &scores.mean_logits, &scores.is_top1})
    if (*each) *each = masked_scattered(zeros(tape, mask.sizes(), each->dtype()), mask, *each);
  hold(options, {scores.entropy, scores.mean_logits, scores.is_top1});
  return scores.log_probs;
}

namespace {

/// The scores of each sequence's last token, and where labels are given the loss of them (ForSequenceClassificationLoss).
struct ScoredSequences {
  Tensor scores, loss;
};

ScoredSequences score_sequences(const Tensor& hidden, const Linear& head, const Tensor& ids, const Tensor* labels) {
  Tape& tape = hidden.tape();
  const Tensor scores = head(hidden);
  tape.phase(Phase::loss);
  const Tensor padding = compare(ids, {}, DType::boolean), real = to(padding, DType::int32);
  const Tensor places = arange(tape, ids.size(1), DType::int32);
  Tensor last;
  {
    const Tensor numbered = multiply(places, real);
    last = place_of_extreme(numbered, 1, false);
  }
  ScoredSequences answer;
  {
    const Tensor rows = arange(tape, ids.size(0));
    answer.scores = indexed_by(scores, 0, {rows, last});
  }
  if (labels) answer.loss = label_loss(answer.scores, *labels);
  return answer;
}

}  // namespace

DecoderHead::Kind DecoderHead::kind_of(const Model& model) {
  if (model.architecture.ends_with("ForSequenceClassification")) return Kind::sequences;
  if (model.architecture.ends_with("ForTokenClassification")) return Kind::tokens;
  return model.architecture.ends_with("ForQuestionAnswering") ? Kind::answers : Kind::words;
}

namespace {

Module& head_module(Module& root) {
  for (const char* name : {"score", "classifier", "qa_outputs"})
    if (root.find_child(name)) return root.child(name);
  return root.child("lm_head");
}

}  // namespace

DecoderHead::DecoderHead(const Model& model, Module& root, Tape& tape)
    : kind_(kind_of(model)), linear_(head_module(root), tape) {
  if (kind_ == Kind::tokens) dropout_.emplace(root, "dropout", tape, head_dropout(model));
}

Tensor DecoderHead::classify(const RunOptions& options, ModuleCall& call, const Tensor& hidden, const Batch& batch) const {
  if (kind_ == Kind::tokens) return classify_tokens(options, call, hidden, batch.labels);
  if (kind_ == Kind::answers) return find_answers(options, call, hidden, batch);
  const bool no_loss = options.loss == RunOptions::Loss::sequence_scores;
  ScoredSequences answer = score_sequences(hidden, linear_, batch.input_ids, no_loss ? nullptr : &batch.labels);
  if (no_loss) return call.done(std::move(answer.scores));
  call.done({&answer.loss, &answer.scores});
  hold(options, {answer.scores});
  return std::move(answer.loss);
}

Tensor DecoderHead::classify_tokens(const RunOptions& options, ModuleCall& call, const Tensor& hidden, const Tensor& labels) const {
  Tensor logits = linear_((*dropout_)(hidden));
  hidden.tape().phase(Phase::loss);
  Tensor loss = label_loss(to(logits, DType::fp32), labels);
  call.done({&loss, &logits});
  hold(options, {logits});
  return loss;
}

Tensor DecoderHead::find_answers(const RunOptions& options, ModuleCall& call, const Tensor& hidden, const Batch& batch) const {
  const Tensor logits = linear_(hidden);
  std::vector<Tensor> ends;
  Tensor loss = answer_loss(logits, batch, ends);
  call.done({&loss, &ends[0], &ends[1]});
  hold(options, {ends[0], ends[1]});
  return loss;
}

void hold(const RunOptions& options, std::initializer_list<Tensor> outputs) {
  if (!options.held) return;
  for (const Tensor& output : outputs)
    if (output) options.held->push_back(output);
}

Tensor predicting(const RunOptions& options, const Tensor& hidden) {
  const std::int64_t length = hidden.size(1);
  return slice(hidden, 1, options.logits_kept > 0 ? std::max<std::int64_t>(0, length - options.logits_kept) : 0, length);
}

}  // namespace plimsoll::program
