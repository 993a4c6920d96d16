// Calls: functions of the text, functions of libraries, classes.
#include <algorithm>

#include "code/frame.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' '), last = text.find_last_not_of(' ');
  return first == std::string_view::npos ? std::string() : std::string(text.substr(first, last - first + 1));
}

/// What functions of torch take under NumPy's names, too (python_arg_parser.cpp, numpy_compatibility_arg_names).
std::string_view torch_name_of(std::string_view argument) {
  if (argument == "axis") return "dim";
  if (argument == "keepdims") return "keepdim";
  if (argument == "x" || argument == "x1") return "input";
  return argument == "x2" ? "other" : argument;
}

/// The arguments with one in front.
CallArguments behind(const Value& first, CallArguments arguments) {
  arguments.positional.insert(arguments.positional.begin(), first);
  return arguments;
}

}  // namespace

Value Interpreter::native(std::string name, std::string_view signature, Native run) {
  Held<NativeObject> made(new NativeObject(heap_, std::move(name), std::move(run)));
  bool keyword_only = false;
  while (!signature.empty()) {
    const std::size_t comma = signature.find(',');
    const std::string word = trimmed(signature.substr(0, comma));
    signature = comma == std::string_view::npos ? std::string_view() : signature.substr(comma + 1);
    if (word == "*") {
      keyword_only = true;
    } else if (word.starts_with("**")) {
      made->takes_keywords = true;
    } else if (word.starts_with("*")) {
      made->takes_rest = keyword_only = true;
    } else {
      const bool optional = word.back() == '=';
      made->parameters.push_back({symbol(optional ? word.substr(0, word.size() - 1) : word), !optional, keyword_only});
    }
  }
  return Value(made);
}

Value Interpreter::method(std::string name, std::string_view signature, Native run) {
  Value made = native(std::move(name), signature, std::move(run));
  made.as<NativeObject>()->is_method = true;
  return made;
}

Value Interpreter::call(const Value& function, CallArguments arguments) {
  step();
  if (auto* code = function.as<FunctionObject>()) return call_function(*code, std::move(arguments));
  if (auto* native = function.as<NativeObject>()) {
    const Value held = function;
    return call_native(*native, std::move(arguments));
  }
  if (auto* bound = function.as<BoundMethodObject>()) return call(bound->function, behind(bound->self, std::move(arguments)));
  if (auto* type = function.as<ClassObject>()) return instantiate(*type, std::move(arguments));
  if (auto* wrapper = function.as<WrapperObject>()) {
    if (wrapper->kind == WrapperObject::Kind::partial) {
      CallArguments whole = wrapper->arguments;
      for (Value& each : arguments.positional) whole.positional.push_back(std::move(each));
      for (auto& each : arguments.keywords) {
        std::erase_if(whole.keywords, [&](const auto& known) { return known.first == each.first; });
        whole.keywords.push_back(std::move(each));
      }
      return call(wrapper->inner, std::move(whole));
    }
    if (wrapper->kind == WrapperObject::Kind::no_grad) return torch_->without_grad(*wrapper, std::move(arguments));
    if (wrapper->kind == WrapperObject::Kind::static_method) return call(wrapper->inner, std::move(arguments));
  }
  if (const auto* library = function.as<NamespaceObject>(); library != nullptr && !library->known)
    foreign(*library);
  if (auto* instance = function.as<InstanceObject>())
    if (const Value* known = instance->type->find(symbol("__call__")))
      return call(bind(*known, function, instance->type.get()), std::move(arguments));
  raise("TypeError", "'" + type_name(function) + "' object is not callable");
}

Value Interpreter::call_native(NativeObject& function, CallArguments arguments) {
  Bound bound;
  bound.values.resize(function.parameters.size());
  std::size_t at = 0;
  for (Value& value : arguments.positional) {
    while (at < function.parameters.size() && function.parameters[at].keyword_only) ++at;
    if (at < function.parameters.size())
      bound.values[at++] = std::move(value);
    else if (function.takes_rest)
      bound.rest.push_back(std::move(value));
    else
      raise("TypeError", function.name + "() takes " + std::to_string(function.parameters.size()) + " arguments, and was given more");
  }
  const bool of_torch = function.name.starts_with("torch.") || function.name.starts_with("Tensor.");
  const auto parameter = [&](Symbol name) {
    return std::find_if(function.parameters.begin(), function.parameters.end(), [&](const auto& each) { return each.name == name; });
  };
  for (auto& [name, value] : arguments.keywords) {
    auto found = parameter(name);
    if (found == function.parameters.end() && of_torch) found = parameter(symbol(torch_name_of(names_.text(name))));
    if (found != function.parameters.end()) {
      Value& place = bound.values[static_cast<std::size_t>(found - function.parameters.begin())];
      if (place.is_bound()) raise("TypeError", function.name + "() got multiple values for argument '" + names_.text(name) + "'");
      place = std::move(value);
    } else if (function.takes_keywords) {
      bound.keyword_rest.emplace_back(name, std::move(value));
    } else {
      std::vector<std::string> known;
      for (const auto& each : function.parameters) known.push_back(names_.text(each.name));
      unknown("the argument '" + names_.text(name) + "' of " + function.name, suggest(names_.text(name), known));
    }
  }
  for (std::size_t i = 0; i < bound.values.size(); ++i)
    if (function.parameters[i].required && !bound.values[i].is_bound())
      raise("TypeError", function.name + "() missing required argument '" + names_.text(function.parameters[i].name) + "'");
  return function.run(*this, bound);
}

