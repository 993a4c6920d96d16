/// Transformer Engine's modules as Megatron-core's default layer spec uses them, in 16 bits, on one rank. Tensors are [sequence, batch, …].
/// Sources: transformer_engine/pytorch/module/{layernorm_linear,linear}.py, ops/basic/rmsnorm.py, attention/rope.py,
/// attention/dot_product_attention/{backends,context_parallel}.py, cross_entropy.py of Transformer Engine 2.11.
#pragma once

#include <cstdint>
#include <string>

#include "program/kernels.hpp"
#include "program/modules/megatron/ops.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// A tensor in 8 bits, with its scales: in its own layout, transposed, or both. Without quantization the tensor itself.
struct TeOperand {
  Tensor straight, transposed;

  /// What a weight's gradient needs of an input.
  const Tensor& kept() const { return transposed ? transposed : straight; }
};

/// x as a product reads it; `turned`: the transposed copy too, where products need one.
TeOperand te_quantize(MegatronRuntime& runtime, const Tensor& x, bool turned);

/// A product of a layer with a weight [out, in] over `rows` tokens, in the recipe's types: a weight's gradient is added to its main_grad
/// where products do so themselves.
struct TeProduct {
  LinearShape shape;
  ProductOptions options;
};
TeProduct te_product(const MegatronRuntime& runtime, LinearPass pass, std::int64_t rows, const Dims& weight, DType type);

/// Who a linear's product is shared with.
enum class TeParallel : std::uint8_t {
  none,    ///< whole, or cut by somebody else (experts, MLA's down projections)
  column,  ///< the output is cut: the input is gathered where the sequence is cut
  row      ///< the input is cut: the output is summed over the ranks
};

/// Parameters of a norm; `bias` undefined for RMSNorm.
struct TeNorm {
  Tensor weight, bias;
};

/// te.pytorch.RMSNorm and LayerNorm.
Tensor te_norm(const Tensor& x, const TeNorm& norm);

/// te.pytorch.LayerNormLinear, column parallel: the norm's output is saved beside its input, unless the weight is frozen. `bias` may be
/// undefined. `normed`, where given, receives the norm's output too (return_layernorm_output).
Tensor te_layernorm_linear(MegatronRuntime& runtime, const Tensor& x, const TeNorm& norm, const Tensor& weight, const Tensor& bias,
                           Tensor* normed = nullptr);

/// te.pytorch.Linear. `bias` may be undefined.
Tensor te_linear(MegatronRuntime& runtime, const Tensor& x, const Tensor& weight, const Tensor& bias, TeParallel parallel);

/// apply_rotary_pos_emb(fused=True): x [s, b, heads, width] turned by `table`.
Tensor te_rotary(const Tensor& x, const Tensor& table);

/// te.pytorch.DotProductAttention on the fused kernels of the library that it chooses: query [s, b, heads, width], key and value with their own heads and widths →
/// [s, b, heads · value width]. Under context parallelism each rank has its part of the sequence; `exchange` says how they meet:
/// "a2a" trades sequence for heads, "p2p" passes keys and values around the ring. `in_eight_bits`: fp8_dot_product_attention. Throws Error
/// (refused): another exchange, or eight bits with an exchange of heads.
struct TeAttention {
  std::string exchange;
  bool in_eight_bits = false;
};
Tensor te_attention(MegatronRuntime& runtime, const Tensor& query, const Tensor& key, const Tensor& value, const TeAttention& options);

/// te_parallel_cross_entropy: logits [s, b, V/tp] turn into their gradient in place, target [s, b] → loss [s, b] in fp32.
Tensor te_cross_entropy(MegatronRuntime& runtime, const Tensor& logits, const Tensor& target);

}  // namespace plimsoll::program
