// torch.nn.Module: what it registers, how it is called, what it tells of itself (torch/nn/modules/module.py).
#include <algorithm>
#include <functional>
#include <optional>
#include <unordered_set>

#include "code/torch/arguments.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"
#include "program/equal_layers.hpp"
#include "program/modules/adapters/peft.hpp"

namespace plimsoll::code {

using program::Tensor;

namespace {

Torch& of(Interpreter& i) { return i.torch(); }

template <class Items>
auto find(Items& items, Symbol name) {
  return std::find_if(items.begin(), items.end(), [&](const auto& item) {
    if constexpr (requires { item.first; })
      return item.first == name;
    else
      return item.name == name;
  });
}

template <class Items>
void put(Items& items, Symbol name, Value value) {
  const auto known = find(items, name);
  if (known != items.end())
    known->second = std::move(value);
  else
    items.emplace_back(name, std::move(value));
}

Value init(Interpreter& i, Bound& a) {
  auto* instance = a[0].as<InstanceObject>();
  if (instance == nullptr) i.raise("TypeError", "Module.__init__() asks for a module");
  if (!instance->module) instance->module = std::make_unique<ModuleState>();
  return Value::none();
}

Value register_buffer(Interpreter& i, Bound& a) {
  ModuleState& state = of(i).state(a[0]);
  const Symbol name = i.symbol(i.words(a[1], "buffer names"));
  if (!a[2].is_none()) (void)of(i).tensor_of(a[2], "a buffer");
  const auto known = find(state.buffers, name);
  const ModuleState::Buffer buffer{name, a[2], !a[3].is_bound() || i.truth(a[3])};
  if (known != state.buffers.end())
    *known = buffer;
  else
    state.buffers.push_back(buffer);
  return Value::none();
}

Value register_parameter(Interpreter& i, Bound& a) {
  put(of(i).state(a[0]).parameters, i.symbol(i.words(a[1], "parameter names")), a[2]);
  return Value::none();
}

Value add_module(Interpreter& i, Bound& a) {
  put(of(i).state(a[0]).modules, i.symbol(i.words(a[1], "module names")), a[2]);
  return Value::none();
}

Value apply(Interpreter& i, Bound& a) {
  const std::vector<std::pair<Symbol, Value>> children = of(i).state(a[0]).modules;
  for (const auto& [name, child] : children)
    if (!child.is_none()) (void)i.call(i.attribute(child, i.symbol("apply")), std::vector<Value>{a[1]});
  (void)i.call(a[1], std::vector<Value>{a[0]});
  return a[0];
}

Value pairs_of(Interpreter& i, const std::vector<std::pair<std::string, Value>>& items, bool names) {
  std::vector<Value> made;
  for (const auto& [name, value] : items) made.push_back(names ? i.tuple({i.text(name), value}) : value);
  return Value(i.iterate(i.list(std::move(made))));
}

template <bool kNames>
Value parameters(Interpreter& i, Bound& a) {
  return pairs_of(i, of(i).all_parameters(a[0]), kNames);
}

template <bool kNames>
Value modules(Interpreter& i, Bound& a) {
  return pairs_of(i, of(i).all_modules(a[0]), kNames);
}

template <bool kNames>
Value children(Interpreter& i, Bound& a) {
  std::vector<std::pair<std::string, Value>> items;
  for (const auto& [name, child] : of(i).state(a[0]).modules)
    if (!child.is_none()) items.emplace_back(i.names().text(name), child);
  return pairs_of(i, items, kNames);
}

template <bool kNames>
Value buffers(Interpreter& i, Bound& a) {
  std::vector<std::pair<std::string, Value>> items;
  for (const auto& [path, module] : of(i).all_modules(a[0]))
    for (const auto& buffer : of(i).state(module).buffers)
      if (!buffer.value.is_none()) items.emplace_back((path.empty() ? "" : path + ".") + i.names().text(buffer.name), buffer.value);
  return pairs_of(i, items, kNames);
}

Value train(Interpreter& i, Bound& a) {
  for (const auto& item : of(i).all_modules(a[0])) of(i).state(item.second).training = !a[1].is_bound() || i.truth(a[1]);
  return a[0];
}

Value require_grad(Interpreter& i, Bound& a) {
  for (const auto& item : of(i).all_parameters(a[0]))
    of(i).set_tensor_attribute(item.second, i.symbol("requires_grad"), Value::boolean(!a[1].is_bound() || i.truth(a[1])));
  return a[0];
}

/// Module._apply of a parameter on the device, whose data becomes another's (Variable.set_data). A wrapper that waits for its gradient is
/// not modelled with it.
void retype_on_device(Interpreter& i, program::Parameter& parameter, DType type) {
  auto* leaf = parameter.tensor.impl();
  if (parameter.cut != Cut::replicated || leaf->accumulator != nullptr || !leaf->leaf_hooks.empty() || !leaf->post_accumulate.empty())
    i.unknown("changing the type of a parameter that is sharded or reduced");
  const program::Tensor typed = program::to(parameter.tensor.detach(), type);
  leaf->storage = typed.impl()->storage;
  leaf->dtype = type;
  parameter.type = type;
}

/// Module._apply(lambda t: t.to(type)): floating parameters and buffers.
void retype(Interpreter& i, const Value& root, DType type) {
  for (const auto& item : of(i).all_parameters(root)) {
    auto& object = *item.second.as<TensorObject>();
    if (object.current().dtype() == type) continue;
    if (of(i).is_on_device(object.current())) {
      retype_on_device(i, *object.parameter, type);
      continue;
    }
    const bool trains = object.tensor.requires_grad();
    object.tensor = program::to(object.tensor.detach(), type);
    object.tensor.set_requires_grad(trains);
    object.parameter->type = type;
  }
  for (const auto& item : of(i).all_modules(root))
    for (ModuleState::Buffer& buffer : of(i).state(item.second).buffers) {
      if (buffer.value.is_none() || !is_floating(of(i).tensor(buffer.value).dtype())) continue;
      const Value typed = i.call(i.attribute(buffer.value, i.symbol("to")), std::vector<Value>{of(i).type_value(type)});
      i.set_attribute(item.second, buffer.name, typed);
    }
}

/// Module.to(dtype), and .to(device), which changes nothing before the whole is moved.
Value to(Interpreter& i, Bound& a) {
  std::vector<Value> wanted = a.rest;
  for (std::size_t at : {std::size_t{1}, std::size_t{2}})
    if (a.has(at)) wanted.push_back(a[at]);
  for (const Value& each : wanted) {
    const auto* token = each.as<TokenObject>();
    if (token == nullptr || token->kind != TokenObject::Kind::dtype) continue;
    retype(i, a[0], of(i).type_of(each));
  }
  return a[0];
}

Value without_forward(Interpreter& i, Bound& a) {
  i.raise("NotImplementedError", "Module [" + i.type_name(a[0]) + "] is missing the required \"forward\" function");
}

Value state_dict(Interpreter& i, Bound&) { i.unknown("a module's state_dict"); }

/// A hook that runs when a state is loaded or saved, which a step does not.
Value unused_hook(Interpreter&, Bound&) { return Value::none(); }

constexpr LibraryRow kRows[] = {
    {"__init__", "self, *args, **kwargs", init},
    {"forward", "self, *args, **kwargs", without_forward},
    {"register_buffer", "self, name, tensor, persistent=", register_buffer},
    {"register_parameter", "self, name, param", register_parameter},
    {"add_module", "self, name, module", add_module},
    {"register_module", "self, name, module", add_module},
    {"apply", "self, fn", apply},
    {"parameters", "self, recurse=", parameters<false>},
    {"named_parameters", "self, prefix=, recurse=", parameters<true>},
    {"modules", "self", modules<false>},
    {"named_modules", "self", modules<true>},
    {"children", "self", children<false>},
    {"named_children", "self", children<true>},
    {"buffers", "self", buffers<false>},
    {"named_buffers", "self", buffers<true>},
    {"train", "self, mode=", train},
    {"eval", "self", [](Interpreter& i, Bound& a) { return a.values.push_back(Value::boolean(false)), train(i, a); }},
    {"requires_grad_", "self, requires_grad=", require_grad},
    {"to", "self, *wanted, device=, dtype=", to},
    {"state_dict", "self", state_dict},
    {"_register_load_state_dict_pre_hook", "self, hook, with_module=", unused_hook},
    {"register_load_state_dict_pre_hook", "self, hook", unused_hook},
    {"register_load_state_dict_post_hook", "self, hook", unused_hook},
    {"_register_state_dict_hook", "self, hook", unused_hook},
};

}  // namespace

ModuleState& Torch::state(const Value& module) {
  auto* instance = module.as<InstanceObject>();
  if (instance == nullptr || !instance->type->is_module) i_.raise("TypeError", i_.type_name(module) + " is not a Module subclass");
  if (!instance->module) i_.raise("AttributeError", "cannot assign module before Module.__init__() call");
  return *instance->module;
}

Value Torch::module_attribute(InstanceObject& instance, Symbol name) {
  if (!instance.module) return {};
  ModuleState& state = *instance.module;
  if (const auto known = find(state.parameters, name); known != state.parameters.end()) {
    if (state.wrapped != nullptr && state.wrapped->adapts(i_.names().text(name))) return wrap((*state.wrapped)(i_.names().text(name).c_str()));
    if (state.asked && !known->second.is_none()) state.asked(*known->second.as<TensorObject>()->parameter);
    return known->second;
  }
  if (const auto known = find(state.modules, name); known != state.modules.end()) return known->second;
  if (const auto known = find(state.buffers, name); known != state.buffers.end()) return known->value;
  if (const auto known = find(state.computed, name); known != state.computed.end()) return i_.call(known->second, std::vector<Value>{});
  if (i_.names().text(name) == "training") return Value::boolean(state.training);
  return {};
}

/// Module.__setattr__.
bool Torch::set_module_attribute(InstanceObject& instance, Symbol name, const Value& value) {
  if (!instance.type->is_module) return false;
  const auto* child = value.as<InstanceObject>();
  const bool is_module = child != nullptr && child->type->is_module;
  const bool is_parameter = is_tensor(value) && value.as<TensorObject>()->parameter;
  if (!instance.module) {
    if (is_module) i_.raise("AttributeError", "cannot assign module before Module.__init__() call");
    if (is_parameter) i_.raise("AttributeError", "cannot assign parameters before Module.__init__() call");
    return false;
  }
  ModuleState& state = *instance.module;
  if (is_parameter || is_module) {
    if (is_parameter && state.module != nullptr) i_.unknown("a parameter that is set while the module runs");
    instance.attributes.erase(name);
    if (is_parameter)
      put(state.parameters, name, value);
    else
      put(state.modules, name, value);
    return true;
  }
  if (is_tensor(value) && value.as<TensorObject>()->buffer != TensorObject::Buffer::no && find(state.buffers, name) == state.buffers.end()) {
    instance.attributes.erase(name);
    state.buffers.push_back({name, value, value.as<TensorObject>()->buffer == TensorObject::Buffer::persistent});
    return true;
  }
  if (const auto known = find(state.parameters, name); known != state.parameters.end()) {
    if (!value.is_none())
      i_.raise("TypeError", "cannot assign '" + i_.type_name(value) + "' as parameter '" + i_.names().text(name) +
                                "' (torch.nn.Parameter or None expected)");
    known->second = value;
    return true;
  }
  if (const auto known = find(state.modules, name); known != state.modules.end()) {
    if (!value.is_none())
      i_.raise("TypeError", "cannot assign '" + i_.type_name(value) + "' as child module '" + i_.names().text(name) +
                                "' (torch.nn.Module or None expected)");
    known->second = value;
    return true;
  }
  if (const auto known = find(state.buffers, name); known != state.buffers.end()) {
    known->value = value;
    if (state.module != nullptr) state.module->buffer(i_.names().text(name)) = is_tensor(value) ? tensor(value) : Tensor();
    return true;
  }
  if (i_.names().text(name) == "training") {
    state.training = i_.truth(value);
    return true;
  }
  return false;
}

bool Torch::erase_attribute(InstanceObject& instance, Symbol name) {
  if (!instance.module) return false;
  ModuleState& state = *instance.module;
  const auto erase = [&](auto& items) {
    const auto known = find(items, name);
    if (known == items.end()) return false;
    items.erase(known);
    return true;
  };
  return erase(state.parameters) || erase(state.modules) || erase(state.buffers);
}

std::vector<Symbol> Torch::module_names(InstanceObject& instance) {
  std::vector<Symbol> names;
  if (!instance.module) return names;
  for (const auto& item : instance.module->parameters) names.push_back(item.first);
  for (const auto& item : instance.module->modules) names.push_back(item.first);
  for (const auto& item : instance.module->buffers) names.push_back(item.name);
  return names;
}

Value Torch::make_parameter(Tensor tensor, bool trains) {
  if (is_on_device(tensor)) i_.unknown("a parameter that is made on the device while the module runs");
  check_filled(tensor);
  Tensor own = tensor.detach();
  own.set_requires_grad(trains);
  Held<TensorObject> made(new TensorObject(i_.heap(), own));
  made->parameter = std::make_shared<program::Parameter>(
      program::Parameter{.name = {}, .sizes = own.sizes(), .type = own.dtype(), .trainable = trains, .tensor = {}});
  return Value(made);
}

namespace {

/// Whether wrappers' hooks look into an object: transformers' outputs are nodes of torch's trees and dictionaries to DeepSpeed.
bool is_output(const Value& value) {
  const auto* instance = value.as<InstanceObject>();
  if (instance == nullptr || !instance->type->is_dataclass) return false;
  return std::any_of(instance->type->order.begin(), instance->type->order.end(), [](const ClassObject* type) { return type->name == "ModelOutput"; });
}

/// Tensors within tuples, lists, dictionaries and outputs, as wrappers' hooks find them (torch.utils._pytree, apply_to_tensors_only), and what
/// the hooks put in their places. Parameters are none: a hook that is given one leaves it as it is.
class Tree {
 public:
  Tree(Interpreter& interpreter, std::vector<Value*> roots) : i_(interpreter), roots_(std::move(roots)) {
    for (const Value* root : roots_) collect(*root);
  }

