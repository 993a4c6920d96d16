// transformers' modules under FullyShardedDataParallel: the layers' own units, the root unit around them.
#include "program/wrappers/fsdp/fsdp1.hpp"

#include <unordered_map>
#include <unordered_set>

#include "plimsoll/error.hpp"
#include "program/frameworks/transformers/trl/trainer.hpp"
#include "program/frameworks/transformers/diffusion_script.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/frameworks/wrap_units.hpp"
#include "program/lower.hpp"
#include "program/optimizers/host_optimizer.hpp"

namespace plimsoll::program {

namespace {

/// What FullyShardedDataParallel's constructor raises, and what it does that is not modelled.
void refuse_impossible(const Strategy& strategy) {
  const bool no_shard = strategy.fsdp.sharding == FsdpOptions::Sharding::no_shard || strategy.dp_shard == 1;
  if (strategy.offload.params && no_shard) refuse("FSDP1 with parameters on the host and NO_SHARD is not modelled", "offload");
}

/// Whether the units are those of PEFT's fsdp_auto_wrap_policy, which Trainer sets in the place of any policy that was asked for
/// (_fsdp_qlora_plugin_updates); a loop of its own needs them where adapters have another type than the weights around them, or FSDP1
/// flattens frozen and trained parameters apart.
bool wraps_adapters(const Strategy& strategy) {
  if (!strategy.lora) return false;
  if (is_prepared_by_accelerate(strategy) || is_run_by_verl(strategy)) return true;
  if (strategy.fsdp.min_num_params > 0 || !strategy.fsdp.units.empty()) return false;
  return hf_parameter_type(strategy) != hf_adapter_type(strategy) || strategy.base_weights != BaseWeights::as_trained ||
         !strategy.fsdp.use_orig_params.value_or(true);
}

/// peft/utils/other.py, fsdp_auto_wrap_policy: the layers, and every module without children whose weight is trained, inner ones first.
void add_adapters_and_layers(Module& module, const std::unordered_set<const Module*>& layers, std::vector<Module*>& units) {
  for (const auto& child : module.children) add_adapters_and_layers(*child, layers, units);
  const Parameter* weight = module.children.empty() ? module.find_parameter("weight") : nullptr;
  if ((weight && weight->trainable) || layers.count(&module) > 0) units.push_back(&module);
}

/// The classes of the layers are those that are asked for, where any are (FSDP_TRANSFORMER_CLS_TO_WRAP).
std::vector<Module*> adapters_and_layers(const Model& model, Module& root, const std::vector<std::string>& classes) {
  std::unordered_set<const Module*> layers;
  const bool asked = !classes.empty() && classes.front() != "none";
  for (const std::vector<Module*>& unit :
       asked ? wrap_units(model, root, classes) : std::vector<std::vector<Module*>>{unsplit_modules(model, root)})
    layers.insert(unit.begin(), unit.end());
  std::vector<Module*> units;
  add_adapters_and_layers(root, layers, units);
  return units;
}

/// Whether quantised weights lie on the device whole before they are sharded: where transformers 5 loads them there (Bnb4BitHfQuantizer,
/// update_device_map). Before, and in fsdp_qlora's loop, each weight went back to the host behind its quantisation.
bool is_quantised_on_device(const Strategy& strategy) {
  return strategy.base_weights != BaseWeights::as_trained && is_prepared_by_accelerate(strategy) &&
         strategy.releases.of(Package::transformers).since(5);
}

Fsdp1Settings fsdp1_settings(const Strategy& strategy) {
  using Sharding = FsdpOptions::Sharding;
  const Sharding sharding = strategy.fsdp.sharding;
  Fsdp1Settings settings;
  settings.sharded = sharding != Sharding::no_shard && strategy.dp_shard > 1;  // alone, FSDP1 switches to NO_SHARD by itself
  settings.world = strategy.dp_shard * strategy.dp_replicate;
  if (settings.sharded) {
    settings.shard = strategy.dp_shard;
    settings.replicate = strategy.dp_replicate;
  }
  if (strategy.fsdp.mixed_precision.value_or(true)) {
    settings.param_dtype = strategy.compute_dtype;
    settings.reduce_dtype = strategy.reduce_dtype;
  }
  settings.reshard_after_forward = sharding != Sharding::shard_grad_op && sharding != Sharding::hybrid_shard_zero2;
  settings.use_orig_params = strategy.fsdp.use_orig_params.value_or(true);
  settings.forward_prefetch = strategy.fsdp.forward_prefetch.value_or(false);
  settings.backward_prefetch = strategy.fsdp.backward_prefetch;
  // --fsdp_sync_module_states of `accelerate launch` since 0.22; verl's own
  settings.sync_module_states = is_prepared_by_accelerate(strategy) || is_run_by_verl(strategy);
  settings.casts_buffers = !is_run_by_verl(strategy);  // MixedPrecision(buffer_dtype=torch.float32)
  settings.offload_to_host = strategy.offload.params;
  settings.loaded_on_device = is_quantised_on_device(strategy);
  settings.rank = strategy.rank.value_or(0);
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

/// A tied parameter that two units would flatten: its modules then read a tensor that is no view of theirs, and PyTorch fails in forward.
void refuse_tied_units(Module& root, const std::vector<Module*>& units) {
  std::unordered_map<const Parameter*, const Module*> homes;
  for (Module* owner : root.all_modules()) {
    const Module* home = &root;
    for (Module* unit : units) {  // inner ones come first
      const std::string front = unit->path + ".";
      if (owner == unit || owner->path.compare(0, front.size(), front) == 0) {
        home = unit;
        break;
      }
    }
    for (const auto& parameter : owner->parameters)
      if (homes.emplace(parameter.get(), home).first->second != home)
        fail("FSDP1 cannot flatten the tied parameter " + owner->path + "." + parameter->name + " into two units", "fsdp.units",
             "units that hold its modules together");
  }
}

/// verl's frozen copy: units like the policy's, their shards on the host (CPUOffload).
ReferenceModel reference_units(const Model& model, const Strategy& strategy, Tape& tape) {
  ReferenceModel reference;
  if (!keeps_reference_model(strategy)) return reference;
  if (!is_run_by_verl(strategy)) refuse("a model of reference under FSDP1 is not modelled", "data_parallel", "fsdp2, or reference precomputed");
  reference.root = reference_modules(model, strategy, tape);
  Fsdp1Settings settings = fsdp1_settings(strategy);
  settings.offload_to_host = true;
  std::vector<Module*> units;
  for (const std::vector<Module*>& unit : wrap_units(model, *reference.root, strategy.fsdp.units)) units.insert(units.end(), unit.begin(), unit.end());
  const auto sharded = std::make_shared<Fsdp1>(tape, *reference.root, units, settings);
  sharded->materialize();
  reference.wrapper = sharded;
  return reference;
}

/// ShardedGradScaler tells by a tensor of one element whether gradients overflowed, and fused Adam subtracts it from counts of steps that
/// are scalars.
void refuse_fused_behind_scaler(const Strategy& strategy) {
  const bool scaled = is_prepared_by_accelerate(strategy) &&
                      (strategy.precision == Precision::amp_fp16 || strategy.precision == Precision::fsdp_mixed_fp16);
  const bool adam = strategy.optimizer == OptimizerKind::adam || strategy.optimizer == OptimizerKind::adamw;
  if (scaled && adam && strategy.optimizer_impl == OptimizerImpl::fused)
    fail("PyTorch stops in the first step: fused Adam takes nothing from FSDP1's scaler of fp16 gradients (_foreach_sub_ of its steps)",
         "optimizer_impl", "foreach (--optim adamw_torch), or fsdp2");
}

}  // namespace

StepProgram record_fsdp1(Tape& tape, const Model& model, Module& root, Network& network, const Strategy& strategy, bool every_micro_batch) {
  std::vector<Module*> units;
  if (wraps_adapters(strategy)) {
    if (!strategy.lora->modules_to_save.empty())
      refuse("modules_to_save under FSDP1 are not modelled", "lora.modules_to_save", "leave it out, or data_parallel fsdp2");
    units = adapters_and_layers(model, root, strategy.fsdp.units);
  } else if (strategy.fsdp.min_num_params > 0) {
    units = units_by_size(root, strategy.fsdp.min_num_params);
  } else {
    for (const std::vector<Module*>& unit : prepared_units(model, root, strategy))
      units.insert(units.end(), unit.begin(), unit.end());
  }
  if (strategy.fsdp.min_num_params > 0 || model.source) refuse_tied_units(root, units);
  Fsdp1 sharded(tape, root, units, fsdp1_settings(strategy));
  tape.phase(Phase::init);
  sharded.materialize();
  const Batch batch = hf_batch(model, strategy, tape);
  const std::vector<Tensor> shards = sharded.shards();
  const bool on_host = strategy.offload.params;
  const std::unique_ptr<Optimizer> optimizer =
      on_host ? make_host_optimizer(strategy, tape, shards) : hf_grouped_optimizer(model, strategy, root, tape, shards);
  network.rests({[&] { sharded.fetch(); }, [&] { sharded.rest(); }}, {[&] { optimizer->fetch_states(); }, [&] { optimizer->rest_states(); }});
  record_hf_steps(tape,
                  {network, *optimizer, shards, [&](bool last) { sharded.set_requires_gradient_sync(last || !strategy.no_sync); },
                   [&] {
                     sharded.after_step();
                     network.after_update();
                   },
                   false,
                   [&] {
                     sharded.clip_grad_norm(shards);
                     if (on_host) clip_grad_norm_on_host(tape, shards);
                   }},
                  strategy, batch, every_micro_batch);
  return tape.take();
}

StepProgram lower_hf_fsdp1(const Lowering& run, const Rank& rank) {
  const Model& model = run.model;
  const Strategy& strategy = run.strategy;
  refuse_impossible(strategy);
  refuse_fused_behind_scaler(strategy);
  Tape tape(run.device, run.torch());
  const std::unique_ptr<Module> root = hf_modules(model, strategy, tape);
  refuse_resting_tower(model, *root, "FSDP1");
  upcast_trained_weights(*root, strategy);
  if (!is_prepared_by_accelerate(strategy) && !is_run_by_verl(strategy)) untie(*root);  // these hand over a model that is built
  std::unique_ptr<Network> network = hf_wrapped_network(model, strategy, *root, tape);
  if (strategy.post_training) {
    tape.phase(Phase::init);
    network = post_training_network(model, strategy, *root, std::move(network), reference_units(model, strategy, tape), tape);
  }
  network = beside_neighbours(model, strategy, std::move(network), tape);
  return record_fsdp1(tape, model, *root, *network, strategy, rank.every_micro_batch);
}

}  // namespace plimsoll::program
