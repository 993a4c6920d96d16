#include "program/inductor/module_graphs.hpp"

#include <utility>

#include "plimsoll/error.hpp"

namespace plimsoll::program::inductor {

namespace {

/// A tensor like `original` that depends on nothing.
Tensor like(const Tensor& original, Tape& tape) {
  Tensor copy = tape.parameter(original.sizes(), original.dtype(), original.requires_grad());
  copy.impl()->strides = original.strides();
  return copy;
}

/// Part of a graph that was recorded before: no leaf, whose cast autocast would keep.
Tensor made_before(const Tensor& tensor) {
  const Tensor made = tensor.tape().view(tensor, tensor.sizes(), tensor.strides());
  made.set_requires_grad(tensor.requires_grad());
  return made;
}

/// The same tree, with tensors of its own on `tape` and without what others put around its modules.
void copy_into(Module& copy, const Module& original, Tape& tape) {
  copy.type = original.type;
  copy.linear = original.linear;
  for (const std::shared_ptr<Parameter>& parameter : original.parameters) {
    auto own = std::make_shared<Parameter>(*parameter);
    if (own->tensor) own->tensor = like(parameter->tensor, tape);
    copy.parameters.push_back(std::move(own));
  }
  for (const ModuleBuffer& buffer : original.buffers) {
    copy.buffers.push_back(buffer);
    if (buffer.tensor) copy.buffers.back().tensor = like(buffer.tensor, tape);
  }
  for (const std::unique_ptr<Module>& child : original.children) copy_into(copy.child(child->name(), true), *child, tape);
}

/// The path of a module below `root`.
std::string path_below(const Module& root, const Module& module) {
  if (&module == &root) return {};
  return root.path.empty() ? module.path : module.path.substr(root.path.size() + 1);
}

/// The tensors of the module's tree: they live as long as it does.
std::vector<Tensor> tensors_of(Module& root) {
  std::vector<Tensor> all;
  for (Module* module : root.all_modules()) {
    for (const std::shared_ptr<Parameter>& parameter : module->parameters) all.push_back(parameter->tensor);
    for (const ModuleBuffer& buffer : module->buffers) all.push_back(buffer.tensor);
  }
  std::erase_if(all, [](const Tensor& tensor) { return !tensor.defined(); });
  return all;
}

void add_guards(std::vector<std::int64_t>& guards, const Tensor& tensor) {
  guards.push_back(tensor.defined() ? tensor.rank() : -1);
  if (!tensor.defined()) return;
  for (int i = 0; i < tensor.rank(); ++i) guards.push_back(tensor.size(i)), guards.push_back(tensor.strides()[i]);
  guards.push_back(static_cast<std::int64_t>(tensor.dtype()));
  guards.push_back(tensor.requires_grad());
}

std::vector<std::int64_t> guards_of(const CompiledForward& compiled, Module& module, const std::vector<Tensor>& arguments) {
  const Tape& tape = arguments.front().tape();
  std::vector<std::int64_t> guards{compiled.checkpointed, tape.grad_enabled, tape.autocast.enabled,
                                   static_cast<std::int64_t>(tape.autocast.type)};
  for (const Tensor& argument : arguments) add_guards(guards, argument);
  for (const Tensor& tensor : tensors_of(module)) add_guards(guards, tensor);
  return guards;
}

/// Of the run that is traced: the same device, release and modes as those of the run that calls.
void set_up(Tape& tape, const Tape& caller) {
  tape.cudnn_attention = caller.cudnn_attention;
  tape.tf32 = caller.tf32;
  tape.grad_enabled = caller.grad_enabled;
}

}  // namespace

/// Throws Error (refused) where the trace met a tensor that was made unseen by it.
std::vector<ModuleGraphs::Input> ModuleGraphs::inputs_of(const std::vector<Tensor>& inputs, const std::vector<Tensor>& arguments,
                                                         Module& twin) {
  std::vector<Input> all;
  for (const Tensor& input : inputs) {
    const auto is = [&](const Tensor& tensor) { return tensor && tensor.impl() == input.impl(); };
    std::vector<Input> found;
    for (std::size_t i = 0; i < arguments.size(); ++i)
      if (is(arguments[i])) found.push_back({.kind = Input::Kind::argument, .argument = i});
    for (Module* module : twin.all_modules()) {
      const std::string path = path_below(twin, *module);
      for (const std::shared_ptr<Parameter>& parameter : module->parameters)
        if (is(parameter->tensor)) found.push_back({.kind = Input::Kind::parameter, .module = path, .name = parameter->name});
      for (const ModuleBuffer& buffer : module->buffers)
        if (is(buffer.tensor)) found.push_back({.kind = Input::Kind::buffer, .module = path, .name = buffer.name});
    }
    if (found.empty())
      refuse("torch.compile of modules with this operator of '" + std::string(twin.path) + "' is not modelled", "compile", "false");
    all.push_back(std::move(found.front()));
  }
  return all;
}

ModuleGraphs::Entry ModuleGraphs::compile_module(const CompiledForward& compiled, Module& module, const std::vector<Tensor>& arguments) {
  const Tape& caller = arguments.front().tape();
  Tape tape(caller.device, caller.torch);
  set_up(tape, caller);
  Module twin;
  twin.path = module.path;
  copy_into(twin, module, tape);
  std::vector<Tensor> given;
  for (const Tensor& argument : arguments) given.push_back(argument ? made_before(like(argument, tape)) : Tensor());
  const CompiledForward::Eager eager = compiled.make(twin, tape);
  Entry entry{.kind = compiled.kind};
  const AutocastScope autocast(tape, caller.autocast.enabled, caller.autocast.type);
  Trace trace(tape, tensors_of(twin), compiled.checkpointing ? compiled.checkpointing() : Checkpointing{});
  const Tensor result = eager(given);
  JointGraph joint = trace.joint(result);
  entry.inputs = inputs_of(trace.inputs(), given, twin);
  entry.graphs = compiled_of(std::move(joint), tape);
  return entry;
}

std::shared_ptr<const CompiledModule> ModuleGraphs::compiled_of(JointGraph joint, const Tape& tape) {
  for (const Traced& known : traced_)
    if (known.joint == joint) return known.graphs;
  traced_.push_back({joint, std::make_shared<CompiledModule>(compile(joint, tape))});
  return traced_.back().graphs;
}

const ModuleGraphs::Entry& ModuleGraphs::entry_for(const CompiledForward& compiled, Module& module, const std::vector<Tensor>& arguments) {
  std::vector<std::int64_t> guards = guards_of(compiled, module, arguments);
  for (const std::unique_ptr<Entry>& known : known_)
    if (known->kind == compiled.kind && known->guards == guards) return *known;
  known_.push_back(std::make_unique<Entry>(compile_module(compiled, module, arguments)));
  known_.back()->guards = std::move(guards);
  return *known_.back();
}

Tensor ModuleGraphs::run(const CompiledForward& compiled, Module& module, const std::vector<Tensor>& arguments) {
  const Entry& entry = entry_for(compiled, module, arguments);
  std::vector<Tensor> inputs;
  for (const Input& input : entry.inputs) {
    Module& owner = input.module.empty() ? module : *module.find(input.module);
    switch (input.kind) {
      case Input::Kind::argument:
        inputs.push_back(arguments[input.argument]);
        break;
      case Input::Kind::parameter:
        inputs.push_back(owner.tensor(input.name));
        break;
      case Input::Kind::buffer:
        inputs.push_back(owner.buffer(input.name));
    }
  }
  return run_compiled(compiled.name, entry.graphs, inputs);
}

}  // namespace plimsoll::program::inductor
