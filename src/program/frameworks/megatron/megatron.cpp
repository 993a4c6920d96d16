// Megatron-core's training loop on one pipeline rank: GPTModel with local layers, DDP buffers, mixed-precision or distributed optimizer.
#include "framework/megatron.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "framework/parameter_layout.hpp"
#include "plimsoll/error.hpp"
#include "program/carried.hpp"
#include "program/frameworks/megatron/schedule.hpp"
#include "program/frameworks/megatron/split_schedule.hpp"
#include "program/lower.hpp"
#include "program/spare_program.hpp"
#include "program/modules/megatron/gpt.hpp"
#include "program/wrappers/megatron/ddp.hpp"
#include "program/wrappers/megatron/fsdp.hpp"
#include "program/wrappers/megatron/optimizer.hpp"
#include "program/wrappers/megatron/torch_fsdp2.hpp"

namespace plimsoll::program {

namespace {

std::vector<ChunkPlan> chunk_plans(const Strategy& strategy, const MegatronConfig& config, int pipeline_rank) {
  std::vector<int> layers = strategy.pp_layers;
  if (layers.empty()) layers.push_back(static_cast<int>(config.layers.size()));
  const int stages = static_cast<int>(layers.size());
  if (stages != strategy.pp * strategy.vp || std::accumulate(layers.begin(), layers.end(), 0) != static_cast<int>(config.layers.size()))
    throw Error(ErrorCode::internal, "the stages' layers do not add up to the model's");
  std::vector<ChunkPlan> plans;
  for (const int stage : stages_of_rank(strategy, pipeline_rank)) {
    const auto own = layers.begin() + stage;
    plans.push_back(
        {.first_layer = std::accumulate(layers.begin(), own, 0), .layers = *own, .embedding = stage == 0, .head = stage == stages - 1});
  }
  return plans;
}

MegatronDdpOptions ddp_options(const Strategy& strategy) {
  MegatronDdpOptions options;
  options.distributed_optimizer = strategy.data_parallel == DataParallel::megatron_distopt;
  options.ranks = static_cast<std::int64_t>(strategy.dp) * strategy.cp;
  options.expert_ranks = options.ranks * strategy.tp / (static_cast<std::int64_t>(strategy.ep) * strategy.etp);
  options.overlap_grad_reduce = *strategy.megatron.overlap_grad_reduce;
  options.overlap_param_gather = *strategy.megatron.overlap_param_gather;
  options.align_param_gather = *strategy.megatron.align_param_gather;
  options.pad_for_high_nccl_busbw = strategy.megatron.pad_buckets_for_high_nccl_busbw;
  options.check_for_nan_in_grad = strategy.megatron.check_for_nan_in_grad;
  options.grad_dtype = strategy.grad_dtype.value_or(DType::fp32);
  if (options.overlap_grad_reduce) {
    const bool torchs = !framework::megatron_release(strategy).core();  // --DDP-impl torch
    const std::int64_t usual = torchs ? static_cast<std::int64_t>(*strategy.ddp.bucket_cap_mb * (1 << 20)) / size_of(options.grad_dtype)
                                      : framework::megatron_bucket_size(options.ranks);
    options.bucket_size = strategy.megatron.ddp_bucket_size > 0 ? strategy.megatron.ddp_bucket_size : usual;
  }
  return options;
}

/// training.py: buckets close where reductions were asked to overlap, even though sharding gradients makes them overlap anyway.
MegatronFsdpOptions fsdp_options(const Strategy& strategy) {
  const MegatronDdpOptions ddp = ddp_options(strategy);
  MegatronFsdpOptions options;
  options.sharding = strategy.megatron.sharding;
  options.ranks = ddp.ranks;
  options.expert_ranks = ddp.expert_ranks;
  options.rank = strategy.rank.value_or(0);
  options.bucket_size = ddp.bucket_size;
  options.communication_unit = strategy.megatron.suggested_communication_unit;
  options.overlap_grad_reduce = ddp.overlap_grad_reduce;
  options.overlap_param_gather = *strategy.megatron.overlap_param_gather;
  options.double_buffer = strategy.megatron.fsdp_double_buffer;
  options.grad_dtype = ddp.grad_dtype;
  return options;
}

/// Megatron has backward gathers go by order where layers run again, Primus always, and forward ones where they do not.
MegatronTorchFsdp2Options torch_fsdp2_options(const Strategy& strategy) {
  MegatronTorchFsdp2Options options;
  const bool primus = strategy.framework == "primus", again = strategy.recompute.kind != Recompute::Kind::none;
  options.ranks = static_cast<std::int64_t>(strategy.dp) * strategy.cp;
  options.rank = strategy.rank.value_or(0);
  options.reshards = strategy.fsdp.reshard != FsdpOptions::Reshard::never;
  options.wraps_output_layer = strategy.megatron.layer_spec == "te";
  options.prefetches_forward = primus && !again;
  options.prefetches_backward = primus || again;
  return options;
}

/// Micro-batches that are recorded: those that fill the pipeline, some of the steady state, in which the same blocks come and go for every
/// further one, and those that drain it.
std::int64_t recorded_micro_batches(const Strategy& strategy, int pipeline_rank) {
  constexpr std::int64_t kSteady = 8, kSteadyGroups = 3, kFewest = 16;
  const std::int64_t stages = strategy.pp, all = strategy.micro_batches;
  if (framework::splits_backward(strategy)) return split_micro_batches(strategy);
  if (strategy.vp > 1) return all % stages == 0 ? std::min(all, std::max(kSteadyGroups * stages, round_up(kFewest, stages))) : all;
  return std::min(all, stages - pipeline_rank - 1 + kSteady);
}

MegatronRuntimeOptions runtime_options(const Strategy& strategy, const MegatronConfig& config) {
  return {.tensor_parallel = strategy.tp,
          .context_parallel = strategy.cp,
          .layers_of_model = static_cast<std::int64_t>(config.layers.size()) + config.prediction.depth,
          .sequence_parallel = strategy.sequence_parallel.value_or(false),
          .user_buffers = *strategy.async_tp,
          .quantization = config.quantization,
          .keeps_transposes = strategy.data_parallel != DataParallel::megatron_fsdp,
          .fused_weight_gradients = *strategy.megatron.gradient_accumulation_fusion,
          .main_gradient = strategy.grad_dtype.value_or(DType::fp32),
          .attention = config.attention_library,
          .reduces_beside_products = framework::megatron_release(strategy).reduces_beside_products(),
          .overlaps_exchanges = *strategy.moe.a2a_overlap,
          .store_defers = framework::defers_by_store(strategy),
          .keeps_dummies = config.keeps_dummies};
}

/// Everything of the rank that lives from step to step.
class Training {
 public:
  /// The program is recorded into the memory of `spare`.
  Training(const Lowering& run, int pipeline_rank, StepProgram spare)
      : strategy_(run.strategy),
        pipeline_rank_(pipeline_rank),
        tape_(run.device),
        config_(megatron_config(run.model, run.strategy, run.device)),
        runtime_(tape_, runtime_options(run.strategy, config_)) {
    record_into_memory_of(std::move(spare), tape_);
    tape_.phase(Phase::init);
    for (const ChunkPlan& plan : chunk_plans(strategy_, config_, pipeline_rank)) {
      chunks_.push_back(std::make_unique<MegatronChunk>(runtime_, config_, plan, static_cast<std::int64_t>(chunks_.size())));
      chunks_.back()->construct();
    }
    for (const auto& chunk : chunks_) chunk->move_to_device();
    for (const auto& chunk : chunks_) chunk->convert();
    wrap();
  }

