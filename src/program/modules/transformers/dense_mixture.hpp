/// A mixture whose experts all see every token, scaled by its score: Llama4TextMoe.
#pragma once

#include "plimsoll/model.hpp"
#include "program/modules/bare.hpp"
#include "program/modules/transformers/gated_mlp.hpp"

namespace plimsoll::program {

class DenseMixture {
 public:
  /// `module` is the sparse block (model.layers.3.feed_forward).
  DenseMixture(Module& module, Tape& tape, const MoeSpec& spec);
  /// [batch, length, hidden] to the same; `logits` gets the second of the results.
  Tensor operator()(const Tensor& input, Tensor& logits) const;

 private:
  /// Llama4Router: sigmoids of the best logits, zero elsewhere, [tokens, experts].
  Tensor route(const Tensor& hidden, Tensor& logits) const;
  /// Llama4TextExperts: two batched products over all experts' rows.
  Tensor run_experts(const Tensor& rows) const;

  Module& module_;
  Tape& tape_;
  MoeSpec spec_;
  Module& router_;
  Module& experts_;
  Linear router_linear_;
  Activation act_fn_;
  GatedMlp shared_;
};

}  // namespace plimsoll::program
