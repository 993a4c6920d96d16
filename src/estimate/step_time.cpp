#include "estimate/step_time.hpp"

#include <algorithm>

#include "estimate/block_time.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/schedule.hpp"

namespace plimsoll::estimation {
namespace {

const GroupShape& shape_of(const std::array<GroupShape, kGroups>& groups, Group group) { return groups[static_cast<std::size_t>(group)]; }

bool shards_parameters(const Strategy& s) {
  return s.data_parallel == DataParallel::fsdp1 || s.data_parallel == DataParallel::fsdp2 || s.data_parallel == DataParallel::zero3 ||
         s.data_parallel == DataParallel::megatron_fsdp;
}

bool shards_optimizer(const Strategy& s) {
  return shards_parameters(s) || s.data_parallel == DataParallel::zero1 || s.data_parallel == DataParallel::zero2 ||
         s.data_parallel == DataParallel::megatron_distopt;
}

bool overlaps_reduction(const Strategy& s) {
  if (s.comm_overlap == false) return false;
  if (s.data_parallel == DataParallel::megatron_distopt || s.framework.rfind("megatron", 0) == 0)
    return s.megatron.overlap_grad_reduce.value_or(false);
  if (s.data_parallel == DataParallel::zero1 || s.data_parallel == DataParallel::zero2) return s.deepspeed.overlap_comm.value_or(false);
  return true;
}

/// One micro-batch through one stage.
struct StageWork {
  Seconds forward, backward;        ///< with exposed tensor, context and expert communication
  Seconds compute, recompute;       ///< of both passes
  Seconds tensor, context, expert;  ///< exposed, of both passes
  std::vector<FsdpUnit> forward_units, backward_units;
};

class StepTimer {
 public:
  StepTimer(const Cluster& cluster, const Strategy& strategy, const std::array<GroupShape, kGroups>& groups, const flops::Lengths& lengths)
      : cluster_(cluster), strategy_(strategy), groups_(groups), lengths_(lengths), pricer_(strategy, cluster.accelerator) {
    element_ = static_cast<double>(size_of(strategy.compute_dtype.value_or(DType::bf16)));
  }

  StageWork stage(const Stage& stage) const {
    StageWork work;
    for (const Part& part : stage.parts) add(part, work);
    return work;
  }

  /// Parameters gathered and gradients reduced around a micro-batch, beyond what computation covers.
  Seconds exposed_fsdp(const StageWork& work) const {
    Seconds compute_forward, compute_backward;
    for (const FsdpUnit& unit : work.forward_units) compute_forward += unit.compute;
    for (const FsdpUnit& unit : work.backward_units) compute_backward += unit.compute;
    return fsdp_forward(work.forward_units) - compute_forward + (fsdp_backward(work.backward_units) - compute_backward);
  }

  /// Gradients reduced once a step (and parameters gathered again where only the optimizer is sharded).
  Seconds exposed_reduction(const Stage& stage, const StageWork& work) const {
    const double gradients = static_cast<double>(stage.parameters(strategy_));
    const GroupShape& shard = shape_of(groups_, Group::data_shard);
    const GroupShape& replicas = shape_of(groups_, Group::data_replicate);
    const DType type = strategy_.reduce_dtype.value_or(DType::fp32);
    const auto reduce_bytes = static_cast<std::int64_t>(gradients * static_cast<double>(size_of(type)));
    Seconds reduction, gathering;
    if (shards_optimizer(strategy_) && !shards_parameters(strategy_)) {
      reduction = collective(CollectiveKind::reduce_scatter, Group::data_shard, reduce_bytes, type);
      const DType weights = strategy_.param_dtype.value_or(DType::bf16);
      gathering =
          collective(CollectiveKind::all_gather, Group::data_shard, static_cast<std::int64_t>(gradients) * size_of(weights), weights);
    } else if (!shards_parameters(strategy_) && shard.size > 1) {
      reduction = collective(CollectiveKind::all_reduce, Group::data_shard, reduce_bytes, type);
    }
    if (replicas.size > 1)
      reduction += collective(CollectiveKind::all_reduce, Group::data_replicate,
                              reduce_bytes / std::max<std::int64_t>(1, shards_optimizer(strategy_) ? shard.size : 1), type);
    const bool gather_hidden = strategy_.megatron.overlap_param_gather.value_or(false);
    return (overlaps_reduction(strategy_) ? last_bucket(reduction, work) : reduction) + (gather_hidden ? Seconds(0) : gathering);
  }

