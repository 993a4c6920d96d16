// Classes and their instances.
#include <algorithm>

#include "code/frame.hpp"
#include "code/library.hpp"
#include "code/torch/module_state.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

InstanceObject::InstanceObject(Heap& heap, Held<ClassObject> type_in)
    : Object(heap, type_in->is_module ? 1'024 : 192), type(std::move(type_in)) {}
InstanceObject::~InstanceObject() = default;

void InstanceObject::clear() {
  attributes.items.clear();
  if (module) module->clear();
}

Held<ClassObject> Interpreter::native_class(const std::string& name, std::vector<ClassObject*> bases) {
  Held<ClassObject> made(new ClassObject(heap_, name));
  made->is_native = true;
  for (ClassObject* base : bases) made->bases.emplace_back(base);
  order(*made);
  for (const ClassObject* base : made->order) {
    made->is_module = made->is_module || base->is_module;
    made->is_exception = made->is_exception || base->is_exception;
  }
  return made;
}

namespace {

constexpr std::size_t kMostClasses = 200;  ///< in one order

}  // namespace

/// C3 linearization, as type.mro().
void Interpreter::order(ClassObject& type) {
  std::vector<std::vector<ClassObject*>> lists;
  for (const auto& base : type.bases) lists.push_back(base->order);
  lists.emplace_back();
  for (const auto& base : type.bases) lists.back().push_back(base.get());
  type.order = {&type};
  while (true) {
    std::erase_if(lists, [](const auto& list) { return list.empty(); });
    if (lists.empty()) return;
    ClassObject* next = nullptr;
    for (const auto& list : lists) {
      const bool behind_another = std::any_of(lists.begin(), lists.end(), [&](const auto& other) {
        return std::find(other.begin() + 1, other.end(), list.front()) != other.end();
      });
      if (!behind_another) {
        next = list.front();
        break;
      }
    }
    step(static_cast<std::int64_t>(lists.front().size()));
    if (type.order.size() > kMostClasses) unknown("a class of more than " + std::to_string(kMostClasses) + " bases");
    if (next == nullptr) raise("TypeError", "Cannot create a consistent method resolution order (MRO) for bases of " + type.name);
    type.order.push_back(next);
    for (auto& list : lists)
      if (list.front() == next) list.erase(list.begin());
  }
}

Value Interpreter::make_class(std::string name, std::vector<Value> bases, Attributes attributes, const CallArguments& keywords) {
  Held<ClassObject> made(new ClassObject(heap_, std::move(name)));
  const bool is_enum = std::any_of(bases.begin(), bases.end(), [](const Value& base) {
    const auto* type = base.as<ClassObject>();
    return type != nullptr && std::any_of(type->order.begin(), type->order.end(), [](const ClassObject* each) { return each->name == "Enum"; });
  });
  for (const Value& base : bases) {
    if (base.as<TokenObject>() != nullptr) continue;  // Protocol, Generic[T]: for type checkers
    if (is_enum && (base.as<ClassObject>() == builtin_class("str") || base.as<ClassObject>() == builtin_class("int")))
      continue;  // a member is equal to its value
    if (const auto* library = base.as<NamespaceObject>(); library != nullptr && !library->known)
      foreign(*library);
    auto* type = base.as<ClassObject>();
    if (type == nullptr) unknown("a class derived from a " + type_name(base));
    if (type->constructor.is_bound() && type->name != "object") unknown("a class derived from " + type->name);
    made->bases.emplace_back(type);
  }
  if (made->bases.empty()) made->bases.emplace_back(builtin_class("object"));
  order(*made);
  for (const ClassObject* base : made->order) {
    made->is_module = made->is_module || base->is_module;
    made->is_exception = made->is_exception || base->is_exception;
    if (made->fields.empty() && base != made.get()) made->fields = base->fields;
    made->is_dataclass = made->is_dataclass || base->is_dataclass;
    made->renames = made->renames || base->renames;
  }
  made->attributes = std::move(attributes);
  const Value type(made);
  // object.__init_subclass__ of the first base that has one of its own, as a method of the class that was made.
  if (const Value* told = made->find(symbol("__init_subclass__"), made.get())) {
    CallArguments arguments{{type}, keywords.keywords};
    const auto* wrapper = told->as<WrapperObject>();
    (void)call(wrapper != nullptr ? wrapper->inner : *told, std::move(arguments));
  }
  return type;
}

Symbol Interpreter::renamed(ClassObject& type, Symbol name) {
  if (!type.renames) return name;
  const Value* map = type.find(symbol("attribute_map"));
  auto* table = map != nullptr ? map->as<DictionaryObject>() : nullptr;
  if (table == nullptr || table->size() == 0) return name;
  const Value* other = table->find(text(names_.text(name)));
  const auto* words = other != nullptr ? other->as<TextObject>() : nullptr;
  return words != nullptr ? symbol(words->text) : name;
}

/// What the class's own __new__ gives; unbound where it has none.
Value Interpreter::made_anew(ClassObject& type, const CallArguments& arguments) {
  const Value* found = type.find(symbol("__new__"));
  if (found == nullptr) return {};
  CallArguments given = arguments;
  given.positional.insert(given.positional.begin(), Value(static_cast<Object*>(&type)));
  const auto* wrapper = found->as<WrapperObject>();
  return call(wrapper != nullptr ? wrapper->inner : *found, std::move(given));
}

Value Interpreter::instantiate(ClassObject& type, CallArguments arguments) {
  if (type.constructor.is_bound()) return call(type.constructor, std::move(arguments));
  Value instance = made_anew(type, arguments);
  const auto* own = instance.as<InstanceObject>();
  if (instance.is_bound() && (own == nullptr || !own->type->derives_from(&type))) return instance;
  if (!instance.is_bound()) instance = Value(new InstanceObject(heap_, Held<ClassObject>(&type)));
  auto* made = instance.as<InstanceObject>();
  const Value* init = type.find(symbol("__init__"));
  if (type.is_dataclass && init == nullptr) {
    fill_fields(*this, *made, std::move(arguments));
    if (type.find(symbol("__post_init__")) != nullptr) (void)call(attribute(instance, symbol("__post_init__")), std::vector<Value>{});
    return instance;
  }
  if (type.is_exception) made->attributes.set(symbol("args"), tuple(arguments.positional));
  if (init != nullptr)
    (void)call(bind(*init, instance, &type), std::move(arguments));
  else if (!type.is_exception && (!arguments.positional.empty() || !arguments.keywords.empty()))
    raise("TypeError", type.name + "() takes no arguments");
  return instance;
}

Value Interpreter::bind(const Value& found, const Value& self, ClassObject* type) {
  if (found.as<FunctionObject>() != nullptr) return Value(new BoundMethodObject(heap_, self, found));
  if (auto* native = found.as<NativeObject>()) return native->is_method ? Value(new BoundMethodObject(heap_, self, found)) : found;
  if (auto* wrapper = found.as<WrapperObject>()) {
    switch (wrapper->kind) {
      case WrapperObject::Kind::static_method:
        return wrapper->inner;
      case WrapperObject::Kind::class_method:
        return Value(new BoundMethodObject(heap_, Value(static_cast<Object*>(type)), wrapper->inner));
      case WrapperObject::Kind::class_property:
        return call(wrapper->inner, std::vector<Value>{Value(static_cast<Object*>(type))});
      case WrapperObject::Kind::property:
      case WrapperObject::Kind::cached_property:
        return call(wrapper->inner, std::vector<Value>{self});
      case WrapperObject::Kind::no_grad:
        return Value(new BoundMethodObject(heap_, self, found));
      default:
        return found;
    }
  }
  return found;
}

Value Interpreter::super_of_frame() {
  const Frame* frame = frame_;
  while (frame != nullptr && frame->code.kind == FunctionCode::Kind::comprehension) frame = frame->before;
  const auto* type = frame != nullptr && frame->class_cell ? frame->class_cell->value.as<ClassObject>() : nullptr;
  if (type == nullptr || frame->code.parameters.empty()) raise("RuntimeError", "super(): no arguments");
  Value self = frame->slots.front();
  if (const auto* cell = self.as<CellObject>()) self = cell->value;
  Held<WrapperObject> made(new WrapperObject(heap_, WrapperObject::Kind::super, std::move(self)));
  made->owner = type;
  return Value(made);
}

Value Interpreter::super_attribute(WrapperObject& super, Symbol name) {
  auto* instance = super.inner.as<InstanceObject>();
  auto* type = instance != nullptr ? instance->type.get() : super.inner.as<ClassObject>();
  if (type == nullptr) raise("TypeError", "super(type, obj): obj must be an instance or subtype of type");
  const Value* found = type->find(name, super.owner);
  if (found == nullptr && (names_.text(name) == "__init__" || names_.text(name) == "__init_subclass__"))
    return native("object." + names_.text(name), "*args, **kwargs", [](Interpreter&, Bound&) { return Value::none(); });
  if (found == nullptr && names_.text(name) == "__new__")
    return native("object.__new__", "type, *args, **kwargs", [](Interpreter& i, Bound& a) {
      auto* of = a[0].as<ClassObject>();
      if (of == nullptr) i.raise("TypeError", "object.__new__(X): X is not a type object");
      return Value(new InstanceObject(i.heap(), Held<ClassObject>(of)));
    });
  if (found == nullptr && names_.text(name) == "__getattribute__" && instance != nullptr)
    return native("object.__getattribute__", "name", [self = super.inner](Interpreter& i, Bound& a) {
      return i.attribute(self, i.symbol(i.words(a[0], "attribute names")));
    });
  if (found == nullptr && names_.text(name) == "__setattr__" && instance != nullptr)  // object's own, behind a class's __setattr__
    return native("object.__setattr__", "name, value", [self = super.inner](Interpreter& i, Bound& a) {
      auto& own = *self.as<InstanceObject>();
      const Symbol key = i.symbol(i.words(a[0], "attribute names"));
      if (!i.torch().set_module_attribute(own, key, a[1])) own.attributes.set(key, a[1]);
      return Value::none();
    });
  if (found == nullptr) raise("AttributeError", "'super' object has no attribute '" + names_.text(name) + "'");
  if (found->as<FunctionObject>() != nullptr && names_.text(name) == "__init_subclass__")
    return Value(new BoundMethodObject(heap_, Value(static_cast<Object*>(type)), *found));
  return bind(*found, super.inner, type);
}

Value Interpreter::instance_attribute(InstanceObject& instance, const Value& of, Symbol asked) {
  const Symbol name = renamed(*instance.type, asked);
  const Value* in_class = instance.type->find(name);
  const auto* wrapper = in_class != nullptr ? in_class->as<WrapperObject>() : nullptr;
  if (wrapper != nullptr && wrapper->kind == WrapperObject::Kind::property) return bind(*in_class, of, instance.type.get());
  if (const Value* own = instance.attributes.find(name)) return *own;
  if (in_class != nullptr) {
    Value made = bind(*in_class, of, instance.type.get());
    if (wrapper != nullptr && wrapper->kind == WrapperObject::Kind::cached_property) instance.attributes.set(name, made);
    return made;
  }
  if (Value own = torch_->module_attribute(instance, name); own.is_bound()) return own;
  if (names_.text(name) == "__class__") return Value(instance.type);
  if (names_.text(name) == "__dict__") {
    Value made(new DictionaryObject(heap_));
    for (const auto& [key, value] : instance.attributes.items) made.as<DictionaryObject>()->set(text(names_.text(key)), value);
    return made;
  }
  if (const Value* fallback = instance.type->find(symbol("__getattr__")))
    return call(bind(*fallback, of, instance.type.get()), std::vector<Value>{text(names_.text(name))});
  return {};
}

}  // namespace plimsoll::code
