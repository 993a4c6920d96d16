#include "estimate/single_changes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "plimsoll/framework.hpp"

namespace plimsoll::estimation {
namespace {

/// How much of the model states a way of data parallelism divides: nothing, optimizer, gradients, parameters.
int sharding_level(DataParallel kind) {
  switch (kind) {
    case DataParallel::zero1:
    case DataParallel::megatron_distopt:
      return 1;
    case DataParallel::zero2:
      return 2;
    case DataParallel::zero3:
    case DataParallel::fsdp1:
    case DataParallel::fsdp2:
    case DataParallel::megatron_fsdp:
      return 3;
    default:
      return 0;
  }
}

bool shards_parameters(DataParallel kind) { return sharding_level(kind) == 3; }

std::string quoted(std::string_view name) {
  return name.find(' ') == std::string_view::npos ? std::string(name) : fmt::format("'{}'", name);
}

/// The flag that says all of it: --offload given again replaces what it said.
std::string offload_flag(const Offload& offload) {
  std::string flag = "--offload ";
  bool first = true;
  const auto say = [&](bool wanted, const char* name) {
    if (wanted) flag += std::string(std::exchange(first, false) ? "" : "+") + name;
  };
  say(offload.params, "params");
  say(offload.grads, "grads");
  say(offload.optimizer, "optimizer");
  say(offload.activations, "activations");
  return flag;
}

class Changes {
 public:
  Changes(const Strategy& said, const Strategy& resolved) : base_(said), r_(resolved), profile_(profile_of(resolved)) {
    base_.framework = resolved.framework;  // what was not said must not follow the change
  }

  std::vector<SingleChange> all() && {
    recompute();
    loss();
    attention();
    batch();
    sharding();
    optimizer();
    rest();
    return std::move(changes_);
  }

 private:
  template <class Apply>
  void add(std::string flag, Apply apply) {
    changes_.push_back({std::move(flag), base_});
    apply(changes_.back().strategy);
  }

  void recompute() {
    for (const Recompute::Kind kind : {Recompute::Kind::full, Recompute::Kind::selective, Recompute::Kind::operators})
      if (kind != r_.recompute.kind && std::count(profile_.recomputes.begin(), profile_.recomputes.end(), kind) > 0)
        add(fmt::format("--recompute {}", name_in_flags(kind)), [&](Strategy& s) {
          s.recompute = {};
          s.recompute.kind = kind;
        });
  }

  static const char* name_in_flags(Recompute::Kind kind) {
    return kind == Recompute::Kind::full ? "full" : kind == Recompute::Kind::selective ? "selective" : "selective-ac-op";
  }

  void loss() {
    for (const LossKernel kernel : profile_.losses)
      if (kernel != r_.loss && kernel != LossKernel::compiled)
        add(fmt::format("--loss {}", quoted(name_of(kernel))), [&](Strategy& s) { s.loss = kernel; });
  }

  void attention() {
    if (r_.attention != AttentionKernel::eager && r_.attention != AttentionKernel::unfused) return;
    for (const AttentionKernel kernel : {AttentionKernel::sdpa, AttentionKernel::flash})
      if (std::count(profile_.attentions.begin(), profile_.attentions.end(), kernel) > 0)
        return add(fmt::format("--attention {}", name_of(kernel)), [&](Strategy& s) { s.attention = kernel; });
  }

  /// Smaller micro-batches of the same global batch.
  void batch() {
    const std::string global = base_.global_batch > 0 ? "" : fmt::format(" --global-batch {}", r_.global_batch);
    const auto smaller = [&](std::int64_t micro_batch) {
      add(fmt::format("--micro-batch {}{}", micro_batch, global), [&](Strategy& s) {
        s.micro_batch = micro_batch;
        s.global_batch = r_.global_batch;
        s.grad_accum = s.micro_batches = 0;
      });
    };
    if (r_.micro_batch > 1) smaller(1);
    if (r_.micro_batch > 3) smaller(r_.micro_batch / 2);
  }

  void sharding() {
    if (r_.dp <= 1) return;
    for (const DataParallel kind : profile_.kinds)
      if (sharding_level(kind) > sharding_level(r_.data_parallel))
        add(fmt::format("--data-parallel {}", name_of(kind)), [&](Strategy& s) {
          s.data_parallel = kind;
          s.fsdp.sharding = FsdpOptions::Sharding::automatic;
        });
    const bool keeps_parameters =
        r_.fsdp.reshard == FsdpOptions::Reshard::never || r_.fsdp.sharding == FsdpOptions::Sharding::shard_grad_op;
    if (shards_parameters(r_.data_parallel) && keeps_parameters)
      add("--fsdp full", [&](Strategy& s) {
        s.data_parallel = r_.data_parallel;
        s.fsdp.sharding = FsdpOptions::Sharding::full_shard;
        s.fsdp.reshard = FsdpOptions::Reshard::always;
      });
    if (shards_parameters(r_.data_parallel) && r_.dp_replicate > 1)
      add("--dp-replicate 1", [&](Strategy& s) {
        s.data_parallel = r_.data_parallel;
        s.fsdp.sharding = FsdpOptions::Sharding::full_shard;
        s.dp_replicate = 1;
        s.dp_shard = s.fsdp_degree = 0;
      });
  }

  void optimizer() {
    if (r_.optimizer_impl != OptimizerImpl::fused)
      add("--optimizer-impl fused", [](Strategy& s) { s.optimizer_impl = OptimizerImpl::fused; });
    if (!r_.offload.optimizer) offload(&Offload::optimizer);
  }

  void rest() {
    if (r_.tp > 1 && !r_.sequence_parallel) add("--sequence-parallel true", [](Strategy& s) { s.sequence_parallel = true; });
    if (r_.data_parallel == DataParallel::ddp && r_.ddp.gradient_as_bucket_view == false)
      add("--ddp.gradient-as-bucket-view true", [](Strategy& s) { s.ddp.gradient_as_bucket_view = true; });
    if (!r_.allocator.expandable_segments)
      add("--allocator.expandable-segments true", [](Strategy& s) { s.allocator.expandable_segments = true; });
    if (profile_.offload_activations && !r_.offload.activations) offload(&Offload::activations);
  }

  void offload(bool Offload::*part) {
    Offload more = r_.offload;
    more.*part = true;
    add(offload_flag(more), [&](Strategy& s) { s.offload = more; });
  }

  Strategy base_;
  const Strategy& r_;
  FrameworkProfile profile_;
  std::vector<SingleChange> changes_;
};

}  // namespace

std::vector<SingleChange> single_changes(const Strategy& said, const Strategy& resolved) { return Changes(said, resolved).all(); }

}  // namespace plimsoll::estimation
