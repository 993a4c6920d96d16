// One small function per kind of operator: its parameters in registration order, how tensor parallelism cuts them, its matrix FLOPs.
//
// An operator that is a whole block ("lm_head") has an empty name: its parameters are then called "weight", "bias".
// flops_per_token counts the multiplications of matrices (two per multiply-add); what is element-wise is priced by its traffic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plimsoll/model.hpp"

namespace plimsoll::model {

/// How Megatron-style tensor parallelism runs a linear.
enum class Parallel : std::uint8_t { none, column, row };

struct LinearSpec {
  std::int64_t in = 0, out = 0;
  bool bias = false;
  Parallel parallel = Parallel::none;
  bool transposed = false;  ///< gpt2's Conv1D: the weight is stored as [in, out]
};

Operator linear(const std::string& name, const LinearSpec& spec);
/// A table of `rows` vectors; cut over the vocabulary when `vocabulary`.
Operator embedding(const std::string& name, std::int64_t rows, std::int64_t width, bool vocabulary = true);
Operator position_embedding(const std::string& name, std::int64_t rows, std::int64_t width);
/// LayerNorm or RMSNorm by the spec's kind and width.
Operator norm(const std::string& name, const NormSpec& spec);
/// Rotation of queries and keys: `rotary_dim` of each head's `head_dim` elements.
Operator rope(const std::string& name, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim);
/// softmax(q·kᵀ)·v. Its FLOPs depend on the length and are not in flops_per_token. Owns gpt_oss's sinks.
Operator attention(const std::string& name, const AttentionSpec& spec);
Operator activation(const std::string& name, const std::string& function, std::int64_t width);
Operator multiply(const std::string& name, std::int64_t width);
Operator add(const std::string& name, std::int64_t width);
Operator scale(const std::string& name, std::int64_t width);
Operator dropout(const std::string& name, std::int64_t width);
Operator softmax(const std::string& name, std::int64_t width);
/// A router's projection on the experts and the choice of top_k; its bias is a parameter where `bias`.
Operator router(const std::string& name, std::int64_t hidden, std::int64_t experts, std::int64_t top_k, bool bias = false);

struct ExpertsSpec {
  std::int64_t hidden = 0, intermediate = 0, experts = 0, top_k = 0;
  bool gated = true;
  bool bias = false;        ///< gpt_oss
  bool transposed = false;  ///< gpt_oss stores [experts, in, out]
  std::string activation;
  std::string up_name = "gate_up_proj", down_name = "down_proj";
};
/// All routed experts of a layer as the grouped tensors [experts, out, in] of transformers 5.
Operator experts(const std::string& name, const ExpertsSpec& spec);

/// a·b, a·b·c …: throws Error when the product leaves 63 bits.
std::int64_t product(const std::vector<std::int64_t>& factors);

ParameterTensor parameter(const std::string& name, std::vector<std::int64_t> shape, Cut cut = Cut::replicated);

}  // namespace plimsoll::model
