#include "estimate/single_changes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "strategy/flags.hpp"

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

using Options = std::vector<std::pair<std::string, std::string>>;

/// Whether options say in how many bits numbers are held or multiplied: each that is tried takes fewer.
bool takes_bits(const Options& options) {
  return std::any_of(options.begin(), options.end(), [](const auto& option) {
    return option.first == "precision" || option.first == "base_weights" || option.first == "optimizer" || option.first == "tf32";
  });
}

std::string offload_value(const Offload& offload) {
  std::string value;
  const auto say = [&](bool wanted, const char* name) {
    if (wanted) value += (value.empty() ? "" : "+") + std::string(name);
  };
  say(offload.params, "params");
  say(offload.grads, "grads");
  say(offload.optimizer, "optimizer");
  say(offload.activations, "activations");
  return value;
}

class Changes {
 public:
  Changes(const Strategy& said, const Strategy& resolved, const Model& model, const Cluster& cluster)
      : said_(said), r_(resolved), model_(model), cluster_(cluster), profile_(profile_of(resolved)) {}

  std::vector<SingleChange> of_memory() && {
    recompute();
    loss();
    attention();
    batch();
    sharding();
    optimizer();
    rest();
    fewer_bits();
    return std::move(changes_);
  }

  std::vector<SingleChange> of_overlap() && {
    overlap();
    return std::move(changes_);
  }

  std::vector<SingleChange> of_time() && {
    less_recompute();
    larger_batch();
    accumulate();
    less_sharding();
    faster_kernels();
    overlap();
    return std::move(changes_);
  }

 private:
  /// Takes the first spelling that contradicts nothing on the command line; what was not said must not follow the change.
  void add(const std::vector<Options>& spellings) {
    for (Options options : spellings) {
      try {
        Strategy changed = with(options);
        if (resolve(changed, model_, cluster_).framework != r_.framework) {
          options.emplace_back("framework", r_.framework);
          changed = with(options);
          (void)resolve(changed, model_, cluster_);
        }
        return changes_.push_back({as_flags(options), std::move(changed), takes_bits(options), false, options});
      } catch (const Error& error) {
        if (error.code() == ErrorCode::internal) throw;
      }
    }
  }
  void add(const char* key, const std::string& value) { add({{{key, value}}}); }

  Strategy with(const Options& more) const {
    Strategy changed = said_;
    Options options = said_.options;
    options.insert(options.end(), more.begin(), more.end());
    set_options(changed, options);
    return changed;
  }

  void recompute() {
    for (const Recompute::Kind kind : {Recompute::Kind::full, Recompute::Kind::selective, Recompute::Kind::operators})
      if (kind != r_.recompute.kind && std::count(profile_.recomputes.begin(), profile_.recomputes.end(), kind) > 0)
        add("recompute", name_in_flags(kind));
  }

  static const char* name_in_flags(Recompute::Kind kind) {
    return kind == Recompute::Kind::full ? "full" : kind == Recompute::Kind::selective ? "selective" : "selective-ac-op";
  }

  void loss() {
    for (const LossKernel kernel : profile_.losses) {
      if (kernel == r_.loss || kernel == LossKernel::compiled) continue;
      std::vector<Options> spellings{{{"loss", std::string(name_of(kernel))}}};
      if (kernel == LossKernel::te) spellings.push_back({{"cross_entropy_fusion", "te"}});
      if (kernel == LossKernel::fused_vocab_parallel) spellings.push_back({{"cross_entropy_fusion", "native"}});
      add(spellings);
    }
    if (r_.framework == "accelerate" && !r_.liger_kernel) add("liger_kernel", "true");
  }

  void attention() {
    if (r_.attention != AttentionKernel::eager && r_.attention != AttentionKernel::unfused) return;
    for (const AttentionKernel kernel : {AttentionKernel::sdpa, AttentionKernel::flash})
      if (std::count(profile_.attentions.begin(), profile_.attentions.end(), kernel) > 0)
        return add("attention", std::string(name_of(kernel)));
  }