  /// The step of `micro_batches`. `calls`: passes that do what one before them did are called, where nothing is known to tell them apart;
  /// throws Routine::Differs where something does. `short_first`: where passes are called, the first step has no more of them than it takes to
  /// learn them.
  StepProgram record(std::int64_t micro_batches, bool calls, bool short_first) {
    MegatronRank rank{.tape = tape_, .runtime = runtime_, .config = config_, .chunks = chunks_, .wrapped = wrapped_};
    rank.micro_batch = strategy_.micro_batch;
    rank.length = strategy_.seq_len / strategy_.cp;
    rank.micro_batches = micro_batches;
    rank.warm_up = strategy_.pp - pipeline_rank_ - 1;
    rank.left_out = strategy_.micro_batches - rank.micro_batches;
    rank.stages = strategy_.pp;
    rank.rank = pipeline_rank_;
    const framework::MegatronRelease release = framework::megatron_release(strategy_);
    set_deferral(rank);
    rank.aligns_gathers = *strategy_.megatron.align_param_gather;
    rank.deallocates_outputs = release.deallocates_outputs();
    rank.cuts_transfers = release.cuts_transfers() && !strategy_.sequence_parallel.value_or(false);
    std::optional<SplitPlan> split;
    if (framework::splits_backward(strategy_)) split = split_plan(strategy_, pipeline_rank_, micro_batches, tape_);
    rank.split = split ? &*split : nullptr;
    const bool paired = split || (strategy_.vp > 1 && release.overlaps_transfers());
    if (strategy_.pp > 1 && paired) rank.paired.emplace(tape_, rank.stages);
    if (strategy_.pp > 1 && !paired) rank.batched.emplace(tape_, rank.stages);
    std::vector<Routine> routines(chunks_.size(), Routine(tape_));
    if (calls && may_call_passes()) rank.routines = &routines;
    for (const Tape::Part part : {Tape::Part::first_step, Tape::Part::step}) {
      tape_.record_into(part);
      const bool first = part == Tape::Part::first_step;
      rank.micro_batches = first && short_first && rank.routines ? std::min(micro_batches, fewest_to_learn()) : micro_batches;
      record_step(rank);
    }
    StepProgram program = tape_.take();
    program.repeated = rank.repeated;
    return program;
  }

