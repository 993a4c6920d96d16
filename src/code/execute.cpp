// Statements.
#include <algorithm>

#include "code/frame.hpp"
#include "code/iterators.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

Interpreter::Completion Interpreter::execute(const Suite& suite, Frame& frame) {
  for (const StatementPtr& statement : suite) {
    const Completion completion = execute(*statement, frame);
    if (completion != Completion::normal) return completion;
  }
  return Completion::normal;
}

Interpreter::Completion Interpreter::execute(const Statement& s, Frame& frame) {
  using Kind = Statement::Kind;
  step();
  place_ = s.place;
  switch (s.kind) {
    case Kind::expression:
      (void)evaluate(*s.value, frame);
      return Completion::normal;
    case Kind::assign:
    case Kind::annotated:
      execute_assignment(s, frame);
      return Completion::normal;
    case Kind::augmented:
      execute_augmented(s, frame);
      return Completion::normal;
    case Kind::returns:
      frame.returned = s.value ? evaluate(*s.value, frame) : Value::none();
      return Completion::returns;
    case Kind::raise:
      execute_raise(s, frame);
    case Kind::assertion:
      if (truth(evaluate(*s.value, frame))) return Completion::normal;
      {
        const std::string message = s.targets.empty() ? std::string() : shown(evaluate(*s.targets.front(), frame));
        place_ = s.place;
        raise("AssertionError", message);
      }
    case Kind::deletion:
      for (const ExpressionPtr& target : s.targets) erase(*target, frame);
      return Completion::normal;
    case Kind::pass:
    case Kind::scope:
      return Completion::normal;
    case Kind::breaks:
      return Completion::breaks;
    case Kind::continues:
      return Completion::continues;
    case Kind::condition:
      for (const Branch& branch : s.branches)
        if (!branch.condition || truth(evaluate(*branch.condition, frame))) return execute(branch.body, frame);
      return Completion::normal;
    case Kind::loop:
      while (truth(evaluate(*s.value, frame))) {
        const Completion completion = execute(s.body, frame);
        if (completion == Completion::breaks) return Completion::normal;
        if (completion == Completion::returns) return completion;
        step();
      }
      return execute(s.orelse, frame);
    case Kind::each:
      return execute_each(s, frame);
    case Kind::with:
      return execute_with(s, frame);
    case Kind::attempt:
      return execute_attempt(s, frame);
    case Kind::function:
    case Kind::class_type: {
      std::vector<Value> decorators = evaluate_all(s.decorators, frame);
      Value made = s.kind == Kind::function ? make_function(*s.function, frame) : execute_class(s, frame);
      if (frame.code.kind == FunctionCode::Kind::module && frame.code.module->lazy)
        if (const auto native = replaced_.find(s.targets.front()->name); native != replaced_.end()) made = native->second;
      for (; !decorators.empty(); decorators.pop_back()) made = call(decorators.back(), std::vector<Value>{std::move(made)});
      assign(*s.targets.front(), std::move(made), frame);
      return Completion::normal;
    }
    case Kind::import:
      execute_import(s, frame);
      return Completion::normal;
  }
  return Completion::normal;
}

namespace {

/// ClassVar, ClassVar[…], or either with its module: no field of a dataclass.
bool is_class_variable(const Expression& annotation, const Names& names) {
  const Expression& type = annotation.kind == Expression::Kind::subscript ? *annotation.parts[0] : annotation;
  return (type.kind == Expression::Kind::name || type.kind == Expression::Kind::attribute) && names.text(type.name) == "ClassVar";
}

}  // namespace

void Interpreter::execute_assignment(const Statement& s, Frame& frame) {
  if (s.kind == Statement::Kind::annotated && frame.names != nullptr && s.targets.front()->kind == Expression::Kind::name &&
      !is_class_variable(*s.annotation, names_)) {
    // A field, if the class becomes a dataclass: its name is kept with the class, and its value where it has one.
    Value* annotations = frame.names->find(symbol("__annotations__"));
    if (annotations == nullptr) {
      frame.names->set(symbol("__annotations__"), list({}));
      annotations = frame.names->find(symbol("__annotations__"));
    }
    annotations->as<SequenceObject>()->append(text(names_.text(s.targets.front()->name)));
  }
  // config: LlamaConfig in a class of transformers says which configuration it takes.
  const bool tells_config = !s.value && frame.names != nullptr && frame.code.module->lazy && s.annotation->kind == Expression::Kind::name &&
                            s.targets.front()->kind == Expression::Kind::name && names_.text(s.targets.front()->name) == "config";
  if (tells_config) frame.names->set(symbol("_config_annotation"), evaluate(*s.annotation, frame));
  if (!s.value) return;
  Value value = evaluate(*s.value, frame);
  for (std::size_t i = 0; i + 1 < s.targets.size(); ++i) assign(*s.targets[i], value, frame);
  assign(*s.targets.back(), std::move(value), frame);
}