Value Interpreter::call_function(FunctionObject& function, CallArguments arguments) {
  const Value held(&function);
  if (calls_ >= limits_.calls) refuse("the code calls functions more than " + std::to_string(limits_.calls) + " deep", here());
  ++calls_;
  struct Leave {
    int& calls;
    ~Leave() { --calls; }
  } const leave{calls_};
  Frame frame(*this, function.code);
  bind_arguments(function, arguments, frame);
  frame.class_cell = function.class_cell;
  frame.open_cells(function.cells);
  if (function.code.kind == FunctionCode::Kind::lambda) return evaluate(*function.code.parts.front(), frame);
  if (execute(function.code.body, frame) != Completion::returns) return Value::none();
  return std::move(frame.returned);
}

void Interpreter::bind_arguments(FunctionObject& function, CallArguments& arguments, Frame& frame) {
  using Kind = Parameter::Kind;
  const std::vector<Parameter>& parameters = function.code.parameters;
  const std::string& name = names_.text(function.code.name);
  const auto slot = [&](std::size_t i) -> Value& {  // parameters are the frame's first slots
    const auto& slots = function.code.slots;
    return frame.slots[static_cast<std::size_t>(std::find(slots.begin(), slots.end(), parameters[i].name) - slots.begin())];
  };
  std::vector<Value> rest;
  std::size_t at = 0, most = 0, sequence = parameters.size(), mapping = parameters.size();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].kind <= Kind::usual) most = i + 1;
    if (parameters[i].kind == Kind::sequence) sequence = i;
    if (parameters[i].kind == Kind::mapping) mapping = i;
  }
  for (Value& value : arguments.positional) {
    if (at < most)
      slot(at++) = std::move(value);
    else
      rest.push_back(std::move(value));
  }
  if (sequence < parameters.size())
    slot(sequence) = tuple(std::move(rest));
  else if (!rest.empty())
    raise("TypeError",
          name + "() takes " + std::to_string(most) + " positional arguments but " + std::to_string(most + rest.size()) + " were given");
  Value keywords;
  if (mapping < parameters.size()) keywords = Value(new DictionaryObject(heap_));
  for (auto& [keyword, value] : arguments.keywords) {
    std::size_t found = 0;
    while (found < parameters.size() && (parameters[found].name != keyword || parameters[found].kind == Kind::positional_only ||
                                         parameters[found].kind >= Kind::sequence))
      ++found;
    if (found < parameters.size()) {
      if (slot(found).is_bound()) raise("TypeError", name + "() got multiple values for argument '" + names_.text(keyword) + "'");
      slot(found) = std::move(value);
    } else if (keywords.is_bound()) {
      keywords.as<DictionaryObject>()->set(text(names_.text(keyword)), std::move(value));
    } else {
      std::vector<std::string> known;
      for (const Parameter& each : parameters) known.push_back(names_.text(each.name));
      const std::string nearest = nearest_name(names_.text(keyword), known);
      raise("TypeError", name + "() got an unexpected keyword argument '" + names_.text(keyword) + "'" +
                             (nearest.empty() ? std::string() : ". Did you mean '" + nearest + "'?"));
    }
  }
  if (keywords.is_bound()) slot(mapping) = std::move(keywords);
  arguments = {};
  std::size_t default_at = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const bool has_default = parameters[i].default_value != nullptr;
    if (!slot(i).is_bound() && has_default) slot(i) = function.defaults[default_at];
    if (has_default) ++default_at;
    if (!slot(i).is_bound()) raise("TypeError", name + "() missing required argument: '" + names_.text(parameters[i].name) + "'");
  }
}

}  // namespace plimsoll::code
