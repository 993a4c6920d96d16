// Expressions.
#include <cmath>

#include "code/frame.hpp"
#include "code/iterators.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

Value Interpreter::evaluate(const Expression& e, Frame& frame) {
  using Kind = Expression::Kind;
  const Depth deeper(*this);
  step();
  switch (e.kind) {
    case Kind::constant:
      if (e.text && !e.value.is_bound())
        const_cast<Expression&>(e).value = text(*e.text);  // the one object of this literal, made when it is met
      return e.value;
    case Kind::name:
      return evaluate_name(e, frame);
    case Kind::attribute: {
      const Value of = evaluate(*e.parts[0], frame);
      place_ = e.place;
      return attribute(of, e.name);
    }
    case Kind::subscript: {
      Value of = evaluate(*e.parts[0], frame);
      const Value key = evaluate(*e.parts[1], frame);
      place_ = e.place;
      Value found = item(of, key);
      of = Value();  // BINARY_SUBSCR drops the container first
      return found;
    }
    case Kind::call:
      return evaluate_call(e, frame);
    case Kind::unary: {
      const Value value = evaluate(*e.parts[0], frame);
      place_ = e.place;
      return e.op == Operator::logical_not ? Value::boolean(!truth(value)) : unary(e.op, value);
    }
    case Kind::binary: {
      Value left = evaluate(*e.parts[0], frame);
      const Value right = evaluate(*e.parts[1], frame);
      place_ = e.place;
      Value result = binary(e.op, left, right);
      left = Value();  // BINARY_OP drops the left operand first
      return result;
    }
    case Kind::comparison:
      return evaluate_comparison(e, frame);
    case Kind::logical:
      for (std::size_t i = 0; i + 1 < e.parts.size(); ++i) {
        Value value = evaluate(*e.parts[i], frame);
        if (truth(value) == (e.op == Operator::logical_or)) return value;
      }
      return evaluate(*e.parts.back(), frame);
    case Kind::conditional:
      return evaluate(truth(evaluate(*e.parts[0], frame)) ? *e.parts[1] : *e.parts[2], frame);
    case Kind::lambda:
      return make_function(*e.function, frame);
    case Kind::tuple:
      return tuple(evaluate_all(e.parts, frame));
    case Kind::list:
      return list(evaluate_all(e.parts, frame));
    case Kind::set: {
      Value made(new DictionaryObject(heap_, true));
      for (const Value& each : evaluate_all(e.parts, frame)) made.as<DictionaryObject>()->set(each, Value::none());
      return made;
    }
    case Kind::dictionary:
      return evaluate_dictionary(e, frame);
    case Kind::slice:
      return evaluate_slice(e, frame);
    case Kind::starred:
      unknown("a starred expression that stands alone");
    case Kind::comprehension:
      return evaluate_comprehension(e, frame);
    case Kind::formatted:
    case Kind::replacement:
      return evaluate_formatted(e, frame);
    case Kind::assignment: {
      Value value = evaluate(*e.parts[0], frame);
      assign(e, value, frame);
      return value;
    }
    case Kind::suspension:
      place_ = e.place;
      unknown("a generator (yield) or coroutine (await), which runs piece by piece,");
  }
  return {};
}

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& parts, Frame& frame) {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (const ExpressionPtr& part : parts) {
    if (part->kind == Expression::Kind::starred) {
      const Value walked = evaluate(*part->parts[0], frame);
      for (Value& each : all_of(walked)) values.push_back(std::move(each));
    } else {
      values.push_back(evaluate(*part, frame));
    }
  }
  return values;
}

