#include "program/inductor/module_graphs.hpp"

#include <unordered_map>
#include <utility>

#include "plimsoll/error.hpp"
#include "program/inductor/frame.hpp"

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

/// Makes equal modules, whose tensors are theirs: what is tied stays so.
class TreeCopy {
 public:
  explicit TreeCopy(Tape& tape) : tape_(tape) {}

  /// The same tree, without what others put around its modules.
  void copy_into(Module& copy, const Module& original) {
    copy.type = original.type;
    copy.linear = original.linear;
    for (const std::shared_ptr<Parameter>& parameter : original.parameters) {
      std::shared_ptr<Parameter>& own = parameters_[parameter.get()];
      if (!own) {
        own = std::make_shared<Parameter>(*parameter);
        own->tensor = copied(parameter->tensor);
      }
      copy.parameters.push_back(own);
    }
    for (const ModuleBuffer& buffer : original.buffers) {
      copy.buffers.push_back(buffer);
      copy.buffers.back().tensor = copied(buffer.tensor);
    }
    for (const std::unique_ptr<Module>& child : original.children) copy_into(copy.child(child->name(), true), *child);
  }

 private:
  Tensor copied(const Tensor& tensor) {
    if (!tensor) return {};
    Tensor& own = tensors_[tensor.impl()];
    if (!own) own = like(tensor, tape_);
    return own;
  }

  Tape& tape_;
  std::unordered_map<const Parameter*, std::shared_ptr<Parameter>> parameters_;
  std::unordered_map<const TensorImpl*, Tensor> tensors_;
};

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

/// What stands for the arguments on a tape of their own.
std::vector<Tensor> stand_ins(const std::vector<Tensor>& arguments, Tape& tape) {
  std::vector<Tensor> all;
  for (const Tensor& argument : arguments) all.push_back(argument ? made_before(like(argument, tape)) : Tensor());
  return all;
}

}  // namespace

/// Where the tensors of a frame's graphs come from.
class ModuleGraphs::Sources {
 public:
  Sources(const std::vector<Tensor>& arguments, Module& twin, const std::vector<FrameGraph>& graphs) : twin_(twin) {
    for (std::size_t i = 0; i < arguments.size(); ++i) note(arguments[i], {.kind = Input::Kind::argument, .argument = i});
    for (Module* module : twin.all_modules()) {
      const std::string path = path_below(twin, *module);
      for (const std::shared_ptr<Parameter>& parameter : module->parameters)
        note(parameter->tensor, {.kind = Input::Kind::parameter, .module = path, .name = parameter->name});
      for (const ModuleBuffer& buffer : module->buffers)
        note(buffer.tensor, {.kind = Input::Kind::buffer, .module = path, .name = buffer.name});
    }
    for (std::size_t graph = 0; graph < graphs.size(); ++graph)
      for (std::size_t i = 0; i < graphs[graph].results.size(); ++i)
        note(graphs[graph].results[i], {.kind = Input::Kind::made, .graph = graph, .result = i});
  }

  /// Throws Error (refused) where the trace met a tensor that was made unseen by it.
  std::vector<Input> of(const std::vector<Tensor>& tensors) const {
    std::vector<Input> all;
    for (const Tensor& tensor : tensors) {
      const auto found = known_.find(tensor.impl());
      if (found == known_.end())
        refuse("torch.compile of modules with this operator of '" + std::string(twin_.path) + "' is not modelled", "compile", "false");
      all.push_back(found->second);
    }
    return all;
  }

 private:
  void note(const Tensor& tensor, Input source) {
    if (tensor) known_.emplace(tensor.impl(), std::move(source));
  }

  Module& twin_;
  std::unordered_map<const TensorImpl*, Input> known_;
};

CompiledForward::Eager ModuleGraphs::make_twin(const CompiledForward& compiled, Module& module, Module& twin, Tape& tape,
                                               const Tape& caller) {
  set_up(tape, caller);
  twin.path = module.path;
  TreeCopy(tape).copy_into(twin, module);
  return compiled.make(twin, tape);
}

