/// torch.nn.attention.varlen.varlen_attn: flash attention over sequences that are packed end to end.
#include "program/attention_library.hpp"
#include "program/ops/attention_kernels.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

struct Packed {
  AttentionLibrary library;
  std::int64_t tokens, sequences, heads, kv_heads, head_dim;

  /// Sequences of equal length, one after another.
  Attention attention(Attention::Part part, DType type) const {
    Attention attention;
    attention.library = library;
    attention.part = part;
    attention.type = type;
    attention.causal = true;
    attention.batch = sequences;
    attention.heads = heads;
    attention.kv_heads = kv_heads;
    attention.queries = attention.keys = length();
    attention.head_dim = attention.value_dim = head_dim;
    return attention;
  }
  std::int64_t length() const { return tokens / sequences; }
  std::int64_t padded() const { return tokens + 128 * sequences; }  ///< rows of the accumulators: every sequence on a block of its own
};

std::vector<Tensor> forward_kernel(Tape& tape, const Tensor& query, const Packed& s) {
  Tensor out = tape.empty(query.sizes(), query.dtype());
  Tensor statistics = tape.empty({s.heads, s.tokens}, DType::fp32);
  {
    const Tensor state = tape.empty({2}, DType::int64), unused = tape.empty({1}, DType::int64);
    tape.kernel({s.attention(Attention::Part::forward, query.dtype())});
  }
  Tensor state = tape.empty({2}, DType::int64);
  return {std::move(out), std::move(statistics), std::move(state)};
}

void backward_kernel(BackwardCall& b, const Packed& s) {
  Tape& tape = b.tape;
  const DType type = b.saved(0).dtype();
  const Tensor no_statistics = zeros(tape, {s.heads, s.tokens}, DType::fp32);  // gradients of the other outputs
  Tensor query = tape.empty({s.tokens, s.heads, s.head_dim}, type);
  Tensor key = tape.empty({s.tokens, s.kv_heads, s.head_dim}, type), value = tape.empty({s.tokens, s.kv_heads, s.head_dim}, type);
  {
    const Tensor products = tape.empty({s.heads, s.padded()}, DType::fp32, Category::workspace);
    const Tensor accumulator = tape.empty({s.padded(), s.heads, round_up(s.head_dim, 32)}, DType::fp32, Category::workspace);
    Tensor wide_key, wide_value;
    if (s.heads != s.kv_heads) {
      wide_key = tape.empty({s.tokens, s.heads, s.head_dim}, type, Category::workspace);
      wide_value = tape.empty({s.tokens, s.heads, s.head_dim}, type, Category::workspace);
    }
    tape.kernel({s.attention(Attention::Part::backward, type)});
  }
  b.give(0, std::move(query));
  b.give(1, std::move(key));
  b.give(2, std::move(value));
}

}  // namespace

VarlenOutputs varlen_attention_with_statistics(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t sequences) {
  const Packed s{torch_flash(query.tape().device), query.size(0), sequences, query.size(1), key.size(1), query.size(2)};
  Op op("varlen_attention", {&query, &key, &value});
  op.save(query);
  op.save(key);
  op.save(value);
  const std::vector<Tensor> outputs = selected(op.tape(), "varlen_attention", [&] { return forward_kernel(op.tape(), query, s); });
  Tensor out = outputs[0];
  for (const Tensor& output : outputs) op.save_output(output);
  return {op.done(out, [s](BackwardCall& b) { backward_kernel(b, s); }), outputs[1]};
}

Tensor varlen_attention(const Tensor& query, const Tensor& key, const Tensor& value, std::int64_t sequences) {
  return varlen_attention_with_statistics(query, key, value, sequences).output;
}

}  // namespace plimsoll::program
