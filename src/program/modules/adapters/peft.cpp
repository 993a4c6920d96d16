#include "program/modules/adapters/peft.hpp"

#include <utility>

#include "plimsoll/error.hpp"
#include "program/modules/adapters/lora.hpp"
#include "program/modules/layers.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

constexpr DType kLearntType = DType::fp32;  // autocast_adapter_dtype; encoders of prompts are made in torch's default type

Module& below(Module& module, const char* name) { return module.child(name, true).child("default", true); }

/// tuners/ia3: a vector per linear over its outputs, of a feed-forward over its inputs.
void add_vectors(Module& root, const Model& model, const Peft& peft) {
  for (Module* linear : targeted_linears(root, model, peft.targets, "peft.target_modules")) {
    const Dims sizes = linear->find_parameter("weight")->sizes;
    const bool transposed = linear->linear == WeightLayout::in_out;
    const bool feedforward = targeted(*linear, peft.feedforward);
    const std::int64_t in = sizes[transposed ? 0 : 1], out = sizes[transposed ? 1 : 0];
    Module& base = linear->child("base_layer", true);
    base.parameters = std::move(linear->parameters);
    linear->parameters.clear();
    linear->child("ia3_l", true).parameters.push_back(trained_parameter("default", feedforward ? Dims{1, in} : Dims{out, 1}, kLearntType));
  }
}

/// tuners/ln_tuning: a trained copy beside each norm, in the norm's own type.
void copy_norms(Module& root, const Peft& peft) {
  bool found = false;
  for (Module* norm : root.all_modules()) {
    if (!targeted(*norm, peft.targets) || !norm->find_parameter("weight")) continue;
    if (norm->find_parameter("weight")->sizes.rank() != 1)
      refuse("ln_tuning of what is no norm is not modelled", norm->path, "target norms");
    Module& base = norm->child("base_layer", true);
    base.parameters = std::move(norm->parameters);
    norm->parameters.clear();
    for (const auto& parameter : base.parameters)
      below(*norm, "ln_tuning_layers").parameters.push_back(trained_parameter(parameter->name.c_str(), parameter->sizes, parameter->type));
    found = true;
  }
  if (!found) fail("no norm of the model has such a name", "peft.target_modules");
}

/// PromptEmbedding, or PromptEncoder with its three linears.
void add_prompt_encoder(Module& root, const Model& model, const Peft& peft) {
  Module& encoder = below(root, "prompt_encoder");
  const std::int64_t hidden = model.hidden_size, inner = peft.encoder_hidden_size;
  encoder.child("embedding", true).parameters.push_back(trained_parameter("weight", {peft.virtual_tokens, hidden}, kLearntType));
  if (peft.method != PeftMethod::p_tuning) return;
  const auto add = [&](const char* name, std::int64_t in, std::int64_t out) {
    Module& linear = encoder.child("mlp_head", true).child(name, true);
    linear.parameters.push_back(trained_parameter("weight", {out, in}, kLearntType));
    linear.parameters.push_back(trained_parameter("bias", {out}, kLearntType));
  };
  add("0", hidden, inner);
  add("2", inner, inner);
  add("4", inner, hidden);
}

}  // namespace

void add_peft(Module& root, const Model& model, const Peft& peft, Tape& tape) {
  for (const auto& parameter : root.all_parameters()) parameter->trainable = false;
  switch (peft.method) {
    case PeftMethod::ia3:
      add_vectors(root, model, peft);
      break;
    case PeftMethod::ln_tuning:
      copy_norms(root, peft);
      break;
    case PeftMethod::prompt_tuning:
    case PeftMethod::p_tuning:
      add_prompt_encoder(root, model, peft);
      break;
    case PeftMethod::prefix_tuning:
      refuse("prefix tuning is not modelled", "task", "prompt_tuning and p_tuning are");
  }
  for (Module* module : root.all_modules()) module->label = tape.intern(module->path);
}

namespace {

/// ia3.Linear.forward: the product of the one active adapter with 1 is a vector of its own.
Tensor scaled(Module& module, const Tensor& input, const std::function<Tensor(const Tensor&)>& base) {
  const Tensor& vector = module.child("ia3_l").tensor("default");
  const Tensor scaling = multiply_scalar(view(vector, {-1}));
  if (vector.size(0) == 1) {
    const Tensor x = to(input, scaling.dtype());
    const Tensor interm = to(multiply(x, scaling), input.dtype());
    return base(interm);
  }
  Tensor result = base(input);
  const DType type = result.dtype();
  result = multiply(result, scaling);
  return to(result, type);
}

}  // namespace

Tensor adapted(Module& module, Tape& tape, const Tensor& input, const std::function<Tensor(const Tensor&)>& base) {
  if (tape.adapters_off) return base(input);
  if (module.find_child("ia3_l")) return scaled(module, input, base);
  return lora_adapted(module, tape, input, base(input));
}

Module& trained_norm(Module& norm) {
  Module* copies = norm.find_child("ln_tuning_layers");
  return copies ? copies->child("default") : norm;
}

namespace {

/// The token embeddings: the first module that a causal language model's parameters name.
Module& word_embeddings(Module& root, const Model& model) {
  for (Module* module : root.all_modules()) {
    const Parameter* weight = module->find_parameter("weight");
    if (weight && weight->sizes.rank() == 2 && weight->sizes[0] == model.vocab_size) return *module;
  }
  refuse("prompts before a model without token embeddings of its vocabulary's size are not modelled", "task");
}

}  // namespace

PromptedNetwork::PromptedNetwork(std::unique_ptr<Network> network, const Model& model, const RunOptions& options, Module& root, Tape& tape)
    : network_(std::move(network)),
      options_(options),
      words_(word_embeddings(root, model)),
      encoder_(root.child("prompt_encoder").child("default")),
      tape_(tape) {
  if (!words_.buffers.empty()) refuse("prompts before embeddings that scale what they look up are not modelled", "task");
}

/// get_prompt: the virtual tokens' numbers come from the host for every forward, for all samples; one sample's are encoded and repeated.
Tensor PromptedNetwork::prompts(std::int64_t batch) const {
  Module& table = encoder_.child("embedding");
  const Tensor tokens = tape_.empty({batch, table.tensor("weight").size(0)}, DType::int64);
  tape_.copy({Copy::Direction::host_to_device, tokens.bytes()}, tape_.stream);
  Tensor x = Embedding(table, tape_)(slice(tokens, 0, 0, 1));
  if (Module* head = encoder_.find_child("mlp_head")) {
    x = Linear(head->child("0"), tape_)(x);
    x = relu(x);
    x = Linear(head->child("2"), tape_)(x);
    x = relu(x);
    x = Linear(head->child("4"), tape_)(x);
  }
  return contiguous(expand(x, {batch, -1, -1}));
}

Tensor PromptedNetwork::loss(const Batch& batch) {
  const std::int64_t micro_batch = batch.input_ids.size(0);
  Tensor embeddings = Embedding(words_, tape_)(batch.input_ids);
  if (options_.hidden_requires_grad) embeddings.set_requires_grad(true);
  const Tensor prefix = tape_.empty({micro_batch, encoder_.child("embedding").tensor("weight").size(0)}, DType::int64);
  tape_.copy({Copy::Direction::host_to_device, prefix.bytes()}, tape_.stream);
  const Tensor labels = cat({prefix, batch.labels}, 1);
  Tensor before = prompts(micro_batch);
  before = to(before, embeddings.dtype());
  embeddings = cat({before, embeddings}, 1);
  return network_->loss({embeddings, labels});
}

}  // namespace plimsoll::program
