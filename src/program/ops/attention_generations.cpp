/// flash-attention 3 (hopper/flash_attn_interface.py and flash_api.cpp) and 4 (flash_attn/cute/interface.py) of August 2026. Neither has
/// dropout, nor a generator's state to keep: transformers leaves the argument out where a function has none
/// (_process_flash_attention_kwargs).
#include "program/ops/attention_generations.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {
namespace {

/// [batch, length, heads, dim].
struct Rows {
  FlashAttnArguments arguments;
  std::int64_t batch, queries, keys, heads, kv_heads, dim;

  bool grouped() const { return heads != kv_heads; }
  bool is_third() const { return arguments.library == AttentionLibrary::flash3; }
  bool looks_back_alone() const { return arguments.causal || arguments.window > 0; }

  Attention attention(Attention::Part part, DType type) const {
    Attention attention;
    attention.library = arguments.library;
    attention.part = part;
    attention.type = type;
    attention.causal = arguments.causal;
    attention.batch = batch;
    attention.heads = heads;
    attention.kv_heads = kv_heads;
    attention.queries = queries;
    attention.keys = keys;
    attention.head_dim = attention.value_dim = dim;
    attention.window = arguments.window;
    return attention;
  }
};

/// The head as the kernels' tiles have it: 3's round_up_headdim, 4's multiples of 32.
std::int64_t tile_width(const Rows& r) {
  if (!r.is_third()) return round_up(r.dim, 32);
  for (const std::int64_t width : {64, 96, 128, 192})
    if (r.dim <= width) return width;
  return 256;
}

/// Queries and keys of a backward block: mha_bwd's kBlockM and kBlockN, _tile_size_bwd_sm90 and its like.
struct Block {
  std::int64_t queries, keys;
};
Block block_of(const TargetDevice& device, const Rows& r) {
  const std::int64_t width = tile_width(r);
  if (device.from(120)) return {64, 64};
  if (device.from(100)) return {128, r.dim >= 128 ? 2 * 128 : 128};  // pairs of blocks share a cluster (use_2cta_instrs)
  const std::int64_t rows = width <= 64 ? 128 : width <= 96 || width > 128 || r.looks_back_alone() ? 64 : 80;
  const std::int64_t widest = r.is_third() ? 80 : 64;
  return {rows, width <= 128 ? 128 : width <= 192 ? 96 : widest};
}

/// Blackwell's kernels of heads of 256 add their gradients up within themselves (use_dedicated_hd256_kernel).
bool adds_up_within(const TargetDevice& device, const Rows& r) {
  return !r.is_third() && device.from(100) && !device.from(120) && r.dim == 256;
}

/// The backward kernels and what they need beside the gradients: row sums, the statistics to base two, dQ in fp32, and dK and dV too where
/// heads share them.
void run_backward(Tape& tape, const Rows& r, DType type) {
  const Block block = block_of(tape.device, r);
  const std::int64_t rows = round_up(r.queries, block.queries), columns = round_up(r.keys, block.keys), width = tile_width(r);
  const bool within = adds_up_within(tape.device, r);
  const auto numbers = [&](std::int64_t heads, std::int64_t each) {
    return tape.empty({r.batch, heads, each}, DType::fp32, Category::workspace);
  };
  Tensor query, key, value, semaphores;
  if (!r.is_third() && !within) query = numbers(r.heads, rows * width);
  const Tensor row_sums = numbers(r.heads, rows), statistics = numbers(r.heads, rows);
  if (r.is_third()) query = numbers(r.heads, rows * width);
  if (r.grouped() && !within) {
    key = zeros(tape, {r.batch, r.kv_heads, columns * width}, DType::fp32);
    value = zeros(tape, {r.batch, r.kv_heads, columns * width}, DType::fp32);
  }
  if (r.is_third()) semaphores = tape.empty({ceil_div(r.queries, block.queries), r.batch, r.heads}, DType::int32, Category::workspace);
  for (const Attention::Part part : {Attention::Part::delta, Attention::Part::backward, Attention::Part::convert})
    tape.kernel({r.attention(part, type)});
  if (key)
    for (int i = 0; i < 2; ++i) tape.kernel({r.attention(Attention::Part::sum_heads, type)});
}

}  // namespace

Tensor later_flash_attn(const Tensor& query, const Tensor& key, const Tensor& value, const FlashAttnArguments& arguments) {
  if (query.size(-1) % 8 != 0)
    fail("flash-attention's later generations take heads of whole multiples of 8", "attention", "flash, which pads");
  PythonFunction op("FlashAttnFunc", {&query, &key, &value});
  Tape& tape = op.tape();
  const Rows r{arguments, query.size(0), query.size(1), key.size(1), query.size(2), key.size(2), query.size(3)};
  Tensor out = tape.empty(query.sizes(), query.dtype());
  const Tensor statistics = tape.empty({r.batch, r.heads, r.queries}, DType::fp32);
  if (r.is_third() && r.looks_back_alone()) {  // the counter of a scheduler that deals blocks out
    const Tensor counter = tape.empty({1}, DType::int32, Category::workspace);
    memset(counter);
  }
  tape.kernel({r.attention(Attention::Part::forward, query.dtype())});
  for (const Tensor* kept : {&query, &key, &value}) op.save(*kept);
  op.save_output(out);
  op.save(statistics);
  return op.done(out, [r](BackwardCall& b) {
    const Tensor grad = b.grad().strides()[3] == 1 ? b.grad() : contiguous(b.grad());
    Tensor query_gradient = empty_like(b.saved(0)), key_gradient = empty_like(b.saved(1)), value_gradient = empty_like(b.saved(2));
    run_backward(b.tape, r, b.saved(0).dtype());
    b.give(0, std::move(query_gradient));
    b.give(1, std::move(key_gradient));
    b.give(2, std::move(value_gradient));
  });
}

}  // namespace plimsoll::program
