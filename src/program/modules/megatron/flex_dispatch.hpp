/// MoEFlexTokenDispatcher: a token goes once to every rank that holds one of its experts, or, where the ranks lie in several NVLink
/// domains, once to every domain, from where it is handed on. With all-to-all it goes once for each of its experts.
/// Sources: megatron/core/transformer/moe/{token_dispatcher,fused_a2a}.py of Megatron-core, csrc of deepseek-ai/DeepEP (main: DeepEP,
/// hybrid-ep: HybridEP).
#pragma once

#include <cstdint>

#include "program/modules/megatron/runtime.hpp"
#include "program/modules/megatron/te_experts.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// What is dispatched, on every rank alike.
struct FlexOptions {
  bool hybrid = false;      ///< HybridEP, which puts tokens into the order of their experts itself; else DeepEP
  std::int64_t ranks = 1;   ///< expert-parallel ones
  std::int64_t domain = 1;  ///< ranks that NVLink joins
  std::int64_t experts = 1, top_k = 1;
  bool in_turn = false;        ///< a token's experts follow one another, from token to token around; else they are drawn
  double imbalance = 1;        ///< rows that this rank gets, over the mean
  bool permute_fusion = true;  ///< DeepEP's rows are put in order by Transformer Engine's permutation, else by PyTorch's operators
};

/// Parts of `parts` equal ones, among which `experts` lie, that hold one of a token's `top_k` experts, chosen at random: the expectation.
double parts_of_token(std::int64_t experts, std::int64_t top_k, std::int64_t parts);
/// The same where token i has the experts i · top_k, i · top_k + 1, … around the end: the mean of all tokens.
double parts_of_token_in_turn(std::int64_t experts, std::int64_t top_k, std::int64_t parts);

class FlexDispatch {
 public:
  FlexDispatch(MegatronRuntime& runtime, const FlexOptions& options) : runtime_(runtime), options_(options) {}

  /// Rows [tokens, hidden] and their probabilities [tokens, experts] → `received` rows in the order of this rank's experts.
  TePermuted dispatch(const Tensor& rows, const Tensor& probabilities, std::int64_t received) const;
  /// The way back: [tokens, hidden].
  Tensor combine(const Tensor& rows, const TePermuted& dispatched, std::int64_t tokens) const;

 private:
  double parts(std::int64_t among) const;
  std::int64_t arrived(std::int64_t tokens) const;
  void exchange(std::int64_t tokens, std::int64_t width, DType type, bool weighted = false) const;
  TePermuted dispatch_hybrid(const Tensor& rows, const Tensor& probabilities, std::int64_t received) const;
  TePermuted dispatch_deep(const Tensor& rows, const Tensor& probabilities, std::int64_t received) const;
  Tensor exchanged(const char* name, const Tensor& x, std::int64_t rows, std::int64_t tokens) const;

  MegatronRuntime& runtime_;
  FlexOptions options_;
};

}  // namespace plimsoll::program