Value Interpreter::evaluate_name(const Expression& e, Frame& frame) {
  if (e.storage != Storage::named) {
    const Value& value = frame.variable(e);
    place_ = e.place;
    if (!value.is_bound())
      raise("UnboundLocalError", "cannot access local variable '" + names_.text(e.name) + "' where it is not associated with a value");
    return value;
  }
  if (frame.names != nullptr)
    if (const Value* own = frame.names->find(e.name)) return *own;
  TextModule& module = *frame.code.module;
  if (const Value* global = global_of(module, e.name)) return *global;
  const auto builtin = builtins_.find(e.name);
  if (builtin != builtins_.end()) return builtin->second;
  place_ = e.place;
  std::vector<std::string> known;
  for (const auto* names : {&module.globals, &builtins_})
    for (const auto& [name, value] : *names) known.push_back(names_.text(name));
  const std::string nearest = nearest_name(names_.text(e.name), known);
  unknown("the name '" + names_.text(e.name) + "'", nearest.empty() ? std::string() : "did you mean '" + nearest + "'?");
}

CallArguments Interpreter::evaluate_arguments(const std::vector<CallArgument>& arguments, Frame& frame) {
  CallArguments made;
  made.positional.reserve(arguments.size());
  for (const CallArgument& argument : arguments) {
    switch (argument.kind) {
      case CallArgument::Kind::positional:
        made.positional.push_back(evaluate(*argument.value, frame));
        break;
      case CallArgument::Kind::keyword:
        made.keywords.emplace_back(argument.name, evaluate(*argument.value, frame));
        break;
      case CallArgument::Kind::sequence: {
        const Value walked = evaluate(*argument.value, frame);
        for (Value& each : all_of(walked)) made.positional.push_back(std::move(each));
        break;
      }
      case CallArgument::Kind::mapping: {
        const Value mapping = evaluate(*argument.value, frame);
        const auto* dictionary = mapping.as<DictionaryObject>();
        if (dictionary == nullptr && mapping.as<InstanceObject>() != nullptr && attribute_or(mapping, symbol("keys")).is_bound()) {
          const Value keys = call(attribute(mapping, symbol("keys")), std::vector<Value>{});
          for (const Value& key : all_of(keys)) made.keywords.emplace_back(symbol(words(key, "keywords")), item(mapping, key));
          break;
        }
        if (dictionary == nullptr) raise("TypeError", "argument after ** must be a mapping, not " + type_name(mapping));
        for (const DictionaryObject::Entry& entry : dictionary->entries())
          if (entry.key.is_bound()) made.keywords.emplace_back(symbol(words(entry.key, "keywords")), entry.value);
        break;
      }
    }
  }
  return made;
}

Value Interpreter::evaluate_call(const Expression& e, Frame& frame) {
  const Value function = evaluate(*e.parts[0], frame);
  CallArguments arguments = evaluate_arguments(e.arguments, frame);
  // f(*args) holds the tuple it made until it returns (CALL_FUNCTION_EX); other calls of Python functions give their arguments away.
  bool holds = false;
  for (const CallArgument& argument : e.arguments) holds = holds || argument.kind >= CallArgument::Kind::sequence;
  const CallArguments held = holds ? arguments : CallArguments{};
  place_ = e.place;
  return call(function, std::move(arguments));
}

Value Interpreter::evaluate_comparison(const Expression& e, Frame& frame) {
  Value left = evaluate(*e.parts[0], frame);
  for (std::size_t i = 0; i < e.operators.size(); ++i) {
    Value right = evaluate(*e.parts[i + 1], frame);
    place_ = e.place;
    Value result = compared(e.operators[i], left, right);
    if (i + 1 == e.operators.size()) return result;
    if (!truth(result)) return result;
    left = std::move(right);
  }
  return {};
}

Value Interpreter::evaluate_formatted(const Expression& e, Frame& frame) {
  if (e.kind == Expression::Kind::replacement) {
    const Value value = evaluate(*e.parts[0], frame);
    const std::string format = e.parts.size() > 1 ? words(evaluate(*e.parts[1], frame), "formats") : std::string();
    if (e.name == symbol("r")) return text(formatted(text(written(value)), format));
    return text(formatted(value, format));
  }
  std::string joined;
  for (const ExpressionPtr& part : e.parts) joined += words(evaluate(*part, frame), "formatted texts");
  return text(std::move(joined));
}

