/// Attention of llama's relatives.
#pragma once

#include <optional>
#include <vector>

#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/layers.hpp"
#include "program/modules/liger.hpp"
#include "program/modules/network.hpp"
#include "program/modules/transformers/rotary_style.hpp"

namespace plimsoll::program::rotary {

/// Keyword arguments of every layer; a checkpointed layer's closure keeps them all.
struct LayerInputs {
  Tensor full_mask, sliding_mask;
  RotaryTables tables, sliding_tables = {};  ///< gemma3's sliding layers have another base
  Tensor positions;
};

class Attention {
 public:
  Attention(Module& module, Tape& tape, const RunOptions& options, const Block& block, const Style& style);

  /// `probabilities`: the second of the results, which the layer keeps until it returns.
  Tensor operator()(const Tensor& input, const LayerInputs& inputs, Tensor& probabilities) const;

 private:
  Tensor attend_masked(const Tensor& query, const Tensor& key, const Tensor& value, const LayerInputs& inputs, Tensor& probabilities) const;
  void norm_both(Tensor& query, Tensor& key) const;
  void clamp_all(Tensor& query, Tensor& key, Tensor& value) const;
  Linear projection(const char* name) { return Linear(module_.child(name), tape_); }
  void project(const Tensor& hidden, Tensor& query, Tensor& key, Tensor& value) const;
  void project_complex(const Tensor& hidden, const RotaryTables& tables, Tensor& query, Tensor& key, Tensor& value) const;
  void rotate_both(Tensor& query, Tensor& key, const RotaryTables& tables, std::vector<Tensor>& parts) const;

  Module& module_;
  Tape& tape_;
  const RunOptions& options_;
  const AttentionSpec& spec_;
  Style style_;
  double dropout_ = 0;
  Linear q_, k_, v_, output_;
  std::optional<PatchedNorm> q_norm_, k_norm_;
  std::vector<Norm> q_norms_, k_norms_;  ///< stablelm: of every head
};

}  // namespace plimsoll::program::rotary
