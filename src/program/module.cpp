#include "program/module.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "plimsoll/error.hpp"
#include "program/modules/network_source.hpp"

namespace plimsoll::program {

namespace {

Dims dims_of(const std::vector<std::int64_t>& shape, const std::string& name) {
  if (shape.size() > Dims::kMost) refuse("tensors of more than " + std::to_string(Dims::kMost) + " dimensions are not modelled", name);
  Dims sizes;
  for (std::int64_t size : shape) sizes.push_back(size);
  return sizes;
}

/// Finds the modules of full names such as "a.b.weight", and makes those that are missing. Names come in order, so that most modules of a name
/// are those of the name before it.
class Owners {
 public:
  explicit Owners(Module& root) : open_{&root} {}

  /// The module of "a.b" and "weight".
  std::pair<Module*, std::string> of(const std::string& full) {
    while (!holds(*open_.back(), full)) open_.pop_back();
    std::size_t start = open_.size() == 1 ? 0 : open_.back()->path.size() + 1;
    for (std::size_t dot = full.find('.', start); dot != std::string::npos; dot = full.find('.', start)) {
      open_.push_back(&open_.back()->child(std::string_view(full).substr(start, dot - start), true));
      start = dot + 1;
    }
    return {open_.back(), full.substr(start)};
  }

