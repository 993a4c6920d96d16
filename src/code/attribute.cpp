// Attributes of values.
#include "code/frame.hpp"
#include "code/library.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

Value Interpreter::attribute(const Value& of, Symbol name) {
  Value found = attribute_or(of, name);
  if (!found.is_bound()) no_attribute(of, name);
  return found;
}

Value Interpreter::attribute_or(const Value& of, Symbol name) {
  step();
  if (auto* instance = of.as<InstanceObject>()) return instance_attribute(*instance, of, name);
  if (torch_->is_tensor(of)) return torch_->tensor_attribute(of, name);
  if (const auto* library = of.as<NamespaceObject>()) {
    if (!library->known) return Value(new NamespaceObject(heap_, library->name + "." + names_.text(name), false));
    const auto known = library->attributes.find(name);
    return known == library->attributes.end() ? Value() : known->second;
  }
  if (auto* type = of.as<ClassObject>()) {
    if (const Value* found = type->find(name)) {
      const auto* wrapper = found->as<WrapperObject>();
      if (wrapper != nullptr && wrapper->kind == WrapperObject::Kind::class_method) return bind(*found, of, type);
      if (wrapper != nullptr && wrapper->kind == WrapperObject::Kind::static_method) return wrapper->inner;
      return *found;
    }
    if (names_.text(name) == "__name__" || names_.text(name) == "__qualname__") return text(type->name.substr(type->name.rfind('.') + 1));
    return {};
  }
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
    return {};
  }
  if (auto* function = of.as<FunctionObject>()) {
    if (const Value* own = function->attributes.find(name)) return *own;
    if (names_.text(name) == "__name__") return text(names_.text(function->code.name));
    return {};
  }
  if (const auto* token = of.as<TokenObject>()) return torch_->token_attribute(*token, name);
  if (const auto* slice = of.as<SliceObject>()) {
    const std::string& wanted = names_.text(name);
    return wanted == "start" ? slice->start : wanted == "stop" ? slice->stop : wanted == "step" ? slice->step : Value();
  }
  return method_of_builtin(*this, of, name);
}

void Interpreter::set_attribute(const Value& of, Symbol name, Value value) {
  step();
  if (auto* instance = of.as<InstanceObject>()) {
    const Value* in_class = instance->type->find(name);
    if (const auto* wrapper = in_class != nullptr ? in_class->as<WrapperObject>() : nullptr;
        wrapper != nullptr && wrapper->kind == WrapperObject::Kind::property) {
      if (!wrapper->setter.is_bound())
        raise("AttributeError", "property '" + names_.text(name) + "' of '" + instance->type->name + "' object has no setter");
      (void)call(wrapper->setter, std::vector<Value>{of, std::move(value)});
      return;
    }
    if (const Value* own = instance->type->find(symbol("__setattr__"))) {
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
  if (const auto* library = of.as<NamespaceObject>()) {
    // torch.backends.….allow_tf32 = True: switches of the process, which the loop's own lines set.
    unknown("setting '" + library->name + "." + names_.text(name) + "'");
  }
  raise("AttributeError", "'" + type_name(of) + "' object has no attribute '" + names_.text(name) + "'");
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
