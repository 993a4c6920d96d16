// transformers' modules under torch.distributed.fsdp.fully_shard: the layers' own units, the root unit around them.
#include "program/wrappers/fsdp/fsdp2.hpp"

#include "plimsoll/error.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/frameworks/wrap_units.hpp"
#include "program/lower.hpp"
#include "program/optimizers/host_optimizer.hpp"

namespace plimsoll::program {

namespace {

/// reshard_after_forward=int, for the root as for all others: 1 is False, all ranks of the sharding group are True.
void reshard_in_parts(const Strategy& strategy, Fsdp2Options& options) {
  const int ranks = strategy.fsdp.reshard_to;
  if (ranks < 1 || strategy.dp_shard % ranks != 0)
    refuse("fully_shard demands that an integer reshard_after_forward divides the sharding group", "fsdp.reshard_after_forward",
           "a factor of " + std::to_string(strategy.dp_shard));
  options.reshard_after_forward = options.reshard_root = ranks > 1;
  if (ranks > 1 && ranks < strategy.dp_shard) options.reshard_to = ranks;
}

Fsdp2Options fsdp2_options(const Strategy& strategy) {
  Fsdp2Options options;
  options.mesh = data_mesh(strategy);
  if (strategy.fsdp.mixed_precision.value_or(true)) {
    options.param_dtype = strategy.compute_dtype;
    options.reduce_dtype = strategy.reduce_dtype;
  }
  options.reshard_after_forward = strategy.fsdp.reshard != FsdpOptions::Reshard::never;
  options.reshard_root = strategy.fsdp.reshard == FsdpOptions::Reshard::always;
  if (strategy.fsdp.reshard == FsdpOptions::Reshard::number) reshard_in_parts(strategy, options);
  options.offload_to_host = strategy.offload.params;
  return options;
}

/// Optimizers that fail on FSDP2's DTensors.
void refuse_without_dtensors(OptimizerKind optimizer) {
  if (is_bitsandbytes(optimizer)) fail("bitsandbytes' optimizers do not take FSDP2's DTensors", "optimizer", "use FSDP1 or AdamW");
  switch (optimizer) {
    case OptimizerKind::rprop:
      fail("Rprop does not take FSDP2's DTensors: _foreach_copy_ has no sharding strategy", "optimizer", "use FSDP1 or AdamW");
    case OptimizerKind::torch_adafactor:
      fail("torch.optim.Adafactor does not take FSDP2's DTensors: it squares partial norms in place", "optimizer", "use FSDP1 or AdamW");
    case OptimizerKind::adafactor:
      fail("transformers' Adafactor does not take FSDP2's DTensors: its factors are plain tensors", "optimizer", "use FSDP1 or AdamW");
    default:
      break;
  }
}

}  // namespace

StepProgram lower_hf_fsdp2(const Model& model, const Strategy& strategy, bool every_micro_batch) {
  Tape tape;
  const std::unique_ptr<Module> root = hf_modules(model, strategy, tape);
  const std::unique_ptr<Network> network = make_network(model, hf_run_options(strategy), *root, tape);
  Fsdp2 sharded(tape, *root, wrap_units(model, *root, strategy.fsdp.units), fsdp2_options(strategy));
  tape.phase(Phase::init);
  sharded.materialize();
  const Batch batch = hf_batch(model, strategy, tape);
  const std::vector<Tensor> shards = sharded.shards();
  refuse_without_dtensors(strategy.optimizer);
  const bool on_host = strategy.offload.params;
  const std::unique_ptr<Optimizer> optimizer =
      on_host ? make_host_optimizer(strategy, tape, shards) : make_optimizer(strategy.optimizer, strategy.optimizer_impl, tape, shards);
  TrainingLoop loop{*network, *optimizer, shards, [&](bool last) { sharded.set_requires_gradient_sync(last || !strategy.no_sync); }};
  loop.clip = [&] {
    clip_grad_norm(tape, shards, Group::data_shard);
    if (on_host) clip_grad_norm_on_host(tape, shards);
  };
  record_hf_steps(tape, loop, strategy, batch, every_micro_batch);
  return tape.take();
}

}  // namespace plimsoll::program