  Seconds transfer() const {
    const GroupShape& pipeline = shape_of(groups_, Group::pipeline);
    if (pipeline.size <= 1) return Seconds(0);
    const double cut = strategy_.sequence_parallel.value_or(false) ? strategy_.tp : 1;
    return price(Collective{CollectiveKind::send, Group::pipeline, static_cast<std::int64_t>(hidden_bytes_ / cut), compute_type()},
                 pipeline, cluster_);
  }

  void set_hidden(std::int64_t hidden) {
    hidden_bytes_ = static_cast<double>(strategy_.micro_batch) * static_cast<double>(lengths_.sequence) /
                    static_cast<double>(strategy_.cp) * static_cast<double>(hidden) * element_;
  }

 private:
  DType compute_type() const { return strategy_.compute_dtype.value_or(DType::bf16); }

  Seconds collective(CollectiveKind kind, Group group, std::int64_t bytes, DType type) const {
    const GroupShape& shape = shape_of(groups_, group);
    return shape.size > 1 && bytes > 0 ? price(Collective{kind, group, bytes, type}, shape, cluster_) : Seconds(0);
  }

  /// DDP reduces bucket by bucket under the backward pass of the last micro-batch; 25 MiB buckets make the schedule nearly continuous.
  Seconds last_bucket(Seconds reduction, const StageWork& work) const {
    constexpr int kBuckets = 16;
    std::vector<Seconds> ready, reduce;
    for (int i = 1; i <= kBuckets; ++i) {
      ready.push_back(work.backward * (static_cast<double>(i) / kBuckets));
      reduce.push_back(reduction / kBuckets);
    }
    return ddp_end(ready, reduce) - work.backward;
  }

  /// Two all-reduces a pass (or an all-gather and a reduce-scatter each with sequence parallelism); in the backward pass the weight
  /// gradients hide some.
  std::pair<Seconds, Seconds> tensor_parallel(const Block& block, const BlockTime& time) const {
    if (strategy_.tp <= 1 || !is_layer(block)) return {};
    const auto bytes = static_cast<std::int64_t>(hidden_bytes_);
    const Seconds once = strategy_.sequence_parallel.value_or(false)
                             ? collective(CollectiveKind::all_gather, Group::tensor, bytes, compute_type()) +
                                   collective(CollectiveKind::reduce_scatter, Group::tensor, bytes, compute_type())
                             : collective(CollectiveKind::all_reduce, Group::tensor, bytes, compute_type());
    const Seconds forward = 2 * once;
    return {forward, exposed(forward, time.weight_gradient)};
  }

  /// The ring sends K and V cp−1 times under the blocks of attention.
  std::pair<Seconds, Seconds> context_parallel(const Block& block, const BlockTime& time) const {
    if (strategy_.cp <= 1 || !block.attention) return {};
    const AttentionSpec& attention = *block.attention;
    const double kv = 2.0 * static_cast<double>(attention.kv_heads * attention.head_dim) / static_cast<double>(strategy_.tp);
    const double width = static_cast<double>(attention.hidden) * element_;
    const auto bytes = static_cast<std::int64_t>(hidden_bytes_ / width * kv * element_);
    const double steps = strategy_.cp - 1;
    const Seconds ring = steps * collective(CollectiveKind::send, Group::context, bytes, compute_type());
    const Seconds cover = time.attention * (steps / strategy_.cp);
    return {exposed(ring, cover), exposed(2 * ring, 2.5 * cover)};
  }

