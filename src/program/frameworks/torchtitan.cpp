// TorchTitan's Trainer: the decoder under fully_shard, its loss, clipping and optimizer.
#include <algorithm>
#include <numeric>

#include "plimsoll/error.hpp"
#include "program/frameworks/torchtitan_init.hpp"
#include "program/frameworks/torchtitan_loss.hpp"
#include "program/lower.hpp"
#include "program/modules/torchtitan_decoder.hpp"
#include "program/op.hpp"
#include "program/optimizer.hpp"
#include "program/wrappers/fsdp2.hpp"

namespace plimsoll::program {

namespace {

void refuse_what_is_not_modelled(const Strategy& s) {
  if (s.pp > 1) refuse("pipeline stages of TorchTitan are not modelled", "pp");
  if (s.cp > 1) refuse("context parallelism of TorchTitan is not modelled", "cp");
  if (s.ep > 1) refuse("expert parallelism of TorchTitan is not modelled", "ep");
  if (s.low_precision != LowPrecision::none) refuse("low-precision products of TorchTitan are not modelled", "precision");
  if (s.compile == Strategy::Compile::blocks) refuse("compiled blocks of TorchTitan are not modelled", "compile");
  if (s.tp > 1 && s.titan.spmd_backend == "partial_dtensor")
    refuse("tensor parallelism over DTensor is not modelled", "spmd_backend", "spmd_types");
  if (s.lora) refuse("adapters in TorchTitan are not modelled", "lora");
  if (s.attention == AttentionKernel::flash_varlen || s.attention == AttentionKernel::cudnn)
    refuse("attention '" + std::string(name_of(s.attention)) + "' is not modelled for TorchTitan", "attention");
  if (s.data_parallel != DataParallel::fsdp2) refuse("TorchTitan without fully_shard is not modelled", "data_parallel");
}

TitanRun run_of(const Model& model, const Strategy& s) {
  TitanRun run;
  run.tensor_parallel = {.degree = s.tp, .sequence = s.sequence_parallel};
  run.fused_qkv = s.titan.fused_qkv.value_or(true);
  run.positions_given = s.titan.rope_positions_given.value_or(true);
  run.complex_rope = model.model_type.rfind("qwen3", 0) != 0;
  run.skip_head = s.loss == LossKernel::chunked;
  run.length = s.seq_len;
  switch (s.recompute.kind) {
    case Recompute::Kind::automatic:
    case Recompute::Kind::none:
      break;
    case Recompute::Kind::full:
      run.checkpointing = TitanRun::Checkpointing::full;
      break;
    case Recompute::Kind::alternate:
      run.checkpointing = TitanRun::Checkpointing::full;
      run.every = s.recompute.every > 0 ? s.recompute.every : 2;
      break;
    case Recompute::Kind::operators:
      run.checkpointing = TitanRun::Checkpointing::operators;
      break;
    default:
      refuse("this recomputation is not TorchTitan's", "recompute");
  }
  return run;
}

Fsdp2Options fsdp2_options(const Strategy& s) {
  if (s.fsdp.reshard == FsdpOptions::Reshard::number)
    refuse("reshard_after_forward to a smaller group is not modelled", "fsdp.reshard_after_forward");
  Fsdp2Options options;
  options.shard = s.fsdp_degree;
  options.replicate = s.dp_replicate;
  options.param_dtype = s.compute_dtype;
  options.reduce_dtype = s.reduce_dtype;
  options.cast_forward_inputs = false;
  options.reshard_after_forward = s.fsdp.reshard != FsdpOptions::Reshard::never;
  options.offload_to_host = s.offload.params;
  return options;
}

/// apply_fsdp_to_decoder: the embedding, norm and head together, every layer; tied tables are one unit with the norm.
std::vector<std::vector<Module*>> units_of(TitanDecoder& decoder, bool tied) {
  std::vector<std::vector<Module*>> units;
  if (tied) {
    units.push_back({decoder.embedding(), decoder.norm(), decoder.head()});
  } else {
    if (decoder.embedding()) units.push_back({decoder.embedding()});
    if (decoder.head()) units.push_back({decoder.norm(), decoder.head()});
  }
  for (std::size_t i = 0; i < decoder.layers(); ++i) units.push_back({&decoder.layer(i)});
  return units;
}

/// One micro-batch on the device.
struct TitanBatch {
  Tensor tokens, positions, labels;
};

class Trainer {
 public:
  Trainer(const Model& model, const Strategy& strategy)
      : strategy_(strategy),
        decoder_(model, run_of(model, strategy), whole_model(model), tape_),
        sharded_(tape_, decoder_.root(), units_of(decoder_, model.tied_embeddings), fsdp2_options(strategy)) {
    if (decoder_.norm()) sharded_.set_reshard_after_forward(*decoder_.norm(), strategy.fsdp.reshard == FsdpOptions::Reshard::always);
  }

