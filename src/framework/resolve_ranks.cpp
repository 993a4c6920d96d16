#include <algorithm>

#include "framework/resolver.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/schedule.hpp"
#include "strategy/torch_release.hpp"

namespace plimsoll::framework {
namespace {

std::string number(std::int64_t n) { return std::to_string(n); }

void default_to(int& field, int value) {
  if (field == 0) field = value;
}

void resolve_pipeline(Resolver& r) {
  Strategy& s = r.s;
  const bool none = s.pp_schedule.empty() || s.pp_schedule == "none";
  if (s.pp == 1) {
    s.vp = 1;
    if (!none) schedule_name(s.pp_schedule);  // without a pipeline it says nothing, but a name that none has is a mistake
    s.pp_schedule.clear();
    return;
  }
  if (none) {
    s.pp_schedule = s.vp > 1 ? "interleaved-1f1b" : "1f1b";
    r.assume("pp_schedule: " + s.pp_schedule);
  } else {
    s.pp_schedule = schedule_name(s.pp_schedule);
  }
  if (s.vp != 0) return;
  s.vp = 1;
  for (const auto& info : schedules())
    if (info.name == s.pp_schedule) s.vp = std::max(1, info.default_chunks);
}

bool hybrid(const Strategy& s) {
  using Sharding = FsdpOptions::Sharding;
  return s.data_parallel == DataParallel::hsdp || s.fsdp.sharding == Sharding::hybrid_shard ||
         s.fsdp.sharding == Sharding::hybrid_shard_zero2;
}

/// dp from the GPUs, or the GPUs from dp; both must agree. Of a hybrid that says what it shards over, the copies follow from the GPUs.
void resolve_world(Resolver& r) {
  Strategy& s = r.s;
  const std::int64_t model_ranks = std::int64_t{s.tp} * s.pp * s.cp;
  if (s.gpus != 0 && s.gpus != r.gpus)
    r.complaints.add("the strategy is for " + number(s.gpus) + " GPUs and the cluster has " + number(r.gpus), "give one of them");
  s.gpus = static_cast<int>(std::min<std::int64_t>(r.gpus, INT32_MAX));
  if (s.dp == 0 && s.dp_shard > 0 && (s.dp_replicate > 0 || !hybrid(s))) s.dp = s.dp_shard * std::max(1, s.dp_replicate);
  const std::string product = "tp · pp · cp = " + number(s.tp) + " · " + number(s.pp) + " · " + number(s.cp) + " = " + number(model_ranks);
  if (s.dp == 0 && r.gpus % model_ranks != 0) {
    r.complaints.add(number(r.gpus) + " GPUs are no multiple of " + product,
                     "use a multiple of " + number(model_ranks) + " GPUs or smaller degrees");
    s.dp = 1;
    return;  // what follows from it would only say it again
  }
  if (s.dp == 0) s.dp = static_cast<int>(r.gpus / model_ranks);
  if (s.dp * model_ranks != r.gpus)
    r.complaints.add(
        "dp " + number(s.dp) + " with " + product + " takes " + number(s.dp * model_ranks) + " GPUs and there are " + number(r.gpus),
        r.gpus % model_ranks == 0 ? "dp " + number(r.gpus / model_ranks) + " fits" : "change a degree or the number of GPUs");
}

/// dp = dp_shard · dp_replicate; a hybrid shards within the node unless it is said otherwise.
void resolve_shards(Resolver& r) {
  Strategy& s = r.s;
  if (s.dp_shard == 0 && s.fsdp_degree > 0) s.dp_shard = std::max(1, s.fsdp_degree / s.cp);
  if (s.dp_shard == 0 && s.dp_replicate == 0 && hybrid(s)) {
    const int ranks_per_node = std::max(1, r.gpus_per_node / std::max(1, s.tp * s.cp));
    s.dp_shard = s.dp % ranks_per_node == 0 ? ranks_per_node : s.dp;
    r.assume("dp_shard: " + number(s.dp_shard) + " (the data-parallel ranks of one node)");
  }
  if (s.dp_shard == 0) s.dp_shard = s.dp / std::max(1, s.dp_replicate);
  if (s.dp_replicate == 0) s.dp_replicate = std::max(1, s.dp / s.dp_shard);
  if (s.dp_shard * s.dp_replicate != s.dp)
    r.complaints.add("dp_shard · dp_replicate = " + number(s.dp_shard) + " · " + number(s.dp_replicate) + " is not dp " + number(s.dp),
                     "leave one of them out");
  if (s.fsdp_degree == 0) s.fsdp_degree = s.dp_shard * s.cp;
}

/// What launchers hand to FSDP1 in place of the class's own default, BACKWARD_PRE: Accelerate's plugin none, Composer's FSDPConfig BACKWARD_POST.
FsdpOptions::Prefetch usual_prefetch(const std::string& framework) {
  using Prefetch = FsdpOptions::Prefetch;
  return framework == "accelerate" ? Prefetch::none : framework == "llm-foundry" ? Prefetch::post : Prefetch::pre;
}

DataParallel concrete(const Resolver& r, DataParallel kind) {
  using Sharding = FsdpOptions::Sharding;
  if (kind != DataParallel::fsdp && kind != DataParallel::hsdp) return kind;
  // fully_shard has no NO_SHARD and no use_orig_params: such options mean FSDP1.
  const FsdpOptions& fsdp = r.s.fsdp;
  const bool only_fsdp1 = fsdp.sharding == Sharding::no_shard || fsdp.use_orig_params || fsdp.limit_all_gathers;
  const auto& kinds = r.profile().kinds;
  const bool has_fsdp1 = std::find(kinds.begin(), kinds.end(), DataParallel::fsdp1) != kinds.end();
  return only_fsdp1 && has_fsdp1 ? DataParallel::fsdp1 : r.profile().fsdp;
}

void resolve_fsdp(Resolver& r) {
  using Sharding = FsdpOptions::Sharding;
  Strategy& s = r.s;
  FsdpOptions& fsdp = s.fsdp;
  if (!fsdp.root_unit) fsdp.root_unit = true;
  if (!fsdp.forward_prefetch) fsdp.forward_prefetch = false;
  if (s.data_parallel == DataParallel::fsdp1) {
    if (fsdp.sharding == Sharding::automatic) fsdp.sharding = s.dp_replicate > 1 ? Sharding::hybrid_shard : Sharding::full_shard;
    if (!fsdp.limit_all_gathers) fsdp.limit_all_gathers = true;
    if (fsdp.backward_prefetch == FsdpOptions::Prefetch::automatic) fsdp.backward_prefetch = usual_prefetch(s.framework);
    if (!fsdp.use_orig_params) fsdp.use_orig_params = !before_torch_2(s);  // torch 1 has flat parameters alone
  } else if (fsdp.sharding == Sharding::shard_grad_op && fsdp.reshard == FsdpOptions::Reshard::automatic) {
    fsdp.reshard = FsdpOptions::Reshard::never;  // FSDP2's way to say it
  } else if (s.framework == "accelerate" && s.data_parallel == DataParallel::fsdp2 && fsdp.reshard == FsdpOptions::Reshard::automatic) {
    fsdp.reshard = FsdpOptions::Reshard::always;  // reshard_after_forward of FullyShardedDataParallelPlugin
  }
}

}  // namespace

void resolve_ranks(Resolver& r) {
  Strategy& s = r.s;
  for (int* degree : {&s.tp, &s.pp, &s.cp, &s.ep}) default_to(*degree, 1);
  // Megatron cuts experts by tp unless told; the launchers over it do not, and torchtitan where expert parallelism does not.
  const bool as_the_rest = s.framework == "megatron-core" || s.framework == "megatron-lm" || (s.framework == "torchtitan" && s.ep == 1);
  default_to(s.etp, as_the_rest ? s.tp : 1);
  resolve_pipeline(r);
  resolve_world(r);
  resolve_shards(r);
}

void resolve_data_parallel(Resolver& r) {
  Strategy& s = r.s;
  if (s.data_parallel == DataParallel::automatic) {
    // FSDP's mesh holds the context-parallel ranks too: they see other tokens of the same weights (torchtitan's dp_shard_cp).
    const bool shards = is_fsdp(r.profile().data_parallel);
    const int sharers = shards ? s.dp * s.cp : s.dp;
    const bool alone = sharers == 1 && r.profile().layer_spec.empty();
    s.data_parallel = alone ? DataParallel::none : r.profile().data_parallel;
    if (sharers > 1) r.assume("data_parallel: " + std::string(name_of(s.data_parallel)));
  }
  s.data_parallel = concrete(r, s.data_parallel);
  if (s.data_parallel == DataParallel::none && s.dp > 1)
    r.complaints.add("data_parallel none leaves " + number(s.dp) + " data-parallel ranks unsynchronised",
                     "choose ddp, fsdp or zero, or raise tp or pp");
  if (s.data_parallel == DataParallel::fsdp1 || s.data_parallel == DataParallel::fsdp2 || s.data_parallel == DataParallel::megatron_fsdp)
    resolve_fsdp(r);
  if (!s.ddp.bucket_cap_mb) s.ddp.bucket_cap_mb = 25;
  if (!s.ddp.gradient_as_bucket_view) s.ddp.gradient_as_bucket_view = false;
  if (!s.ddp.static_graph) s.ddp.static_graph = false;
  if (!s.ddp.find_unused_parameters) s.ddp.find_unused_parameters = false;
}

}  // namespace plimsoll::framework