  std::pair<Seconds, Seconds> expert_parallel(const Block& block) const {
    if (strategy_.ep <= 1 || !block.moe) return {};
    const double cut = strategy_.sequence_parallel.value_or(false) ? strategy_.tp : 1;
    const auto bytes = static_cast<std::int64_t>(hidden_bytes_ * static_cast<double>(block.moe->top_k) * strategy_.moe.imbalance / cut);
    const Seconds both = 2 * collective(CollectiveKind::all_to_all, Group::expert, bytes, compute_type());
    return {both, both};
  }

  void add(const Part& part, StageWork& work) const {
    const BlockTime time = pricer_.price(*part.block, lengths_);
    const auto [tensor_forward, tensor_backward] = tensor_parallel(*part.block, time);
    const auto [context_forward, context_backward] = context_parallel(*part.block, time);
    const auto [expert_forward, expert_backward] = expert_parallel(*part.block);
    const double n = static_cast<double>(part.layers);
    // A recomputed layer runs its forward collectives again.
    const double again = time.forward.value > 0 ? time.recompute / time.forward : 0;
    const Seconds forward = time.forward + tensor_forward + context_forward + expert_forward;
    const Seconds backward = time.backward + tensor_backward + context_backward + expert_backward + again * forward;
    work.forward += n * forward;
    work.backward += n * backward;
    work.compute += n * (time.forward + time.backward);
    work.recompute += n * time.recompute;
    work.tensor += n * (tensor_forward + tensor_backward + again * tensor_forward);
    work.context += n * (context_forward + context_backward + again * context_forward);
    work.expert += n * (expert_forward + expert_backward + again * expert_forward);
    if (shards_parameters(strategy_)) add_units(part, forward, backward, work);
  }

  void add_units(const Part& part, Seconds forward, Seconds backward, StageWork& work) const {
    const std::int64_t elements = Stage::parameters(*part.block, strategy_);
    const DType reduce = strategy_.reduce_dtype.value_or(DType::fp32);
    const Seconds gather = collective(CollectiveKind::all_gather, Group::data_shard, elements * size_of(compute_type()), compute_type());
    const Seconds scatter = collective(CollectiveKind::reduce_scatter, Group::data_shard, elements * size_of(reduce), reduce);
    const bool kept = strategy_.fsdp.reshard == FsdpOptions::Reshard::never;
    for (std::int64_t i = 0; i < part.layers; ++i) {
      work.forward_units.push_back({forward, gather, Seconds(0)});
      work.backward_units.push_back({backward, kept ? Seconds(0) : gather, scatter});
    }
  }

