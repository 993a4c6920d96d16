#include "program/modules/transformers/dense_mixture.hpp"

#include "program/ops/ops.hpp"

namespace plimsoll::program {

DenseMixture::DenseMixture(Module& module, Tape& tape, const MoeSpec& spec)
    : module_(module),
      tape_(tape),
      spec_(spec),
      router_(module.child("router")),
      experts_(module.child("experts")),
      router_linear_(router_, tape),
      act_fn_(experts_, "act_fn", tape, spec.activation),
      shared_(module.child("shared_expert"), tape, spec.activation) {}

Tensor DenseMixture::operator()(const Tensor& input, Tensor& logits) const {
  Tensor tokens = input;
  ModuleCall call(module_, tape_, {&tokens});
  const Tensor hidden = reshape(tokens, {-1, spec_.hidden});
  tokens.reset();
  Tensor router_logits;
  const Tensor scores = route(hidden, router_logits);
  Tensor routed = view(contiguous(expand(unsqueeze(hidden, 0), {spec_.experts, -1, -1})), {-1, spec_.hidden});  // repeat
  routed = multiply(routed, reshape(transpose(scores, 0, 1), {-1, 1}));
  const Tensor mixed = run_experts(routed);
  Tensor output = shared_(hidden);
  {
    const Tensor total = sum(view(mixed, {spec_.experts, -1, spec_.hidden}), {0}, false);
    output = add_into(output, total);
  }
  call.done({&output, &router_logits});
  logits = router_logits;
  return view(output, input.sizes());
}

Tensor DenseMixture::route(const Tensor& input, Tensor& logits) const {
  Tensor hidden = input;
  ModuleCall call(router_, tape_, {&hidden});
  logits = linear(hidden, router_.tensor("weight"));
  const TopK best = top_k(logits, spec_.top_k);
  Tensor scores = scattered_last(filled(tape_, logits.sizes(), logits.dtype()), best.indices, best.values);
  {
    const Tensor wide = to(scores, DType::fp32);
    const Tensor open = sigmoid(wide);
    scores = to(open, scores.dtype());
  }
  call.done({&scores, &logits});
  return scores;
}

Tensor DenseMixture::run_experts(const Tensor& input) const {
  Tensor rows = input;
  ModuleCall call(experts_, tape_, {&rows});
  rows = view(rows, {spec_.experts, -1, spec_.hidden});
  const Tensor gate_up = bmm(rows, experts_.tensor("gate_up_proj"));
  const std::vector<Tensor> halves = chunk(gate_up, 2, -1);
  Tensor result;
  {
    Tensor inner;
    {
      const Tensor active = act_fn_(halves[0]);
      inner = multiply(halves[1], active);
    }
    result = bmm(inner, experts_.tensor("down_proj"));
  }
  return call.done(view(result, {-1, spec_.hidden}));
}

}  // namespace plimsoll::program
