// What the classes of torch.nn do in __init__ and forward: parameters and attributes kept, torch.nn.functional called.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "code/torch/arguments.hpp"

namespace plimsoll::code {

/// nn.Module.__init__ of the instance that is the first argument.
inline ModuleState& start(Bound& a) {
  auto* instance = a[0].as<InstanceObject>();
  if (!instance->module) instance->module = std::make_unique<ModuleState>();
  return *instance->module;
}

/// self.NAME = value, and what it is.
inline void keep(Interpreter& i, const Value& self, const char* name, Value value) {
  self.as<InstanceObject>()->attributes.set(i.symbol(name), std::move(value));
}
inline Value kept(Interpreter& i, const Value& self, const char* name) { return i.attribute(self, i.symbol(name)); }

/// torch.empty(sizes, dtype=type) on the host; `otherwise` where no type is said. Negative sizes raise as torch does.
inline program::Tensor host_tensor(Interpreter& i, std::vector<std::int64_t> sizes, const Value& type, DType otherwise) {
  for (const std::int64_t size : sizes)
    if (size < 0) torch_of(i).wrong_shape("Trying to create tensor with negative dimension " + std::to_string(size));
  return torch_of(i).host().empty(torch_of(i).checked(std::move(sizes)),
                                  type.is_bound() && !type.is_none() ? torch_of(i).type_of(type) : otherwise);
}

/// register_parameter(NAME, …): None where it does not exist.
inline void add_parameter(Interpreter& i, ModuleState& state, const char* name, bool exists, std::vector<std::int64_t> sizes, const Value& type) {
  state.parameters.emplace_back(i.symbol(name),
                                exists ? torch_of(i).make_parameter(host_tensor(i, std::move(sizes), type, torch_of(i).default_type)) : Value::none());
}

/// torch.nn.functional.NAME(…).
inline Value functional(Interpreter& i, const char* name, std::vector<Value> arguments) {
  return i.call(i.library("torch.nn.functional").attributes.at(i.symbol(name)), std::move(arguments));
}

}  // namespace plimsoll::code
