// What of libraries is told in Python (python/*.py): names beside those that are native (standard_library.cpp).
#include "code/library_texts.hpp"

#include <algorithm>

#include "code/library.hpp"
#include "code/torch/torch.hpp"
#include "data/shipped_files.hpp"

namespace plimsoll::code {

namespace {

/// parameters_of(function): name, inspect's kind, and its default where it has one; of a native function None stands for it.
Value parameters_of(Interpreter& i, Bound& a) {
  Value of = a[0];
  bool bound = false;
  while (const auto* method = of.as<BoundMethodObject>()) {
    const Value function = method->function;
    of = function;
    bound = true;
  }
  while (auto* function = of.as<FunctionObject>()) {
    const Value* wrapped = function->attributes.find(i.symbol("__wrapped__"));
    if (wrapped == nullptr) break;
    of = Value(*wrapped);
  }
  std::vector<Value> rows;
  if (const auto* native = of.as<NativeObject>()) {
    for (const NativeObject::Parameter& each : native->parameters) {
      std::vector<Value> row{i.text(i.names().text(each.name)), Value::integer(each.keyword_only ? 3 : 1)};
      if (!each.required) row.push_back(Value::none());
      rows.push_back(i.tuple(std::move(row)));
    }
    return i.list(std::move(rows));
  }
  const auto* function = of.as<FunctionObject>();
  if (function == nullptr) i.unknown("the signature of a " + i.type_name(of));
  std::size_t next_default = 0;
  for (const Parameter& each : function->code.parameters) {
    const Value otherwise = each.default_value != nullptr ? function->defaults[next_default++] : Value();
    if (bound && &each == &function->code.parameters.front()) continue;
    const int kind = each.kind == Parameter::Kind::positional_only ? 0
                     : each.kind == Parameter::Kind::usual         ? 1
                     : each.kind == Parameter::Kind::sequence      ? 2
                     : each.kind == Parameter::Kind::keyword_only  ? 3
                                                                   : 4;
    std::vector<Value> row{i.text(i.names().text(each.name)), Value::integer(kind)};
    if (otherwise.is_bound()) row.push_back(otherwise);
    rows.push_back(i.tuple(std::move(row)));
  }
  return i.list(std::move(rows));
}

Value refuse_what(Interpreter& i, Bound& a) { i.unknown(i.words(a[0], "names")); }

// ---- copy -----------------------------------------------------------------------------------------------------------

class Copier {
 public:
  explicit Copier(Interpreter& i) : i_(i) {}

  Value deep(const Value& of) {
    const Interpreter::Depth deeper(i_);
    i_.step();
    if (!of.is_object()) return of;
    if (const auto known = copies_.find(of.object()); known != copies_.end()) return known->second;
    if (const auto* sequence = of.as<SequenceObject>()) {
      std::vector<Value> items;
      for (const Value& each : sequence->items) items.push_back(deep(each));
      return keep(of, i_.sequence(sequence->kind, std::move(items)));
    }
    if (const auto* dictionary = of.as<DictionaryObject>()) {
      Value made = keep(of, Value(new DictionaryObject(i_.heap(), dictionary->is_set)));
      for (std::size_t at = 0; at < dictionary->entries().size(); ++at) {
        const DictionaryObject::Entry entry = dictionary->entries()[at];
        if (entry.key.is_bound()) made.as<DictionaryObject>()->set(deep(entry.key), deep(entry.value));
      }
      return made;
    }
    auto* instance = of.as<InstanceObject>();
    if (instance == nullptr) return of;
    if (instance->module) i_.unknown("copy.deepcopy of a module", "make it anew");
    Held<InstanceObject> copy(new InstanceObject(i_.heap(), instance->type));
    const Value made = keep(of, Value(copy));
    for (std::size_t at = 0; at < instance->attributes.items.size(); ++at) {
      const auto item = instance->attributes.items[at];
      copy->attributes.set(item.first, deep(item.second));
    }
    return made;
  }

 private:
  Value keep(const Value& of, Value made) {
    originals_.push_back(of);
    copies_.emplace(of.object(), made);
    return made;
  }