  /// Calls what wants the tensors, and puts those that it has replaced where they stood.
  template <class Call>
  void give(Call call, bool same_values = false) {
    std::vector<Tensor> tensors;
    for (const Value& each : found_) tensors.push_back(i_.torch().tensor(each));
    std::vector<Tensor*> seen;
    for (Tensor& each : tensors) seen.push_back(&each);
    call(seen);
    for (std::size_t at = 0; at < tensors.size(); ++at) {
      changed_.push_back(tensors[at].impl() != i_.torch().tensor(found_[at]).impl());
      if (changed_.back()) found_[at] = in_place_of(found_[at], std::move(tensors[at]), same_values);
    }
    tensors.clear();
    if (std::find(changed_.begin(), changed_.end(), true) == changed_.end()) return;
    for (Value* root : roots_) *root = rebuilt(*root);
  }

  const std::vector<Value>& found() const { return found_; }

 private:
  Value in_place_of(const Value& before, Tensor tensor, bool same_values) {
    Value made = i_.torch().wrap(std::move(tensor));
    if (!same_values) return made;
    made.as<TensorObject>()->followed = before.as<TensorObject>()->followed;
    made.as<TensorObject>()->ids_below = before.as<TensorObject>()->ids_below;
    return made;
  }

  static bool is_found(const Value& value) { return Torch::is_tensor(value) && value.as<TensorObject>()->parameter == nullptr; }

