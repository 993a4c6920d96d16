// transformers' modules under torch.distributed.fsdp.fully_shard: the layers' own units, the root unit around them.
#include "program/wrappers/fsdp/fsdp2.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/frameworks/transformers/trl/trainer.hpp"
#include "program/frameworks/transformers/diffusion_script.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/frameworks/wrap_units.hpp"
#include "program/lower.hpp"
#include "program/modules/network_source.hpp"
#include "program/optimizers/host_optimizer.hpp"
#include "program/resting.hpp"

namespace plimsoll::program {

namespace {

/// reshard_after_forward=int, for the root as for all others: 1 is False, all ranks of the sharding group are True.
void reshard_in_parts(const Strategy& strategy, Fsdp2Options& options) {
  const int ranks = strategy.fsdp.reshard_to;
  if (ranks < 1 || strategy.dp_shard % ranks != 0)
    refuse("fully_shard demands that an integer reshard_after_forward divides the sharding group", "fsdp.reshard_after_forward",
           "a factor of " + std::to_string(strategy.dp_shard));
  options.reshard_after_forward = options.reshard_root = ranks > 1;
  if (ranks <= 1 || ranks == strategy.dp_shard) return;
  if (strategy.lora || strategy.peft)
    refuse("gathered parameters that stay in parts after forward are not modelled where some are frozen", "fsdp.reshard_after_forward",
           "always or never");
  options.reshard_to = ranks;
}

Fsdp2Options fsdp2_options(const Strategy& strategy) {
  Fsdp2Options options;
  options.mesh = data_mesh(strategy);
  if (strategy.fsdp.mixed_precision.value_or(true)) {
    options.param_dtype = strategy.compute_dtype;
    options.reduce_dtype = strategy.reduce_dtype;
    if (is_prepared_by_accelerate(strategy)) options.output_dtype = strategy.compute_dtype;
  }
  options.reshard_after_forward = strategy.fsdp.reshard != FsdpOptions::Reshard::never;
  options.reshard_root = strategy.fsdp.reshard == FsdpOptions::Reshard::always;
  if (strategy.fsdp.reshard == FsdpOptions::Reshard::number) reshard_in_parts(strategy, options);
  options.offload_to_host = strategy.offload.params;
  options.leaves_integers = is_prepared_by_accelerate(strategy);
  return options;
}

/// What the plugin says is said of the root, which is the model's only unit.
Fsdp2Options reference_options(const Strategy& strategy) {
  Fsdp2Options options = fsdp2_options(strategy);
  options.reshard_root = options.reshard_after_forward;
  return options;
}

/// fsdp2_prepare_model of Accelerate since 1.14 gives the embedding a unit of its own, and final norm and head another.
bool cuts_ends(const Strategy& strategy) {
  return is_prepared_by_accelerate(strategy) && strategy.releases.of(Package::accelerate).since(1, 14);
}

/// What fsdp2_prepare_model carves out of the root: get_input_embeddings(), the norm that _find_final_norm finds, get_output_embeddings().
struct Ends {
  Module *input = nullptr, *norm = nullptr, *head = nullptr;
  bool tied = false;
};

/// _find_final_norm: the last norm among the children of what base_model_prefix names. Of a PeftModel "model" is the whole model.
Module* final_norm(Module& root, const std::string& base, bool adapted) {
  Module* const within = base.empty() || (adapted && base == "model") ? &root : root.find_child(base);
  Module* norm = nullptr;
  if (within)
    for (const auto& child : within->children)
      if (child->type.find("Norm") != std::string::npos) norm = child.get();
  return norm;
}

Ends ends_of_code(const ModelParts& parts, Module& root, bool adapted) {
  Ends ends;
  if (!parts.embeddings.empty()) ends.input = root.find(parts.embeddings.front());
  if (!parts.head.empty()) ends.head = root.find(parts.head);
  ends.norm = final_norm(root, parts.base, adapted);
  const auto weight_of = [](Module* module) { return module && module->find_parameter("weight") ? module->find_parameter("weight") : nullptr; };
  ends.tied = weight_of(ends.input) && weight_of(ends.input) == weight_of(ends.head);
  return ends;
}

/// The module of a block's token embeddings; none where it has no table of the vocabulary: a vision tower's patches and their positions.
Module* token_embedding(const Model& model, const Block& block, Module& root) {
  for (const Operator& op : block.operators) {
    if (op.kind != OperatorKind::embedding || op.parameters.empty() || op.parameters.front().shape.front() != model.vocab_size) continue;
    const std::string weight = full_name(block, 0, op.parameters.front());
    return root.find(weight.substr(0, weight.rfind('.')));
  }
  return nullptr;
}

Ends ends_of(const Model& model, Module& root, bool adapted) {
  if (const NetworkSource* source = network_source(model)) return ends_of_code(source->parts(), root, adapted);
  Ends ends{.head = root.find_child("lm_head"), .tied = model.tied_embeddings};
  if (!ends.head && !root.find_child("score")) return {};  // the head of a sequence classifier is no output embedding, and stays with the root
  for (const Block& block : model.blocks) {
    if (block.role == Block::Role::embedding && !ends.input) ends.input = token_embedding(model, block, root);
    const bool child_of_base = std::count(block.name.begin(), block.name.end(), '.') == 1;  // no tower's, nor a language model's within one
    const bool found = child_of_base && (!adapted || !block.name.starts_with("model."));  // see final_norm
    if (block.role == Block::Role::final_norm && found) ends.norm = root.find(block.name);
  }
  return ends;
}

/// Behind the layers' units. Answers a module of the last, which is not resharded after forward; none: there is no such unit.
const Module* add_ends(const Ends& ends, std::vector<std::vector<Module*>>& units) {
  const auto is_unit = [&](const Module* module) {
    return std::any_of(units.begin(), units.end(), [&](const auto& unit) { return std::find(unit.begin(), unit.end(), module) != unit.end(); });
  };
  if (ends.input && !ends.tied && !is_unit(ends.input)) units.push_back({ends.input});
  std::vector<Module*> tail;
  for (Module* each : {ends.norm, ends.tied ? ends.input : nullptr, ends.head})
    if (each && !is_unit(each)) tail.push_back(each);
  if (tail.empty()) return nullptr;
  units.push_back(tail);
  return tail.front();
}

/// _validate_no_duplicate_params: of a parameter that modules of several units hold torch 2.13 and later raise.
void refuse_shared_parameters(Module& root, const std::vector<std::vector<Module*>>& units, const Release& torch) {
  std::unordered_map<const Module*, const std::vector<Module*>*> homes;  // inner units come first
  for (const auto& unit : units)
    for (Module* module : unit)
      for (const Module* below : module->all_modules()) homes.emplace(below, &unit);
  std::unordered_map<const Parameter*, const std::vector<Module*>*> known;
  for (const Module* module : root.all_modules()) {
    const auto home = homes.find(module);
    for (const auto& parameter : module->parameters)
      if (const auto* unit = home == homes.end() ? nullptr : home->second; known.emplace(parameter.get(), unit).first->second != unit) {
        const std::string name = module->path + "." + parameter->name;
        const char* const instead = "units that hold them together";
        if (torch.since(2, 13)) fail("fully_shard raises: " + name + " is shared with a parameter that another unit has", "fsdp.units", instead);
        refuse("a parameter that modules of several units share (" + name + ") is not modelled", "fsdp.units", instead);
      }
  }
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

/// verl's apply_fsdp2: beside the layers the embedding and the head are units of their own, unless they are tied.
std::vector<std::vector<Module*>> verl_units(const Model& model, Module& root, const Strategy& strategy) {
  std::vector<std::vector<Module*>> units = wrap_units(model, root, strategy.fsdp.units);
  if (model.tied_embeddings) return units;
  for (const Block& block : model.blocks)
    if (block.role == Block::Role::embedding)
      if (Module* input = root.find(block.name)) units.insert(units.begin(), {input});
  if (Module* head = root.find_child("lm_head")) units.push_back({head});
  return units;
}

std::vector<std::vector<Module*>> units_of(const Model& model, Module& root, const Strategy& strategy) {
  return is_run_by_verl(strategy) ? verl_units(model, root, strategy) : prepared_units(model, root, strategy);
}

/// verl's fsdp2_load_full_state_dict: shards that are there already take their parts of whole parameters, which come one after the other.
void load_sharded(Fsdp2& sharded, Module& root, Tape& tape) {
  sharded.materialize();
  for (const auto& slot : root.all_parameters()) tape.empty(slot->sizes, slot->type);
}

/// verl's: units like the policy's, their shards on the host (CPUOffloadPolicy).
ReferenceModel reference_on_host(const Model& model, const Strategy& strategy, Tape& tape) {
  ReferenceModel reference;
  reference.root = reference_modules(model, strategy, tape);
  Fsdp2Options options = fsdp2_options(strategy);
  options.offload_to_host = true;
  const auto sharded = std::make_shared<Fsdp2>(tape, *reference.root, verl_units(model, *reference.root, strategy), options);
  load_sharded(*sharded, *reference.root, tape);
  reference.wrapper = sharded;
  return reference;
}

/// TRL's prepare_fsdp: fully_shard of a model of reference, which lies on the device whole, takes it as one unit.
ReferenceModel reference_unit(const Model& model, const Strategy& strategy, Tape& tape) {
  ReferenceModel reference;
  if (!keeps_reference_model(strategy)) return reference;
  if (is_run_by_verl(strategy)) return reference_on_host(model, strategy, tape);
  reference.root = reference_modules(model, strategy, tape);
  const auto sharded = std::make_shared<Fsdp2>(tape, *reference.root, std::vector<std::vector<Module*>>{}, reference_options(strategy));
  sharded->shard_loaded();
  reference.wrapper = sharded;
  return reference;
}

/// The program; none where `some` of equal layers were to stand for all of them, and do not.
std::optional<StepProgram> lowered(const Lowering& run, const Rank& rank, bool some) {
  const Model& model = run.model;
  const Strategy& strategy = run.strategy;
  if (strategy.fsdp.min_num_params > 0)
    fail("fully_shard takes no list of modules, which units by size would be", "fsdp.min_num_params", "use FSDP1, or units by class");
  Tape tape(run.device, run.torch());
  const std::unique_ptr<Module> root = hf_modules(model, strategy, tape);
  upcast_trained_weights(*root, strategy);
  std::unique_ptr<Network> network = hf_wrapped_network(model, strategy, *root, tape);
  std::vector<std::vector<Module*>> units = units_of(model, *root, strategy);
  if (cuts_ends(strategy) && model.task == Model::Task::seq2seq && !model.source)
    refuse("the units that Accelerate makes of an encoder's and a decoder's shared embedding are not modelled", "releases.accelerate",
           "1.13, which leaves it to the root");
  const Module* tail = cuts_ends(strategy) ? add_ends(ends_of(model, *root, strategy.lora.has_value()), units) : nullptr;
  if (model.source) refuse_shared_parameters(*root, units, strategy.releases.of(Package::torch));
  Fsdp2Options options = fsdp2_options(strategy);
  if (tail || (cuts_ends(strategy) && model.source)) options.reshard_root = false;  // its reshard_after_forward is left to PyTorch
  tape.phase(Phase::init);
  if (strategy.post_training) network = post_training_network(model, strategy, *root, std::move(network), reference_unit(model, strategy, tape), tape);
  network = beside_neighbours(model, strategy, std::move(network), tape);
  Fsdp2 sharded(tape, *root, units, options);
  if (tail) sharded.set_reshard_after_forward(*tail, false);
  if (strategy.base_weights != BaseWeights::as_trained) {
    sharded.shard_loaded();
  } else if (is_prepared_by_accelerate(strategy)) {
    strategy.host_loading == HostLoading::every_rank ? sharded.shard_from_host() : sharded.load_full_state_dict();
  } else if (is_run_by_verl(strategy)) {
    load_sharded(sharded, *root, tape);
  } else {
    sharded.materialize();
  }
  const Batch batch = hf_batch(model, strategy, tape);
  const std::vector<Tensor> shards = sharded.shards();
  refuse_without_dtensors(strategy.optimizer);
  const bool on_host = strategy.offload.params;
  const std::unique_ptr<Optimizer> optimizer =
      on_host ? make_host_optimizer(strategy, tape, shards) : hf_grouped_optimizer(model, strategy, *root, tape, shards);
  TrainingLoop loop{*network, *optimizer, shards, [&](bool last) { sharded.set_requires_gradient_sync(last || !strategy.no_sync); }};
  loop.clip = [&] {
    clip_grad_norm(tape, shards, Group::data_shard);
    if (on_host) clip_grad_norm_on_host(tape, shards);
  };
  network->rests({[&] {
                    for (const Tensor& shard : shards) fetch_storage(shard, Category::parameter);
                  },
                  [&] {
                    for (const Tensor& shard : shards) rest_storage(shard);
                  }},
                 {[&] { optimizer->fetch_states(); }, [&] { optimizer->rest_states(); }});
  loop.after_step = [&] { network->after_update(); };
  loop.passes_recur = hf_passes_recur(strategy) && !on_host && !model.source;  // code may keep what it made in a first pass
  std::unique_ptr<EqualLayers> equal;
  if (some && loop.passes_recur) equal = hf_equal_layers(model, strategy, *root, tape, shards.size());
  tape.equal_layers = equal.get();
  if (!record_hf_steps(tape, loop, strategy, batch, rank.every_micro_batch)) return {};
  return tape.take();
}

}  // namespace

StepProgram lower_hf_fsdp2(const Lowering& run, const Rank& rank) {
  if (std::optional<StepProgram> program = lowered(run, rank, true)) return std::move(*program);
  return std::move(*lowered(run, rank, false));
}

}  // namespace plimsoll::program