  Interpreter& i_;
  std::unordered_map<const Object*, Value> copies_;
  std::vector<Value> originals_;
};

Value shallow_copy(Interpreter& i, Bound& a) {
  if (const auto* sequence = a[0].as<SequenceObject>()) return i.sequence(sequence->kind, sequence->items);
  if (const auto* dictionary = a[0].as<DictionaryObject>()) {
    Value made(new DictionaryObject(i.heap(), dictionary->is_set));
    for (const auto& entry : dictionary->entries())
      if (entry.key.is_bound()) made.as<DictionaryObject>()->set(entry.key, entry.value);
    return made;
  }
  const auto* instance = a[0].as<InstanceObject>();
  if (instance == nullptr) return a[0];
  if (instance->module) i.unknown("copy.copy of a module", "make it anew");
  Held<InstanceObject> copy(new InstanceObject(i.heap(), instance->type));
  for (const auto& [name, value] : instance->attributes.items) copy->attributes.set(name, value);
  return Value(copy);
}

// ---- dataclasses ----------------------------------------------------------------------------------------------------

Value fields(Interpreter& i, Bound& a) {
  const auto* instance = a[0].as<InstanceObject>();
  const auto* type = instance != nullptr ? instance->type.get() : a[0].as<ClassObject>();
  if (type == nullptr || !type->is_dataclass) i.raise("TypeError", "must be called with a dataclass type or instance");
  const Value missing = i.library("dataclasses").attributes.at(i.symbol("MISSING"));
  std::vector<Value> rows;
  for (const ClassObject::Field& field : type->fields) {
    Held<NamespaceObject> row(new NamespaceObject(i.heap(), "Field", true));
    row->attributes[i.symbol("name")] = i.text(i.names().text(field.name));
    row->attributes[i.symbol("default")] = field.default_value.is_bound() ? field.default_value : missing;
    row->attributes[i.symbol("default_factory")] = field.factory.is_bound() ? field.factory : missing;
    rows.emplace_back(row);
  }
  return i.tuple(std::move(rows));
}

Value is_dataclass(Interpreter&, Bound& a) {
  const auto* instance = a[0].as<InstanceObject>();
  const auto* type = instance != nullptr ? instance->type.get() : a[0].as<ClassObject>();
  return Value::boolean(type != nullptr && type->is_dataclass);
}

}  // namespace

void put_texts_over(Interpreter& i, std::string_view folder) {
  for (const data::ShippedFile* file : data::shipped_files_under(folder)) {
    std::string module(file->path.substr(folder.size()));
    for (const std::string_view ending : {"/__init__.py", ".py"})
      if (module.ends_with(ending)) module.resize(module.size() - ending.size());
    std::replace(module.begin(), module.end(), '/', '.');
    i.put_over(module, file->text);
  }
}

void define_library_texts(Interpreter& i) {
  put_texts_over(i, "src/code/python/");
  NamespaceObject& own = i.library("plimsoll");
  own.attributes[i.symbol("parameters_of")] = i.native("parameters_of", "function", parameters_of);
  own.attributes[i.symbol("refuse")] = i.native("refuse", "what", refuse_what);
  NamespaceObject& copy = i.library("copy");
  copy.attributes[i.symbol("copy")] = i.native("copy.copy", "x", shallow_copy);
  copy.attributes[i.symbol("deepcopy")] =
      i.native("copy.deepcopy", "x, memo=", [](Interpreter& inner, Bound& a) { return Copier(inner).deep(a[0]); });
  const auto abstract = [&](const char* name, bool (*holds)(const Value&)) {
    const Held<ClassObject> type = i.native_class(std::string("collections.abc.") + name, {i.builtin_class("object")});
    type->holds = holds;
    i.library("collections.abc").attributes[i.symbol(name)] = Value(type);
  };
  const auto is_sequence = [](const Value& value) { return value.as<SequenceObject>() != nullptr || value.as<TextObject>() != nullptr; };
  abstract("Sequence", is_sequence);
  abstract("MutableSequence", [](const Value& value) { return value.as<SequenceObject>() != nullptr && value.as<SequenceObject>()->is_list(); });
  abstract("Mapping", [](const Value& value) { return value.as<DictionaryObject>() != nullptr && !value.as<DictionaryObject>()->is_set; });
  abstract("Callable", is_callable);
  abstract("Iterable", [](const Value& value) {
    return value.as<SequenceObject>() != nullptr || value.as<TextObject>() != nullptr || value.as<DictionaryObject>() != nullptr ||
           value.as<RangeObject>() != nullptr || value.as<IteratorObject>() != nullptr || Torch::is_tensor(value);
  });
  const Value number = i.tuple({Value(i.builtin_class("int")), Value(i.builtin_class("float"))});
  i.library("numbers").attributes[i.symbol("Number")] = i.library("numbers").attributes[i.symbol("Real")] = number;
  i.library("numbers").attributes[i.symbol("Integral")] = Value(i.builtin_class("int"));
  NamespaceObject& dataclasses = i.library("dataclasses");
  dataclasses.attributes[i.symbol("MISSING")] = Value(new TokenObject(i.heap(), TokenObject::Kind::other, "dataclasses.MISSING"));
  dataclasses.attributes[i.symbol("fields")] = i.native("dataclasses.fields", "of", fields);
  dataclasses.attributes[i.symbol("is_dataclass")] = i.native("dataclasses.is_dataclass", "of", is_dataclass);
}

}  // namespace plimsoll::code
