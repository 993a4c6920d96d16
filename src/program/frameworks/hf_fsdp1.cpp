// transformers' modules under FullyShardedDataParallel: the layers' own units, the root unit around them.
#include <unordered_set>

#include "plimsoll/error.hpp"
#include "program/frameworks/hf_training.hpp"
#include "program/frameworks/wrap_units.hpp"
#include "program/lower.hpp"
#include "program/wrappers/fsdp1.hpp"

namespace plimsoll::program {

namespace {

Fsdp1Settings fsdp1_settings(const Strategy& strategy) {
  using Sharding = FsdpOptions::Sharding;
  const Sharding sharding = strategy.fsdp.sharding;
  if (sharding != Sharding::full_shard && sharding != Sharding::shard_grad_op && sharding != Sharding::automatic)
    refuse("FSDP1 with this sharding strategy is not modelled", "fsdp.strategy", "FULL_SHARD or SHARD_GRAD_OP");
  if (strategy.no_sync && strategy.grad_accum > 1) refuse("FSDP1 with no_sync is not modelled", "fsdp.no_sync");
  if (strategy.offload.any()) refuse("FSDP1 with offload is not modelled", "offload");
  if (strategy.lora) refuse("FSDP1 with frozen parameters is not modelled", "lora");
  Fsdp1Settings settings;
  settings.shard = strategy.dp_shard;
  if (strategy.fsdp.mixed_precision.value_or(true)) {
    settings.param_dtype = strategy.compute_dtype;
    settings.reduce_dtype = strategy.reduce_dtype;
  }
  settings.reshard_after_forward = sharding != Sharding::shard_grad_op;
  settings.use_orig_params = strategy.fsdp.use_orig_params.value_or(true);
  return settings;
}

/// FSDP1 puts a model built on the meta device on the device module by module, which gives a tied parameter a tensor in each of its
/// modules.
void untie(Module& root) {
  std::unordered_set<Parameter*> seen;
  for (Module* module : root.all_modules())
    for (std::shared_ptr<Parameter>& parameter : module->parameters)
      if (!seen.insert(parameter.get()).second) parameter = std::make_shared<Parameter>(*parameter);
}

}  // namespace

StepProgram lower_hf_fsdp1(const Model& model, const Strategy& strategy) {
  Tape tape;
  const std::unique_ptr<Module> root = hf_modules(model, strategy, tape);
  untie(*root);
  const std::unique_ptr<Network> network = make_network(model, hf_run_options(strategy), *root, tape);
  std::vector<Module*> units;
  for (const std::vector<Module*>& unit : wrap_units(model, *root, strategy.fsdp.units))
    units.insert(units.end(), unit.begin(), unit.end());
  Fsdp1 sharded(tape, *root, units, fsdp1_settings(strategy));
  tape.phase(Phase::init);
  sharded.materialize();
  const Batch batch = hf_batch(model, strategy, tape);
  const std::vector<Tensor> shards = sharded.shards();
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(strategy.optimizer, strategy.optimizer_impl, tape, shards);
  record_hf_steps(tape, {*network, *optimizer, shards, {}, [&] { sharded.after_step(); }}, strategy, batch);
  return tape.take();
}

}  // namespace plimsoll::program
