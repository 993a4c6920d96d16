#include "code/interpreter.hpp"

#include <algorithm>
#include <cmath>

#include "code/frame.hpp"
#include "code/host_torch.hpp"
#include "code/library.hpp"
#include "code/library_texts.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

/// Of the host's tape, whose kernels nobody looks at.
const program::TargetDevice kAnyDevice{
    .capability = 90, .gfx = {}, .units = 1, .threads_per_unit = 1'024, .shared_memory = 1 << 16, .memory = 1 << 30};

}  // namespace

Interpreter::Interpreter(std::string text, std::string where, Limits limits)
    : host_(std::make_unique<program::Tape>(kAnyDevice)), limits_(limits) {
  (void)host_->take();  // what the host does is not recorded
  host_->intern("host");
  auto main = std::make_unique<TextModule>();
  main->name = "model";
  main->text = std::move(text);
  main->where = std::move(where);
  main->code = parse_module(main->text, main->where, names_);
  resolve_names(*main->code, *main);
  main_ = main.get();
  running_ = main_;
  modules_.emplace(main->name, std::move(main));
  define_builtins(*this);
  define_standard_library(*this);
  define_library_texts(*this);
  torch_ = std::make_unique<Torch>(*this);
  define_host_torch(*this);
  main_->globals[symbol("__name__")] = this->text("model");
  main_->globals[symbol("__file__")] = this->text(main_->where);
}

/// What the text's names hold goes before the tape that it lives on.
Interpreter::~Interpreter() {
  for (auto& [path, module] : modules_)
    if (module) module->globals.clear();
  for (auto& module : over_modules_) module->globals.clear();
  builtins_.clear();
}

Interpreter::Depth::Depth(Interpreter& interpreter) : depth_(interpreter.depth_) {
  if (++depth_ <= interpreter.limits_.expressions) return;
  --depth_;
  refuse("the code runs deeper than " + std::to_string(interpreter.limits_.expressions) + " expressions within each other",
         interpreter.here());
}

void Interpreter::step(std::int64_t pieces) {
  steps_ += pieces;
  if (steps_ > limits_.steps)
    refuse("the code takes more than " + std::to_string(limits_.steps) + " steps", here(), "a loop that does not end?");
}

std::string Interpreter::here() const { return place_of(running_->where, place_); }

void Interpreter::unknown(const std::string& what, const std::string& hint) { refuse(what + " is not modelled in code", here(), hint); }

void Interpreter::foreign(const NamespaceObject& library) {
  const std::size_t dot = library.name.rfind('.');
  const auto of = libraries_.find(library.name.substr(0, std::min(dot, library.name.size())));
  if (dot != std::string::npos && of != libraries_.end() && of->second->known)
    unknown("'" + library.name + "'", nearest_name(library.name.substr(dot + 1), names_of(Value(of->second))).empty()
                                          ? std::string()
                                          : "did you mean '" + nearest_name(library.name.substr(dot + 1), names_of(Value(of->second))) + "'?");
  unknown("'" + library.name + "', which is imported from elsewhere,",
          packages_.empty() ? "its text is not here: one file is read" : "its text is not in what --code names");
}

void Interpreter::raise(const char* type, const std::string& message) {
  ClassObject* const known = builtin_class(type);
  Held<InstanceObject> made(new InstanceObject(heap_, Held<ClassObject>(known)));
  made->attributes.set(symbol("args"), tuple(message.empty() ? std::vector<Value>{} : std::vector<Value>{text(message)}));
  throw Raised{Value(made), place_, running_};
}

namespace {

/// Runs with Python's exceptions, and errors that know no place, as Error of that place.
template <class Function>
auto told(Interpreter& interpreter, Function&& function) {
  try {
    return function();
  } catch (const Raised& raised) {
    const auto* instance = raised.exception.as<InstanceObject>();
    const std::string message = interpreter.shown(raised.exception);
    fail(instance->type->name + (message.empty() ? std::string() : ": " + message), place_of(raised.module->where, raised.place));
  } catch (const Error& error) {
    if (error.where().empty()) throw error.at(interpreter.here());
    throw;
  }
}

}  // namespace

void Interpreter::run() {
  told(*this, [&] {
    Frame frame(*this, *main_->code);
    (void)execute(main_->code->body, frame);
  });
}

Value Interpreter::global(const std::string& name) {
  const auto found = main_->globals.find(symbol(name));
  if (found != main_->globals.end()) return found->second;
  std::vector<std::string> classes;
  for (const auto& [known, value] : main_->globals)
    if (const auto* type = value.as<ClassObject>(); type != nullptr && !type->is_native) classes.push_back(names_.text(known));
  std::sort(classes.begin(), classes.end());
  fail("has no class '" + name + "'", main_->where, classes.empty() ? std::string("it defines none") : suggest(name, classes));
}

Value Interpreter::call_from_outside(const Value& function, CallArguments arguments) {
  place_ = {0, 0};  // no line runs yet
  running_ = main_;
  return told(*this, [&] { return call(function, std::move(arguments)); });
}