  void collect(const Value& value) {
    const Interpreter::Depth deeper(i_);
    i_.step();
    if (is_found(value)) found_.push_back(value);
    if (const auto* several = value.as<SequenceObject>())
      for (const Value& each : several->items) collect(each);
    if (const auto* named = value.as<DictionaryObject>(); named != nullptr && !named->is_set)
      for (const auto& entry : named->entries())
        if (entry.key.is_bound()) collect(entry.value);
    if (is_output(value))
      for (const auto& item : value.as<InstanceObject>()->attributes.items) collect(item.second);
  }

  /// The value with its tensors replaced, itself where none of them was; in the order in which they were found.
  Value rebuilt(const Value& value) {
    const Interpreter::Depth deeper(i_);
    const std::size_t first = next_;
    if (is_found(value)) return found_[next_++];
    if (const auto* several = value.as<SequenceObject>()) {
      std::vector<Value> items;
      for (const Value& each : several->items) items.push_back(rebuilt(each));
      return any_changed(first) ? i_.sequence(several->kind, std::move(items)) : value;
    }
    if (const auto* named = value.as<DictionaryObject>(); named != nullptr && !named->is_set) {
      Held<DictionaryObject> made(new DictionaryObject(i_.heap()));
      for (const auto& entry : named->entries())
        if (entry.key.is_bound()) made->set(entry.key, rebuilt(entry.value));
      return any_changed(first) ? Value(made) : value;
    }
    if (is_output(value)) {
      Held<InstanceObject> made(new InstanceObject(i_.heap(), value.as<InstanceObject>()->type));
      for (const auto& [name, item] : value.as<InstanceObject>()->attributes.items) made->attributes.set(name, rebuilt(item));
      return any_changed(first) ? Value(made) : value;
    }
    return value;
  }