void Interpreter::execute_augmented(const Statement& s, Frame& frame) {
  const Expression& target = *s.targets.front();
  const auto updated = [&](Value old) {
    const Value other = evaluate(*s.value, frame);
    place_ = s.place;
    if (torch_->is_tensor(old)) return torch_->in_place(s.op, old, other);
    auto* sequence = old.as<SequenceObject>();
    if (s.op == Operator::add && sequence != nullptr && sequence->is_list()) {
      for (Value& each : all_of(other)) sequence->append(std::move(each));
      return old;
    }
    return binary(s.op, old, other);
  };
  switch (target.kind) {
    case Expression::Kind::name:
      assign(target, updated(evaluate_name(target, frame)), frame);
      return;
    case Expression::Kind::attribute: {
      const Value of = evaluate(*target.parts[0], frame);
      set_attribute(of, target.name, updated(attribute(of, target.name)));
      return;
    }
    case Expression::Kind::subscript: {
      const Value of = evaluate(*target.parts[0], frame), key = evaluate(*target.parts[1], frame);
      set_item(of, key, updated(item(of, key)));
      return;
    }
    default:
      fail("an augmented assignment has one target", place_of(running_->where, s.place));
  }
}

Interpreter::Completion Interpreter::execute_each(const Statement& s, Frame& frame) {
  Held<IteratorObject> walked;
  {
    const Value source = evaluate(*s.value, frame);
    place_ = s.place;
    walked = iterate(source);
  }
  while (true) {
    Value value = walked->next(*this);
    if (!value.is_bound()) break;
    assign(*s.targets.front(), std::move(value), frame);
    const Completion completion = execute(s.body, frame);
    if (completion == Completion::breaks) return Completion::normal;
    if (completion == Completion::returns) return completion;
  }
  walked = {};
  return execute(s.orelse, frame);
}

Interpreter::Completion Interpreter::execute_with(const Statement& s, Frame& frame) {
  std::vector<Value> entered;
  const auto leave = [&] {
    for (; !entered.empty(); entered.pop_back()) {
      const Value exit = attribute(entered.back(), symbol("__exit__"));
      (void)call(exit, {Value::none(), Value::none(), Value::none()});
    }
  };
  try {
    for (std::size_t i = 0; i < s.contexts.size(); ++i) {
      Value context = evaluate(*s.contexts[i], frame);
      place_ = s.place;
      Value result = call(attribute(context, symbol("__enter__")), std::vector<Value>{});
      entered.push_back(std::move(context));
      if (s.targets[i]) assign(*s.targets[i], std::move(result), frame);
    }
    const Completion completion = execute(s.body, frame);
    leave();
    return completion;
  } catch (...) {  // an exception of Python's, or the end of a recomputation
    leave();
    throw;
  }
}

namespace {

/// Whether a handler takes what an import of something that is not there raises.
bool guards_imports(const Statement& s, const Names& names) {
  const auto takes_it = [&](const Expression& type) {
    if (type.kind != Expression::Kind::name) return false;
    const std::string& name = names.text(type.name);
    return name == "ImportError" || name == "ModuleNotFoundError" || name == "Exception";
  };
  return std::any_of(s.handlers.begin(), s.handlers.end(), [&](const Handler& each) {
    if (!each.types || takes_it(*each.types)) return true;
    return each.types->kind == Expression::Kind::tuple &&
           std::any_of(each.types->parts.begin(), each.types->parts.end(), [&](const ExpressionPtr& part) { return takes_it(*part); });
  });
}

}  // namespace

Interpreter::Completion Interpreter::execute_attempt(const Statement& s, Frame& frame) {
  Completion completion = Completion::normal;
  const bool guards = guards_imports(s, names_);
  struct Guard {
    int& guards;
    const int before;
    ~Guard() { guards = before; }
  };
  try {
    try {
      const Guard guard{import_guards_, import_guards_};
      if (guards) ++import_guards_;
      completion = execute(s.body, frame);
      if (completion == Completion::normal) completion = execute(s.orelse, frame);
    } catch (const Raised& raised) {
      running_ = frame.code.module;
      const Handler* handler = nullptr;
      for (const Handler& each : s.handlers)
        if (handler == nullptr && (!each.types || is_instance(raised.exception, evaluate(*each.types, frame)))) handler = &each;
      if (handler == nullptr) throw;
      handled_.push_back(raised.exception);
      if (handler->name) assign(*handler->name, raised.exception, frame);
      completion = execute(handler->body, frame);
      handled_.pop_back();
      if (handler->name && handler->name->kind == Expression::Kind::name) assign(*handler->name, Value(), frame);
    }
  } catch (const Raised&) {
    running_ = frame.code.module;
    const Completion last = execute(s.final_body, frame);
    if (last != Completion::normal) return last;
    throw;
  }
  const Completion last = execute(s.final_body, frame);
  return last == Completion::normal ? completion : last;
}