  const Cluster& cluster_;
  const Strategy& strategy_;
  const std::array<GroupShape, kGroups>& groups_;
  const flops::Lengths& lengths_;
  BlockPricer pricer_;
  double element_ = 2, hidden_bytes_ = 0;
};

/// Bytes per element that the optimizer step moves: p, g, m, v read and p, m, v written when fused; nine passes when foreach
/// (docs/modelling.md). Clipping reads the gradient, and scales it in place.
double optimizer_traffic(const Strategy& strategy) {
  const double states = static_cast<double>(size_of(strategy.state_dtype.value_or(DType::fp32))) / 4.0;
  const double step = strategy.optimizer_impl == OptimizerImpl::foreach ? 80 : 28;
  return (step + (strategy.clip_grad_norm.value_or(false) ? 12 : 0)) * states;
}

void add_optimizer(const Stage& stage, const Cluster& cluster, const Strategy& strategy, const std::array<GroupShape, kGroups>& groups,
                   StepTime& time) {
  const double shards = shards_optimizer(strategy) ? static_cast<double>(shape_of(groups, Group::data_shard).size) : 1;
  const double elements = static_cast<double>(stage.parameters(strategy)) / shards;
  if (!strategy.offload.optimizer) {
    const Accelerator& device = cluster.accelerator;
    time.optimizer =
        Seconds(elements * optimizer_traffic(strategy) / (device.memory_bandwidth.value.value * device.memory_efficiency.value));
    return;
  }
  const auto link = [&](Copy::Direction direction) { return price(Copy{direction, static_cast<std::int64_t>(2 * elements)}, cluster); };
  time.host_optimizer = host_optimizer_time(Bytes(static_cast<std::int64_t>(28 * elements)), cluster, cluster.gpus_per_node) +
                        link(Copy::Direction::device_to_host) + link(Copy::Direction::host_to_device);
}

/// The stage whose work decides the pipeline's pace.
std::size_t slowest(const std::vector<StageWork>& works) {
  std::size_t worst = 0;
  for (std::size_t i = 1; i < works.size(); ++i)
    if (works[worst].forward + works[worst].backward < works[i].forward + works[i].backward) worst = i;
  return worst;
}

PipelineTimeline play(const std::vector<StageWork>& works, const Strategy& strategy, Seconds transfer) {
  const Schedule schedule =
      make_schedule(strategy.pp_schedule, strategy.pp, static_cast<int>(strategy.micro_batches_per_run()), strategy.vp);
  PipelineTimes times;
  for (const StageWork& work : works) times.stages.push_back({work.forward, work.backward, {}, {}});
  times.point_to_point = transfer;
  return play_pipeline(schedule, times);
}

void add_work(const StageWork& work, double micro_batches, StepTime& time) {
  time.compute += micro_batches * work.compute;
  time.recompute += micro_batches * work.recompute;
  time.tensor_parallel += micro_batches * work.tensor;
  time.context_parallel += micro_batches * work.context;
  time.expert_parallel += micro_batches * work.expert;
}

}  // namespace

Seconds StepTime::total() const {
  Seconds sum;
  for (const TimePart& part : parts()) sum += part.seconds;
  return sum;
}

std::vector<TimePart> StepTime::parts() const {
  return {{"compute", compute},
          {"recompute", recompute},
          {"exposed_tensor_parallel", tensor_parallel},
          {"exposed_context_parallel", context_parallel},
          {"exposed_expert_parallel", expert_parallel},
          {"exposed_data_parallel", data_parallel},
          {"pipeline_transfers", pipeline_transfers},
          {"bubble", bubble},
          {"exposed_copies", copies},
          {"host", host},
          {"optimizer", optimizer},
          {"host_optimizer", host_optimizer}};
}

StepTime step_time(const Model& model, const std::vector<Stage>& stages, const Cluster& cluster, const Strategy& resolved,
                   const std::array<GroupShape, kGroups>& groups, const flops::Lengths& lengths) {
  StepTimer timer(cluster, resolved, groups, lengths);
  timer.set_hidden(model.hidden_size);
  std::vector<StageWork> works;
  for (const Stage& stage : stages) works.push_back(timer.stage(stage));
  const std::size_t busiest = slowest(works);
  const double micro_batches = static_cast<double>(resolved.micro_batches);
  StepTime time;
  if (resolved.pp > 1) {
    // Chunk c of rank r is stage c·p + r: the rank's work is that of all its chunks.
    const std::size_t rank = busiest % static_cast<std::size_t>(resolved.pp);
    for (std::size_t i = rank; i < works.size(); i += static_cast<std::size_t>(resolved.pp)) add_work(works[i], micro_batches, time);
    const Seconds work = time.total();
    const Seconds transfer = timer.transfer();
    time.bubble = play(works, resolved, Seconds(0)).makespan - work;
    time.pipeline_transfers = play(works, resolved, transfer).makespan - work - time.bubble;
    if (shards_parameters(resolved)) time.data_parallel = timer.exposed_fsdp(works[busiest]);  // gathered once, reduced once a step
  } else {
    add_work(works[busiest], micro_batches, time);
    if (shards_parameters(resolved)) time.data_parallel = micro_batches * timer.exposed_fsdp(works[busiest]);
  }
  time.data_parallel += timer.exposed_reduction(stages[busiest], works[busiest]);
  add_optimizer(stages[busiest], cluster, resolved, groups, time);
  return time;
}

}  // namespace plimsoll::estimation
