#include "program/frameworks/transformers/training.hpp"

#include <algorithm>
#include <unordered_set>

#include "framework/peft.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "program/accumulation.hpp"
#include "program/frameworks/transformers/diffusion_script.hpp"
#include "program/frameworks/transformers/trl/trainer.hpp"
#include "program/frameworks/wrap_units.hpp"
#include "program/inductor/module_graphs.hpp"
#include "program/known_passes.hpp"
#include "program/modules/adapters/axolotl.hpp"
#include "program/modules/adapters/bitsandbytes.hpp"
#include "program/modules/adapters/lora.hpp"
#include "program/modules/adapters/peft.hpp"
#include "program/modules/diffusers/diffusion.hpp"
#include "program/modules/float8_linear.hpp"
#include "program/modules/network_source.hpp"
#include "program/modules/transformers/expert_loop.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/optimizers/optimizer_kinds.hpp"
#include "program/save_on_cpu.hpp"
#include "strategy/msamp.hpp"
#include "strategy/torch_release.hpp"
#include "units/text.hpp"

namespace plimsoll::program {

namespace {

RunOptions::Loss loss_of(const Strategy& strategy) {
  switch (strategy.loss) {
    case LossKernel::automatic:
    case LossKernel::cross_entropy:
      return RunOptions::Loss::cross_entropy;
    case LossKernel::liger:
      return RunOptions::Loss::liger;
    case LossKernel::liger_fused_linear:
      return RunOptions::Loss::liger_fused_linear;
    case LossKernel::cut_cross_entropy:
      return RunOptions::Loss::cut_cross_entropy;
    default:
      refuse("loss '" + std::string(name_of(strategy.loss)) + "' is not modelled for transformers' modules", "loss", "ce");
  }
}

/// Who keeps saved tensors while the network runs; null: the device.
std::shared_ptr<SavedTensorHooks> activation_offload(const Strategy& strategy, Tape& tape) {
  if (!strategy.offload.activations) return nullptr;
  if (strategy.data_parallel == DataParallel::fsdp1)
    refuse("save_on_cpu under FSDP1 is not modelled", "data_parallel", "none, ddp or fsdp2");
  if (strategy.offload.activation_layers > 0) refuse("save_on_cpu takes the saved tensors of all layers", "offload_layers");
  if (strategy.offload.activations_by == Offload::By::trl)
    refuse("TRL's OffloadActivations is not modelled for transformers' modules", "activation_offload", "save-on-cpu or save-on-cpu-pinned");
  return std::make_shared<SaveOnCpu>(tape, strategy.offload.activations_by == Offload::By::save_on_cpu_pinned);
}

/// torch.compile(model) is modelled where every rank's model is whole, and between the hooks of FSDP2's units.
void check_compiled_model(const Strategy& s, const RunOptions& options) {
  const auto require = [](bool known, const std::string& what) {
    if (!known) refuse("torch.compile of a whole model with " + what + " is not modelled", "compile", "blocks");
  };
  require(options.attention == RunOptions::Attention::sdpa, std::string(name_of(s.attention)) + " attention");
  require(options.checkpointing != RunOptions::Checkpointing::reentrant, "reentrant checkpointing");
  require(options.checkpoint_every == 1, "checkpoints of every k-th block");
  require(options.checkpointing == RunOptions::Checkpointing::none || options.release.checkpoints_forward(), "checkpoints of this release");
  require(!s.lora && !s.peft, "adapters");
  require(!options.liger, "Liger's kernels");
  require(options.loss == RunOptions::Loss::cross_entropy, "this loss");
  const bool gathers = is_fsdp(s.data_parallel) || s.data_parallel == DataParallel::zero3;  // by hooks, of one rank too
  require(s.data_parallel == DataParallel::none || s.data_parallel == DataParallel::ddp || options.compiled_frames || (s.dp == 1 && !gathers),
          "sharded states, whose hooks cut its graph");
}

}  // namespace

RunOptions hf_run_options(const Strategy& strategy) {
  RunOptions options;
  options.liger = strategy.liger_kernel;
  options.liger_modules = strategy.liger_modules;
  options.loss = loss_of(strategy);
  options.release = HfRelease(strategy.releases.of(Package::transformers));
  options.compiled_frames = strategy.compile == Strategy::Compile::model && strategy.data_parallel == DataParallel::fsdp2;
  options.compiled_blocks = strategy.compile == Strategy::Compile::blocks || options.compiled_frames;
  if (options.compiled_blocks) options.graphs = std::make_shared<inductor::ModuleGraphs>();
  options.compiled_model = strategy.compile == Strategy::Compile::model && !options.compiled_frames;
  switch (strategy.attention) {
    case AttentionKernel::eager:
    case AttentionKernel::unfused:
      options.attention = RunOptions::Attention::eager;
      break;
    case AttentionKernel::automatic:
    case AttentionKernel::sdpa:
      options.attention = RunOptions::Attention::sdpa;
      break;
    case AttentionKernel::flash:
      options.attention = RunOptions::Attention::flash;
      break;
    case AttentionKernel::flash3:
      options.attention = RunOptions::Attention::flash3;
      break;
    case AttentionKernel::flash4:
      options.attention = RunOptions::Attention::flash4;
      break;
    default:
      refuse("attention '" + std::string(name_of(strategy.attention)) + "' is not modelled for transformers' modules");
  }
  switch (strategy.recompute.kind) {
    case Recompute::Kind::automatic:
    case Recompute::Kind::none:
      break;
    case Recompute::Kind::alternate:
      options.checkpoint_every = std::max(1, strategy.recompute.every);
      [[fallthrough]];
    case Recompute::Kind::full:
      options.checkpointing =
          strategy.recompute.reentrant.value_or(false) ? RunOptions::Checkpointing::reentrant : RunOptions::Checkpointing::non_reentrant;
      break;
    default:
      refuse("transformers' gradient checkpointing recomputes whole layers; nothing else is modelled");
  }
  if (options.compiled_blocks && options.attention != RunOptions::Attention::sdpa)
    refuse("compiled blocks with " + std::string(name_of(strategy.attention)) + " attention are not modelled", "compile");
  if (options.compiled_blocks && options.checkpointing == RunOptions::Checkpointing::reentrant)
    refuse("compiled blocks with reentrant checkpointing are not modelled", "compile");
  const bool adapted = strategy.lora || strategy.peft;
  if (options.compiled_blocks && adapted) refuse("compiled blocks with adapters are not modelled", "compile");
  if (strategy.compile == Strategy::Compile::model) check_compiled_model(strategy, options);
  options.hidden_requires_grad = adapted && options.checkpointing != RunOptions::Checkpointing::none;
  if (options.checkpoint_every > 1) {
    RunOptions unchecked = options;
    unchecked.checkpointing = RunOptions::Checkpointing::none;
    options.unchecked = std::make_shared<const RunOptions>(std::move(unchecked));
  }
  return strategy.post_training ? post_training_options(strategy, std::move(options)) : options;
}

bool is_prepared_by_accelerate(const Strategy& strategy) { return strategy.framework == "accelerate"; }

/// _prepare_fsdp2 of Accelerate since 1.8 leaves the network's forward as it is: neither autocast nor outputs in fp32 (prepare_model).
static bool prepares_fsdp2_apart(const Strategy& strategy) {
  return strategy.data_parallel == DataParallel::fsdp2 && strategy.releases.of(Package::accelerate).since(1, 8);
}

std::optional<DType> hf_autocast(const Strategy& strategy) {
  const bool accelerate = is_msamp(strategy.precision) && engine_of(strategy) != Engine::deepspeed;
  if (strategy.precision == Precision::amp_bf16 || accelerate) return DType::bf16;
  if (strategy.precision == Precision::amp_fp16) return DType::fp16;
  const bool autocasts = (is_prepared_by_accelerate(strategy) && !prepares_fsdp2_apart(strategy)) || is_run_by_verl(strategy);
  if (autocasts && strategy.precision == Precision::fsdp_mixed_bf16) return DType::bf16;
  if (autocasts && strategy.precision == Precision::fsdp_mixed_fp16) return DType::fp16;
  return std::nullopt;
}

DType hf_adapter_type(const Strategy& strategy) {
  // PEFT's model around 16-bit weights makes its adapters whatever was said; diffusers injects them into its network, and beside quantised
  // weights loops cast them once more (fsdp_qlora): there they stay as they were said.
  const bool told = strategy.framework == "diffusers" || is_run_by_verl(strategy) || strategy.base_weights != BaseWeights::as_trained;
  if (told) return strategy.lora->adapter_dtype.value_or(DType::fp32);
  return framework::adapter_type(strategy.releases.of(Package::peft), hf_parameter_type(strategy));
}

DType hf_parameter_type(const Strategy& strategy) {
  if (strategy.param_dtype) return *strategy.param_dtype;
  switch (strategy.precision) {
    case Precision::pure_bf16:
      return DType::bf16;
    case Precision::pure_fp16:
      return DType::fp16;
    case Precision::fp32:
    case Precision::amp_bf16:
    case Precision::amp_fp16:
    case Precision::msamp_o1:
    case Precision::msamp_o2:
    case Precision::msamp_o3:
      return DType::fp32;
    default:
      refuse("precision '" + std::string(name_of(strategy.precision)) + "' is not modelled for plain PyTorch training");
  }
}

namespace {

/// Linears in 8 bits, as Accelerate puts them in (Accelerator._prepare_ao).
void put_8_bit_linears(Module& root, const Model& model, const Strategy& strategy, Tape& tape) {
  if (strategy.fp8_scaling == Fp8Scaling::delayed)
    refuse("Transformer Engine's modules under Accelerate are not modelled: their weights are cast anew in every forward", "fp8_backend",
           "ao");
  const bool by_row = strategy.fp8_scaling == Fp8Scaling::rowwise;
  if (strategy.data_parallel == DataParallel::fsdp1) refuse("torchao's linears under FSDP1 are not modelled", "data_parallel", "fsdp2");
  if (strategy.data_parallel == DataParallel::fsdp2 && !by_row)
    refuse("weights that FSDP gathers in 8 bits (enable_fsdp_float8_all_gather) are not modelled", "fp8_recipe",
           "rowwise, whose weights are not");
  if (strategy.fp8_scaling == Fp8Scaling::blockwise)
    refuse("torchao's linears have scales per tensor or row", "fp8_recipe", "tensorwise or rowwise");
  if (strategy.lora || strategy.peft || strategy.base_weights != BaseWeights::as_trained)
    refuse("8-bit linears with adapters or quantised weights are not modelled", "fp8_backend");
  if (strategy.compile != Strategy::Compile::no) refuse("compiled 8-bit linears are not modelled for transformers", "compile");
  // AORecipeKwargs pads; a recipe of torchao's own by rows does not.
  convert_linears_to_float8(root, model, {.by_row = by_row, .pads = !by_row}, tape);
}

/// Since transformers 5 a mixture's experts and its router are parameters, which bitsandbytes leaves in 16 bits; before, every expert had
/// linears of its own.
void refuse_unread_mixture(const Model& model, const Strategy& strategy) {
  if (!model.has_experts()) return;
  if (!HfRelease(strategy.releases.of(Package::transformers)).stacks_experts())
    refuse("quantised experts of transformers before 5 are not modelled", "releases.transformers",
           "5.0 or later, which leaves them in 16 bits");
  for (const char* type : {"mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "flex_olmo"})
    if (model.model_type == type) return;
  refuse("which of " + model.model_type + "'s modules are linears was not read", "base_weights", "leave it out");
}

}  // namespace

void put_quantised_linears(Module& root, const Model& model, const Strategy& strategy, Tape& tape) {
  const bool sharded = is_fsdp(strategy.data_parallel);
  const DType storage = strategy.quant_storage.value_or(DType::uint8);
  if (!strategy.lora) refuse("quantised weights are frozen: they need adapters", "lora");
  if (strategy.lora->dora) refuse("DoRA of quantised weights is not modelled", "lora.use_dora");
  if (strategy.base_weights == BaseWeights::int8 && strategy.quant_storage)
    fail("bnb_4bit_quant_storage is the type that 4-bit weights lie in", "bnb_4bit_quant_storage", "leave it out");
  if (strategy.base_weights == BaseWeights::int8 && sharded)
    refuse("8-bit weights under FSDP are not modelled: Int8Params keep their scales in attributes that sharding loses", "base_weights",
           "nf4, with bnb_4bit_quant_storage the weights' type");
  if (strategy.data_parallel == DataParallel::fsdp2 && !is_prepared_by_accelerate(strategy) && storage == DType::uint8)
    fail("fully_shard loses the quantisation of weights that lie in uint8", "bnb_4bit_quant_storage", "the type of the other weights");
  refuse_unread_mixture(model, strategy);
  quantize_linears(root, model, strategy.base_weights, storage, tape);
}

/// transformer.to(device, dtype=weight_dtype) of diffusers' scripts casts tables that are no parameters, too.
static void cast_buffers(Module& root, DType type) {
  for (Module* module : root.all_modules())
    for (ModuleBuffer& buffer : module->buffers)
      if (buffer.type == DType::fp32) buffer.type = type;
}

std::unique_ptr<Module> hf_modules(const Model& model, const Strategy& strategy, Tape& tape) {
  tape.tf32 = strategy.tf32;
  tape.cudnn_attention = strategy.cudnn_attention.value_or(false);
  tape.cudnn = strategy.cudnn;
  std::unique_ptr<Module> root = build_modules(model, hf_parameter_type(strategy), tape);
  const HfRelease release(strategy.releases.of(Package::transformers));
  separate_experts(*root, model, release, tape);
  if (strategy.lora && !release.stacks_experts() && framework::mixture_targets(model, strategy.lora->targets).any())
    refuse("adapters of experts before transformers 5 are not modelled", "releases.transformers", "5.0, or attention's linears alone");
  if (strategy.lora) {
    const bool whole = strategy.data_parallel == DataParallel::none || strategy.data_parallel == DataParallel::ddp;
    if (!whole && framework::mixture_targets(model, strategy.lora->targets).any())
      refuse("adapters of a mixture's router and experts are not modelled for sharded parameters", "lora.target_modules",
             "list attention's linears, or data_parallel ddp");
    add_lora(*root, model, *strategy.lora, hf_adapter_type(strategy), tape);
  }
  if (strategy.peft) add_peft(*root, model, *strategy.peft, tape);
  freeze_other_modules(*root, strategy);
  if (strategy.base_weights != BaseWeights::as_trained) put_quantised_linears(*root, model, strategy, tape);
  if (strategy.lora && strategy.lora->has_kernels()) patch_adapters(layer_modules(model, *root), model, strategy, tape);
  if (strategy.optimizer == OptimizerKind::lora_fa) freeze_lora_a(*root);
  if (strategy.low_precision == LowPrecision::fp8) put_8_bit_linears(*root, model, strategy, tape);
  if (strategy.neighbours.any()) cast_buffers(*root, hf_parameter_type(strategy));
  return root;
}

void upcast_trained_weights(Module& root, const Strategy& strategy) {
  const bool leaves = strategy.data_parallel == DataParallel::fsdp2 && strategy.base_weights != BaseWeights::as_trained;
  if (!is_prepared_by_accelerate(strategy) || !strategy.fsdp.mixed_precision.value_or(true) || leaves) return;
  for (const auto& parameter : root.all_parameters())
    if (parameter->trainable) parameter->type = DType::fp32;
}

namespace {

/// accelerate.utils.convert_outputs_to_fp32: behind autocast's region every tensor of the output object is copied in fp32, the logits too,
/// which nobody reads.
class OutputsInFp32 : public Network {
 public:
  OutputsInFp32(std::unique_ptr<Network> network, std::shared_ptr<std::vector<Tensor>> held)
      : network_(std::move(network)), held_(std::move(held)) {}

  Tensor loss(const Batch& batch) override { return network_->loss(batch); }

  Tensor criterion(Tensor output) override {
    for (Tensor& each : *held_) widen(each);
    held_->clear();
    widen(output);
    return network_->criterion(std::move(output));
  }

  Tensor take_auxiliary_loss() override { return network_->take_auxiliary_loss(); }

 private:
  static void widen(Tensor& x) {
    if (x.dtype() == DType::bf16 || x.dtype() == DType::fp16) x = to(x, DType::fp32);
  }

  std::unique_ptr<Network> network_;
  std::shared_ptr<std::vector<Tensor>> held_;
};

}  // namespace

namespace {

/// The network as Accelerate, if it prepares it, wraps its forward.
std::unique_ptr<Network> prepared(const Model& model, const Strategy& strategy, RunOptions options, Module& root, Tape& tape) {
  const bool widened = is_prepared_by_accelerate(strategy) && !prepares_fsdp2_apart(strategy);
  if (!widened || !hf_autocast(strategy)) return make_network(model, options, root, tape);
  const auto held = options.held = std::make_shared<std::vector<Tensor>>();
  return std::make_unique<OutputsInFp32>(make_network(model, options, root, tape), held);
}

}  // namespace

std::unique_ptr<Network> hf_wrapped_network(const Model& model, const Strategy& strategy, Module& root, Tape& tape) {
  return prepared(model, strategy, hf_run_options(strategy), root, tape);
}

std::unique_ptr<Network> hf_reference_network(const Model& model, const Strategy& strategy, Module& root,
                                              std::shared_ptr<std::vector<Tensor>> cache, Tape& tape) {
  RunOptions options = hf_run_options(strategy);
  if (strategy.post_training->keeps_frozen_model()) options.metrics = {};
  options.cache = std::move(cache);
  return prepared(model, strategy, std::move(options), root, tape);
}

std::unique_ptr<Network> hf_network(const Model& model, const Strategy& strategy, Module& root, Tape& tape) {
  std::unique_ptr<Network> network = hf_wrapped_network(model, strategy, root, tape);
  if (strategy.post_training) {
    ReferenceModel reference;
    if (keeps_reference_model(strategy)) {
      reference.root = reference_modules(model, strategy, tape);
      materialize(*reference.root, tape, arrival_of(frozen_model(model, strategy), is_prepared_by_accelerate(strategy)));
    }
    return post_training_network(model, strategy, root, std::move(network), std::move(reference), tape);
  }
  network = beside_neighbours(model, strategy, std::move(network), tape);
  if (!root.find_child("prompt_encoder")) return network;
  return std::make_unique<PromptedNetwork>(std::move(network), model, hf_run_options(strategy), root, tape);
}

void refuse_resting_tower(const Model& model, Module& root, const std::string& wrapper) {
  if (model.task != Model::Task::causal_lm) return;
  const auto is_trained = [&](const Block& block) {
    Module* part = root.find(block.name);
    if (block.stream != Block::Stream::second || part == nullptr) return false;
    const auto parameters = part->all_parameters();
    return std::any_of(parameters.begin(), parameters.end(), [](const auto& parameter) { return parameter->trainable; });
  };
  if (std::any_of(model.blocks.begin(), model.blocks.end(), is_trained))
    refuse(
        "a batch of text alone gives the vision tower of " + model.architecture + " no gradients, which is not modelled under " + wrapper,
        "data_parallel", "none or fsdp2, or trained_modules without the tower");
}

void freeze_other_modules(Module& root, const Strategy& strategy) {
  if (strategy.trained_modules.empty()) return;
  for (const auto& parameter : root.all_parameters()) parameter->trainable = false;
  for (const std::string& name : strategy.trained_modules) {
    bool found = false;
    for (Module* module : root.all_modules()) {
      if (!targeted(*module, {name})) continue;
      found = true;
      for (const auto& parameter : module->all_parameters()) parameter->trainable = true;
    }
    if (!found) {
      std::vector<std::string> known;
      for (const Module* module : root.all_modules()) known.emplace_back(module->path);
      fail("no module of the model is called '" + name.substr(0, 80) + "'", "trained_modules", suggest(name.substr(0, 80), known));
    }
  }
}

namespace {

/// Parameter groups of one optimizer: stepped one after the other.
class OptimizerOfGroups : public Optimizer {
 public:
  OptimizerOfGroups(Tape& tape, std::vector<Tensor> parameters, std::vector<std::unique_ptr<Optimizer>> groups)
      : Optimizer(tape, std::move(parameters)), groups_(std::move(groups)) {}

 private:
  void do_step() override {
    for (const auto& group : groups_) group->step();
  }

  std::vector<std::unique_ptr<Optimizer>> groups_;
};

/// Trainer.get_decay_parameter_names: biases, nn.LayerNorm's vectors and what lies in a module that is called a norm are not decayed.
bool is_decayed(const std::string& module, const Parameter& parameter) {
  if (parameter.name == "weight" && parameter.sizes.rank() == 1) return false;
  const std::string path = lower(module + "." + parameter.name);
  for (const char* part : {"bias", "layernorm", "rmsnorm", ".norm.", "_norm."})
    if (("." + path).find(part) != std::string::npos) return false;
  return true;
}

/// Of which of the model's trainable parameters, in registration order, `holds` is true.
template <class Holds>
std::vector<bool> marked_parameters(Module& root, const Holds& holds) {
  std::unordered_set<const Parameter*> seen;
  std::vector<bool> marked;
  for (Module* module : root.all_modules())
    for (const auto& parameter : module->parameters)
      if (parameter->trainable && seen.insert(parameter.get()).second) marked.push_back(holds(*module, *parameter));
  return marked;
}

/// Whether bitsandbytes' 8-bit optimizers step each trainable parameter with fp32 states: since transformers 4.52 register_module_override
/// is told so of every nn.Embedding, the matrices outside of the layers that no linear multiplies by alone.
std::vector<bool> embeddings(const Model& model, Module& root) {
  std::unordered_set<const Module*> inner;
  for (Module* layer : layer_modules(model, root))
    for (const Module* module : layer->all_modules()) inner.insert(module);
  return marked_parameters(root, [&](const Module& module, const Parameter& parameter) {
    return parameter.name == "weight" && parameter.sizes.rank() == 2 && !module.linear && inner.count(&module) == 0;
  });
}

}  // namespace

std::vector<bool> decayed_parameters(Module& root) {
  return marked_parameters(root, [](const Module& module, const Parameter& parameter) { return is_decayed(module.path, parameter); });
}

std::unique_ptr<Optimizer> hf_grouped_optimizer(const Model& model, const Strategy& strategy, Module& root, Tape& tape,
                                                const std::vector<Tensor>& parameters) {
  const auto made = [&](std::vector<Tensor> of, bool wide = false) {
    return make_optimizer(wide ? with_wide_states(strategy.optimizer) : strategy.optimizer, strategy.optimizer_impl, tape, std::move(of));
  };
  if (!is_prepared_by_accelerate(strategy)) return made(parameters);
  const std::vector<bool> decayed = decayed_parameters(root);
  const bool flattened = decayed.size() != parameters.size();  // FSDP1 without the parameters' own names
  if (flattened) return made(parameters);
  const bool overrides =
      with_wide_states(strategy.optimizer) != strategy.optimizer && strategy.releases.of(Package::transformers).since(4, 52);
  const std::vector<bool> embeds = overrides ? embeddings(model, root) : std::vector<bool>(parameters.size());
  std::vector<Tensor> wide, with, without;  // embeddings are what is registered first
  for (std::size_t i = 0; i < parameters.size(); ++i) (!decayed[i] ? without : embeds[i] ? wide : with).push_back(parameters[i]);
  std::vector<std::unique_ptr<Optimizer>> groups;
  for (std::vector<Tensor>* group : {&wide, &with, &without})
    if (!group->empty()) groups.push_back(made(std::move(*group), group == &wide));
  return std::make_unique<OptimizerOfGroups>(tape, parameters, std::move(groups));
}

std::unique_ptr<Optimizer> hf_optimizer(const Model& model, const Strategy& strategy, Module& root, Tape& tape) {
  const std::vector<Tensor> parameters = trainable_tensors(root);
  if (strategy.optimizer != OptimizerKind::muon) return hf_grouped_optimizer(model, strategy, root, tape, parameters);
  std::unordered_set<const Parameter*> hidden;
  for (Module* layer : layer_modules(model, root))
    for (const auto& parameter : layer->all_parameters())
      if (parameter->sizes.rank() == 2) hidden.insert(parameter.get());
  std::vector<Tensor> matrices, others;
  for (const auto& parameter : root.all_parameters())
    if (parameter->trainable) (hidden.count(parameter.get()) ? matrices : others).push_back(parameter->tensor);
  return make_muon(tape, matrices, others);
}

namespace {

/// Tokens, and labels of every token or of every sequence; two of a sequence where an answer's ends are looked for, one more where
/// sentences are paired.
Batch text_batch(const Model& model, Tape& tape, std::int64_t batch, std::int64_t length) {
  const auto numbers = [&](const Dims& sizes) { return tape.empty(sizes, DType::int64, Category::input); };
  const bool of_sequences = model.task == Model::Task::classification && !model.architecture.ends_with("ForTokenClassification");
  Batch made{numbers({batch, length}), numbers(of_sequences ? Dims{batch} : Dims{batch, length})};
  if (of_sequences && model.labels == 1) made.labels = tape.empty({batch}, DType::fp32, Category::input);
  if (model.architecture.ends_with("ForQuestionAnswering") || model.architecture.ends_with("ForPreTraining"))
    made.conditions.push_back(numbers({batch}));
  return made;
}

/// What the transformer's forward takes, in the type that it computes in, and what of it is not made in the step itself.
Batch diffusion_inputs(const Model& model, const Strategy& strategy, Tape& tape) {
  Batch batch = diffusion_batch(model, tape, hf_parameter_type(strategy), strategy.micro_batch, strategy.seq_len, strategy.text_tokens);
  drop_what_neighbours_make(model, strategy, batch);
  return batch;
}

}  // namespace

Batch hf_batch(const Model& model, const Strategy& strategy, Tape& tape) {
  const std::int64_t batch = strategy.micro_batch, length = strategy.seq_len;
  tape.operator_name = "inputs";
  if (strategy.post_training) return post_training_batch(strategy, tape);
  if (const NetworkSource* source = network_source(model)) return source->batch(strategy, tape);
  switch (model.task) {
    case Model::Task::causal_lm:
    case Model::Task::masked_lm:
    case Model::Task::classification:
      return text_batch(model, tape, batch, length);
    case Model::Task::seq2seq:
      return {tape.empty({batch, length}, DType::int64, Category::input),
              tape.empty({batch, strategy.tgt_len}, DType::int64, Category::input)};
    case Model::Task::image_classification:
      return {tape.empty({batch, model.channels, model.image_size, model.image_size}, hf_parameter_type(strategy), Category::input),
              tape.empty({batch}, DType::int64, Category::input)};
    case Model::Task::diffusion:
      return diffusion_inputs(model, strategy, tape);
    default:
      refuse("a training step of this task is not modelled for transformers' modules");
  }
}

Tensor hf_loss(Network& network, const Strategy& strategy, const Batch& batch, Tape& tape, std::shared_ptr<SavedTensorHooks> keeper) {
  network.before_forward(batch);
  const std::optional<DType> type = hf_autocast(strategy);
  Tensor output;
  {
    const AutocastScope autocast(tape, type.has_value(), type.value_or(DType::bf16));
    std::optional<SavedTensorHooksScope> offloaded;
    if (keeper) offloaded.emplace(tape, std::move(keeper));
    output = network.loss(batch);
  }
  return network.criterion(std::move(output));
}

namespace {

/// optimizer.zero_grad().
void clear_gradients(Tape& tape, const TrainingLoop& loop, const Strategy& strategy) {
  if (!before_torch_2(strategy)) return loop.optimizer.zero_grad();
  tape.operator_name = "zero_grad";
  for (const Tensor& parameter : loop.clipped)
    if (const Tensor& gradient = parameter.grad()) in_place(gradient, {});
}

/// The forward and backward passes of a step's micro-batches.
void record_passes(Tape& tape, const TrainingLoop& loop, const Strategy& strategy, const Batch& batch, Accumulation& accumulation,
                   const std::shared_ptr<SavedTensorHooks>& keeper) {
  loop.network.before_step(batch);
  accumulation.run([&](bool last) {
    if (loop.before_micro_batch) loop.before_micro_batch(last);
    const Batch fed = loop.network.fed(batch);
    tape.phase(Phase::forward);
    const Tensor loss = hf_loss(loop.network, strategy, fed, tape, keeper);
    tape.phase(Phase::backward);
    tape.backward(loss);
    loop.network.after_backward(batch);
  });
}

/// What follows the passes.
void record_update(Tape& tape, const TrainingLoop& loop, const Strategy& strategy) {
  tape.phase(Phase::optimizer);
  if (strategy.clip_grad_norm.value_or(false)) {
    if (loop.clip)
      loop.clip();
    else
      clip_grad_norm(tape, loop.clipped);
  }
  loop.optimizer.step();
  clear_gradients(tape, loop, strategy);
  tape.phase(Phase::end);
}

}  // namespace

bool hf_passes_recur(const Strategy& strategy) {
  return strategy.compile == Strategy::Compile::no && !strategy.offload.activations && !strategy.peft && !strategy.post_training &&
         !strategy.neighbours.any();
}

namespace {

/// The layers that the model describes as one, most of them; empty where routers or scans make layers depend on one another.
std::vector<Module*> longest_block(const Model& model, Module& root, std::size_t& first) {
  const Block* longest = nullptr;
  for (const Block& block : model.blocks)
    if (block.role == Block::Role::decoder && block.numbered && (!longest || block.repeat > longest->repeat)) longest = &block;
  if (!longest || longest->moe || longest->mamba) return {};
  std::vector<Module*> layers;
  for (std::int64_t i = 0; i < longest->repeat; ++i) {
    layers.push_back(root.find(longest->name + "." + std::to_string(longest->first + i)));
    if (!layers.back()) return {};
  }
  first = static_cast<std::size_t>(longest->first);
  return layers;
}

/// The layer that each trained parameter below a module belongs to, in registration order, tied ones once.
void add_owners(const Module& module, const std::vector<Module*>& layers, std::size_t owner, std::unordered_set<const Parameter*>& known,
                std::vector<std::size_t>& owners) {
  for (const auto& parameter : module.parameters)
    if (known.insert(parameter.get()).second && parameter->trainable) owners.push_back(owner);
  std::size_t layer = 0;  // layers stand in order among their siblings
  for (const auto& child : module.children) {
    const bool is_layer = layer < layers.size() && owner == EqualLayers::kNone && child.get() == layers[layer];
    add_owners(*child, layers, is_layer ? layer++ : owner, known, owners);
  }
}

}  // namespace

std::unique_ptr<EqualLayers> hf_equal_layers(const Model& model, const Strategy& strategy, Module& root, Tape& tape, std::size_t leaves) {
  const bool plain = hf_passes_recur(strategy) && !model.source && !strategy.lora && strategy.trained_modules.empty() &&
                     strategy.base_weights == BaseWeights::as_trained;
  if (!plain || strategy.grad_accum > 1 || hf_run_options(strategy).unchecked) return {};
  std::size_t first = 0;
  const std::vector<Module*> layers = longest_block(model, root, first);
  if (!EqualLayers::worthwhile(layers.size())) return {};
  auto equal = std::make_unique<EqualLayers>(tape, layers, first);
  std::unordered_set<const Parameter*> known;
  add_owners(root, layers, EqualLayers::kNone, known, equal->owners);
  if (equal->owners.size() != leaves) return {};
  return equal;
}

bool record_hf_steps(Tape& tape, const TrainingLoop& loop, const Strategy& strategy, const Batch& batch, bool every_micro_batch) {
  Accumulation accumulation(tape, std::max<std::int64_t>(strategy.grad_accum, 1), every_micro_batch);
  const std::shared_ptr<SavedTensorHooks> keeper = activation_offload(strategy, tape);
  KnownPasses passes;
  for (const Tape::Part part : {Tape::Part::first_step, Tape::Part::second_step, Tape::Part::step}) {
    if (part == Tape::Part::second_step && !loop.second_step) continue;
    tape.record_into(part);
    if (passes.record(tape, loop.clipped)) {
      accumulation.run_again([&](std::size_t first) { return passes.place_of(first); });
    } else {
      record_passes(tape, loop, strategy, batch, accumulation, keeper);
      if (tape.equal_layers && (part != Tape::Part::first_step || !tape.equal_layers->write_out(loop.clipped))) return false;
      if (loop.passes_recur && !loop.second_step) passes.learn(tape, loop.clipped);
    }
    record_update(tape, loop, strategy);
    if (loop.after_step) loop.after_step();
  }
  accumulation.repeat(tape.program());
  return true;
}

}  // namespace plimsoll::program
