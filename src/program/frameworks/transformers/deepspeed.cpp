// transformers' modules under deepspeed.initialize: engine(**batch), engine.backward(loss), engine.step().
#include "program/wrappers/deepspeed/deepspeed.hpp"

#include <unordered_map>

#include "framework/peft.hpp"
#include "plimsoll/error.hpp"
#include "program/accumulation.hpp"
#include "program/carried.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/frameworks/transformers/trl/trainer.hpp"
#include "program/frameworks/wrap_units.hpp"
#include "program/lower.hpp"
#include "program/modules/adapters/axolotl.hpp"
#include "program/modules/adapters/lora.hpp"
#include "program/modules/transformers/expert_loop.hpp"
#include "program/ops/ops.hpp"
#include "program/wrappers/deepspeed/flat.hpp"
#include "program/wrappers/deepspeed/zero12.hpp"
#include "program/wrappers/deepspeed/zero3.hpp"
#include "program/wrappers/msamp/whole.hpp"
#include "program/wrappers/msamp/zero.hpp"
#include "strategy/msamp.hpp"

namespace plimsoll::program {

namespace {

/// The release whose rules the engine has. MS-AMP's is written for 0.13.1, which they go back to.
DeepSpeedRelease release_of(const Strategy& strategy) {
  const Release release = strategy.releases.of(Package::deepspeed);
  if (is_msamp(strategy.precision)) {
    if (!strategy.releases.says(Package::deepspeed)) return DeepSpeedRelease(Release(0, 13, 1));
    if (release.since(0, 13) && !release.since(0, 14)) return DeepSpeedRelease(release);
    refuse("MS-AMP's engine over DeepSpeed " + release.text() + " is not modelled", "releases.deepspeed", "0.13.1");
  }
  if (!release.since(0, 9)) refuse("DeepSpeed " + release.text() + " is not modelled", "releases.deepspeed", "0.9 or later");
  return DeepSpeedRelease(release);
}

void refuse_unmodelled(const Strategy& strategy) {
  const DeepSpeedOptions& json = strategy.deepspeed;
  if (strategy.offload.optimizer && json.offload_optimizer.ratio < 1)
    refuse("partial offload of the optimizer is not modelled", "deepspeed.zero_optimization.offload_optimizer.ratio");
  if (json.gradient_predivide_factor != 1 && strategy.data_parallel == DataParallel::zero3)
    refuse("a gradient_predivide_factor is not modelled for ZeRO-3", "deepspeed.gradient_predivide_factor");
  if (json.zero_quantized_gradients)
    refuse("ZeRO++'s quantised gradients are not modelled: what they make depends on how many nodes the ranks stand on",
           "deepspeed.zero_optimization.zero_quantized_gradients");
  const bool of_0_19 = strategy.releases.of(Package::deepspeed).since(0, 19) && !is_msamp(strategy.precision);
  if (json.zero_quantized_weights && (json.allgather_sequential || !of_0_19))
    refuse("ZeRO++'s quantised weights are modelled for DeepSpeed 0.19 and parameters gathered together",
           "deepspeed.zero_optimization.zero_quantized_weights");
  if (json.mics_shard_size > 0)
    refuse("DeepSpeed 0.19 has no MiCS any more, and 0.16's is not modelled", "deepspeed.zero_optimization.mics_shard_size");
  if (json.zero_hpz_partition_size > 1 && strategy.offload.params)
    refuse("ZeRO++ hpZ with offloaded parameters is not modelled", "deepspeed.zero_optimization.zero_hpz_partition_size");
  if (json.fp16_master_weights_and_grads || json.bf16_master_weights_and_grads || json.bf16_optimizer_states)
    refuse("16-bit master weights and states of DeepSpeed are not modelled", "deepspeed");
  if (hf_autocast(strategy))
    refuse("torch_autocast under DeepSpeed is not modelled: it sends gradients and weights of some modules in 16 bits", "autocast");
  if (strategy.offload.activations) refuse("activation offload under DeepSpeed is not modelled", "offload");
}

/// Of adapters, what was not read or does not go together.
void refuse_unmodelled_adapters(const Model& model, const Strategy& strategy) {
  if (!strategy.lora) return;
  const DeepSpeedOptions& json = strategy.deepspeed;
  const char* const zero = "deepspeed.zero_optimization";
  if (strategy.data_parallel == DataParallel::zero3 && !release_of(strategy).releases_recomputed())
    refuse("LoRA under ZeRO-3 before DeepSpeed 0.19.3 is not modelled: layers that are run again fail there, and others keep less",
           "releases.deepspeed", "0.19.8, or zero 1 or 2");
  if (strategy.base_weights != BaseWeights::as_trained && strategy.data_parallel == DataParallel::zero3)
    refuse("4-bit and 8-bit weights under ZeRO-3 are not modelled", "base_weights", "zero 1 or 2, which leave frozen weights whole");
  if (framework::mixture_targets(model, strategy.lora->targets).any())
    refuse("adapters of a mixture's router and experts are not modelled under DeepSpeed", "lora.target_modules",
           "list attention's linears");
  if (strategy.optimizer == OptimizerKind::lora_fa) refuse("LoRA-FA under DeepSpeed is not modelled", "optimizer", "adamw");
  if (strategy.data_parallel != DataParallel::zero3) return;
  if (strategy.lora->dora)
    refuse("DoRA under ZeRO-3 is not modelled: it reads weights outside of their module's call", "lora.use_dora", "zero 1 or 2");
  if (!strategy.lora->modules_to_save.empty())
    refuse("modules_to_save under ZeRO-3 are not modelled", "lora.modules_to_save", "leave it out, or zero 1 or 2");
  if (json.zero_quantized_weights || json.zero_hpz_partition_size > 1) refuse("LoRA under ZeRO++ is not modelled", zero);
  if (json.use_all_reduce_for_fetch_params && *strategy.lora->adapter_dtype != hf_parameter_type(strategy))
    fail("stage3_use_all_reduce_for_fetch_params sums weights of one type together, and PEFT keeps adapters in fp32 (get_only_unique_item)",
         zero, "leave it out");
}

/// Of a tied weight that is trained whole, PEFT's copy is tied again only where a program says tie_weights() behind it.
void refuse_tied_copies(Module& root, const Lora& lora) {
  std::unordered_map<const Parameter*, int> holders;
  for (Module* module : root.all_modules())
    for (const auto& parameter : module->parameters) ++holders[parameter.get()];
  for (Module* module : root.all_modules()) {
    if (!targeted(*module, lora.modules_to_save)) continue;
    for (const auto& parameter : module->parameters)
      if (holders[parameter.get()] > 1)
        refuse("modules_to_save of a weight that another module has, too, is not modelled under DeepSpeed", "lora.modules_to_save",
               "an untied model");
  }
}

/// enable_input_require_grads(): a hook on the token embeddings, before any of DeepSpeed's.
void require_input_gradients(Module& root, const Model& model) {
  for (Module* module : root.all_modules()) {
    const Parameter* weight = module->find_parameter("weight");
    if (!weight || weight->sizes.rank() != 2 || weight->sizes[0] != model.vocab_size) continue;
    module->post_forward.push_back([](Module&, std::vector<Tensor*>& outputs) { outputs.front()->set_requires_grad(true); });
    return;
  }
  refuse("checkpointing beside adapters is modelled for models of tokens", "recompute");
}

int stage_of(const Strategy& strategy) {
  switch (strategy.data_parallel) {
    case DataParallel::zero0:
      return 0;
    case DataParallel::zero1:
      return 1;
    case DataParallel::zero2:
      return 2;
    default:
      return 3;
  }
}

/// runtime/zero/leaf_module_config.py: the blocks of experts that are taken as one module.
std::vector<Module*> leaf_modules(const Model& model, const DeepSpeedRelease& release, Module& root) {
  if (!release.takes_experts_as_leaves()) return {};
  std::vector<Module*> leaves;
  if (model.source) {
    for (const char* name : {"MixtralSparseMoeBlock", "Qwen2MoeSparseMoeBlock", "Qwen3MoeSparseMoeBlock"})
      for (Module* module : modules_of_class(root, name)) leaves.push_back(module);
    return leaves;
  }
  if (model.model_type != "mixtral" && model.model_type != "qwen2_moe" && model.model_type != "qwen3_moe") return {};
  for (Module* module : root.all_modules())
    if (module->find_child("experts")) leaves.push_back(module);
  return leaves;
}

DeepSpeedSettings settings_of(const Strategy& strategy) {
  DeepSpeedSettings settings;
  settings.json = strategy.deepspeed;
  settings.stage = stage_of(strategy);
  settings.ranks = strategy.dp;
  settings.rank = strategy.rank.value_or(0);
  settings.micro_batches = std::max<std::int64_t>(strategy.grad_accum, 1);
  settings.accumulate_fp32 = strategy.deepspeed.grad_accum_dtype == DType::fp32;
  settings.offload_optimizer = strategy.offload.optimizer;
  settings.offload_parameters = strategy.offload.params;
  settings.pinned = strategy.deepspeed.offload_optimizer.pin_memory.value_or(true);
  settings.unmanaged_type = strategy.precision == Precision::pure_bf16 || strategy.precision == Precision::pure_fp16;
  settings.clips = strategy.clip_grad_norm.value_or(false);
  settings.release = release_of(strategy);
  if (settings.stage == 1 && settings.release.reduces_stage_1_at_once())
    settings.json.overlap_comm = settings.json.contiguous_gradients = settings.json.round_robin_gradients = false;
  settings.adapters = strategy.lora.has_value();
  settings.optimizer = strategy.optimizer;
  settings.implementation = strategy.optimizer_impl;
  return settings;
}

/// What deepspeed.initialize is given: where the Trainer makes the optimizer two groups, decayed and not.
ParameterGroups optimizer_groups(const Strategy& strategy, Module& root) {
  if (!strategy.trainer_optimizer) return {root.all_parameters()};
  const std::vector<bool> decayed = decayed_parameters(root);
  ParameterGroups groups(2);
  std::size_t next = 0;
  for (const auto& parameter : root.all_parameters())
    if (parameter->trainable) groups[decayed[next++] ? 0 : 1].push_back(parameter);
  return groups;
}

std::unique_ptr<DeepSpeedOptimizer> make_wrapper(const Strategy& strategy, const DeepSpeedSettings& settings, Tape& tape, Module& root) {
  const std::string& wrapper = strategy.deepspeed.wrapper;
  if (wrapper == "DeepSpeedZeroOptimizer") return std::make_unique<ZeroStage12>(tape, optimizer_groups(strategy, root), settings);
  const bool bare = settings.stage == 0 && hf_parameter_type(strategy) == DType::fp32;  // the optimizer itself, nothing around it
  if (bare || wrapper == "FP16_Optimizer" || wrapper == "FP16_UnfusedOptimizer")
    return std::make_unique<WholeStates>(tape, root.all_parameters(), settings);
  if (wrapper == "DeepSpeedZeroOptimizer_Stage3")
    return std::make_unique<ZeroStage3>(tape, root, optimizer_groups(strategy, root), settings);
  if (wrapper == "BF16_Optimizer") return std::make_unique<Bf16Optimizer>(tape, root, settings);
  refuse("DeepSpeed's " + wrapper + " is not modelled", "zero_wrapper");
}

/// MSAMPDeepSpeedEngine._configure_optimizer: O2 is O3 where ZeRO shares the states, and O1 differs by its moments.
std::unique_ptr<DeepSpeedOptimizer> make_msamp_wrapper(const Strategy& strategy, const DeepSpeedSettings& settings, Tape& tape,
                                                       msamp::Model& model) {
  const msamp::States states = strategy.precision == Precision::msamp_o1 ? msamp::States::fp32 : msamp::States::scaled;
  if (settings.stage == 0) return std::make_unique<msamp::ScaledWhole>(tape, model, settings, states);
  return std::make_unique<msamp::ScaledZero>(tape, model, settings, states);
}

/// engine.backward(loss): the loss over the micro-batches (MS-AMP's engine: where there are several), and over it the loss scale where the
/// wrapper has one.
void backward(Tape& tape, DeepSpeedOptimizer& optimizer, const Strategy& strategy, const DeepSpeedRelease& release, const Tensor& loss,
              bool boundary) {
  tape.phase(Phase::backward);
  const bool several = strategy.grad_accum > 1, msamp = is_msamp(strategy.precision);
  const Tensor part = several && !msamp && release.divides_loss_apart() ? divide_scalar(loss) : loss;
  const Tensor mean = msamp && !several ? part : divide_scalar(part);
  optimizer.before_backward(boundary);
  const Tensor scaled = optimizer.scales_loss() ? multiply_scalar(mean) : mean;
  tape.backward(scaled);
  optimizer.after_backward();
}

void record_step(Tape& tape, Network& network, DeepSpeedOptimizer& optimizer, const Strategy& strategy, const DeepSpeedRelease& release,
                 const Batch& batch, Accumulation& accumulation) {
  network.before_step(batch);
  accumulation.run([&](bool last) {
    tape.phase(Phase::forward);
    const Tensor loss = hf_loss(network, strategy, batch, tape);
    backward(tape, optimizer, strategy, release, loss, last);
  });
  tape.phase(Phase::optimizer);
  optimizer.step();
  tape.phase(Phase::end);
}

}  // namespace

namespace {

/// The model as deepspeed.initialize is given it, not yet on the device, in the types that the engine casts it to: all parameters to one
/// (_cast_module_mixed_precision), but for adapters behind zero.Init.
std::unique_ptr<Module> modules_of(const Model& model, const Strategy& strategy, Tape& tape) {
  std::unique_ptr<Module> root = build_modules(model, hf_parameter_type(strategy), tape);
  separate_experts(*root, model, HfRelease(strategy.releases.of(Package::transformers)), tape);
  for (const auto& parameter : root->all_parameters()) parameter->type = hf_parameter_type(strategy);
  if (strategy.lora) {
    refuse_tied_copies(*root, *strategy.lora);
    add_lora(*root, model, *strategy.lora, *strategy.lora->adapter_dtype, tape);
  }
  freeze_other_modules(*root, strategy);
  if (strategy.base_weights != BaseWeights::as_trained) put_quantised_linears(*root, model, strategy, tape);
  if (strategy.lora && strategy.lora->has_kernels()) patch_adapters(layer_modules(model, *root), model, strategy, tape);
  return root;
}

/// TRL's prepare_deepspeed: a model of reference is an engine without an optimizer, sharded under ZeRO-3, else whole.
ReferenceModel reference_engine(const Model& model, const Strategy& strategy, const DeepSpeedSettings& settings, Tape& tape) {
  ReferenceModel reference;
  if (!keeps_reference_model(strategy)) return reference;
  const Model& other = frozen_model(model, strategy);
  reference.root = modules_of(other, strategy_of_frozen(strategy), tape);
  if (settings.stage < 3 || !strategy.deepspeed.zero_init.value_or(true)) materialize(*reference.root, tape, Arrival::moved);
  if (settings.stage < 3) return reference;
  DeepSpeedSettings own = settings;
  own.leaf_modules = leaf_modules(other, settings.release, *reference.root);
  DeepSpeedOptions& json = own.json;
  json.stage3_prefetch_bucket_size = json.reference_prefetch_bucket_size.value_or(json.stage3_prefetch_bucket_size);
  json.stage3_param_persistence_threshold = json.reference_param_persistence_threshold.value_or(json.stage3_param_persistence_threshold);
  const auto sharded = std::make_shared<ZeroCoordinator>(tape, *reference.root, own);
  sharded->partition();
  sharded->install_hooks();
  reference.wrapper = sharded;
  return reference;
}

}  // namespace

StepProgram lower_hf_deepspeed(const Lowering& run, const Rank& rank) {
  const Model& model = run.model;
  const Strategy& strategy = run.strategy;
  refuse_unmodelled(strategy);
  refuse_unmodelled_adapters(model, strategy);
  if (is_msamp(strategy.precision)) refuse_unmodelled_msamp(model, strategy);
  if (strategy.neighbours.any()) refuse("the frozen parts beside a diffusion model are not modelled under DeepSpeed", "text_encoders, vae", "absent");
  DeepSpeedSettings settings = settings_of(strategy);
  Tape tape(run.device, run.torch());
  const std::unique_ptr<Module> root = modules_of(model, strategy, tape);
  refuse_resting_tower(model, *root, "DeepSpeed");
  tape.phase(Phase::init);
  // Adapters are put into a model on the host, which deepspeed.initialize moves.
  if (settings.stage < 3 || !strategy.deepspeed.zero_init.value_or(true))
    materialize(*root, tape, strategy.lora ? Arrival::moved : Arrival::empty);
  const std::vector<std::shared_ptr<Parameter>> given = root->all_parameters();  // deepspeed/utils/debug.py keeps what is replaced, too
  std::optional<msamp::Model> scaled;
  if (is_msamp(strategy.precision)) scaled.emplace(tape, *root, model, settings.ranks);
  if (scaled && !strategy.rank) settings.rank = msamp::fullest_rank(*scaled, settings.ranks);
  ReferenceModel reference = reference_engine(model, strategy, settings, tape);
  const bool sharded_reference = reference.wrapper != nullptr;
  const RunOptions options = hf_run_options(strategy);
  std::unique_ptr<Network> network = make_network(model, options, *root, tape);
  if (strategy.post_training) network = post_training_network(model, strategy, *root, std::move(network), std::move(reference), tape);
  if (options.hidden_requires_grad && !model.source) require_input_gradients(*root, model);
  settings.leaf_modules = leaf_modules(model, settings.release, *root);
  const std::unique_ptr<DeepSpeedOptimizer> optimizer =
      scaled ? make_msamp_wrapper(strategy, settings, tape, *scaled) : make_wrapper(strategy, settings, tape, *root);
  Batch batch = hf_batch(model, strategy, tape);
  // engine(input_ids=ids, labels=ids), where one tensor can be both
  if (batch.labels && batch.labels.dtype() == batch.input_ids.dtype() && batch.labels.sizes() == batch.input_ids.sizes())
    batch.labels = batch.input_ids;
  Accumulation accumulation(tape, settings.micro_batches, rank.every_micro_batch);
  std::vector<Tape::Part> parts = {Tape::Part::first_step};
  // From the second step on gradients of a head that was tied add to those of the step before, and a sharded reference, whose first pass is
  // recorded, keeps its persistent parameters.
  if (scaled || sharded_reference) parts.push_back(Tape::Part::second_step);
  parts.push_back(Tape::Part::step);
  for (const Tape::Part part : parts) {
    tape.record_into(part);
    record_step(tape, *network, *optimizer, strategy, settings.release, batch, accumulation);
  }
  StepProgram program = tape.take();
  accumulation.repeat(program);
  carry_across_steps(program);  // persistent parameters are gathered anew in every step
  return program;
}

}  // namespace plimsoll::program
