// TorchTitan's Trainer: the decoder under fully_shard, its loss, clipping and optimizer.
#include <algorithm>
#include <numeric>
#include <utility>

#include "framework/torchtitan.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/schedule.hpp"
#include "program/frameworks/torchtitan/trainer.hpp"
#include "program/lower.hpp"
#include "program/modules/torchtitan/decoder.hpp"
#include "program/stage_actions.hpp"

namespace plimsoll::program {

namespace {

bool splits_backward(const Strategy& s) {
  return s.pp_schedule == "interleaved-zero-bubble" || s.pp_schedule == "zbv" || s.pp_schedule == "dualpipev";
}

void refuse_early_release(const Strategy& s, bool compiled) {
  const bool full = s.recompute.kind == Recompute::Kind::full, operators = s.recompute.kind == Recompute::Kind::operators;
  if (s.loss == LossKernel::chunked) fail("TorchTitan had no chunked loss before 0.3", "loss", "cross_entropy");
  if (compiled && s.tp > 1 && !full && !operators)
    refuse("tensor parallelism of TorchTitan's compiled blocks is modelled with full or per-operator recomputation", "recompute", "full");
  if (compiled && s.pp > 1 && !full)
    refuse("pipeline parallelism of TorchTitan's compiled blocks is modelled with full recomputation", "recompute", "full");
  if (s.tp > 1 && !s.loss_parallel.value_or(true))
    refuse("logits that are gathered over the tensor-parallel ranks are not modelled", "loss_parallel", "true");
  if (s.tp > 1 && !s.sequence_parallel.value_or(false))
    fail("TorchTitan before 0.3 had no tensor parallelism without sequence parallelism", "sequence_parallel", "true");
}

void refuse_low_precision(const Strategy& s, bool early, bool compiled) {
  // float8 products keep their 16-bit inputs for backward, eager (torchao's rowwise linear) and compiled; the casts die with the product.
  const bool eager_rowwise = !compiled && s.fp8_scaling == Fp8Scaling::rowwise;
  const bool float8 = s.low_precision == LowPrecision::fp8 && ((compiled && early) || eager_rowwise);
  const bool mxfp8 = s.low_precision == LowPrecision::mxfp8 && compiled && early;  // mx_mm keeps its 16-bit arguments
  const bool nvfp4 = s.low_precision == LowPrecision::nvfp4 && compiled && early && s.pp == 1;
  if (s.low_precision != LowPrecision::none && !float8 && !mxfp8 && !nvfp4)
    refuse("low-precision products of TorchTitan are not modelled", "precision");
}

void refuse_what_is_not_modelled(const Strategy& s) {
  const bool compiled = s.compile == Strategy::Compile::blocks;
  const bool early = !framework::titan_release(s).is_0_3();
  if (early) refuse_early_release(s, compiled);
  if (s.pp > 1 && splits_backward(s)) {
    if (s.recompute.kind == Recompute::Kind::operators)  // torch/utils/checkpoint.py: "Trying to backward an extra time"
      refuse("PyTorch goes back through a region of selective checkpointing once, a backward in halves several times", "recompute", "full");
    if (s.fsdp.reshard == FsdpOptions::Reshard::always)
      refuse("weights resharded between the halves of a backward are not modelled", "fsdp.reshard_after_forward", "default");
  }
  if (s.cp > 1 && (s.attention == AttentionKernel::flash_varlen || s.attention == AttentionKernel::memory_efficient))
    refuse("context parallelism of TorchTitan is modelled for scaled dot-product attention", "attention", "sdpa");
  if (s.attention == AttentionKernel::flex && s.cp > 1)
    refuse("context parallelism of TorchTitan is not modelled for flex_attention", "attention", "sdpa");
  if (s.ep > 1 && s.moe.dispatcher != "alltoall")
    refuse("TorchTitan's token dispatcher '" + s.moe.dispatcher + "' is not modelled", "moe.moe_token_dispatcher_type", "alltoall");
  refuse_low_precision(s, early, compiled);
  if (s.lora) refuse("adapters in TorchTitan are not modelled", "lora");
  if (s.attention == AttentionKernel::cudnn)
    refuse("attention '" + std::string(name_of(s.attention)) + "' is not modelled for TorchTitan", "attention");
  // Since April 2026 fully_shard wraps a model that nobody shards, too (00b7f5693).
  const bool alone = !early && s.data_parallel == DataParallel::none;
  if (s.data_parallel != DataParallel::fsdp2 && !alone) refuse("TorchTitan without fully_shard is not modelled", "data_parallel");
}

/// The router of the model's mixtures: a softmax but for DeepSeek-V3's sigmoid. The chosen scores are divided by their sum, but for those
/// of DeepSeek-V2's sizes.
TitanRun::Router router_of(const Model& model) {
  return {.softmax = model.model_type != "deepseek_v3", .normalized = model.model_type != "deepseek_v2"};
}

/// Float8LinearConverter's filter: linears whose widths 16 divides.
bool converts_router(const Model& model) {
  return std::any_of(model.blocks.begin(), model.blocks.end(), [](const Block& block) {
    return block.moe && !block.moe->router_bias && block.moe->experts % 16 == 0 && block.moe->hidden % 16 == 0;
  });
}

/// Scales of compiled layers' products in 8 bits (torchao's recipes; the default is a scale per tensor). Those of NVFP4 are said per layer.
Scaling product_scaling(const Strategy& s) {
  if (s.low_precision == LowPrecision::mxfp8) return Scaling::mxfp8;
  if (s.low_precision != LowPrecision::fp8) return Scaling::none;
  return s.fp8_scaling == Fp8Scaling::rowwise ? Scaling::row : Scaling::tensor;
}

/// What releases before 0.3 do otherwise.
void set_early_release(TitanRun& run, const Strategy& s, const Model& model, const framework::TitanRelease& release) {
  run.shared_table = true;
  run.positions_given = s.cp > 1 && release.shards_context_itself();  // cp_shard's positions; else a table's first rows
  run.ends_in_root = !release.wraps_ends();
  run.grouped_attention = release.groups_heads();
  run.early_stop = !release.recomputes_to_the_end();
  run.experts = release.unsorts_experts() ? TitanRun::Experts::unsorted : TitanRun::Experts::scattered;
  run.keeps_exchanges = model.model_type.rfind("deepseek", 0) == 0;  // _op_sac_save_list of Qwen3's parallelize.py lacks all_to_all_single
  run.gives_outputs = !release.drops_pipeline_outputs();
  if (release.rescales_loss()) run.loss_divisions = s.pp > 1 ? 2 : 1;
  run.early_blocks = true;
  run.product_scaling = product_scaling(s);
  if (s.low_precision == LowPrecision::nvfp4) run.four_bit_layers = model.layers - s.bf16_tail_layers;
  const bool compiles_loss = s.loss == LossKernel::compiled && profile_of(s).fused_rms_norm;  // torch 2.8, as the norm
  run.compiled_loss = compiles_loss && s.tp == 1;
  run.keeps_cudnn_attention = release.keeps_cudnn_attention();
}

TitanRun run_of(const Model& model, const Strategy& s) {
  TitanRun run;
  run.tensor_parallel = {.degree = s.tp,
                         .sequence = s.sequence_parallel.value_or(false),
                         .asynchronous = s.async_tp.value_or(false),
                         .functional = s.titan.spmd_backend == "partial_dtensor"};
  const framework::TitanRelease release = framework::titan_release(s);
  const bool early = !release.is_0_3();
  run.tied = framework::torchtitan_ties(release, model);
  run.one_table = run.tied && !early && run.tensor_parallel.functional && !run.tensor_parallel.on();
  run.fused_qkv = s.titan.fused_qkv.value_or(true);
  run.positions_given = s.titan.rope_positions_given.value_or(true);
  const bool qwen = model.model_type.rfind("qwen3", 0) == 0;
  run.truncated_init = !qwen && !early;  // PyTorch's own of that time drew in place and looked at nothing
  run.complex_rope = !qwen && model.model_type != "gpt_oss";
  run.fused_draw = model.model_type != "gpt_oss";
  run.expert_ranks = s.ep;
  run.imbalance = s.ep > 1 ? s.moe.imbalance : 1;
  run.float8_rowwise = s.low_precision == LowPrecision::fp8 && s.compile != Strategy::Compile::blocks;
  if (run.float8_rowwise && converts_router(model))
    fail("TorchTitan's float8 linears take the router's gate, which runs in autocast to fp32: torchao fails there", "precision", "bf16");
  if (run.float8_rowwise && model.has_experts()) refuse("float8 products of TorchTitan's mixtures of experts are not modelled", "precision");
  run.router = router_of(model);
  run.skip_head = s.loss == LossKernel::chunked;
  run.length = s.seq_len;
  run.context_ranks = s.cp;
  if (s.attention == AttentionKernel::flash_varlen) run.attention = TitanRun::Attention::varlen;
  if (s.attention == AttentionKernel::memory_efficient) run.attention = TitanRun::Attention::efficient;
  if (s.attention == AttentionKernel::flex) run.attention = TitanRun::Attention::flex;
  run.cudnn_attention = s.cudnn_attention.value_or(false);
  run.fused_norm = profile_of(s).fused_rms_norm;
  run.compiled = s.compile == Strategy::Compile::blocks;
  run.compiled_loss = s.titan.compiled_loss.value_or(false) && s.tp == 1;  // a vocabulary cut over ranks goes through loss_parallel's own operators
  if (early) set_early_release(run, s, model, release);
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

/// The model's stages that pipeline rank `rank` holds, by chunk.
std::vector<int> stage_indices(const Strategy& s, const Schedule& schedule, int rank) {
  std::vector<int> stages;
  for (int chunk = 0; chunk < s.vp; ++chunk) stages.push_back(schedule.stage_of(rank, chunk));
  return stages;
}

/// The part of the model that stage `index` of a pipeline is.
TitanStage stage_of(const Strategy& s, int index) {
  TitanStage stage{.layers = {}, .embedding = index == 0, .head = index == s.pp * s.vp - 1};
  std::int64_t from = 0;
  for (int before = 0; before < index; ++before) from += s.pp_layers[static_cast<std::size_t>(before)];
  stage.layers.resize(static_cast<std::size_t>(s.pp_layers[static_cast<std::size_t>(index)]));
  std::iota(stage.layers.begin(), stage.layers.end(), from);
  return stage;
}

TitanStage whole_model(const Model& model) {
  TitanStage whole;
  whole.layers.resize(static_cast<std::size_t>(model.layers));
  std::iota(whole.layers.begin(), whole.layers.end(), 0);
  return whole;
}

// ---- what is recorded of a pipeline --------------------------------------------------------------------------------------

/// Micro-batches of 1F1B's steady state (of the last rank, which keeps something of each), and groups of as many micro-batches as ranks of
/// a schedule with several chunks, that are recorded; the same blocks come and go for every further one.
constexpr std::int64_t kSteady = 8, kSteadyOfLast = 31, kGroups = 4;
bool has_one_chunk(const Strategy& s) { return s.vp == 1; }
bool is_gpipe(const Strategy& s) { return s.pp_schedule == "gpipe"; }
bool is_1f1b(const Strategy& s) { return has_one_chunk(s) && !is_gpipe(s); }

/// Micro-batches of one run that are recorded on a rank with `stages_from_here` stages to the last.
std::int64_t recorded_micro_batches(const Strategy& s, std::int64_t stages_from_here) {
  const std::int64_t all = s.micro_batches_per_run();
  if (s.grad_accum > 1 || is_gpipe(s)) return all;
  if (has_one_chunk(s)) return std::min(all, stages_from_here + (stages_from_here == 1 ? kSteadyOfLast : kSteady));
  return all % s.pp == 0 ? std::min(all, kGroups * s.pp) : all;
}

PassKind kind_of(StageAction::Kind kind) {
  switch (kind) {
    case StageAction::Kind::unshard:
      return PassKind::gather;
    case StageAction::Kind::reshard:
      return PassKind::reshard;
    case StageAction::Kind::forward:
      return PassKind::forward;
    case StageAction::Kind::backward:
      return PassKind::backward;
    case StageAction::Kind::input_gradient:
      return PassKind::input_gradient;
    case StageAction::Kind::weight_gradient:
      return PassKind::weight_gradient;
    case StageAction::Kind::reduce:
      return PassKind::reduce;
    case StageAction::Kind::receive_activation:
      return PassKind::receive_input;
    default:
      return PassKind::receive_gradient;
  }
}

std::vector<ScheduledPass> passes_of(const std::vector<StageAction>& actions, const std::vector<int>& stages) {
  std::vector<ScheduledPass> passes;
  for (const StageAction& action : actions) {
    const auto chunk = static_cast<int>(std::find(stages.begin(), stages.end(), action.stage) - stages.begin());
    const PassKind kind = kind_of(action.kind);
    const bool sends_back = kind == PassKind::backward || kind == PassKind::input_gradient;
    passes.push_back({kind, chunk, action.micro_batch, sends_back});  // what was sent lives until the schedule ends
  }
  return passes;
}

std::size_t forward_of(const std::vector<ScheduledPass>& passes, std::int64_t micro_batch) {
  const auto is_it = [&](const ScheduledPass& pass) {
    return pass.kind == PassKind::forward && pass.chunk == 0 && pass.micro_batch == micro_batch;
  };
  return static_cast<std::size_t>(std::find_if(passes.begin(), passes.end(), is_it) - passes.begin());
}

/// Which of torch.distributed.pipelining's loops runs schedules of several chunks.
Receives receives_of(const Strategy& strategy) {
  const bool has_runtime = strategy.releases.of(Package::torch).since(2, 10);
  return has_runtime ? Receives::with_send : Receives::before_use;
}

/// Marks the passes from the forward of `first` on as standing for those of the micro-batches that are left out, `period` at a time.
void repeat(TitanRankPlan& plan, std::int64_t first, std::int64_t period) {
  if (plan.left_out == 0) return;
  plan.repeat_begin = forward_of(plan.passes, first);
  plan.repeat_end = forward_of(plan.passes, first + period);
  plan.repeat_times = 1 + plan.left_out / period;
}

}  // namespace

/// A pipeline's schedules and what its ranks hold.
struct TitanPipeline::Impl {
  explicit Impl(const Lowering& of) : lowering(of), model(of.model), strategy(of.strategy), run(run_of(of.model, of.strategy)) {
    if (strategy.pp == 1) return;
    const auto run_in_chunks = static_cast<int>(recorded_micro_batches(strategy, 0));
    schedule = make_schedule(strategy.pp_schedule, strategy.pp, run_in_chunks, strategy.vp);
    if (!has_one_chunk(strategy)) actions = actions_of(schedule, receives_of(strategy));
  }

