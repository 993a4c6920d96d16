/// The gated feed-forward network that llama's relatives share: down(activation(gate(x)) * up(x)).
#pragma once

#include "plimsoll/model.hpp"
#include "program/modules/bare.hpp"
#include "program/modules/layers.hpp"

namespace plimsoll::program {

class GatedMlp {
 public:
  /// `liger`: LigerSwiGLUMLP, LigerPhi3SwiGLUMLP or LigerGEGLUMLP.
  GatedMlp(Module& module, Tape& tape, std::string activation, bool fused_gate_up = false, bool liger = false);
  Tensor operator()(const Tensor& input) const;

 private:
  Tensor separate(const Tensor& x) const;
  Tensor fused(const Tensor& x) const;
  Tensor liger(const Tensor& x) const;

  Module& module_;
  Tape& tape_;
  std::string activation_;
  bool fused_, liger_;
  Activation act_fn_;
  Linear gate_, up_, down_;
};

}  // namespace plimsoll::program