Value Interpreter::literal(const std::string& text, const std::string& where) {
  literals_.push_back(parse_expression(text, where, names_));
  const std::function<Value(const Expression&)> value_of = [&](const Expression& e) -> Value {
    using Kind = Expression::Kind;
    if (e.kind == Kind::constant) return e.text ? this->text(*e.text) : e.value;
    if (e.kind == Kind::unary && e.op == Operator::negative && e.parts[0]->value.is_number()) return unary(e.op, e.parts[0]->value);
    if (e.kind == Kind::list || e.kind == Kind::tuple) {
      std::vector<Value> items;
      for (const ExpressionPtr& part : e.parts) items.push_back(value_of(*part));
      return e.kind == Kind::list ? list(std::move(items)) : tuple(std::move(items));
    }
    if (e.kind == Kind::name) return this->text(names_.text(e.name));  // a word, as a shell leaves it
    fail("'" + text + "' is no value: a number, True, False, None, a text or a list of those", where);
  };
  return value_of(*literals_.back());
}

std::int64_t Interpreter::whole(const Value& value, const char* what) {
  if (value.is_integer()) return value.as_integer();
  if (torch_->is_tensor(value)) {
    if (const auto known = torch_->known_number(value, true); known && known->is_integer()) return known->as_integer();
    unknown("what a tensor holds as " + std::string(what), "what the device computes is not followed");
  }
  raise("TypeError", std::string(what) + " must be whole numbers, not '" + type_name(value) + "'");
}

double Interpreter::number(const Value& value, const char* what) {
  if (value.is_number()) return value.as_real();
  if (torch_->is_tensor(value)) {
    if (const auto known = torch_->known_number(value, true)) return known->as_real();
    unknown("what a tensor holds as " + std::string(what), "what the device computes is not followed");
  }
  raise("TypeError", std::string(what) + " must be numbers, not '" + type_name(value) + "'");
}

const std::string& Interpreter::words(const Value& value, const char* what) {
  if (const auto* words = value.as<TextObject>()) return words->text;
  raise("TypeError", std::string(what) + " must be str, not '" + type_name(value) + "'");
}

NamespaceObject& Interpreter::library(const std::string& path) {
  Held<NamespaceObject>& known = libraries_[path];
  if (known) return *known;
  known = Held<NamespaceObject>(new NamespaceObject(heap_, path, true));
  const std::size_t dot = path.rfind('.');
  const Value made(known);
  if (dot != std::string::npos) library(path.substr(0, dot)).attributes[symbol(path.substr(dot + 1))] = made;
  return *made.as<NamespaceObject>();
}

ClassObject* Interpreter::builtin_class(const std::string& name) {
  const auto found = builtins_.find(symbol(name));
  auto* type = found == builtins_.end() ? nullptr : found->second.as<ClassObject>();
  if (type == nullptr) throw Error(ErrorCode::internal, "there is no builtin class '" + name + "'");
  return type;
}

ClassObject* Interpreter::class_of(const Value& value) {
  if (auto* instance = value.as<InstanceObject>()) return instance->type.get();
  if (torch_->is_tensor(value)) return torch_->class_of(value);
  if (value.as<ClassObject>() != nullptr) return builtin_class("type");
  const auto* sequence = value.as<SequenceObject>();
  const auto* dictionary = value.as<DictionaryObject>();
  const char* name = value.is_boolean()                   ? "bool"
                     : value.is_integer()                 ? "int"
                     : value.is_real()                    ? "float"
                     : value.is_none()                    ? "NoneType"
                     : sequence != nullptr                ? (sequence->is_list() ? "list" : "tuple")
                     : dictionary != nullptr              ? (dictionary->is_set ? "set" : "dict")
                     : value.as<TextObject>() != nullptr  ? "str"
                     : value.as<RangeObject>() != nullptr ? "range"
                     : value.as<SliceObject>() != nullptr ? "slice"
                                                          : "object";
  return builtin_class(name);
}

std::string Interpreter::type_name(const Value& value) {
  if (value.as<FunctionObject>() != nullptr) return "function";
  if (value.as<NativeObject>() != nullptr) return "builtin_function_or_method";
  if (value.as<BoundMethodObject>() != nullptr) return "method";
  if (value.as<NamespaceObject>() != nullptr || value.as<ModuleObject>() != nullptr) return "module";
  if (const auto* token = value.as<TokenObject>())
    return token->kind == TokenObject::Kind::dtype    ? "torch.dtype"
           : token->kind == TokenObject::Kind::device ? "torch.device"
                                                      : token->name;
  if (!value.is_bound()) return "unbound";
  return class_of(value)->name;
}

bool Interpreter::is_instance(const Value& value, const Value& types) {
  const Depth deeper(*this);
  if (const auto* sequence = types.as<SequenceObject>()) {
    for (const Value& each : sequence->items)
      if (is_instance(value, each)) return true;
    return false;
  }
  if (const auto* library = types.as<NamespaceObject>(); library != nullptr && !library->known) return false;  // nothing here is made of it
  const auto* type = types.as<ClassObject>();
  if (types.as<TokenObject>() != nullptr) {  // typing.Sequence is collections.abc.Sequence
    const auto& abstract = library("collections.abc").attributes;
    const auto known = abstract.find(symbol(types.as<TokenObject>()->name));
    type = known == abstract.end() ? nullptr : known->second.as<ClassObject>();
    for (const auto& [name, plain] : {std::pair{"Tuple", "tuple"}, std::pair{"List", "list"}, std::pair{"Dict", "dict"}})
      if (types.as<TokenObject>()->name == name) type = builtin_class(plain);
  }
  if (type == nullptr) raise("TypeError", "isinstance() arg 2 must be a type, a tuple of types, or a union");
  if (type->holds) return type->holds(value);
  return class_of(value)->derives_from(type);
}

}  // namespace plimsoll::code
