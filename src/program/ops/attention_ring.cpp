/// torch.distributed.tensor.experimental's ring attention over a context-parallel group, keys and values all-gathered, head-tail balanced:
/// the first rank's part (its later steps attend with the second half of its queries).
#include "program/ops/attention_kernels.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

struct Ring {
  std::int64_t ranks, batch, heads, kv_heads, length, head_dim;
};

Tensor like(Tape& tape, const Ring& s, std::int64_t heads, std::int64_t length, DType type) {
  return tape.empty({s.batch, heads, length, s.head_dim}, type);
}

/// The second half of the queries from the second step on.
Tensor queries_of(const Ring& s, std::int64_t step, const Tensor& query) {
  if (step == 0) return query;
  return query.tape().view(query, {s.batch, s.heads, s.length / 2, s.head_dim}, query.strides());
}

/// Keys or values of another rank, in what was gathered.
Tensor of_other_rank(const Ring& s, const Tensor& gathered) {
  const Dims sizes{s.batch, s.kv_heads, s.length, s.head_dim};
  return gathered.tape().view(gathered, sizes, contiguous_strides(sizes));
}

/// torch.cat: what one kernel puts side by side.
Tensor joined(Tape& tape, const Dims& sizes, DType type) {
  Tensor whole = tape.empty(sizes, type);
  concatenate(whole, {whole});
  return whole;
}

/// Keys and values side by side, gathered once from all ranks.
Tensor exchange(Tape& tape, const Ring& s, const Tensor& pair, const Tensor& gathered) {
  if (gathered) return gathered;
  Tensor all = tape.empty({s.ranks * pair.elements()}, pair.dtype(), Category::communication_buffer);
  tape.collective({.kind = CollectiveKind::all_gather, .group = Group::context, .bytes = all.bytes(), .type = all.dtype()}, kComputeStream);
  return all;
}

/// _SDPAMerger._merge_one of a partial result: the second half of the merged output is replaced.
Tensor merged_with(Tape& tape, const Tensor& merged, const Tensor& half, Tensor& statistics, const Tensor& half_statistics) {
  Tensor updated, correction;
  {
    Tensor weight = elementwise(tape, {&half_statistics}, DType::fp32);
    weight = elementwise(tape, {&weight}, DType::fp32);
    Tensor difference = elementwise(tape, {&half}, DType::fp32);
    Tensor scaled = elementwise(tape, {&difference}, DType::fp32);
    difference.reset();
    weight.reset();
    updated = elementwise(tape, {&scaled}, DType::fp32);
  }
  correction = elementwise(tape, {&half_statistics}, DType::fp32);
  correction = elementwise(tape, {&correction}, DType::fp32);
  correction = elementwise(tape, {&correction}, DType::fp32);
  statistics = joined(tape, statistics.sizes(), DType::fp32);
  Tensor result = tape.empty(merged.sizes(), DType::fp32);
  in_place(result, {&merged, &updated});
  return result;
}

std::vector<Tensor> ring_forward(Tape& tape, const Tensor& query, const Tensor& key_in, const Tensor& value_in, const Ring& s) {
  const DType type = query.dtype();
  Tensor key = contiguous(key_in), value = contiguous(value_in);
  Tensor gathered, pair, out, merged, statistics, state, unused, last_statistics, last_state, last_unused;
  for (std::int64_t i = 0; i < s.ranks; ++i) {
    if (i == 1) pair.reset();  // held until the gather was waited for
    if (i + 1 < s.ranks) {
      pair = joined(tape, {2 * s.batch * s.kv_heads * s.length * s.head_dim}, type);
      gathered = exchange(tape, s, pair, gathered);
      if (i > 0) pair.reset();
    }
    if (i == 1) {  // the first step's keys and values are named until this one's are
      key.reset();
      value.reset();
    }
    const Tensor keys = i == 0 ? key : of_other_rank(s, gathered), values = i == 0 ? value : of_other_rank(s, gathered);
    FlashOutputs part = flash_attention_forward(queries_of(s, i, query), keys, values, i == 0, 0);
    out = std::move(part.output);
    last_statistics = std::move(part.log_sum_exp);
    last_state = std::move(part.rng_state);
    last_unused = std::move(part.rng_offset);
    const Tensor wide = elementwise(tape, {&out}, DType::fp32);
    if (i == 0) {
      merged = wide;
      statistics = last_statistics;
      state = last_state;
      unused = last_unused;
    } else {
      merged = merged_with(tape, merged, wide, statistics, last_statistics);
    }
  }
  Tensor result = elementwise(tape, {&merged}, type);
  return {std::move(result), std::move(statistics), std::move(state), std::move(unused)};
}