  void less_recompute() {
    if (r_.recompute.kind != Recompute::Kind::none) add("recompute", "none");
  }

  /// Half as many micro-batches, each twice as large.
  void larger_batch() {
    const std::int64_t passes = r_.global_batch / std::max<std::int64_t>(r_.micro_batch * r_.dp, 1);
    if (passes % 2 == 0) batch_of(2 * r_.micro_batch);
  }

  /// Gradients that are reduced once for more sequences, where nobody said how many a step has.
  void accumulate() {
    constexpr std::int64_t kMore = 4;
    if (r_.dp <= 1 || said_.global_batch > 0) return;
    const std::int64_t passes = r_.global_batch / std::max<std::int64_t>(r_.micro_batch * r_.dp, 1);
    const std::size_t known = changes_.size();
    add({{{"grad_accum", std::to_string(kMore * passes)}}, {{"micro_batches_per_step", std::to_string(kMore * passes)}},
         {{"global_batch", std::to_string(kMore * r_.global_batch)}}});
    if (changes_.size() > known) changes_.back().larger_batch = true;
  }

  /// What is not divided need not be gathered.
  void less_sharding() {
    if (r_.dp <= 1) return;
    for (const DataParallel kind : profile_.kinds)
      if (kind != DataParallel::none && sharding_level(kind) < sharding_level(r_.data_parallel)) add(spellings_of(kind));
    if (shards_parameters(r_.data_parallel)) add("reshard_after_forward", "never");
  }

  void faster_kernels() {
    if (r_.compile == Strategy::Compile::no) add({{{"compile", "blocks"}}, {{"compile", "true"}}});
    if (!r_.tf32 && r_.compute_dtype == DType::fp32) add("tf32", "true");
    if (r_.compute_dtype == DType::fp32) add("precision", "amp-bf16");
    if (r_.compute_dtype == DType::bf16 && r_.low_precision == LowPrecision::none) add("precision", "fp8");
  }

  /// Communication beside the compute stream, in fewer and larger collectives.
  void overlap() {
    constexpr double kUsualBucket = 25;  // MiB
    if (r_.megatron.overlap_grad_reduce == false) add("overlap_grad_reduce", "true");
    if (r_.megatron.overlap_grad_reduce == true && r_.megatron.overlap_param_gather == false) add("overlap_param_gather", "true");
    if (r_.comm_overlap == false) add("comm_overlap", "true");
    if (r_.deepspeed.overlap_comm == false && r_.dp > 1) add("deepspeed.zero_optimization.overlap_comm", "true");
    if (r_.data_parallel == DataParallel::ddp && r_.ddp.bucket_cap_mb == kUsualBucket) add("ddp.bucket_cap_mb", "100");
  }

  /// Smaller micro-batches of the same global batch.
  void batch() {
    if (r_.micro_batch > 1) batch_of(1);
    if (r_.micro_batch > 3) batch_of(r_.micro_batch / 2);
  }

  /// The same global batch in micro-batches of another size.
  void batch_of(std::int64_t micro_batch) {
    Options options{{"micro_batch", std::to_string(micro_batch)}};
    const auto more = [&](std::int64_t passes) { return std::to_string(passes * r_.micro_batch / micro_batch); };
    if (said_.grad_accum > 0) options.emplace_back("grad_accum", more(said_.grad_accum));
    if (said_.micro_batches > 0) options.emplace_back("micro_batches_per_step", more(said_.micro_batches));
    if (said_.global_batch == 0 && options.size() == 1) options.emplace_back("global_batch", std::to_string(r_.global_batch));
    add({options});
  }

