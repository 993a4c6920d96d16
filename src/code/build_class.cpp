// A class of one text, made with what a command line says.
#include <algorithm>

#include "code/network.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

/// Parameters of a function of the text, itself aside; null where it is none.
const std::vector<Parameter>* parameters_of(const Value* function) {
  const auto* written = function != nullptr ? function->as<FunctionObject>() : nullptr;
  return written != nullptr ? &written->code.parameters : nullptr;
}

bool takes(const std::vector<Parameter>& parameters, Symbol name) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](const Parameter& each) { return each.name == name || each.kind == Parameter::Kind::mapping; });
}

class Maker {
 public:
  explicit Maker(Interpreter& interpreter) : interpreter_(interpreter) {}

  /// The class called with the arguments, or with the one configuration that they make.
  Value made(const CodeModel& code) {
    const Value found = interpreter_.global(code.class_name);
    auto* type = found.as<ClassObject>();
    if (type == nullptr || !type->is_module) fail("'" + code.class_name + "' is no class derived from nn.Module", code.where);
    std::vector<std::pair<std::string, Value>> arguments;
    for (const auto& [name, text] : code.arguments) arguments.emplace_back(name, interpreter_.literal(text, "--args " + name));
    const std::vector<Parameter>* parameters = parameters_of(type->find(interpreter_.symbol("__init__")));
    const bool direct = parameters == nullptr || std::all_of(arguments.begin(), arguments.end(), [&](const auto& argument) {
                          return takes(*parameters, interpreter_.symbol(argument.first));
                        });
    std::size_t required = 0;
    if (parameters != nullptr)
      for (const Parameter& each : *parameters)
        required += each.default_value == nullptr && each.kind <= Parameter::Kind::keyword_only ? 1 : 0;
    const bool configured = required == 2 && (!direct || arguments.empty());  // self and a configuration
    CallArguments call;
    if (configured)
      call.positional.push_back(configuration(arguments, code.class_name));
    else
      for (auto& [name, value] : arguments) call.keywords.emplace_back(interpreter_.symbol(name), std::move(value));
    return interpreter_.call_from_outside(found, std::move(call));
  }

  /// The configuration: of the text's dataclass that has all these fields (the class's name and "Config" first), else attributes alone.
  Value configuration(const std::vector<std::pair<std::string, Value>>& arguments, const std::string& class_name) {
    const auto has_all = [&](const ClassObject& type) {
      return std::all_of(arguments.begin(), arguments.end(), [&](const auto& argument) {
        return std::any_of(type.fields.begin(), type.fields.end(),
                           [&](const auto& field) { return interpreter_.names().text(field.name) == argument.first; });
      });
    };
    Value best;
    int fitting = 0;
    for (const auto& [name, value] : interpreter_.globals()) {
      const auto* type = value.as<ClassObject>();
      if (type == nullptr || !type->is_dataclass) continue;
      const bool own = type->name == class_name + "Config";
      if (!own && !has_all(*type)) continue;
      ++fitting;
      if (!best.is_bound() || own) best = value;
      if (own) {
        fitting = 1;
        break;
      }
    }
    if (fitting > 1) fail("several dataclasses have these fields: which one configures " + class_name + " is not told", "--args");
    CallArguments call;
    for (const auto& [name, value] : arguments) call.keywords.emplace_back(interpreter_.symbol(name), value);
    if (best.is_bound()) return interpreter_.call_from_outside(best, std::move(call));
    const Held<ClassObject> plain = interpreter_.native_class("Configuration", {interpreter_.builtin_class("object")});
    Held<InstanceObject> made(new InstanceObject(interpreter_.heap(), plain));
    for (auto& [name, value] : call.keywords) made->attributes.set(name, std::move(value));
    return Value(made);
  }

 private:
  Interpreter& interpreter_;
};

}  // namespace

std::unique_ptr<BuiltModule> build_class(const CodeModel& code) {
  auto interpreter = std::make_unique<Interpreter>(code.text, code.where);
  if (!code.folder.empty()) interpreter->look_in(code.folder);
  interpreter->run();
  Value module = Maker(*interpreter).made(code);
  return std::make_unique<BuiltModule>(std::move(interpreter), std::move(module));
}

}  // namespace plimsoll::code
