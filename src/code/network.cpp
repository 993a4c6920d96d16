#include "code/network.hpp"

#include <algorithm>
#include <unordered_map>

#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

using program::Batch;
using program::Tape;
using program::Tensor;

namespace {

bool is_floating(DType type) { return type == DType::fp32 || type == DType::fp64 || type == DType::bf16 || type == DType::fp16; }

/// Parameters of a function of the text, itself aside; null where it is none.
const std::vector<Parameter>* parameters_of(const Value* function) {
  const auto* written = function != nullptr ? function->as<FunctionObject>() : nullptr;
  return written != nullptr ? &written->code.parameters : nullptr;
}

bool takes(const std::vector<Parameter>& parameters, Symbol name) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](const Parameter& each) { return each.name == name || each.kind == Parameter::Kind::mapping; });
}

}  // namespace

BuiltModule::BuiltModule(const CodeModel& code) : interpreter_(code.text, code.where) {
  interpreter_.run();
  module_ = made(code);
}

/// The class called with the arguments, or with the one configuration that they make.
Value BuiltModule::made(const CodeModel& code) {
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
Value BuiltModule::configuration(const std::vector<std::pair<std::string, Value>>& arguments, const std::string& class_name) {
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

std::unique_ptr<program::Module> BuiltModule::tree(DType type, Tape& tape) {
  Torch& torch = interpreter_.torch();
  auto root = std::make_unique<program::Module>();
  const auto typed = [type](DType own) { return is_floating(own) && type != DType::fp32 ? type : own; };
  for (const auto& [path, value] : torch.all_modules(module_)) {
    program::Module* module = root.get();
    for (std::size_t start = 0; start < path.size();) {
      const std::size_t dot = std::min(path.find('.', start), path.size());
      module = &module->child(std::string_view(path).substr(start, dot - start), true);
      start = dot + 1;
    }
    const std::string& name = value.as<InstanceObject>()->type->name;
    module->type = name.substr(name.rfind('.') + 1);
    ModuleState& state = torch.state(value);
    for (const auto& [parameter_name, parameter] : state.parameters) {
      if (parameter.is_none()) continue;
      const auto& slot = parameter.as<TensorObject>()->parameter;
      if (slot->name.empty()) {
        slot->name = interpreter_.names().text(parameter_name);
        slot->type = typed(slot->type);
      }
      module->parameters.push_back(slot);
    }
    for (const ModuleState::Buffer& buffer : state.buffers) {
      if (buffer.value.is_none()) continue;
      const Tensor& tensor = torch.tensor(buffer.value);
      module->buffers.push_back(
          {.name = interpreter_.names().text(buffer.name), .sizes = tensor.sizes(), .type = typed(tensor.dtype()), .tensor = {}});
    }
  }
  for (program::Module* module : root->all_modules()) module->label = tape.intern(module->path);
  return root;
}

void BuiltModule::bind(program::Module& root, Tape& tape) {
  Torch& torch = interpreter_.torch();
  torch.put_on(tape);
  for (const auto& [path, value] : torch.all_modules(module_)) {
    program::Module* const module = root.find(path);
    if (module == nullptr) throw Error(ErrorCode::internal, "the tree has no module '" + path + "'");
    ModuleState& state = torch.state(value);
    std::size_t next = 0;
    for (const auto& item : state.parameters)
      if (!item.second.is_none()) item.second.as<TensorObject>()->parameter = module->parameters.at(next++);
    next = 0;
    for (ModuleState::Buffer& buffer : state.buffers)
      if (!buffer.value.is_none()) buffer.value = torch.wrap(module->buffers.at(next++).tensor);
    state.module = module;
  }
}

namespace {

class CodeNetwork final : public program::Network {
 public:
  CodeNetwork(const CodeModel& code, const std::vector<Input>& inputs, program::Module& root, Tape& tape)
      : inputs_(inputs), root_(root), tape_(tape), built_(code) {}

  Tensor loss(const Batch& batch) override {
    if (!bound_) built_.bind(root_, tape_);
    bound_ = true;
    Interpreter& interpreter = built_.interpreter();
    interpreter.start_counting();
    CallArguments arguments;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Tensor& tensor = i == 0 ? batch.input_ids : i == 1 ? batch.labels : batch.conditions[i - 2];
      arguments.keywords.emplace_back(interpreter.symbol(inputs_[i].name), interpreter.torch().wrap(tensor));
    }
    const Value output = interpreter.call_from_outside(built_.module(), std::move(arguments));
    const Tensor found = loss_in(output);
    if (!found) no_loss(output);
    if (!found.requires_grad()) refuse("what forward returns as its loss takes no gradient: nothing would be trained", "--code");
    return found;
  }

 private:
  /// The loss: a number, one in a tuple or list, `loss` of a dictionary or an object.
  Tensor loss_in(const Value& output) {
    const auto number = [](const Value& value) {
      const auto* tensor = value.as<TensorObject>();
      return tensor != nullptr && tensor->current().rank() == 0 ? tensor->current() : Tensor();
    };
    if (const Tensor own = number(output)) return own;
    if (const auto* sequence = output.as<SequenceObject>()) {
      Tensor found;
      for (const Value& each : sequence->items) {
        const Tensor one = number(each);
        if (one && found)
          fail("forward returns several numbers: which one is the loss is not told", "--code", "return one, or a dict with 'loss'");
        if (one) found = one;
      }
      return found;
    }
    if (auto* dictionary = output.as<DictionaryObject>()) {
      const Value* named = dictionary->find(built_.interpreter().text("loss"));
      return named != nullptr ? number(*named) : Tensor();
    }
    if (output.as<InstanceObject>() != nullptr)
      return number(built_.interpreter().attribute_or(output, built_.interpreter().symbol("loss")));
    return {};
  }

  [[noreturn]] void no_loss(const Value& output) {
    fail("forward returns no loss (a tensor of one number), but a " + built_.interpreter().type_name(output), "--code",
         "give it its targets (--input targets:int64[B,S]), or return the loss");
  }

  const std::vector<Input>& inputs_;
  program::Module& root_;
  Tape& tape_;
  BuiltModule built_;
  bool bound_ = false;
};

class CodeSource final : public program::NetworkSource {
 public:
  CodeSource(CodeModel code, std::vector<Input> inputs) : code_(std::move(code)), inputs_(std::move(inputs)) {}

  std::unique_ptr<program::Module> modules(DType type, Tape& tape) const override { return BuiltModule(code_).tree(type, tape); }

  std::unique_ptr<program::Network> network(program::Module& root, Tape& tape) const override {
    return std::make_unique<CodeNetwork>(code_, inputs_, root, tape);
  }

  Batch batch(const Strategy& strategy, Tape& tape) const override {
    Batch made;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      program::Dims sizes;
      for (const std::int64_t size : inputs_[i].sizes)
        sizes.push_back(size == Input::kBatch ? strategy.micro_batch : size == Input::kSequence ? strategy.seq_len : size);
      Tensor tensor = tape.empty(sizes, inputs_[i].type, Category::input);
      if (i == 0)
        made.input_ids = std::move(tensor);
      else if (i == 1)
        made.labels = std::move(tensor);
      else
        made.conditions.push_back(std::move(tensor));
    }
    return made;
  }

 private:
  CodeModel code_;
  std::vector<Input> inputs_;
};

}  // namespace

std::shared_ptr<const ModelSource> make_source(const CodeModel& code, std::vector<Input> inputs) {
  return std::make_shared<CodeSource>(code, std::move(inputs));
}

}  // namespace plimsoll::code
