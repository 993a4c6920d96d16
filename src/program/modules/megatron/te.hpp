/// Transformer Engine's modules as Megatron-core's default layer spec uses them, on one rank. Tensors are [sequence, batch, …].
/// Sources: transformer_engine/pytorch/module/{layernorm_linear,linear}.py, ops/basic/rmsnorm.py of Transformer Engine 2.11.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "program/kernels.hpp"
#include "program/modules/megatron/runtime.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// A tensor in 8 or 4 bits, with its scales: in its own layout, transposed, or both. Without quantization the tensor itself.
struct TeOperand {
  Tensor straight, transposed;

  /// What a weight's gradient needs of an input.
  const Tensor& kept() const { return transposed ? transposed : straight; }
};

/// x as a product reads it; `turned`: the transposed copy too, where products need one. `measured`: whoever made x found its greatest
/// value, which is not that of its transformed columns (normalization.cpp, Impl::UNFUSED).
TeOperand te_quantize(MegatronRuntime& runtime, const Tensor& x, bool turned, bool measured = false);

/// What a weight's gradient is computed from, held beyond the pass: copies, as Primus' WeightGradStore.put makes them, or the tensors
/// themselves, which its autograd functions before it hand over.
std::vector<Tensor> te_held(const MegatronRuntime& runtime, std::initializer_list<const Tensor*> tensors);

/// The product of a weight's gradient, which reads `read`: at once, or in the slot that the schedule has for it.
template <class Product>
void te_run_or_defer(MegatronRuntime& runtime, const Product& product, std::initializer_list<const Tensor*> read) {
  if (!runtime.defers_weight_gradients()) return product();
  runtime.defer([product, held = te_held(runtime, read)] { product(); });
}

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

/// What a linear saves of its input for the weight's gradient.
enum class TeInput {
  cast,     ///< in the bits of the product
  original  ///< as it is, which somebody else saves too, to be cast again (save_original_input)
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
Tensor te_linear(MegatronRuntime& runtime, const Tensor& x, const Tensor& weight, const Tensor& bias, TeParallel parallel,
                 TeInput saved = TeInput::cast);

}  // namespace plimsoll::program
