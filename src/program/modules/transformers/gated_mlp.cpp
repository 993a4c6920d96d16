#include "program/modules/transformers/gated_mlp.hpp"

#include "program/ops/liger.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

GatedMlp::GatedMlp(Module& module, Tape& tape, std::string activation, bool fused_gate_up, bool liger)
    : module_(module),
      tape_(tape),
      activation_(std::move(activation)),
      fused_(fused_gate_up),
      liger_(liger),
      act_fn_(module, "act_fn", tape, activation_),
      gate_(module.child(fused_gate_up ? "gate_up_proj" : "gate_proj"), tape),
      down_(module.child("down_proj"), tape) {
  if (!fused_gate_up) up_ = Linear(module.child("up_proj"), tape);
}

Tensor GatedMlp::operator()(const Tensor& input) const {
  Tensor x = input;
  ModuleCall call(module_, tape_, {&x});
  if (module_.replacement) return call.done(module_.replacement(x));
  if (liger_) return call.done(liger(x));
  return call.done(fused_ ? fused(x) : separate(x));
}

Tensor GatedMlp::separate(const Tensor& x) const {
  Tensor gate = gate_(x);
  gate = act_fn_(gate);
  {
    const Tensor up = up_(x);
    gate = multiply(gate, up);
  }
  return down_(gate);
}

Tensor GatedMlp::fused(const Tensor& x) const {
  Tensor up = gate_(x);
  const std::vector<Tensor> halves = chunk(up, 2, -1);
  up = halves[1];
  {
    const Tensor active = act_fn_(halves[0]);
    up = multiply(up, active);
  }
  return down_(up);
}

Tensor GatedMlp::liger(const Tensor& x) const {
  const char* activation = activation_ == "silu" || activation_ == "swish" ? "silu" : "gelu";
  Tensor product;
  if (fused_) {
    Tensor both = gate_(x);
    const std::vector<Tensor> halves = chunk(both, 2, -1);
    both.reset();
    product = liger_gated(activation, halves[0], halves[1]);
    return down_(product);
  }
  {
    const Tensor gate = gate_(x), up = up_(x);
    product = liger_gated(activation, gate, up);
  }
  return down_(product);
}

}  // namespace plimsoll::program
