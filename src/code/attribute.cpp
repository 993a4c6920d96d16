// Attributes of values.
#include <algorithm>

#include "code/frame.hpp"
#include "code/library.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

Value Interpreter::attribute(const Value& of, Symbol name) {
  Value found = attribute_or(of, name);
  if (found.is_bound()) return found;
  // Tables of a package name what no model that is asked for may use: refused where it is used.
  if (const auto* library = of.as<NamespaceObject>(); library != nullptr && running_->lazy)
    return Value(new NamespaceObject(heap_, library->name + "." + names_.text(name), false));
  if (const auto* module = of.as<ModuleObject>(); module != nullptr && module->module.where.starts_with("plimsoll:"))
    return Value(new NamespaceObject(heap_, module->module.name + "." + names_.text(name), false));
  no_attribute(of, name);
}

Value Interpreter::attribute_or(const Value& of, Symbol name) {
  step();
  if (auto* instance = of.as<InstanceObject>()) return instance_attribute(*instance, of, name);
  if (torch_->is_tensor(of)) return torch_->tensor_attribute(of, name);
  if (const auto* pair = of.as<SequenceObject>(); pair != nullptr && pair->is_pair_of_values)
    for (std::size_t at = 0; at < 2; ++at)
      if (names_.text(name) == (at == 0 ? "values" : "indices")) return pair->items[at];
  if (const auto* library = of.as<NamespaceObject>()) {
    if (!library->known) {
      const std::string whole = library->name + "." + names_.text(name);
      if (over_.contains(whole) || libraries_.contains(whole)) return imported(whole, 0);
      return Value(new NamespaceObject(heap_, whole, false));
    }
    const auto known = library->attributes.find(name);
    if (known != library->attributes.end()) return known->second;
    TextModule* const told = text_module(library->name);  // what of a library is told in Python
    const Value* own = told != nullptr ? global_of(*told, name) : nullptr;
    if (own != nullptr) return *own;
    const std::string whole = library->name + "." + names_.text(name);
    if (TextModule* const within = text_module(whole)) return Value(new ModuleObject(heap_, *within));
    // A package of which only what lies deeper is told: torch.nn.utils of torch.nn.utils.parametrizations.
    const bool leads_on = std::any_of(over_.begin(), over_.end(), [&](const auto& text) { return text.first.starts_with(whole + "."); });
    return leads_on ? Value(new NamespaceObject(heap_, whole, false)) : Value();
  }
  if (const auto* module = of.as<ModuleObject>()) {
    if (const Value* own = global_of(module->module, name)) return *own;
    TextModule* const within = text_module(module->module.name + "." + names_.text(name));
    return within != nullptr ? Value(new ModuleObject(heap_, *within)) : Value();
  }
  if (auto* type = of.as<ClassObject>()) return class_attribute(*type, of, name);
  if (auto* wrapper = of.as<WrapperObject>()) {
    if (wrapper->kind == WrapperObject::Kind::super) return super_attribute(*wrapper, name);
    if (wrapper->kind == WrapperObject::Kind::property && names_.text(name) == "setter") {
      const Value property = of;
      return native("property.setter", "function", [property](Interpreter& i, Bound& a) {
        Held<WrapperObject> made(new WrapperObject(i.heap(), WrapperObject::Kind::property, property.as<WrapperObject>()->inner));
        made->setter = a[0];
        return Value(made);
      });
    }
    const std::string& words = names_.text(name);
    if (wrapper->kind == WrapperObject::Kind::property && (words == "fget" || words == "__get__")) return wrapper->inner;
    if (wrapper->kind == WrapperObject::Kind::property && (words == "fset" || words == "__set__")) return wrapper->setter;
    if (words == "__func__") return wrapper->inner;
    return wrapper->kind == WrapperObject::Kind::partial ? partial_attribute(*wrapper, words) : Value();
  }
  if (auto* function = of.as<FunctionObject>()) return function_attribute(*function, name);
  if (auto* method = of.as<BoundMethodObject>()) {
    if (names_.text(name) == "__self__") return method->self;
    if (names_.text(name) == "__func__") return method->function;
    return attribute_or(method->function, name);
  }
  if (const auto* token = of.as<TokenObject>()) return torch_->token_attribute(*token, name);
  if (const auto* slice = of.as<SliceObject>()) {
    const std::string& wanted = names_.text(name);
    return wanted == "start" ? slice->start : wanted == "stop" ? slice->stop : wanted == "step" ? slice->step : Value();
  }
  return method_of_builtin(*this, of, name);
}

/// functools.partial's func, args and keywords.
Value Interpreter::partial_attribute(const WrapperObject& partial, const std::string& name) {
  if (name == "func") return partial.inner;
  if (name == "args") return tuple(partial.arguments.positional);
  if (name != "keywords") return {};
  Value made(new DictionaryObject(heap_));
  for (const auto& [key, value] : partial.arguments.keywords) made.as<DictionaryObject>()->set(text(names_.text(key)), value);
  return made;
}