 private:
  static bool holds(const Module& module, const std::string& full) {
    const std::string& path = module.path;
    return path.empty() || (full.size() > path.size() && full[path.size()] == '.' && full.compare(0, path.size(), path) == 0);
  }
  std::vector<Module*> open_;  ///< from the root on, each a child of the one before
};

void collect(Module& module, std::vector<std::shared_ptr<Parameter>>& into, std::unordered_set<Parameter*>& seen) {
  for (const auto& parameter : module.parameters) {
    if (seen.insert(parameter.get()).second) into.push_back(parameter);
  }
  for (const auto& child : module.children) collect(*child, into, seen);
}

void collect(Module& module, std::vector<Module*>& into) {
  into.push_back(&module);
  for (const auto& child : module.children) collect(*child, into);
}

/// Module._apply.
void materialize_one(Module& module, Tape& tape, Arrival arrival, std::vector<Tensor>& duplicates) {
  for (const auto& child : module.children) materialize_one(*child, tape, arrival, duplicates);
  const LabelScope scope(tape, module.label);
  Tensor original;
  if (module.made_from && arrival == Arrival::moved) original = tape.empty(module.made_from->sizes, module.made_from->type);
  for (const auto& parameter : module.parameters) {
    if (parameter->tensor) {
      if (arrival == Arrival::empty) duplicates.push_back(tape.empty(parameter->sizes, parameter->type, Category::parameter));
    } else {
      parameter->tensor = tape.parameter(parameter->sizes, parameter->type, parameter->trainable);
    }
  }
  for (ModuleBuffer& buffer : module.buffers) buffer.tensor = tape.empty(buffer.sizes, buffer.type, Category::parameter);
  module.materialize_constants(tape);
}

/// Whether module.name() is that.
bool is_named(const Module& module, std::string_view name) {
  const std::string_view path = module.path;
  if (!path.ends_with(name)) return false;
  return path.size() == name.size() || path[path.size() - name.size() - 1] == '.';
}

}  // namespace

std::string_view Module::name() const {
  const std::size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::string_view(path) : std::string_view(path).substr(dot + 1);
}

/// From the last on: modules are built in order, so that it is mostly the one that was made last.
Module* Module::find_child(std::string_view wanted) {
  for (auto candidate = children.rbegin(); candidate != children.rend(); ++candidate)
    if (is_named(**candidate, wanted)) return candidate->get();
  return nullptr;
}

Module& Module::child(std::string_view wanted, bool make) {
  if (Module* found = find_child(wanted)) return *found;
  if (!make) throw Error(ErrorCode::internal, "module '" + path + "' has no child '" + std::string(wanted) + "'");
  auto made = std::make_unique<Module>();
  made->path = path.empty() ? std::string(wanted) : path + "." + std::string(wanted);
  children.push_back(std::move(made));
  return *children.back();
}

Module* Module::find(std::string_view relative) {
  Module* module = this;
  while (module && !relative.empty()) {
    const std::size_t dot = relative.find('.');
    module = module->find_child(relative.substr(0, dot));
    relative = dot == std::string_view::npos ? std::string_view() : relative.substr(dot + 1);
  }
  return module;
}

Parameter* Module::find_parameter(std::string_view wanted) {
  for (const auto& parameter : parameters) {
    if (parameter->name == wanted) return parameter.get();
  }
  return nullptr;
}

const Tensor& Module::tensor(std::string_view wanted) {
  static const Tensor kNone;
  const Parameter* parameter = find_parameter(wanted);
  return parameter ? parameter->tensor : kNone;
}

Tensor& Module::buffer(std::string_view wanted) {
  for (ModuleBuffer& candidate : buffers) {
    if (candidate.name == wanted) return candidate.tensor;
  }
  throw Error(ErrorCode::internal, "module '" + path + "' has no buffer '" + std::string(wanted) + "'");
}

const Tensor& Module::constant(std::string_view wanted) const {
  static const Tensor kNone;
  for (const ModuleBuffer& candidate : constants)
    if (candidate.name == wanted) return candidate.tensor;
  return kNone;
}

void Module::materialize_constants(Tape& tape) {
  for (ModuleBuffer& each : constants) each.tensor = tape.empty(each.sizes, each.type, Category::parameter);
}

std::vector<std::shared_ptr<Parameter>> Module::all_parameters() {
  std::vector<std::shared_ptr<Parameter>> all;
  std::unordered_set<Parameter*> seen;
  collect(*this, all, seen);
  return all;
}

std::vector<Module*> Module::all_modules() {
  std::vector<Module*> all;
  collect(*this, all);
  return all;
}

namespace {

/// The parameters that others are tied to, by name.
using ByName = std::unordered_map<std::string_view, std::shared_ptr<Parameter>>;

/// albert: a later run of a layer, whose parameters are an earlier one's.
bool has_no_module(const Block& block, const ParameterTensor& tensor) { return block.role == Block::Role::encoder && !tensor.tied_to.empty(); }

/// How many tensors of the same module stand before a tied one: a projection's weight before its own bias.
std::size_t place_in_module(const std::vector<const ParameterTensor*>& list, const ParameterTensor& tied) {
  const auto module_of = [](const ParameterTensor& tensor) {
    return tensor.name.substr(0, std::min(tensor.name.rfind('.'), tensor.name.size()));
  };
  const auto own = std::find(list.begin(), list.end(), &tied);
  return static_cast<std::size_t>(
      std::count_if(list.begin(), own, [&](const ParameterTensor* each) { return module_of(*each) == module_of(tied); }));
}

/// Own tensors first: a module whose weight is tied and whose bias its parent holds (BERT's decoder) is registered where its weight is.
void add_parameters(Owners& owners, const Block& block, std::int64_t index, DType type, ByName& by_name) {
  struct Tied {
    std::string full;
    std::shared_ptr<Parameter> parameter;
    std::size_t place;
  };
  std::vector<Tied> tied;
  const std::vector<const ParameterTensor*> list = block.parameter_list();
  for (const ParameterTensor* tensor : list) {
    if (has_no_module(block, *tensor)) continue;
    const std::string full = full_name(block, index, *tensor);
    if (!tensor->tied_to.empty()) {
      const std::shared_ptr<Parameter>& other = by_name.at(tensor->tied_to);
      if (other) {
        tied.push_back({full, other, place_in_module(list, *tensor)});
        continue;
      }
    }
    auto [module, name] = owners.of(full);
    Parameter made{.name = name,
                   .sizes = dims_of(tensor->shape, full),
                   .type = tensor->type.value_or(type),
                   .trainable = tensor->trainable,
                   .expert = tensor->expert,
                   .cut = tensor->cut,
                   .tensor = {}};
    auto parameter = std::allocate_shared<Parameter>(PoolAllocator<Parameter>(), std::move(made));
    if (const auto wanted = by_name.find(full); wanted != by_name.end() && !wanted->second) wanted->second = parameter;
    module->parameters.push_back(std::move(parameter));
  }
  for (auto& [full, parameter, place] : tied) {
    auto& parameters = owners.of(full).first->parameters;
    parameters.insert(parameters.begin() + static_cast<std::ptrdiff_t>(std::min(place, parameters.size())), std::move(parameter));
  }
}

/// Which modules are linears, by the operators that own their weights.
void mark_linears(Owners& owners, const Block& block, std::int64_t index, WeightLayout layout) {
  for (const Operator& op : block.operators) {
    if (op.kind != OperatorKind::linear && op.kind != OperatorKind::modulation) continue;
    for (const ParameterTensor& tensor : op.parameters) {
      if (has_no_module(block, tensor)) continue;
      owners.of(full_name(block, index, tensor)).first->linear = layout;
    }
  }
}

/// A scalar constant and a persistent buffer of numbers are made in the default type, which is that of the weights; tables say their own.
DType type_of(const BufferTensor& buffer, DType default_type) {
  return buffer.type == DType::fp32 && (buffer.shape.empty() || buffer.persistent) ? default_type : buffer.type;
}

void add_buffers(Owners& owners, const Block& block, std::int64_t index, DType type) {
  for (const Operator& op : block.operators) {
    for (const BufferTensor& buffer : op.buffers) {
      const std::string full = full_name(block, index, ParameterTensor{.name = buffer.name, .shape = {}, .tied_to = {}});
      auto [module, name] = owners.of(full);
      module->buffers.push_back({.name = name, .sizes = dims_of(buffer.shape, full), .type = type_of(buffer, type), .tensor = {}});
    }
  }
}

/// Encoder and decoder hold the embedding they share under a name of their own, registered first; its weight is tied.
void share_embedding(Module& base) {
  Module* shared = base.find_child("shared");
  if (!shared) return;
  for (const char* name : {"encoder", "decoder"}) {
    Module* stack = base.find_child(name);
    if (!stack || stack->find_child("embed_tokens")) continue;
    stack->child("embed_tokens", true).parameters = shared->parameters;
    std::rotate(stack->children.begin(), stack->children.end() - 1, stack->children.end());
  }
}

}  // namespace

std::unique_ptr<Module> build_modules(const Model& model, DType type, Tape& tape) {
  if (const NetworkSource* source = network_source(model)) return source->modules(type, tape);
  auto root = std::make_unique<Module>();
  Owners owners(*root);
  ByName by_name;
  const std::vector<const Block*> blocks = model.registered_blocks();
  for (const Block* block : blocks)
    for (const ParameterTensor* tensor : block->parameter_list())
      if (!tensor->tied_to.empty()) by_name.emplace(tensor->tied_to, nullptr);
  // transformers registers its rotary module behind the layers and the norm.
  for (const bool rotary : {false, true}) {
    for (const Block* block : blocks) {
      if ((block->role == Block::Role::rotary) != rotary) continue;
      const WeightLayout layout = model.model_type == "gpt2" && is_layer(*block) ? WeightLayout::in_out : WeightLayout::out_in;
      for (std::int64_t index = 0; index < block->repeat; ++index) {
        add_parameters(owners, *block, index, type, by_name);
        add_buffers(owners, *block, index, type);
        mark_linears(owners, *block, index, layout);
      }
    }
  }
  share_embedding(*root);
  if (Module* base = root->find_child("model")) share_embedding(*base);
  for (Module* module : root->all_modules()) module->label = tape.intern(module->path);
  return root;
}

void materialize(Module& root, Tape& tape, Arrival arrival) {
  std::vector<Tensor> duplicates;
  materialize_one(root, tape, arrival, duplicates);
}

ModuleCall::ModuleCall(Module& module, Tape& tape, std::vector<Tensor*> arguments) : module_(module), label_(tape, module.label) {
  tape.host(HostWork::module);
  for (const Module::Hook& hook : module.pre_forward) hook(module, arguments);
}

Tensor ModuleCall::done(Tensor output) {
  if (!module_.post_forward.empty()) done(std::vector<Tensor*>{&output});
  return output;
}

void ModuleCall::done(std::vector<Tensor*> outputs) {
  for (const Module::Hook& hook : module_.post_forward) hook(module_, outputs);
}

}  // namespace plimsoll::program