void ring_backward(BackwardCall& b, const Ring& s) {
  Tape& tape = b.tape;
  const DType type = b.saved(0).dtype();
  const std::int64_t pair_elements = 2 * s.batch * s.kv_heads * s.length * s.head_dim;
  Tensor of_query = like(tape, s, s.heads, s.length, DType::fp32);
  Tensor of_key = like(tape, s, s.kv_heads, s.length, DType::fp32), of_value = like(tape, s, s.kv_heads, s.length, DType::fp32);
  Tensor key = contiguous(b.saved(1)), value = contiguous(b.saved(2));
  Tensor gathered, pair, sent, received, before, half_statistics;  // `before`: what the key and value gradients view
  FlashGradients step;
  for (std::int64_t i = 0; i < s.ranks; ++i) {
    if (i + 1 < s.ranks) {
      pair = joined(tape, {pair_elements}, type);
      gathered = exchange(tape, s, pair, gathered);
    }
    const std::int64_t queries = i == 0 ? s.length : s.length / 2;
    if (i > 0) {
      half_statistics = joined(tape, {s.batch, s.heads, queries}, DType::fp32);
      key.reset();
      value.reset();
    }
    const Tensor keys = i == 0 ? key : of_other_rank(s, gathered), values = i == 0 ? value : of_other_rank(s, gathered);
    {
      // The kernel reads both contiguous; halves of a batch of several are not.
      const Tensor incoming = tape.empty({s.batch, queries, s.heads, s.head_dim}, type);
      const Tensor outgoing = i > 0 && s.batch > 1 ? tape.empty(incoming.sizes(), type) : Tensor();
      step = flash_attention_backward(queries_of(s, i, b.saved(0)), keys, values, incoming, i == 0);
    }
    if (i > 0) {
      before.reset();
      sent.reset();
      of_key.reset();
      of_value.reset();
    }
    {
      const Tensor flat_key = i == 0 ? clone(of_key) : Tensor(), flat_value = i == 0 ? clone(of_value) : Tensor();
      sent = joined(tape, {pair_elements}, DType::fp32);
    }
    before = std::move(received);
    received = tape.empty({pair_elements}, DType::fp32, Category::communication_buffer);
    tape.collective({.kind = CollectiveKind::all_to_all, .group = Group::context, .bytes = received.bytes(), .type = DType::fp32},
                    kComputeStream);
    if (i > 0) of_query = elementwise(tape, {&of_query}, DType::fp32);
  }
  Tensor low_query = elementwise(tape, {&of_query}, type);
  of_query.reset();
  const Tensor low_pair = elementwise(tape, {&received}, type);
  const Dims sizes{s.batch, s.kv_heads, s.length, s.head_dim};
  b.give(0, std::move(low_query));
  b.give(1, tape.view(low_pair, sizes, contiguous_strides(sizes)));
  b.give(2, tape.view(low_pair, sizes, contiguous_strides(sizes)));
}

}  // namespace

Tensor ring_attention(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t ranks) {
  const Ring s{ranks, query.size(0), query.size(1), key.size(1), query.size(2), query.size(3)};
  Op op("ring_attention", {&query, &key, &value});
  for (const Tensor* input : {&query, &key, &value}) op.save(*input);
  const std::vector<Tensor> outputs = selected(op.tape(), "flash_attention", [&] {
    const GradMode no_grad(op.tape(), false);
    return ring_forward(op.tape(), query, key, value, s);
  });
  Tensor out = outputs[0];
  for (const Tensor& output : outputs) op.save_output(output);
  return op.done(out, [s](BackwardCall& b) { ring_backward(b, s); });
}

}  // namespace plimsoll::program