Value Interpreter::evaluate_dictionary(const Expression& e, Frame& frame) {
  Value made(new DictionaryObject(heap_));
  auto& dictionary = *made.as<DictionaryObject>();
  for (std::size_t i = 0; i < e.parts.size(); i += 2) {
    if (!e.parts[i]) {
      const Value other = evaluate(*e.parts[i + 1], frame);
      const auto* from = other.as<DictionaryObject>();
      if (from == nullptr) raise("TypeError", "'" + type_name(other) + "' object is not a mapping");
      for (const DictionaryObject::Entry& entry : from->entries())
        if (entry.key.is_bound()) dictionary.set(entry.key, entry.value);
      continue;
    }
    const Value key = evaluate(*e.parts[i], frame);
    Value value = evaluate(*e.parts[i + 1], frame);
    dictionary.set(key, std::move(value));
  }
  return made;
}

Value Interpreter::evaluate_slice(const Expression& e, Frame& frame) {
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i) bounds[i] = e.parts[i] ? evaluate(*e.parts[i], frame) : Value::none();
  return Value(new SliceObject(heap_, bounds[0], bounds[1], bounds[2]));
}

Value Interpreter::make_function(const FunctionCode& code, Frame& frame) {
  Held<FunctionObject> made(new FunctionObject(heap_, code));
  for (const ExpressionPtr& each : code.defaults) made->defaults.push_back(evaluate(*each, frame));
  made->cells = frame.cells_for(code);
  made->class_cell = frame.class_cell;
  return Value(made);
}

/// A comprehension is a function of its own (CPython before 3.12): it holds what it walks until it is done.
Value Interpreter::evaluate_comprehension(const Expression& e, Frame& frame) {
  const FunctionCode& code = *e.function;
  Held<IteratorObject> walked = iterate(evaluate(*code.clauses.front().source, frame));
  Held<ComprehensionIterator> values(new ComprehensionIterator(*this, code, std::move(walked), frame.cells_for(code), frame.class_cell));
  if (code.result == FunctionCode::Result::generator) return Value(values);
  Value made =
      code.result == FunctionCode::Result::list ? list({}) : Value(new DictionaryObject(heap_, code.result == FunctionCode::Result::set));
  while (true) {
    Value value = values->next(*this);
    if (!value.is_bound()) return made;
    if (code.result == FunctionCode::Result::list)
      made.as<SequenceObject>()->append(std::move(value));
    else if (code.result == FunctionCode::Result::set)
      made.as<DictionaryObject>()->set(value, Value::none());
    else
      made.as<DictionaryObject>()->set(value.as<SequenceObject>()->items[0], value.as<SequenceObject>()->items[1]);
  }
}

bool Interpreter::truth(const Value& value) {
  switch (value.tag()) {
    case Value::Tag::none:
      return false;
    case Value::Tag::boolean:
    case Value::Tag::integer:
      return value.as_integer() != 0;
    case Value::Tag::real:
      return value.as_real() != 0;
    case Value::Tag::object:
      break;
    default:
      return true;
  }
  if (const auto* words = value.as<TextObject>()) return !words->text.empty();
  if (const auto* sequence = value.as<SequenceObject>()) return !sequence->items.empty();
  if (const auto* dictionary = value.as<DictionaryObject>()) return dictionary->size() > 0;
  if (const auto* range = value.as<RangeObject>()) return range->size() > 0;
  if (torch_->is_tensor(value)) {
    if (const auto known = torch_->known_number(value, true)) return truth(*known);
    unknown("a branch on what a tensor holds", "what the device computes is not followed");
  }
  if (auto* instance = value.as<InstanceObject>()) {
    for (const char* name : {"__bool__", "__len__"}) {
      if (instance->type->find(symbol(name)) == nullptr) continue;
      return truth(call(attribute(value, symbol(name)), std::vector<Value>{}));
    }
  }
  return true;
}

}  // namespace plimsoll::code
