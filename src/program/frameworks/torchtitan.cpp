// TorchTitan's Trainer: the decoder under fully_shard, its loss, clipping and optimizer.
#include <algorithm>
#include <numeric>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/schedule.hpp"
#include "program/frameworks/torchtitan_pipeline.hpp"
#include "program/frameworks/torchtitan_stage.hpp"
#include "program/lower.hpp"
#include "program/modules/torchtitan_decoder.hpp"
#include "program/modules/torchtitan_moe.hpp"
#include "program/op.hpp"
#include "program/optimizer.hpp"

namespace plimsoll::program {

namespace {

/// The code of the end of 2024: one rotary table, separate projections, a root unit around embedding, norm and head.
bool before_0_3(const Strategy& s) { return !s.titan.fused_qkv.value_or(true) && !s.titan.rope_positions_given.value_or(true); }

bool splits_backward(const Strategy& s) {
  return s.pp_schedule == "interleaved-zero-bubble" || s.pp_schedule == "zbv" || s.pp_schedule == "dualpipev";
}

void refuse_what_is_not_modelled(const Strategy& s) {
  const bool compiled = s.compile == Strategy::Compile::blocks;
  if (before_0_3(s) && s.loss == LossKernel::chunked) refuse("TorchTitan had no chunked loss before 0.3", "loss", "cross_entropy");
  if (before_0_3(s) && (s.tp > 1 || s.pp > 1) && !(compiled && s.recompute.kind == Recompute::Kind::full && !profile_of(s).fused_rms_norm))
    refuse("tensor and pipeline parallelism of TorchTitan before 0.3 are modelled for torch 2.7, compiled, with full recomputation",
           "framework_version", "0.3.0");
  if (before_0_3(s) && s.tp > 1 && !s.sequence_parallel)
    refuse("TorchTitan before 0.3 had no tensor parallelism without sequence parallelism", "sequence_parallel", "true");
  if (s.pp > 1 && splits_backward(s)) {
    if (s.recompute.kind != Recompute::Kind::none && s.recompute.kind != Recompute::Kind::automatic)
      refuse("recomputation under a backward in halves is not modelled", "recompute", "none");
    if (s.fsdp.reshard == FsdpOptions::Reshard::always)
      refuse("weights resharded between the halves of a backward are not modelled", "fsdp.reshard_after_forward", "default");
  }
  if (s.cp > 1 && ((before_0_3(s) && !compiled) || s.attention == AttentionKernel::flash_varlen))
    refuse("context parallelism of TorchTitan is modelled for scaled dot-product attention, before 0.3 in compiled blocks", "cp");
  if (s.ep > 1 && before_0_3(s)) refuse("expert parallelism of TorchTitan before 0.3 is not modelled", "framework_version", "0.3.0");
  if (s.ep > 1 && s.moe.dispatcher != "alltoall")
    refuse("TorchTitan's token dispatcher '" + s.moe.dispatcher + "' is not modelled", "moe.moe_token_dispatcher_type", "alltoall");
  if (s.ep > 1 && s.moe.imbalance != 1) refuse("unbalanced experts are not modelled for TorchTitan", "moe_imbalance", "1");
  if (s.ep > 1 && s.tp > 1 && !s.sequence_parallel)
    refuse("expert parallelism of TorchTitan beside tensor parallelism is modelled with sequence parallelism", "sequence_parallel");
  // float8 products keep their 16-bit inputs for backward, eager (torchao's rowwise linear) and compiled; the casts die with the product.
  const bool eager_rowwise = !compiled && !before_0_3(s) && s.fp8_scaling == Fp8Scaling::rowwise;
  const bool float8 = s.low_precision == LowPrecision::fp8 && ((compiled && before_0_3(s)) || eager_rowwise);
  const bool mxfp8 = s.low_precision == LowPrecision::mxfp8 && compiled && before_0_3(s);  // mx_mm keeps its 16-bit arguments
  const bool nvfp4 = s.low_precision == LowPrecision::nvfp4 && compiled && before_0_3(s) && s.pp == 1;
  if (s.low_precision != LowPrecision::none && !float8 && !mxfp8 && !nvfp4)
    refuse("low-precision products of TorchTitan are not modelled", "precision");
  if (compiled && !before_0_3(s)) refuse("compiled blocks of TorchTitan 0.3 are not modelled", "compile");
  if (s.lora) refuse("adapters in TorchTitan are not modelled", "lora");
  if (is_8bit(s.optimizer)) refuse("bitsandbytes' optimizers do not take FSDP2's DTensors", "optimizer", "adamw");
  if (s.attention == AttentionKernel::cudnn)
    refuse("attention '" + std::string(name_of(s.attention)) + "' is not modelled for TorchTitan", "attention");
  if (s.data_parallel != DataParallel::fsdp2) refuse("TorchTitan without fully_shard is not modelled", "data_parallel");
}

TitanRun run_of(const Model& model, const Strategy& s) {
  TitanRun run;
  run.tensor_parallel = {.degree = s.tp,
                         .sequence = s.sequence_parallel,
                         .asynchronous = s.async_tp.value_or(false),
                         .functional = s.titan.spmd_backend == "partial_dtensor"};
  run.one_table = model.tied_embeddings && run.tensor_parallel.functional && !run.tensor_parallel.on();
  run.fused_qkv = s.titan.fused_qkv.value_or(true);
  run.positions_given = s.titan.rope_positions_given.value_or(true);
  run.complex_rope = run.truncated_init = model.model_type.rfind("qwen3", 0) != 0;
  run.expert_ranks = s.ep;
  run.float8_rowwise = s.low_precision == LowPrecision::fp8 && !before_0_3(s);
  const bool mixture = std::any_of(model.blocks.begin(), model.blocks.end(), [](const Block& block) { return block.moe.has_value(); });
  if (run.float8_rowwise && mixture) refuse("float8 products of TorchTitan's mixtures of experts are not modelled", "precision");
  run.skip_head = s.loss == LossKernel::chunked;
  run.length = s.seq_len;
  run.context_ranks = s.cp;
  run.packed = s.attention == AttentionKernel::flash_varlen;
  run.fused_norm = profile_of(s).fused_rms_norm;
  if (before_0_3(s)) {
    run.shared_table = model.max_positions;
    run.grouped_attention = false;
    run.early_stop = true;
    run.compiled = s.compile == Strategy::Compile::blocks;
    if (s.low_precision == LowPrecision::nvfp4) run.four_bit_layers = model.layers - s.bf16_tail_layers;
    run.compiled_loss = run.compiled && s.loss == LossKernel::compiled && profile_of(s).fused_rms_norm;  // torch 2.8, as the norm
  }
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

/// The schedule of one run over `micro_batches`.
Schedule schedule_of(const Strategy& s) { return make_schedule(s.pp_schedule, s.pp, static_cast<int>(s.micro_batches_per_run()), s.vp); }

/// The model's stages that pipeline rank `rank` holds, by chunk.
std::vector<int> stage_indices(const Strategy& s, int rank) {
  const Schedule schedule = schedule_of(s);
  std::vector<int> stages;
  for (int chunk = 0; chunk < s.vp; ++chunk) stages.push_back(schedule.stage_of(rank, chunk));
  return stages;
}

/// The parts of the model that pipeline rank `rank` holds.
std::vector<TitanStage> stages_of(const Model& model, const Strategy& s, int rank) {
  if (s.pp == 1) {
    TitanStage whole;
    whole.layers.resize(static_cast<std::size_t>(model.layers));
    std::iota(whole.layers.begin(), whole.layers.end(), 0);
    return {whole};
  }
  const int count = s.pp * s.vp;
  std::vector<TitanStage> stages;
  for (int index : stage_indices(s, rank)) {
    TitanStage stage{.layers = {}, .embedding = index == 0, .head = index == count - 1};
    std::int64_t from = 0;
    for (int before = 0; before < index; ++before) from += s.pp_layers[static_cast<std::size_t>(before)];
    stage.layers.resize(static_cast<std::size_t>(s.pp_layers[static_cast<std::size_t>(index)]));
    std::iota(stage.layers.begin(), stage.layers.end(), from);
    stages.push_back(std::move(stage));
  }
  return stages;
}

class Trainer {
 public:
  Trainer(const Model& model, const Strategy& strategy, int pipeline_rank) : strategy_(strategy), pipeline_rank_(pipeline_rank) {
    const TitanRun run = run_of(model, strategy);
    for (const TitanStage& stage : stages_of(model, strategy, pipeline_rank))
      parts_.push_back(std::make_unique<TitanPart>(model, strategy, run, stage, tape_));
  }

  StepProgram record() {
    tape_.phase(Phase::init);
    Tensor blas_workspace;
    if (before_0_3(strategy_)) {  // cuBLAS kept its workspace; later versions take it for each product
      blas_workspace = tape_.empty({tape_.gemm_workspace}, DType::uint8, Category::workspace);
      tape_.gemm_workspace = 0;
    }
    for (auto& part : parts_) part->materialize();
    for (auto& part : parts_)
      for (Tensor& shard : part->sharded().shards()) shards_.push_back(shard);
    optimizer_ = make_optimizer(strategy_.optimizer, strategy_.optimizer_impl, tape_, shards_, strategy_.state_dtype);
    for (const Tape::Part part : {Tape::Part::first_step, Tape::Part::step}) {
      tape_.record_into(part);
      train_step();
    }
    return tape_.take();
  }

 private:
  TitanBatch next_batch() {
    tape_.operator_name = "inputs";
    const bool whole = !before_0_3(strategy_);  // cp_shard cuts whole sequences that are on the device
    const Dims sizes{strategy_.micro_batch, whole ? strategy_.seq_len : strategy_.seq_len / strategy_.cp};
    const auto input = [&] { return tape_.empty(sizes, DType::int64, Category::input); };
    TitanBatch batch{input(), {}, {}};
    if (whole) batch.positions = input();
    batch.labels = input();
    return batch;
  }

  /// cp_shard: this rank's chunks of the sequences, the n-th from the front and the n-th from the back.
  TitanBatch context_part(const TitanBatch& batch) {
    if (strategy_.cp == 1 || before_0_3(strategy_)) return batch;
    tape_.operator_name = "cp_shard";
    const std::int64_t length = strategy_.seq_len;
    Tensor order;
    {
      const Tensor indices = tape_.empty({length}, DType::int32);
      const Tensor heads = tape_.empty({strategy_.cp}, DType::int64), tails = tape_.empty({strategy_.cp}, DType::int64);
      const Tensor front = tape_.empty({length / 2}, DType::int32), back = tape_.empty({length / 2}, DType::int32);
      order = elementwise(tape_, {&indices}, DType::int32);
    }
    const auto part = [&](const Tensor& whole) {
      const Tensor reordered = elementwise(tape_, {&whole}, whole.dtype());
      return tape_.empty({whole.size(0), length / strategy_.cp}, whole.dtype(), Category::input);
    };
    TitanBatch mine;
    mine.tokens = part(batch.tokens);
    mine.positions = part(batch.positions);
    mine.labels = part(batch.labels);
    return mine;
  }

  /// dist_sum_tensor(local_valid_tokens.to(device)).
  Tensor count_tokens() {
    const Tensor local = tape_.empty({}, DType::int64, Category::input);
    return elementwise(tape_, {&local}, DType::int64);
  }

  void train_step() {
    const Tensor valid_tokens = before_0_3(strategy_) ? Tensor() : count_tokens();
    std::vector<TitanBatch> batches;  // train_step's list keeps the tokens of all micro-batches of the step
    Tensor loss;
    for (std::int64_t i = 0; i < std::max<std::int64_t>(strategy_.grad_accum, 1); ++i) {
      if (strategy_.pp > 1) {
        run_pipeline(batches, valid_tokens);
      } else {
        batches.push_back(next_batch());
        forget_labels(batches, batches.size() - 1);
        loss = forward_backward(batches.back(), valid_tokens);
      }
    }
    tape_.phase(Phase::optimizer);
    if (strategy_.clip_grad_norm.value_or(true)) clip_grad_norm(tape_, shards_);
    for (auto& part : parts_) balance_experts(tape_, part->decoder().mixtures(), strategy_.recompute.kind != Recompute::Kind::none);
    optimizer_->step();
    for (auto& part : parts_) part->end_step();
    optimizer_->zero_grad();
    tape_.phase(Phase::end);
  }

  /// The labels of earlier groups of micro-batches are named until those of the next one are there.
  static void forget_labels(std::vector<TitanBatch>& batches, std::size_t earlier) {
    for (std::size_t i = 0; i < earlier; ++i) batches[i].labels.reset();
  }

  Tensor forward_backward(const TitanBatch& whole, const Tensor& valid_tokens) {
    TitanPart& part = *parts_.front();
    tape_.phase(Phase::forward);
    const TitanBatch batch = context_part(whole);
    Tensor prediction = part.decoder()(batch.tokens, batch.positions);
    tape_.phase(Phase::loss);
    Tensor loss = part.loss(prediction, batch, valid_tokens);
    prediction.reset();
    tape_.phase(Phase::backward);
    tape_.backward(loss);
    return loss;
  }

  void run_pipeline(std::vector<TitanBatch>& batches, const Tensor& valid_tokens) {
    const auto count = static_cast<std::size_t>(strategy_.micro_batches_per_run());
    const std::size_t from = batches.size();
    for (std::size_t i = 0; i < count; ++i) batches.push_back(next_batch());
    forget_labels(batches, from);
    std::vector<TitanBatch> own;
    for (std::size_t i = 0; i < count; ++i) own.push_back(context_part(batches[from + i]));
    if (from == 0 && !before_0_3(strategy_) && tape_.part() == Tape::Part::first_step) infer_metadata(parts_, own.front(), valid_tokens);
    if (strategy_.vp > 1) {
      const std::vector<StageAction> actions = actions_of(schedule_of(strategy_), pipeline_rank_);
      run_chunks({parts_, stage_indices(strategy_, pipeline_rank_), actions, own.data(), count, valid_tokens});
      return;
    }
    const PipelineRun run{*parts_.front(), own.data(), count, valid_tokens, strategy_.pp - pipeline_rank_};
    if (strategy_.pp_schedule == "gpipe") {
      run_gpipe(run);
    } else {
      run_1f1b(run);
    }
  }

  Strategy strategy_;
  int pipeline_rank_;
  Tape tape_;
  std::vector<std::unique_ptr<TitanPart>> parts_;
  std::vector<Tensor> shards_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace

StepProgram lower_torchtitan(const Model& model, const Strategy& strategy, int pipeline_rank) {
  refuse_what_is_not_modelled(strategy);
  Trainer trainer(model, strategy, pipeline_rank);
  return trainer.record();
}

}  // namespace plimsoll::program
