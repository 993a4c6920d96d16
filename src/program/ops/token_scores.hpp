/// How likely a model finds given tokens, as trainers with losses of their own ask for it (TRL).
#pragma once

#include "program/tape.hpp"

namespace plimsoll::program {

/// What is computed of each scored token beside its log-probability.
struct TokenMetrics {
  bool entropy = false, mean_logits = false, is_top1 = false;
};

/// Per scored token, fp32; what was not asked for is undefined.
struct TokenScores {
  Tensor log_probs, entropy, mean_logits;
  Tensor is_top1;  ///< booleans
};

/// ChunkedLogProbFunction of hidden [n, width] through weight [classes, width] (trl/kernels/chunked_logprob.py since 1.15): logits exist in
/// tiles of 4,096 tokens by 32,768 classes, which backward computes again; gradients add up in fp32. `bias` may be undefined.
TokenScores chunked_token_scores(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& targets, TokenMetrics metrics);

/// selective_log_softmax of logits [batch, length, classes] (trl/trainer/utils.py, 0.15 to 1.13): log-probabilities [batch, length]; of fp32
/// by logsumexp, sequence by sequence, of 16 bits by log_softmax, likewise.
Tensor selective_log_softmax(const Tensor& logits, const Tensor& labels);

/// The same by one Triton kernel over whole logits (trl/kernels/logprob_entropy.py since 1.14): four fp32 numbers a token; backward makes
/// the gradient of whole logits.
Tensor kernel_log_probs(const Tensor& logits, const Tensor& labels);

/// cross_entropy_loss of flash-attention's Triton kernel (flash_attn/ops/triton/cross_entropy.py), negated, of logits [tokens, classes]:
/// log-probabilities [tokens] fp32. Backward makes the gradient of whole logits, in their place where `in_place`.
Tensor flash_log_probs(const Tensor& logits, const Tensor& labels, bool in_place);

/// entropy_from_logits of logits [tokens, classes] by one function of torch.compile's: entropies [tokens] fp32; its backward makes the
/// gradient of whole logits.
Tensor compiled_entropy(const Tensor& logits);

/// part /= number, `part` a view of base: by CopySlices, whose result, with base's storage, takes base's place.
Tensor scale_part(const Tensor& base, const Tensor& part);

/// entropy_from_logits: 128 tokens at a time, [batch, length].
Tensor entropy_of_logits(const Tensor& logits);

}  // namespace plimsoll::program