/// Where DDP cuts the module's graph, as a run tells that does nothing else.
std::set<std::size_t> ModuleGraphs::cuts_of(const CompiledForward& compiled, Module& module, const std::vector<Tensor>& arguments) {
  const Tape& caller = arguments.front().tape();
  if (!caller.ddp_buckets) return {};
  Tape tape(caller.device, caller.torch);
  Module twin;
  const CompiledForward::Eager eager = make_twin(compiled, module, twin, tape, caller);
  const std::vector<Tensor> given = stand_ins(arguments, tape);
  const AutocastScope autocast(tape, caller.autocast.enabled, caller.autocast.type);
  ParameterUses uses(tape, tensors_of(twin));
  uses.recomputes = compiled.checkpointed;
  (void)eager(given);
  return bucket_cuts(uses.uses(), *caller.ddp_buckets);
}

ModuleGraphs::Entry ModuleGraphs::compile_module(const CompiledForward& compiled, Module& module, const std::vector<Tensor>& arguments) {
  const Tape& caller = arguments.front().tape();
  std::set<std::size_t> cuts = cuts_of(compiled, module, arguments);
  Tape tape(caller.device, caller.torch);
  Module twin;
  const CompiledForward::Eager eager = make_twin(compiled, module, twin, tape, caller);
  const std::vector<Tensor> given = stand_ins(arguments, tape);
  const AutocastScope autocast(tape, caller.autocast.enabled, caller.autocast.type);
  TracedFrame frame(tape, tensors_of(twin), compiled.checkpointing ? compiled.checkpointing() : Checkpointing{}, std::move(cuts));
  const std::vector<Tensor> results = eager(given);
  std::vector<FrameGraph> graphs = frame.graphs(results);
  const Sources sources(given, twin, graphs);
  Entry entry{.kind = compiled.kind, .breaks = frame.broken()};
  for (FrameGraph& graph : graphs) {
    const std::size_t number = entry.parts.size();
    Part part{.graphs = compiled_of(std::move(graph.joint), tape), .inputs = sources.of(graph.inputs)};
    part.last_read.assign(graph.results.size(), number);
    for (const Input& input : part.inputs)
      if (input.kind == Input::Kind::made) entry.parts[input.graph].last_read[input.result] = number;
    entry.parts.push_back(std::move(part));
  }
  entry.results = sources.of(results);
  for (std::size_t number = 0; number < entry.parts.size(); ++number)  // a variable of the code where nobody reads it
    for (std::size_t& last : entry.parts[number].last_read)
      if (last == number) last = entry.parts.size() - 1;
  for (const Input& result : entry.results)
    if (result.kind == Input::Kind::made) entry.parts[result.graph].last_read[result.result] = entry.parts.size();
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

std::vector<Tensor> ModuleGraphs::run(const CompiledForward& compiled, Module& module, const std::vector<Tensor>& arguments) {
  const std::size_t known = known_.size();
  const Entry& entry = entry_for(compiled, module, arguments);
  std::vector<std::vector<Tensor>> made;  // of each part
  const auto tensors_of_sources = [&](const std::vector<Input>& sources) {
    std::vector<Tensor> all;
    for (const Input& source : sources) {
      Module& owner = source.module.empty() ? module : *module.find(source.module);
      switch (source.kind) {
        case Input::Kind::argument:
          all.push_back(arguments[source.argument]);
          break;
        case Input::Kind::parameter:
          all.push_back(owner.tensor(source.name));
          break;
        case Input::Kind::buffer:
          all.push_back(owner.buffer(source.name));
          break;
        case Input::Kind::made:
          all.push_back(made[source.graph][source.result]);
      }
    }
    return all;
  };
  for (std::size_t number = 0; number < entry.parts.size(); ++number) {
    const Part& part = entry.parts[number];
    made.push_back(run_compiled(compiled.name, part.graphs, tensors_of_sources(part.inputs), number == 0));
    for (std::size_t maker = 0; maker <= number; ++maker)  // the generated function drops a name behind the last part that reads it
      for (std::size_t i = 0; i < made[maker].size(); ++i)
        if (entry.parts[maker].last_read[i] <= number) made[maker][i].reset();
  }
  std::vector<Tensor> results = tensors_of_sources(entry.results);
  if (entry.breaks && known_.size() > known) {  // the exception by which Dynamo finds the break holds the frame
    std::vector<Tensor>& held = arguments.front().tape().in_cycles;
    held.insert(held.end(), results.begin(), results.end());
  }
  return results;
}

}  // namespace plimsoll::program::inductor