 private:
  /// Passes between the first and the last are alike unless wrappers shard weights, exchanges take turns, activations go to the host, or gradients
  /// have slots of their own.
  bool may_call_passes() const {
    const bool shards = strategy_.data_parallel == DataParallel::megatron_fsdp || strategy_.data_parallel == DataParallel::fsdp2;
    return !shards && !framework::splits_backward(strategy_) && !*strategy_.moe.a2a_overlap && config_.offloaded_layers == 0 &&
           !*strategy_.megatron.defer_embedding_wgrad_compute;
  }

  /// Micro-batches between whose first and last pass there is one more, in whole groups of the pipeline (which an interleaved schedule takes).
  std::int64_t fewest_to_learn() const {
    constexpr std::int64_t kPasses = 3;
    return round_up(kPasses, strategy_.pp);
  }

  /// Of more micro-batches than the limit the first are deferred. Those before the repeated ones are recorded so; others compute their
  /// gradient where they run, and keep what it would have needed.
  void set_deferral(MegatronRank& rank) const {
    if (!*strategy_.megatron.defer_embedding_wgrad_compute || rank.stages == 1) return;
    constexpr std::int64_t kBeforeRepeated = 3;  // of 1F1B; the interleaved schedule repeats its second group
    const std::int64_t said = strategy_.megatron.wgrad_deferral_limit, all = strategy_.micro_batches;
    const std::int64_t limit = said > 0 ? std::min(said, all) : all;
    const std::int64_t before = strategy_.vp > 1 ? rank.stages : kBeforeRepeated;
    rank.deferred.recorded = limit == all || rank.left_out == 0 ? std::min(limit, rank.micro_batches) : std::min(limit, before);
    rank.deferred.repeated = limit == all ? rank.left_out : 0;
    rank.deferred.held = limit - rank.deferred.recorded;
  }

  void wrap() {
    const StreamId side = tape_.add_stream("initialization");
    const auto already_added = [this](const Tensor& weight) { return runtime_.takes_added(weight); };
    if (strategy_.data_parallel == DataParallel::megatron_fsdp) {
      MegatronFsdpOptions options = fsdp_options(strategy_);
      options.already_added = already_added;
      auto wrapped = std::make_unique<MegatronFsdp>(tape_, chunks_.front()->fsdp_modules(), options, side);
      optimizers_.push_back(std::make_unique<MegatronOptimizer>(tape_, strategy_, wrapped->mains()));
      wrapped_.push_back(std::move(wrapped));
      return;
    }
    if (strategy_.data_parallel == DataParallel::fsdp2) return shard_by_torch(side);
    MegatronDdpOptions options = ddp_options(strategy_);
    options.packed = config_.quantization.packed();
    options.weights_apart = config_.quantization.apart();
    options.already_added = already_added;
    std::vector<MegatronParameterBuffer*> dense, expert;
    for (const auto& chunk : chunks_) {
      // Chunks behind the first, and ranks behind the first, have one bucket.
      MegatronDdpOptions own = options;
      if (chunk != chunks_.front() || pipeline_rank_ > 0) own.bucket_size = 0;
      auto wrapped = std::make_unique<MegatronDdp>(tape_, chunk->parameters(), chunk->shared_embedding(), own, side);
      wrapped->hook_gathers(chunk->fsdp_modules());
      for (const auto& buffer : wrapped->buffers()) (buffer->expert ? expert : dense).push_back(buffer.get());
      wrapped_.push_back(std::move(wrapped));
    }
    make_optimizers(dense, expert);
  }

