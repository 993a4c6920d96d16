/// Scaled dot-product attention by cuDNN: aten::_scaled_dot_product_cudnn_attention (aten/src/ATen/native/cudnn/MHA.cpp).
#include <vector>

#include "program/attention_pass.hpp"
#include "program/ops/attention_kernels.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// The counter of tiles that the kernels of a launch share.
constexpr std::int64_t kTileCounter = 4;

Attention attention_of(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
                       const AttentionArguments& arguments) {
  Attention attention = attention_over(AttentionLibrary::cudnn, query, key, value);
  attention.causal = arguments.causal;
  attention.masked = bias.defined();
  attention.dropout = arguments.dropout > 0;
  return attention;
}

void set_tile_counter(Tape& tape) { tape.copy({Copy::Direction::set, kTileCounter}, tape.stream); }

/// Bytes that the backward kernels write beside the gradients, in one allocation: the counter, row sums, the queries' gradient in fp32 and,
/// where query heads share a key head, both gradients of every query head.
std::int64_t backward_workspace(const Attention& a) {
  const std::int64_t rows = a.batch * a.heads * a.queries, shared = a.heads == a.kv_heads ? 0 : a.batch * a.heads * a.keys;
  return kTileCounter + rows * (1 + a.head_dim) * size_of(DType::fp32) + shared * (a.head_dim + a.value_dim) * size_of(a.type);
}

void cudnn_backward(BackwardCall& b, const Tensor& bias, const AttentionArguments& arguments) {
  const Tensor &query = b.saved(2), &key = b.saved(1), &value = b.saved(3), &output = b.saved(5);
  const Tensor gradient = cudnn_gradient(b.grad(), output);
  FlashGradients all = cudnn_attention_backward(query, key, value, bias, arguments);
  b.give(0, std::move(all.query));
  b.give(1, std::move(all.key));
  b.give(2, std::move(all.value));
}

}  // namespace

Tensor cudnn_gradient(const Tensor& gradient, const Tensor& output) {
  const bool fits = gradient.tape().torch.cudnn_takes_any_gradient() ? gradient.strides()[-1] == 1 : gradient.strides() == output.strides();
  if (fits) return gradient;
  Tensor copy = empty_like(output);
  in_place(copy, {&gradient});
  return copy;
}

FlashOutputs cudnn_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
                                     const AttentionArguments& arguments) {
  Tape& tape = query.tape();
  FlashOutputs all;
  all.rng_state = tape.empty({}, DType::int64);
  all.rng_offset = tape.empty({}, DType::int64);
  if (arguments.dropout > 0) in_place(all.rng_state, {&all.rng_offset});  // philox::unpack_cudnn
  all.output = empty_like(query);
  if (query.size(3) != value.size(3)) all.output = tape.empty({query.size(0), query.size(1), query.size(2), value.size(3)}, query.dtype());
  all.log_sum_exp = tape.empty({query.size(0), query.size(1), query.size(2), 1}, DType::fp32);
  tape.scratch(kTileCounter);
  set_tile_counter(tape);
  tape.kernel({attention_of(query, key, value, bias, arguments)});
  return all;
}

FlashGradients cudnn_attention_backward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
                                        const AttentionArguments& arguments) {
  Tape& tape = query.tape();
  Attention attention = attention_of(query, key, value, bias, arguments);
  attention.part = Attention::Part::backward;
  FlashGradients gradients{empty_like(query), empty_like(key), empty_like(value)};
  tape.scratch(backward_workspace(attention));
  set_tile_counter(tape);
  for (const Attention& kernel : kernels_of_pass(attention)) tape.kernel({kernel});
  return gradients;
}

Tensor cudnn_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                       const AttentionArguments& arguments) {
  Tensor bias = mask;
  if (mask && mask.dtype() == DType::boolean) bias = additive_attention_mask(query.tape(), mask, query.dtype());
  Op op("cudnn_attention", {&query, &key, &value, &bias});
  op.tell_number(arguments.causal);
  op.tell_rate(arguments.dropout);
  op.save(bias);
  op.save(key);
  op.save(query);
  op.save(value);
  const std::vector<Tensor> outputs = selected(op.tape(), "cudnn_attention", [&]() -> std::vector<Tensor> {
    FlashOutputs all = cudnn_attention_forward(query, key, value, bias, arguments);
    return {all.output, all.log_sum_exp, all.rng_offset, all.rng_state};
  });
  Tensor out = outputs[0];
  op.save_output(outputs[1]);
  op.save_output(out);
  op.save_output(outputs[2]);
  op.save_output(outputs[3]);
  return op.done(out, [arguments](BackwardCall& b) { cudnn_backward(b, b.saved(0), arguments); });
}

}  // namespace plimsoll::program