  TitanRankPlan plan_of(int rank, bool every_micro_batch) const {
    TitanRankPlan plan;
    plan.every_micro_batch = every_micro_batch;
    if (strategy.pp == 1) {
      plan.parts = {whole_model(model)};
      return plan;
    }
    const std::int64_t all = strategy.micro_batches_per_run(), from_here = strategy.pp - rank;
    plan.stages = stage_indices(strategy, schedule, rank);
    for (int index : plan.stages) {
      plan.parts.push_back(stage_of(strategy, index));
      plan.parts.back().rank_before = rank_of(index - 1, rank);
      plan.parts.back().rank_behind = rank_of(index + 1, rank);
    }
    plan.ranks = strategy.pp;
    if (is_1f1b(strategy)) plan.sends = TitanRankPlan::Sends::with_next;
    if (!has_one_chunk(strategy)) {
      plan.sends = TitanRankPlan::Sends::in_advance;
      plan.pairs = receives_of(strategy) == Receives::with_send;
    }
    plan.micro_batches = every_micro_batch ? all : recorded_micro_batches(strategy, from_here);
    plan.left_out = all - plan.micro_batches;
    if (!has_one_chunk(strategy)) {
      const Schedule whole =
          every_micro_batch ? make_schedule(strategy.pp_schedule, strategy.pp, static_cast<int>(all), strategy.vp) : Schedule();
      plan.passes = passes_of(every_micro_batch ? actions_of(whole, receives_of(strategy))[static_cast<std::size_t>(rank)]
                                                : actions[static_cast<std::size_t>(rank)],
                              plan.stages);
      repeat(plan, (kGroups / 2) * strategy.pp, strategy.pp);
    } else if (is_gpipe(strategy)) {
      plan.passes = passes_of_gpipe(plan.micro_batches);
    } else {
      plan.passes = passes_of_1f1b(plan.micro_batches, from_here);
      repeat(plan, from_here + (kSteady - 1) / 2, 1);
    }
    return plan;
  }

