// with torch.no_grad(), with torch.autocast(…): what holds for a block.
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

/// What a context has set, until its block ends.
class ScopeObject final : public Object {
 public:
  using Object::Object;
  void clear() override { autocast.reset(); }
  std::unique_ptr<program::AutocastScope> autocast;
};

/// torch.no_grad, torch.enable_grad: contexts, and decorators with or without brackets.
void define_grad_mode(Interpreter& i, const char* name, bool enables) {
  const Held<ClassObject> type = i.native_class(std::string("torch.") + name, {i.builtin_class("object")});
  const auto wrapped = [enables](Interpreter& inner, const Value& function) {
    Held<WrapperObject> made(new WrapperObject(inner.heap(), WrapperObject::Kind::no_grad, function));
    made->enables_grad = enables;
    return Value(made);
  };
  type->attributes.set(i.symbol("__enter__"), i.method("__enter__", "self", [enables](Interpreter& inner, Bound& a) {
    a[0].as<InstanceObject>()->attributes.set(inner.symbol("before"), Value::boolean(inner.torch().grad_enabled()));
    inner.torch().enable_grad(enables);
    return Value::none();
  }));
  type->attributes.set(i.symbol("__exit__"), i.method("__exit__", "self, *args", [](Interpreter& inner, Bound& a) {
    inner.torch().enable_grad(inner.truth(inner.attribute(a[0], inner.symbol("before"))));
    return Value::boolean(false);
  }));
  type->attributes.set(i.symbol("__call__"),
                       i.method("__call__", "self, function", [wrapped](Interpreter& inner, Bound& a) { return wrapped(inner, a[1]); }));
  ClassObject* const raw = type.get();
  i.library("torch").attributes[i.symbol(name)] =
      i.native(std::string("torch.") + name, "function=", [wrapped, held = Value(type), raw](Interpreter& inner, Bound& a) {
        return a.has(0) ? wrapped(inner, a[0]) : Value(new InstanceObject(inner.heap(), Held<ClassObject>(raw)));
      });
}

Value enter_autocast(Interpreter& i, Bound& a) {
  auto& instance = *a[0].as<InstanceObject>();
  Held<ScopeObject> scope(new ScopeObject(i.heap()));
  program::Tape& tape = i.torch().tape_of(i.text("cuda"));
  const bool enabled = i.truth(i.attribute(a[0], i.symbol("enabled")));
  scope->autocast = std::make_unique<program::AutocastScope>(tape, enabled, i.torch().type_of(i.attribute(a[0], i.symbol("dtype"))));
  instance.attributes.set(i.symbol("scope"), Value(scope));
  return Value::none();
}

Value exit_autocast(Interpreter& i, Bound& a) {
  a[0].as<InstanceObject>()->attributes.set(i.symbol("scope"), Value::none());
  return Value::boolean(false);
}

}  // namespace

void define_contexts(Interpreter& i, Torch& torch) {
  define_grad_mode(i, "no_grad", false);
  define_grad_mode(i, "inference_mode", false);
  define_grad_mode(i, "enable_grad", true);
  const Held<ClassObject> type = i.native_class("torch.autocast", {i.builtin_class("object")});
  type->attributes.set(
      i.symbol("__init__"),
      i.method("torch.autocast", "self, device_type=, dtype=, enabled=, cache_enabled=", [&torch](Interpreter& inner, Bound& a) {
        auto& own = a[0].as<InstanceObject>()->attributes;
        own.set(inner.symbol("dtype"), a.has(2) ? a[2] : torch.type_value(DType::fp16));
        own.set(inner.symbol("enabled"), Value::boolean(!a[3].is_bound() || inner.truth(a[3])));
        return Value::none();
      }));
  type->attributes.set(i.symbol("__enter__"), i.method("__enter__", "self", enter_autocast));
  type->attributes.set(i.symbol("__exit__"), i.method("__exit__", "self, *args", exit_autocast));
  i.library("torch").attributes[i.symbol("autocast")] = Value(type);
  i.library("torch.amp").attributes[i.symbol("autocast")] = Value(type);
}

}  // namespace plimsoll::code
