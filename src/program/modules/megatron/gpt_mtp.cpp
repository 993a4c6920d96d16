// Multi-token prediction: modules behind the decoder of a model's last chunk, each of which reads the decoder's hidden states and the
// embedding of one token further on, and whose losses hang on the main one.
// Source: megatron/core/transformer/multi_token_prediction.py of Megatron-core 0.16.1.
#include "program/checkpoint.hpp"
#include "program/kernels.hpp"
#include "program/modules/megatron/gpt.hpp"
#include "program/modules/megatron/mappings.hpp"
#include "program/modules/megatron/ops.hpp"
#include "program/modules/megatron/te.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

/// roll_tensor: the sequence one place further, its last place zeroed, and the sum of what is left.
Tensor rolled(Tape& tape, const Tensor& x) {
  Tensor next = elementwise(tape, {&x}, x.dtype());
  const Tensor last = tape.empty({x.size(0)}, x.dtype(), Category::workspace);
  pointwise(Pointwise::Form::map, {}, {&last});
  const Tensor total = tape.empty({}, x.dtype());
  plimsoll::program::reduce(total, next, Reduction::Axis::all);
  return next;
}

}  // namespace

/// MultiTokenPredictionLayer._proj_and_transformer_layer and its final norm.
Tensor MegatronChunk::predict(std::size_t depth, const Tensor& hidden, const Tensor& embedded, const Tensor& rotary_embedding) {
  const Prediction& prediction = predictions_[config_.prediction.repeated ? 0 : depth];
  ModuleCall call(prediction.module, runtime_.tape(), {});
  Tensor x;
  {
    const Tensor ahead = norm(prediction.module.child("enorm"), embedded), here = norm(prediction.module.child("hnorm"), hidden);
    x = cat({ahead, here}, -1);
  }
  Module& joining = prediction.module.child("eh_proj");
  {
    const QuantizationScope recipe(runtime_, joining);
    Tensor columns = te_linear(runtime_, x, joining.tensor("weight"), {}, TeParallel::column);
    x = gather_columns(runtime_, columns);
  }
  if (runtime_.sequence_parallel()) x = scatter_sequence(runtime_, x);
  for (const auto& layer : prediction.layers) x = run(*layer, x, rotary_embedding);
  return call.done(norm(prediction.module.child("final_layernorm"), x));
}

/// MultiTokenPredictionBlock.forward: the decoder's hidden states with the losses of all predictions behind them.
Tensor MegatronChunk::predict_further(const Tensor& hidden, const Tensor& rotary_embedding, const MegatronBatch& batch) {
  Tape& tape = runtime_.tape();
  std::vector<Tensor> states{hidden};
  MegatronBatch ahead = batch;
  for (std::int64_t depth = 0; depth < config_.prediction.depth; ++depth) {
    ahead.tokens = rolled(tape, ahead.tokens);
    ahead.positions = rolled(tape, ahead.positions);
    const Tensor embedded = embed(ahead);
    const auto index = static_cast<std::size_t>(depth);
    const Region region = [this, index](const std::vector<Tensor>& in) { return predict(index, in[0], in[1], in[2]); };
    const bool again = config_.recompute.kind == Recompute::Kind::full;
    states.push_back(again ? checkpoint_reentrant(tape, region, {states.back(), embedded, rotary_embedding})
                           : region({states.back(), embedded, rotary_embedding}));
  }
  const Tensor all = cat(states, 0);
  states.clear();
  return attach_predictions(all, batch);
}

/// process_mtp_loss.
Tensor MegatronChunk::attach_predictions(const Tensor& hidden, const MegatronBatch& batch) {
  Tape& tape = runtime_.tape();
  const std::vector<Tensor> states = chunk(hidden, static_cast<int>(config_.prediction.depth) + 1, 0);
  Tensor attached = states.front(), labels = clone(batch.labels), mask = batch.loss_mask;
  for (std::size_t depth = 1; depth < states.size(); ++depth) {
    labels = rolled(tape, labels);
    mask = rolled(tape, mask);
    const Tensor losses = loss(states[depth], labels);
    const Tensor masked = multiply(mask, losses);
    {
      const Tensor logged = sum(masked.detach(), {}, false);
      in_place(logged, {&logged});
    }
    const Tensor scaled = multiply_scalar(masked);
    attached = attach_loss(attached, scaled);
  }
  return attached;
}

}  // namespace plimsoll::program