  StepProgram record() {
    tape_.phase(Phase::init);
    sharded_.materialize();
    initialize_weights(tape_, decoder_, strategy_.fsdp_degree);
    shards_ = sharded_.shards();
    optimizer_ = make_optimizer(strategy_.optimizer, strategy_.optimizer_impl, tape_, shards_);
    for (const Tape::Part part : {Tape::Part::first_step, Tape::Part::step}) {
      tape_.record_into(part);
      train_step();
    }
    return tape_.take();
  }

 private:
  static TitanStage whole_model(const Model& model) {
    TitanStage stage;
    stage.layers.resize(static_cast<std::size_t>(model.layers));
    std::iota(stage.layers.begin(), stage.layers.end(), 0);
    return stage;
  }

  TitanBatch next_batch() {
    tape_.operator_name = "inputs";
    const Dims sizes{strategy_.micro_batch, strategy_.seq_len};
    const auto input = [&] { return tape_.empty(sizes, DType::int64, Category::input); };
    TitanBatch batch{input(), {}, {}};
    batch.positions = input();
    batch.labels = input();
    return batch;
  }

  /// dist_sum_tensor(local_valid_tokens.to(device)).
  Tensor count_tokens() {
    const Tensor local = tape_.empty({}, DType::int64, Category::input);
    return elementwise(tape_, {&local}, DType::int64);
  }

  void train_step() {
    const Tensor valid_tokens = count_tokens();
    std::vector<TitanBatch> batches;  // train_step's list keeps all micro-batches of the step
    Tensor loss;
    for (std::int64_t i = 0; i < std::max<std::int64_t>(strategy_.grad_accum, 1); ++i) {
      batches.push_back(next_batch());
      loss = forward_backward(batches.back(), valid_tokens);
    }
    tape_.phase(Phase::optimizer);
    if (strategy_.clip_grad_norm.value_or(true)) clip_grad_norm(tape_, shards_);
    optimizer_->step();
    optimizer_->zero_grad();
    tape_.phase(Phase::end);
  }

  Tensor forward_backward(const TitanBatch& batch, const Tensor& valid_tokens) {
    tape_.phase(Phase::forward);
    Tensor prediction = decoder_(batch.tokens, batch.positions);
    tape_.phase(Phase::loss);
    const LossInputs inputs{batch.labels, batch.positions, valid_tokens};
    Tensor loss = strategy_.loss == LossKernel::chunked ? chunked_loss(tape_, decoder_, sharded_, strategy_.loss_chunks, prediction, inputs)
                                                        : cross_entropy_loss(decoder_.run().tensor_parallel, prediction, inputs);
    prediction.reset();
    tape_.phase(Phase::backward);
    tape_.backward(loss);
    return loss;
  }

  Strategy strategy_;
  Tape tape_;
  TitanDecoder decoder_;
  Fsdp2 sharded_;
  std::vector<Tensor> shards_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

StepProgram lower_torchtitan(const Model& model, const Strategy& strategy, int) {
  refuse_what_is_not_modelled(strategy);
  Trainer trainer(model, strategy);
  return trainer.record();
}

}  // namespace plimsoll::program
