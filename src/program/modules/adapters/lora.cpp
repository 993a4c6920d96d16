#include "program/modules/adapters/lora.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "framework/peft.hpp"
#include "plimsoll/error.hpp"
#include "program/modules/adapters/bitsandbytes.hpp"
#include "program/modules/adapters/param_wrapper.hpp"
#include "program/modules/bare.hpp"
#include "program/modules/layers.hpp"
#include "program/modules/network_source.hpp"
#include "program/ops/ops.hpp"
#include "program/reduction.hpp"

namespace plimsoll::program {

std::shared_ptr<Parameter> trained_parameter(const char* name, const Dims& sizes, DType type) {
  return std::make_shared<Parameter>(
      Parameter{.name = name, .sizes = sizes, .type = type, .trainable = true, .expert = false, .cut = Cut::replicated, .tensor = {}});
}

namespace {

void adapt(Module& linear, const Lora& lora, DType type) {
  const bool transposed = linear.linear == WeightLayout::in_out;
  const Dims sizes = linear.find_parameter("weight")->sizes;
  const std::int64_t in = sizes[transposed ? 0 : 1], out = sizes[transposed ? 1 : 0];
  Module& base = linear.child("base_layer", true);
  base.linear = linear.linear;
  base.parameters = std::move(linear.parameters);
  linear.parameters.clear();
  linear.adapter_dropout = lora.dropout;
  linear.child("lora_dropout", true).child("default", true);
  const auto add = [&](const char* name, const Dims& shape) {
    linear.child(name, true).child("default", true).parameters.push_back(trained_parameter("weight", shape, type));
  };
  add("lora_A", {lora.r, in});
  add("lora_B", {out, lora.r});
  if (lora.dora) add("lora_magnitude_vector", {out});
}

/// ModulesToSaveWrapper: the original stays, frozen, in front of the copy that is trained and run.
void train_whole(Module& module) {
  auto original = std::make_unique<Module>();
  original->path = module.path + ".original_module";
  original->parameters = std::move(module.parameters);
  module.parameters.clear();
  for (const auto& child : module.children) {
    if (!child->children.empty()) refuse("modules_to_save whose parts have parts of their own are not modelled", module.path);
    auto kept = std::make_unique<Module>();
    kept->path = original->path + "." + std::string(child->name());
    kept->parameters = child->parameters;
    for (auto& parameter : child->parameters) parameter = trained_parameter(parameter->name.c_str(), parameter->sizes, parameter->type);
    original->children.push_back(std::move(kept));
  }
  for (const auto& parameter : original->parameters)
    module.parameters.push_back(trained_parameter(parameter->name.c_str(), parameter->sizes, parameter->type));
  module.children.insert(module.children.begin(), std::move(original));
}

/// tie_weights(): a head tied to an embedding that is trained whole reads the copy.
void follow_trained_copies(Module& root) {
  std::unordered_map<const Parameter*, std::shared_ptr<Parameter>> copies;
  for (Module* module : root.all_modules()) {
    Module* original = module->find_child("original_module");
    if (!original) continue;
    for (std::size_t i = 0; i < original->parameters.size(); ++i) copies.emplace(original->parameters[i].get(), module->parameters[i]);
  }
  for (Module* module : root.all_modules()) {
    if (module->name() == "original_module") continue;
    for (auto& parameter : module->parameters) {
      const auto copy = copies.find(parameter.get());
      if (copy != copies.end()) parameter = copy->second;
    }
  }
}

/// PEFT's _check_lora_target_modules_mamba.
bool is_refused_by_peft(const Module& module, const Model& model) {
  if (module.name() != "out_proj" && module.name() != "conv1d") return false;
  for (const char* type : {"falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h"})
    if (model.model_type == type) return true;
  return false;
}

void check_target(const Module& module, const Model& model) {
  if (is_refused_by_peft(module, model))
    fail("PEFT stops: '" + std::string(module.name()) + "' is incompatible with Mamba-based models", "lora.target_modules", "leave it out");
  if (!module.linear) refuse("adapters of this kind of module are not modelled", module.path, "target linears");
}

/// The output embeddings of a language model, or a sequence classifier's head.
std::string head_of(const Model& model) {
  std::string head;
  for (const Block& block : model.blocks) {
    if (block.moe && model.model_type != "qwen2_moe")
      refuse("which of " + model.model_type + "'s modules are linears was not read", "lora.target_modules", "list attention's linears");
    if (block.role != Block::Role::head) continue;
    for (const Operator& op : block.operators)
      if (op.kind == OperatorKind::linear && (op.out_features == model.vocab_size || block.name == "score"))
        for (const ParameterTensor& tensor : op.parameters)
          if (tensor.name.ends_with("weight")) head = full_name(block, 0, tensor);
  }
  if (head.empty()) refuse("adapters of all linears are modelled for language models only", "lora.target_modules", "list the linears");
  return head.substr(0, head.rfind('.'));
}

/// PEFT's _maybe_include_all_linear_layers: the paths of all linears but a model's head.
std::vector<std::string> all_linears(const Model& model, Module& root) {
  const NetworkSource* const source = network_source(model);
  std::string head = source ? source->parts().head : head_of(model);
  if (source && head.empty() && model.task == Model::Task::classification)
    for (const char* name : {"score", "classifier"})  // SEQ_CLS_HEAD_NAMES
      if (head.empty() && root.find_child(name)) head = name;
  std::vector<std::string> paths;
  for (const Module* module : root.all_modules())
    if (module->linear && module->path != head) paths.push_back(module->path);
  return paths;
}

}  // namespace

bool targeted(const Module& module, const std::vector<std::string>& targets) {
  return std::any_of(targets.begin(), targets.end(), [&](const std::string& name) {
    const std::string& path = module.path;
    if (path.size() <= name.size()) return path == name;
    return path.compare(path.size() - name.size(), name.size(), name) == 0 && path[path.size() - name.size() - 1] == '.';
  });
}

std::vector<Module*> targeted_linears(Module& root, const Model& model, const std::vector<std::string>& targets, const char* key) {
  if (targets == std::vector<std::string>{framework::kAllLinear}) return targeted_linears(root, model, all_linears(model, root), key);
  std::vector<Module*> found;
  for (Module* module : root.all_modules()) {
    if (!module->find_parameter("weight") || !targeted(*module, targets)) continue;
    check_target(*module, model);
    found.push_back(module);
  }
  if (found.empty())
    fail("no module of the model is called '" + targets.front() + "'", key, suggest(targets.front(), framework::linear_names(model)));
  return found;
}

void add_lora(Module& root, const Model& model, const Lora& lora, DType adapter_type, Tape& tape) {
  for (const auto& parameter : root.all_parameters()) parameter->trainable = false;
  const framework::MixtureTargets targets = framework::mixture_targets(model, lora.targets);
  const NetworkSource* const source = network_source(model);
  const bool named_all = lora.targets == std::vector<std::string>{framework::kAllLinear};
  const std::string head = source && named_all ? source->parts().head : std::string();
  if (!targets.linears.empty())
    for (Module* module : targeted_linears(root, model, targets.linears, "lora.target_modules"))
      if (head.empty() || module->path != head) adapt(*module, lora, adapter_type);
  wrap_parameters(root, targets, lora, adapter_type);
  for (Module* module : root.all_modules()) {
    if (targeted(*module, lora.modules_to_save)) train_whole(*module);
  }
  follow_trained_copies(root);
  for (Module* module : root.all_modules()) module->label = tape.intern(module->path);
}

void freeze_lora_a(Module& root) {
  for (Module* module : root.all_modules()) {
    Module* down = module->find_child("lora_A");
    if (down) down->child("default").find_parameter("weight")->trainable = false;
  }
}

namespace {

/// peft.utils.other.transpose of a weight that lies transposed. Of a Parameter it makes another one, and a Parameter takes a gradient: that
/// of a frozen weight is computed, and lies with its leaf until the graph is dropped.
Tensor as_out_in(const Tensor& weight, bool lies_turned, bool is_parameter) {
  if (!lies_turned) return weight;
  Tensor turned = transpose(weight, 0, 1);
  if (!is_parameter) return turned;
  turned = turned.detach();
  turned.set_requires_grad(true);
  return turned;
}

/// lora_dropout's module: nn.Dropout, or nn.Identity for a rate of 0.
Tensor adapter_dropout(Module& module, Tape& tape, const Tensor& x) {
  return Dropout(module.child("lora_dropout"), "default", tape, module.adapter_dropout)(x);
}

/// DoraLinearLayer.forward: ‖W + BA‖ of every output is a constant; the magnitudes over it scale the base layer's result and the update.
/// Without `base_result` the weight is applied again, to x behind its dropout.
Tensor dora_update(Module& module, Tape& tape, const Tensor& x, const Tensor& base_result) {
  const bool turned = module.linear == WeightLayout::in_out;
  const Linear down(module.child("lora_A").child("default"), tape), up(module.child("lora_B").child("default"), tape);
  const Tensor& magnitude = module.child("lora_magnitude_vector").child("default").tensor("weight");
  Tensor product;
  {
    const Tensor identity = zeros(tape, {x.size(-1), x.size(-1)}, module.child("lora_A").child("default").tensor("weight").dtype());
    in_place(identity, {});
    product = up(down(identity));
  }
  product = to(transpose(product, 0, 1), x.dtype());
  const Tensor& stored = module.child("base_layer").tensor("weight");
  const Tensor weight = to(stored, x.dtype());
  const bool is_parameter = stored.dtype() == x.dtype();
  Tensor norm;
  {
    const GradMode frozen(tape, false);
    Tensor whole;
    {
      const Tensor scaled = multiply_scalar(product);
      whole = add(as_out_in(weight, turned, is_parameter), scaled);
    }
    norm = reduce(whole, {false, true}, false, whole.dtype());
  }
  const Tensor scale = view(divide(magnitude, norm), {1, -1});
  Tensor update = up(down(x));
  Tensor result = base_result;
  const Tensor& bias = module.child("base_layer").tensor("bias");
  if (result && bias) result = subtract(result, bias);
  if (!result) result = linear(x, as_out_in(weight, turned, is_parameter));
  Tensor kept;
  {
    const Tensor over = add_scalar(scale);
    kept = multiply(over, result);
  }
  update = multiply(scale, update);
  update = multiply_scalar(update);
  return add(kept, update);
}

}  // namespace

namespace {

/// tuners/lora/bnb.py, Linear4bit and Linear8bitLt: nothing is cast under autocast, and the update before it is added; the result of a
/// Linear4bit is copied first.
Tensor adapted_quantized(Module& module, Tape& tape, const Tensor& input, Tensor result) {
  const DType type = result.dtype();
  const bool converts = !tape.autocast.enabled;
  Module& a = module.child("lora_A").child("default");
  const Linear down(a, tape), up(module.child("lora_B").child("default"), tape);
  if (is_4bit(module.child("base_layer"))) result = clone(result);
  const Tensor x = converts ? to(input, a.find_parameter("weight")->shown_type()) : input;
  Tensor update = adapter_dropout(module, tape, x);
  update = down(update);
  update = up(update);
  update = multiply_scalar(update);
  if (converts) update = to(update, type);
  return add(result, update);
}

}  // namespace

Tensor lora_adapted(Module& module, Tape& tape, const Tensor& input, Tensor result) {
  if (is_quantized(module.child("base_layer"))) return adapted_quantized(module, tape, input, std::move(result));
  const DType type = result.dtype();
  Module& a = module.child("lora_A").child("default");
  const Linear down(a, tape), up(module.child("lora_B").child("default"), tape);
  const Tensor x = to(input, a.find_parameter("weight")->shown_type());
  if (module.find_child("lora_magnitude_vector")) {
    {
      const Tensor dropped = adapter_dropout(module, tape, x);  // a local of DoraLinearVariant.forward
      result = add(result, dora_update(module, tape, dropped, module.adapter_dropout > 0 ? Tensor() : result));
    }
    return to(result, type);
  }
  Tensor update = adapter_dropout(module, tape, x);
  update = down(update);
  update = up(update);
  update = multiply_scalar(update);
  result = add(result, update);
  update.reset();
  return to(result, type);
}

}  // namespace plimsoll::program