  void sharding() {
    if (r_.dp <= 1) return;
    for (const DataParallel kind : profile_.kinds)
      if (sharding_level(kind) > sharding_level(r_.data_parallel)) add(spellings_of(kind));
    using Sharding = FsdpOptions::Sharding;
    const Sharding sharding = r_.fsdp.sharding;
    const bool keeps_parameters =
        r_.fsdp.reshard == FsdpOptions::Reshard::never || sharding == Sharding::shard_grad_op || sharding == Sharding::no_shard;
    if (shards_parameters(r_.data_parallel) && keeps_parameters) add({{{"fsdp", "full"}}, {{"fsdp.reshard_after_forward", "always"}}});
    if (shards_parameters(r_.data_parallel) && r_.dp_replicate > 1) {
      const std::string all = std::to_string(r_.dp);
      add({{{"dp_replicate", "1"}, {"fsdp", "full"}}, {{"dp_replicate", "1"}}, {{"dp_shard", all}, {"dp_replicate", "1"}}});
    }
  }

  static std::vector<Options> spellings_of(DataParallel kind) {
    std::vector<Options> spellings{{{"data_parallel", std::string(name_of(kind))}}};
    if (kind == DataParallel::fsdp1 || kind == DataParallel::fsdp2) spellings.push_back({{"fsdp", "full"}});
    for (const DataParallel stage : {DataParallel::zero1, DataParallel::zero2, DataParallel::zero3})
      if (kind == stage)
        for (const char* key : {"zero", "zero_stage", "deepspeed.zero_optimization.stage"})
          spellings.push_back({{key, std::to_string(sharding_level(kind))}});
    return spellings;
  }

  void optimizer() {
    if (r_.optimizer_impl != OptimizerImpl::fused) add("optimizer_impl", "fused");
    Offload all = r_.offload;
    all.params = all.grads = all.optimizer = true;
    if (!r_.offload.optimizer) offload(&Offload::optimizer);
    if (!r_.offload.params) add("offload", offload_value(all));
  }

  void rest() {
    if (r_.tp > 1 && !r_.sequence_parallel.value_or(false)) add("sequence_parallel", "true");
    if (r_.data_parallel == DataParallel::ddp && r_.ddp.gradient_as_bucket_view == false) add("ddp.gradient_as_bucket_view", "true");
    if (!r_.allocator.expandable_segments) add("allocator.expandable_segments", "true");
    if (profile_.offload_activations && !r_.offload.activations) offload(&Offload::activations);
  }

  /// Weights, gradients or optimizer states in fewer bits.
  void fewer_bits() {
    if (r_.lora && r_.base_weights == BaseWeights::as_trained) add("base_weights", "nf4");
    const bool pure = r_.precision == Precision::pure_bf16 || r_.precision == Precision::pure_fp16;
    if (!pure && r_.compute_dtype == DType::bf16 && r_.low_precision == LowPrecision::none) add("precision", "pure-bf16");
    if (r_.optimizer != OptimizerKind::adamw) return;
    Options options{{"optimizer", "adamw-8bit"}};
    if (said_.optimizer_impl != OptimizerImpl::automatic) options.emplace_back("optimizer_impl", "library");
    add({options});
  }

  void offload(bool Offload::*part) {
    Offload more = r_.offload;
    more.*part = true;
    add("offload", offload_value(more));
  }

  const Strategy& said_;
  const Strategy& r_;
  const Model& model_;
  const Cluster& cluster_;
  FrameworkProfile profile_;
  std::vector<SingleChange> changes_;
};

}  // namespace

std::vector<SingleChange> memory_changes(const Strategy& said, const Strategy& resolved, const Model& model, const Cluster& cluster) {
  return Changes(said, resolved, model, cluster).of_memory();
}

std::vector<SingleChange> time_changes(const Strategy& said, const Strategy& resolved, const Model& model, const Cluster& cluster) {
  return Changes(said, resolved, model, cluster).of_time();
}

std::vector<SingleChange> overlap_changes(const Strategy& said, const Strategy& resolved, const Model& model, const Cluster& cluster) {
  return Changes(said, resolved, model, cluster).of_overlap();
}

}  // namespace plimsoll::estimation
