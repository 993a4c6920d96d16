/// Multi-head latent attention of DeepSeek-V2 and V3: queries, keys and values from compressed states, one rotated key for all heads.
#pragma once

#include <optional>

#include "plimsoll/model.hpp"
#include "program/modules/layers.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::program {

class LatentAttention {
 public:
  /// How the rotary parts turn: by complex numbers (v2), by pairs of neighbours (v3), by halves (v3 without rope_interleave).
  enum class Rotation { complex, neighbours, halves };
  LatentAttention(Module& module, Tape& tape, const RunOptions& options, const Block& block, Rotation rotation);
  /// `probabilities`: the second of the results, which the layer keeps until it returns.
  Tensor operator()(const Tensor& input, const Tensor& mask, const RotaryTables& tables, const Tensor& positions,
                    Tensor& probabilities) const;

 private:
  struct Keys {
    Tensor key, value;
  };
  Linear projection(const char* name);
  Tensor queries(const Tensor& hidden) const;
  void rotate_both(Tensor& query, Tensor& key, const RotaryTables& tables) const;
  Keys expand_keys(const Tensor& compressed, const Tensor& rotated) const;

  Module& module_;
  Tape& tape_;
  const RunOptions& options_;
  const AttentionSpec& spec_;
  const MlaSpec& mla_;
  Rotation rotation_;
  std::optional<Norm> q_norm_;
  Norm kv_norm_;
  Linear q_down_, q_up_, kv_down_, kv_up_, output_;
};

}  // namespace plimsoll::program