  bool any_changed(std::size_t first) const {
    return std::find(changed_.begin() + static_cast<std::ptrdiff_t>(first), changed_.begin() + static_cast<std::ptrdiff_t>(next_), true) !=
           changed_.begin() + static_cast<std::ptrdiff_t>(next_);
  }

  Interpreter& i_;
  std::vector<Value*> roots_;
  std::vector<Value> found_;
  std::vector<bool> changed_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<Value> Torch::tensors_in(const Value& value) {
  Value root = value;
  return Tree(i_, {&root}).found();
}

void Torch::give_tensors(std::vector<Value*> places, const std::function<void(std::vector<Tensor*>&)>& call, bool same_values) {
  Tree(i_, std::move(places)).give(call, same_values);
}

/// Module.__call__ around `forward`: its frames hold the arguments that came until it has returned; hooks of wrappers see the tensors among them
/// and among the results, and may replace them.
Value Torch::call_hooked(program::Module& module, CallArguments arguments, const std::function<Value(CallArguments)>& forward) {
  CallArguments came;
  program::Tape& tape = device_ != nullptr ? *device_ : host_;
  if (module.pre_forward.empty()) {
    program::ModuleCall call(module, tape, {});
    return finish(call, module, forward(std::move(arguments)));
  }
  came = arguments;
  std::vector<Value*> places;
  for (Value& each : arguments.positional) places.push_back(&each);
  for (auto& item : arguments.keywords) places.push_back(&item.second);
  std::optional<program::ModuleCall> call;
  Tree(i_, std::move(places)).give([&](std::vector<Tensor*>& tensors) { call.emplace(module, tape, tensors); });
  return finish(*call, module, forward(std::move(arguments)));
}

Value Torch::finish(program::ModuleCall& call, const program::Module& module, Value result) {
  if (!module.post_forward.empty()) Tree(i_, {&result}).give([&](std::vector<Tensor*>& tensors) { call.done(tensors); });
  return result;
}

Value Torch::call_module(Bound& a) {
  const program::Module* const module = state(a[0]).module;
  program::EqualLayers* const equal = device_ != nullptr ? device_->equal_layers : nullptr;
  if (module != nullptr && equal != nullptr)
    if (const std::optional<std::size_t> layer = equal->place_of(*module))
      return call_equal_layer(*equal, *layer, a[0], {a.rest, a.keyword_rest});
  return run_module(a[0], {a.rest, a.keyword_rest});
}

/// One of equal layers, whose first argument is the hidden states, and so the first tensor of what it gives. One that does not run gives
/// what the last one before it gave.
Value Torch::call_equal_layer(program::EqualLayers& equal, std::size_t layer, const Value& module, CallArguments arguments) {
  const bool next_runs = !equal.precedes_left_out(layer);
  if (arguments.positional.empty() && arguments.keywords.empty()) return run_module(module, std::move(arguments));  // which says what is missing
  const Value& hidden = arguments.positional.empty() ? arguments.keywords.front().second : arguments.positional.front();
  if (!equal.enter(layer, tensor_of(hidden, "hidden states"))) return next_runs ? std::exchange(before_left_out_, {}) : before_left_out_;
  Value result = run_module(module, std::move(arguments));
  if (!next_runs) before_left_out_ = result;
  if (equal.is_last(layer)) equal.leave(tensor(tensors_in(result).front()));
  return result;
}

/// The module itself, or what a library put in its place.
Value Torch::run_module(const Value& module, CallArguments came) {
  ModuleState& own = state(module);
  const Value forward = i_.attribute(module, i_.symbol("forward"));
  if (own.module == nullptr) return i_.call(forward, std::move(came));
  const auto written = [&](CallArguments arguments) {
    return own.compiled ? run_compiled(module, forward, std::move(arguments)) : i_.call(forward, std::move(arguments));
  };
  if (!own.module->adapted_parameter.empty()) {  // lora.ParamWrapper.forward: its base layer, parametrized meanwhile
    program::WrappedParameters weights(*own.module, device_ != nullptr ? *device_ : host_);
    struct Meanwhile {
      program::WrappedParameters*& place;
      program::WrappedParameters* const before;
      ~Meanwhile() { place = before; }
    } const meanwhile{own.wrapped, std::exchange(own.wrapped, &weights)};
    return call_hooked(program::within_wrappers(*own.module), std::move(came), written);
  }
  program::Module* const base = own.module->linear ? own.module->find_child("base_layer") : nullptr;
  if (base == nullptr && !own.module->replacement) return call_hooked(*own.module, std::move(came), written);
  const std::function<Value(program::Module&, CallArguments)> run = [&](program::Module& called, CallArguments arguments) {
    return call_hooked(called, std::move(arguments), [&](CallArguments given) {
      if (!called.replacement) return written(std::move(given));
      return wrap(called.replacement(only_tensor(given)));
    });
  };
  if (base == nullptr) return run(*own.module, std::move(came));
  return call_hooked(*own.module, std::move(came), [&](CallArguments given) {
    const Tensor x = only_tensor(given);
    return wrap(program::adapted(*own.module, x.tape(), x, [&](const Tensor& input) { return tensor(run(*base, {{wrap(input)}, {}})); }));
  });
}

/// The argument of a linear.
Tensor Torch::only_tensor(const CallArguments& arguments) {
  if (arguments.positional.size() + arguments.keywords.size() != 1) i_.unknown("an adapted linear that is called with several arguments");
  return tensor_of(arguments.positional.empty() ? arguments.keywords.front().second : arguments.positional.front(), "input");
}

std::vector<std::pair<std::string, Value>> Torch::all_modules(const Value& root) {
  std::vector<std::pair<std::string, Value>> all;
  std::unordered_set<const Object*> seen;
  const std::function<void(const std::string&, const Value&)> visit = [&](const std::string& path, const Value& module) {
    const Interpreter::Depth deeper(i_);
    if (module.is_none() || !seen.insert(module.object()).second) return;
    i_.step();
    all.emplace_back(path, module);
    for (const auto& [name, child] : state(module).modules) visit((path.empty() ? "" : path + ".") + i_.names().text(name), child);
  };
  visit("", root);
  return all;
}

std::vector<std::pair<std::string, Value>> Torch::all_parameters(const Value& root) {
  std::vector<std::pair<std::string, Value>> all;
  std::unordered_set<const Object*> seen;
  for (const auto& [path, module] : all_modules(root))
    for (const auto& [name, value] : state(module).parameters)
      if (!value.is_none() && seen.insert(value.object()).second)
        all.emplace_back((path.empty() ? "" : path + ".") + i_.names().text(name), value);
  return all;
}

namespace {

Value compute_attribute(Interpreter& i, Bound& a) {
  put(of(i).state(a[0]).computed, i.symbol(i.words(a[1], "attribute names")), a[2]);
  return Value::none();
}

}  // namespace

void define_modules(Interpreter& i, Torch&) {
  i.library("plimsoll").attributes[i.symbol("compute_attribute")] = i.native("compute_attribute", "module, name, function", compute_attribute);
  const Held<ClassObject> type = i.native_class("torch.nn.Module", {i.builtin_class("object")});
  type->is_module = true;
  for (const LibraryRow& row : kRows)
    type->attributes.set(i.symbol(row.name), i.method(std::string("Module.") + row.name, row.signature, row.run));
  type->attributes.set(i.symbol("__call__"), i.method("Module.__call__", "self, *args, **kwargs",
                                                      [](Interpreter& inner, Bound& a) { return inner.torch().call_module(a); }));
  i.library("torch.nn").attributes[i.symbol("Module")] = Value(type);
}

}  // namespace plimsoll::code