void Interpreter::execute_raise(const Statement& s, Frame& frame) {
  if (!s.value) {
    if (handled_.empty()) raise("RuntimeError", "No active exception to reraise");
    throw Raised{handled_.back(), s.place, running_};
  }
  Value exception = evaluate(*s.value, frame);
  place_ = s.place;
  if (auto* type = exception.as<ClassObject>(); type != nullptr && type->is_exception) exception = instantiate(*type, {});
  const auto* instance = exception.as<InstanceObject>();
  if (instance == nullptr || !instance->type->is_exception) raise("TypeError", "exceptions must derive from BaseException");
  throw Raised{std::move(exception), s.place, running_};
}

Value Interpreter::execute_class(const Statement& s, Frame& frame) {
  CallArguments arguments = evaluate_arguments(s.bases, frame);
  Attributes attributes;
  Held<CellObject> cell(new CellObject(heap_));
  {
    Frame body(*this, *s.function);
    body.names = &attributes;
    body.class_cell = cell;
    body.open_cells(frame.cells_for(*s.function));
    (void)execute(s.function->body, body);
  }
  place_ = s.place;
  Value made = make_class(names_.text(s.function->name), std::move(arguments.positional), std::move(attributes), arguments);
  cell->value = made;
  return made;
}

void Interpreter::assign(const Expression& target, Value value, Frame& frame) {
  switch (target.kind) {
    case Expression::Kind::name:
    case Expression::Kind::assignment:
      if (target.storage != Storage::named)
        frame.variable(target) = std::move(value);
      else if (frame.names != nullptr)
        frame.names->set(target.name, std::move(value));
      else if (frame.code.kind == FunctionCode::Kind::module)
        frame.code.module->globals[target.name] = std::move(value);
      else
        set_global_of_its_own(*frame.code.module, target.name, std::move(value));
      return;
    case Expression::Kind::attribute: {
      const Value of = evaluate(*target.parts[0], frame);
      place_ = target.place;
      return set_attribute(of, target.name, std::move(value));
    }
    case Expression::Kind::subscript: {
      const Value of = evaluate(*target.parts[0], frame), key = evaluate(*target.parts[1], frame);
      place_ = target.place;
      return set_item(of, key, std::move(value));
    }
    default:
      return unpack(target, std::move(value), frame);
  }
}

/// UNPACK_SEQUENCE: the parts stand on the stack, what held them is gone, then names are bound one by one.
void Interpreter::unpack(const Expression& target, Value value, Frame& frame) {
  std::vector<Value> parts = all_of(value);
  value = Value();
  std::size_t starred = target.parts.size();
  for (std::size_t i = 0; i < target.parts.size(); ++i)
    if (target.parts[i]->kind == Expression::Kind::starred) starred = i;
  const std::size_t fixed = target.parts.size() - (starred < target.parts.size() ? 1 : 0);
  if (parts.size() < fixed)
    raise("ValueError", "not enough values to unpack (expected " + std::to_string(fixed) + ", got " + std::to_string(parts.size()) + ")");
  if (starred == target.parts.size() && parts.size() > fixed)
    raise("ValueError", "too many values to unpack (expected " + std::to_string(fixed) + ")");
  const std::size_t more = parts.size() - fixed;
  std::size_t next = 0;
  for (std::size_t i = 0; i < target.parts.size(); ++i) {
    if (i != starred) {
      assign(*target.parts[i], std::move(parts[next++]), frame);
      continue;
    }
    std::vector<Value> rest(std::make_move_iterator(parts.begin() + static_cast<std::ptrdiff_t>(next)),
                            std::make_move_iterator(parts.begin() + static_cast<std::ptrdiff_t>(next + more)));
    next += more;
    assign(*target.parts[i]->parts[0], list(std::move(rest)), frame);
  }
}

void Interpreter::erase(const Expression& target, Frame& frame) {
  place_ = target.place;
  switch (target.kind) {
    case Expression::Kind::name:
      (void)evaluate_name(target, frame);
      if (target.storage != Storage::named)
        frame.variable(target) = Value();
      else if (frame.names == nullptr || !frame.names->erase(target.name))
        frame.code.module->globals.erase(target.name);
      return;
    case Expression::Kind::attribute: {
      return erase_attribute(evaluate(*target.parts[0], frame), target.name);
    }
    case Expression::Kind::subscript: {
      const Value of = evaluate(*target.parts[0], frame), key = evaluate(*target.parts[1], frame);
      if (auto* dictionary = of.as<DictionaryObject>()) {
        if (!dictionary->take(key).is_bound()) raise("KeyError", written(key));
        return;
      }
      auto* sequence = of.as<SequenceObject>();
      if (sequence == nullptr || !sequence->is_list() || !key.is_integer()) unknown("del of such an item of a " + type_name(of));
      const auto count = static_cast<std::int64_t>(sequence->items.size());
      const std::int64_t at = key.as_integer() < 0 ? key.as_integer() + count : key.as_integer();
      if (at < 0 || at >= count) raise("IndexError", "list assignment index out of range");
      sequence->items.erase(sequence->items.begin() + at);
      return;
    }
    default:
      for (const ExpressionPtr& part : target.parts) erase(*part, frame);
  }
}

}  // namespace plimsoll::code