Value Interpreter::class_attribute(ClassObject& type, const Value& of, Symbol name) {
  const std::string& words = names_.text(name);
  if (const Value* found = type.find(name)) {
    const auto* wrapper = found->as<WrapperObject>();
    const bool binds = wrapper != nullptr && (wrapper->kind == WrapperObject::Kind::class_method || wrapper->kind == WrapperObject::Kind::class_property);
    if (binds) return bind(*found, of, &type);
    if (wrapper != nullptr && wrapper->kind == WrapperObject::Kind::static_method) return wrapper->inner;
    return *found;
  }
  if (words == "__name__" || words == "__qualname__") return text(type.name.substr(type.name.rfind('.') + 1));
  if (words == "__doc__") return Value::none();
  if (words == "__init__") return native("object.__init__", "*args, **kwargs", [](Interpreter&, Bound&) { return Value::none(); });
  if (words == "__module__") return text(type.is_native ? "builtins" : "model");
  if (words == "__mro__") {
    std::vector<Value> order;
    for (ClassObject* each : type.order) order.emplace_back(static_cast<Object*>(each));
    return tuple(std::move(order));
  }
  if (words == "__dataclass_fields__" && type.is_dataclass) {
    Value made(new DictionaryObject(heap_));
    for (const auto& field : type.fields) made.as<DictionaryObject>()->set(text(names_.text(field.name)), field.default_value);
    return made;
  }
  if (words == "__dict__") {
    Value made(new DictionaryObject(heap_));
    for (const auto& [key, value] : type.attributes.items) made.as<DictionaryObject>()->set(text(names_.text(key)), value);
    return made;
  }
  return {};
}

Value Interpreter::function_attribute(FunctionObject& function, Symbol name) {
  if (const Value* own = function.attributes.find(name)) return *own;
  const std::string& words = names_.text(name);
  if (words == "__name__" || words == "__qualname__") return text(names_.text(function.code.name));
  if (words == "__module__") return text(function.code.module->name);
  if (words == "__doc__") return Value::none();
  if (words != "__code__") return {};
  // co_varnames: the parameters, then what else is local.
  std::vector<Value> variables;
  for (const Symbol slot : function.code.slots) variables.push_back(text(names_.text(slot)));
  Held<NamespaceObject> made(new NamespaceObject(heap_, "code", true));
  made->attributes[symbol("co_varnames")] = tuple(std::move(variables));
  return Value(made);
}

void Interpreter::set_attribute(const Value& of, Symbol asked, Value value) {
  step();
  Symbol name = asked;
  if (auto* instance = of.as<InstanceObject>()) {
    name = renamed(*instance->type, asked);
    const Value* in_class = instance->type->find(name);
    if (const auto* wrapper = in_class != nullptr ? in_class->as<WrapperObject>() : nullptr;
        wrapper != nullptr && wrapper->kind == WrapperObject::Kind::property) {
      if (!wrapper->setter.is_bound())
        raise("AttributeError", "property '" + names_.text(name) + "' of '" + instance->type->name + "' object has no setter");
      (void)call(wrapper->setter, std::vector<Value>{of, std::move(value)});
      return;
    }
    if (const Value* own = instance->type->renames ? nullptr : instance->type->find(symbol("__setattr__"))) {
      (void)call(bind(*own, of, instance->type.get()), std::vector<Value>{text(names_.text(name)), std::move(value)});
      return;
    }
    if (torch_->set_module_attribute(*instance, name, value)) return;
    instance->attributes.set(name, std::move(value));
    return;
  }
  if (auto* type = of.as<ClassObject>(); type != nullptr && !type->is_native) return type->attributes.set(name, std::move(value));
  if (auto* function = of.as<FunctionObject>()) return function->attributes.set(name, std::move(value));
  if (torch_->is_tensor(of)) return torch_->set_tensor_attribute(of, name, value);
  if (const auto* module = of.as<ModuleObject>()) return set_global(module->module, name, std::move(value));
  if (auto* library = of.as<NamespaceObject>()) {
    const auto known = library->attributes.find(name);
    const bool replaces = known != library->attributes.end() && known->second.as<NativeObject>() != nullptr;
    if (replaces) {  // a library's function that somebody patches: nn.functional.cross_entropy = …
      known->second = std::move(value);
      return;
    }
    // torch.backends.….allow_tf32 = True: switches of the process, which the loop's own lines set.
    unknown("setting '" + library->name + "." + names_.text(name) + "'");
  }
  raise("AttributeError", "'" + type_name(of) + "' object has no attribute '" + names_.text(name) + "'");
}

void Interpreter::erase_attribute(const Value& of, Symbol name) {
  auto* instance = of.as<InstanceObject>();
  if (instance != nullptr && torch_->erase_attribute(*instance, name)) return;
  if (instance == nullptr || !instance->attributes.erase(name)) no_attribute(of, name);
}

std::vector<std::string> Interpreter::names_of(const Value& value) {
  std::vector<std::string> names;
  if (auto* instance = value.as<InstanceObject>()) {
    for (const auto& item : instance->attributes.items) names.push_back(names_.text(item.first));
    for (const Symbol name : torch_->module_names(*instance)) names.push_back(names_.text(name));
    for (const ClassObject* type : instance->type->order)
      for (const auto& item : type->attributes.items) names.push_back(names_.text(item.first));
  } else if (const auto* library = value.as<NamespaceObject>()) {
    for (const auto& item : library->attributes) names.push_back(names_.text(item.first));
  } else if (torch_->is_tensor(value)) {
    names = torch_->tensor_attributes();
  } else {
    names = builtin_methods(value);
  }
  return names;
}

/// Of a library's name what is not modelled; of one's own object what it does not have, as Python says it.
void Interpreter::no_attribute(const Value& of, Symbol name) {
  const std::string nearest = nearest_name(names_.text(name), names_of(of));
  const std::string hint = nearest.empty() ? std::string() : "did you mean '" + nearest + "'?";
  if (const auto* library = of.as<NamespaceObject>()) unknown("'" + library->name + "." + names_.text(name) + "'", hint);
  if (torch_->is_tensor(of)) unknown("the tensor's '" + names_.text(name) + "'", hint);
  raise("AttributeError", "'" + type_name(of) + "' object has no attribute '" + names_.text(name) + "'" +
                              (nearest.empty() ? "" : ". Did you mean: '" + nearest + "'?"));
}

}  // namespace plimsoll::code
