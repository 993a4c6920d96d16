/// The autograd functions of liger_kernel.ops (liger-kernel 0.8): what each allocates, saves and writes over.
#pragma once

#include <utility>

#include "program/tape.hpp"

namespace plimsoll::program {

/// LigerRMSNormFunction over the last dimension: saves x and a number per row. `in_place`: the gradient of x takes the place of y's.
Tensor liger_rms_norm(const Tensor& x, const Tensor& weight, bool in_place);

/// LigerRopeFunction of queries and keys, [batch, heads, length, head_dim] as views of the projections' outputs: turned where they lie,
/// like their gradients.
std::pair<Tensor, Tensor> liger_rope(const Tensor& query, const Tensor& key, const Tensor& cosine, const Tensor& sine);

/// LigerSiLUMulFunction and LigerGELUMulFunction: activation(gate) * up. Saves both; their gradients take their place.
Tensor liger_gated(const char* activation, const Tensor& gate, const Tensor& up);

/// LigerFusedMoEFunction of tokens x [n, width] through gate_up [experts, 2 · inner, width] and down [experts, width, inner], for the int32
/// choices and the weights [n, k] of a balanced router. Backward recomputes what lies between the products; all gradients are made at once.
Tensor liger_fused_moe(const Tensor& x, const Tensor& gate_up, const Tensor& down, const Tensor& choices, const Tensor& weights);

/// LigerCrossEntropyFunction of logits [n, classes], mean over the targets [n]: the logits' gradient takes their place in forward.
Tensor liger_cross_entropy(const Tensor& logits, const Tensor& target);

/// LigerFusedLinearCrossEntropyFunction of hidden [n, width] through weight [classes, width]: logits exist chunk by chunk, about as large
/// as the hidden states; the gradients of both arguments are computed in forward.
Tensor liger_fused_linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& target);

}  // namespace plimsoll::program