  /// The rank that holds stage `index`, where that is another one than `own`.
  int rank_of(int index, int own) const {
    for (int rank = 0; rank < strategy.pp; ++rank) {
      const std::vector<int> stages = stage_indices(strategy, schedule, rank);
      if (rank != own && std::find(stages.begin(), stages.end(), index) != stages.end()) return rank;
    }
    return -1;
  }

  Lowering lowering;
  const Model& model;
  const Strategy& strategy;
  TitanRun run;
  Schedule schedule;                              ///< of the micro-batches that are recorded
  std::vector<std::vector<StageAction>> actions;  ///< by rank, where ranks hold several chunks
};

TitanPipeline::TitanPipeline(const Lowering& run) {
  refuse_what_is_not_modelled(run.strategy);
  impl_ = std::make_unique<Impl>(run);
}
TitanPipeline::~TitanPipeline() = default;

StepProgram TitanPipeline::rank(int pipeline_rank, StepProgram spare) { return recorded({pipeline_rank}, std::move(spare)); }

StepProgram TitanPipeline::recorded(const Rank& rank, StepProgram spare) const {
  const TitanRankPlan plan = impl_->plan_of(rank.pipeline, rank.every_micro_batch);
  try {
    return TitanTrainer(impl_->lowering, impl_->run, plan, rank.calls_passes).record(std::move(spare));
  } catch (const Routine::Differs&) {
    return TitanTrainer(impl_->lowering, impl_->run, plan, false).record({});
  }
}

StepProgram lower_torchtitan(const Lowering& run, const Rank& rank) { return TitanPipeline(run).recorded(rank); }

}  // namespace plimsoll::program