  /// TorchFullyShardedDataParallel, built on a stream of its own.
  void shard_by_torch(StreamId side) {
    std::unique_ptr<MegatronTorchFsdp2> wrapped;
    {
      const StreamScope stream(tape_, side);
      wrapped = std::make_unique<MegatronTorchFsdp2>(tape_, chunks_.front()->fsdp_modules(), torch_fsdp2_options(strategy_));
    }
    optimizers_.push_back(std::make_unique<MegatronOptimizer>(tape_, strategy_, wrapped->shards()));
    wrapped_.push_back(std::move(wrapped));
  }

  /// ChainedOptimizer: the dense parameters of all chunks, then the experts'.
  void make_optimizers(const std::vector<MegatronParameterBuffer*>& dense, const std::vector<MegatronParameterBuffer*>& expert) {
    optimizers_.push_back(std::make_unique<MegatronOptimizer>(tape_, strategy_, dense, strategy_.rank.value_or(0)));
    if (!expert.empty()) optimizers_.push_back(std::make_unique<MegatronOptimizer>(tape_, strategy_, expert, 0));
  }

  void record_step(MegatronRank& rank) {
    for (const auto& wrapped : wrapped_) wrapped->zero_grad_buffer();
    for (const auto& optimizer : optimizers_) optimizer->zero_grad();
    if (strategy_.data_parallel == DataParallel::megatron_fsdp)  // whose optimizer asks for the same once more
      for (const auto& wrapped : wrapped_) wrapped->zero_grad_buffer();
    run_megatron_schedule(rank, optimizers_.front()->scale());
    tape_.phase(Phase::optimizer);
    const LabelScope label(tape_, tape_.intern("optimizer"));
    for (const auto& optimizer : optimizers_) {
      optimizer->prepare_grads();
      optimizer->unscale_grads();
    }
    take_grad_norm();
    for (const auto& optimizer : optimizers_) {
      if (strategy_.clip_grad_norm.value_or(true)) optimizer->scale_grads();
    }
    for (const auto& optimizer : optimizers_) optimizer->step_with_ready_grads();
    for (const auto& wrapped : wrapped_) wrapped->gather_parameters();
    tape_.phase(Phase::end);
  }

  /// ChainedOptimizer.get_grad_norm, whether or not gradients are clipped: over all of them at once where the same ranks reduce the
  /// statistics of all optimizers, as those of distributed optimizers.
  void take_grad_norm() {
    std::vector<Tensor> gradients;
    for (const auto& optimizer : optimizers_) {
      for (Tensor& gradient : optimizer->gradients()) gradients.push_back(std::move(gradient));
      if (strategy_.data_parallel == DataParallel::megatron_distopt && optimizer != optimizers_.back()) continue;
      megatron_grad_norm(tape_, gradients, takes_lists(strategy_));
      gradients.clear();
    }
  }

  const Strategy& strategy_;
  int pipeline_rank_;
  Tape tape_;
  MegatronConfig config_;
  MegatronRuntime runtime_;
  std::vector<std::unique_ptr<MegatronChunk>> chunks_;
  std::vector<std::unique_ptr<MegatronDataParallel>> wrapped_;
  std::vector<std::unique_ptr<MegatronOptimizer>> optimizers_;
};

StepProgram recorded_rank(const Lowering& run, const Rank& rank, StepProgram spare, bool short_first) {
  const std::int64_t micro_batches = rank.every_micro_batch ? run.strategy.micro_batches : recorded_micro_batches(run.strategy, rank.pipeline);
  try {
    return Training(run, rank.pipeline, std::move(spare)).record(micro_batches, rank.calls_passes, short_first);
  } catch (const Routine::Differs&) {
    return Training(run, rank.pipeline, {}).record(micro_batches, false, false);
  }
}

StepProgram lowered_rank(const Lowering& run, const Rank& rank, StepProgram spare) {
  StepProgram program = recorded_rank(run, rank, std::move(spare), false);
  carry_across_steps(program);
  return program;
}

}  // namespace

StepProgram lower_megatron(const Lowering& run, const Rank& rank) { return lowered_rank(run, rank, {}); }

StepProgram MegatronPipeline::rank(int pipeline_rank, StepProgram spare) {
  return lowered_rank(run_, {pipeline_rank}, std::move(spare));
}

/// What is carried across steps changes no work.
StepProgram MegatronPipeline::work(int pipeline_rank, StepProgram spare) {
  return recorded_rank(run_, {pipeline_rank}, std::move(spare), true);
}

}  // namespace plimsoll::program
