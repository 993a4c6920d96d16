// transformers' modules under DistributedDataParallel.
#include "program/wrappers/ddp.hpp"

#include "plimsoll/error.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/lower.hpp"
#include "program/modules/network_source.hpp"
#include "strategy/msamp.hpp"

namespace plimsoll::program {

namespace {

constexpr double kDefaultBucketCap = 25;  // MiB; only a cap that was asked for holds for the first bucket too

/// DDP that looks for unused parameters takes those of a re-entrant checkpoint, whose graph it does not see, for unused, and raises when their
/// gradients come.
void refuse_unseen_checkpoints(const Strategy& strategy) {
  const bool looks = strategy.ddp.find_unused_parameters.value_or(false) && !strategy.ddp.static_graph.value_or(false);
  if (looks && strategy.recompute.kind == Recompute::Kind::full && strategy.recompute.reentrant.value_or(false))
    fail("DDP raises in the first backward pass: it looks for unused parameters, and re-entrant checkpoints hide those that are used",
         "recompute_reentrant", "false, or ddp.find_unused_parameters false");
}

/// What is trained, on the device.
struct Trained {
  const Model& model;
  Module& root;
  Network& network;
  const Strategy& strategy;
};

StepProgram record_wrapped(Tape& tape, const Trained& trained, const DdpSettings& options, bool every_micro_batch) {
  const auto& [model, root, network, strategy] = trained;
  Ddp wrapped(tape, root, options);
  tape.ddp_buckets = BucketLimits{.first = DdpSettings{}.first_bucket_cap, .rest = options.bucket_cap};
  const Batch batch = hf_batch(model, strategy, tape);
  const std::vector<Tensor> parameters = trainable_tensors(root);
  const std::unique_ptr<Optimizer> optimizer = hf_optimizer(model, strategy, root, tape);
  const bool no_sync = strategy.no_sync;
  record_hf_steps(tape,
                  {network, *optimizer, parameters, [&wrapped, no_sync](bool last) { wrapped.before_forward(last || !no_sync); },
                   [&wrapped] { wrapped.after_step(); }, options.static_graph},
                  strategy, batch, every_micro_batch);
  return tape.take();
}

}  // namespace

DdpSettings hf_ddp_settings(const Strategy& strategy) {
  DdpSettings options;
  if (strategy.ddp.bucket_cap_mb && *strategy.ddp.bucket_cap_mb != kDefaultBucketCap)
    options.bucket_cap = options.first_bucket_cap = static_cast<std::int64_t>(*strategy.ddp.bucket_cap_mb * 0x1p20);
  options.gradient_as_bucket_view = strategy.ddp.gradient_as_bucket_view.value_or(false);
  options.static_graph = strategy.ddp.static_graph.value_or(false);
  options.find_unused_parameters = strategy.ddp.find_unused_parameters.value_or(false);
  return options;
}

StepProgram record_ddp(Tape& tape, const Model& model, Module& root, Network& network, const Strategy& strategy, bool every_micro_batch) {
  const DdpSettings options = hf_ddp_settings(strategy);
  tape.phase(Phase::init);
  materialize(root, tape, arrival_of(model, is_prepared_by_accelerate(strategy)));
  return record_wrapped(tape, {model, root, network, strategy}, options, every_micro_batch);
}

StepProgram lower_hf_ddp(const Lowering& run, const Rank& rank) {
  const Model& model = run.model;
  const Strategy& strategy = run.strategy;
  refuse_unseen_checkpoints(strategy);
  if (is_msamp(strategy.precision)) return lower_hf_msamp(run, rank);
  if (strategy.ddp.static_graph.value_or(false) && strategy.no_sync && strategy.grad_accum > 1)
    fail("the reducer of a static graph fails where its first backward runs under no_sync (expect_autograd_hooks_)", "ddp.static_graph",
         "false, or gradients reduced in every micro-batch");
  const DdpSettings options = hf_ddp_settings(strategy);
  if (strategy.compile != Strategy::Compile::no && options.bucket_cap < DdpSettings{}.first_bucket_cap)
    fail("torch.compile fails under DDP whose buckets are smaller than its first one (DDPOptimizer.__init__)", "ddp.bucket_cap_mb",
         "1 or more");
  Tape tape(run.device, run.torch());
  const std::unique_ptr<Module> root = hf_modules(model, strategy, tape);
  refuse_resting_tower(model, *root, "DistributedDataParallel");
  tape.phase(Phase::init);
  materialize(*root, tape, arrival_of(model, is_prepared_by_accelerate(strategy)));
  const std::unique_ptr<Network> network = hf_network(model, strategy, *root, tape);
  return record_wrapped(tape, {model, *root, *network, strategy}, options, rank.every_micro_batch);
}

}  // namespace plimsoll::program
