// What values refer to: Python's own objects.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "code/names.hpp"
#include "code/syntax.hpp"
#include "code/value.hpp"

namespace plimsoll::code {

class Interpreter;
class ClassObject;

class TextObject final : public Object {
 public:
  TextObject(Heap& heap, std::string text_in) : Object(heap), text(std::move(text_in)), heap_(heap) {
    heap.charge(static_cast<std::int64_t>(text.size()));
  }
  ~TextObject() override { heap_.charge(-static_cast<std::int64_t>(text.size())); }
  const std::string text;

 private:
  Heap& heap_;
};

/// A list, a tuple, or torch.Size, which is a tuple.
class SequenceObject final : public Object {
 public:
  enum class Kind : std::uint8_t { list, tuple, size };
  bool is_pair_of_values = false;  ///< torch.return_types: `values` and `indices` of what max, topk and sort give
  SequenceObject(Heap& heap, Kind kind_in, std::vector<Value> items_in = {})
      : Object(heap), kind(kind_in), items(std::move(items_in)), heap_(heap) {
    recount();
  }
  ~SequenceObject() override { heap_.charge(-charged_); }
  void clear() override { items.clear(); }
  void append(Value value) {
    items.push_back(std::move(value));
    recount();
  }
  /// To be called when `items` were changed.
  void recount() {
    const auto now = static_cast<std::int64_t>(items.capacity() * sizeof(Value));
    if (now != charged_) heap_.charge(now - charged_);
    charged_ = now;
  }
  bool is_list() const { return kind == Kind::list; }

  const Kind kind;
  std::vector<Value> items;

 private:
  Heap& heap_;
  std::int64_t charged_ = 0;
};

/// A dictionary, in the order in which keys came; a set is one without values.
class DictionaryObject final : public Object {
 public:
  struct Entry {
    Value key, value;  ///< an unbound key: taken out
  };
  explicit DictionaryObject(Heap& heap, bool is_set_in = false) : Object(heap), is_set(is_set_in), heap_(heap) {}
  ~DictionaryObject() override { heap_.charge(-charged_); }
  void clear() override;
  /// The value of that key; null where it has none.
  Value* find(const Value& key);
  void set(const Value& key, Value value);
  /// The value that was there; unbound where none was.
  Value take(const Value& key);
  std::size_t size() const { return known_; }
  const std::vector<Entry>& entries() const { return entries_; }

  const bool is_set;

 private:
  std::size_t position(const Value& key, std::uint64_t hash) const;

  Heap& heap_;
  std::vector<Entry> entries_;
  std::unordered_multimap<std::uint64_t, std::size_t> places_;
  std::size_t known_ = 0;
  std::int64_t charged_ = 0;
};

/// Whether two keys of a dictionary are one: numbers, texts and tuples by what they hold, all else by identity.
bool equal_keys(const Value& a, const Value& b);
/// Throws Error: a key that has no hash.
std::uint64_t hash_of(const Value& key);

class RangeObject final : public Object {
 public:
  RangeObject(Heap& heap, std::int64_t start_in, std::int64_t stop_in, std::int64_t step_in)
      : Object(heap), start(start_in), stop(stop_in), step(step_in) {}
  std::int64_t size() const;
  const std::int64_t start, stop, step;
};

class SliceObject final : public Object {
 public:
  SliceObject(Heap& heap, Value start_in, Value stop_in, Value step_in)
      : Object(heap), start(std::move(start_in)), stop(std::move(stop_in)), step(std::move(step_in)) {}
  const Value start, stop, step;
};

/// A variable that functions share.
class CellObject final : public Object {
 public:
  explicit CellObject(Heap& heap) : Object(heap) {}
  void clear() override { value = Value(); }
  Value value;
};

/// Attributes by name, in the order in which they came; few.
class Attributes {
 public:
  Value* find(Symbol name) {
    for (auto& [known, value] : items)
      if (known == name) return &value;
    return nullptr;
  }
  /// Throws Error (refused): more than model code can need.
  void set(Symbol name, Value value);
  bool erase(Symbol name);
  std::vector<std::pair<Symbol, Value>> items;
};

/// Arguments of a call as they stand.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<Symbol, Value>> keywords;
};

class FunctionObject final : public Object {
 public:
  FunctionObject(Heap& heap, const FunctionCode& code_in) : Object(heap), code(code_in) {}
  void clear() override {
    defaults.clear();
    cells.clear();
    class_cell = {};
  }
  const FunctionCode& code;
  std::vector<Value> defaults;          ///< in the order of code.defaults
  std::vector<Held<CellObject>> cells;  ///< in the order of code.captured
  Held<CellObject> class_cell;          ///< the class in whose body it stands
  Attributes attributes;                ///< __wrapped__ among them: what functools.wraps was told
};

/// Arguments of a native function, bound to the names of its signature; unbound where nothing was given.
struct Bound {
  std::vector<Value> values;
  std::vector<Value> rest;                             ///< *args
  std::vector<std::pair<Symbol, Value>> keyword_rest;  ///< **kwargs
  const Value& operator[](std::size_t i) const { return values[i]; }
  bool has(std::size_t i) const { return values[i].is_bound() && !values[i].is_none(); }
};

using Native = std::function<Value(Interpreter&, Bound&)>;

/// A function of a library.
class NativeObject final : public Object {
 public:
  struct Parameter {
    Symbol name = 0;
    bool required = true, keyword_only = false;
  };
  NativeObject(Heap& heap, std::string name_in, Native run_in) : Object(heap), name(std::move(name_in)), run(std::move(run_in)) {}
  const std::string name;  ///< "torch.nn.functional.linear"
  const Native run;
  std::vector<Parameter> parameters;
  bool takes_rest = false, takes_keywords = false;
  bool is_method = false;        ///< found in a class, it is bound to the instance
  bool is_class_method = false;  ///< to the class
};

class BoundMethodObject final : public Object {
 public:
  BoundMethodObject(Heap& heap, Value self_in, Value function_in)
      : Object(heap), self(std::move(self_in)), function(std::move(function_in)) {}
  const Value self, function;
};

/// staticmethod, classmethod, property, functools.partial, super(): what wraps something else.
class WrapperObject final : public Object {
 public:
  enum class Kind : std::uint8_t { static_method, class_method, property, cached_property, class_property, partial, super, no_grad };
  WrapperObject(Heap& heap, Kind kind_in, Value inner_in) : Object(heap), kind(kind_in), inner(std::move(inner_in)) {}
  void clear() override {
    inner = setter = Value();
    arguments = {};
  }
  const Kind kind;
  Value inner;                         ///< the function; of super(): the instance
  Value setter;                        ///< of a property
  CallArguments arguments;             ///< of a partial
  const ClassObject* owner = nullptr;  ///< of super(): the class behind which is looked
  bool enables_grad = false;           ///< of no_grad: enable_grad
};

class ClassObject final : public Object {
 public:
  ClassObject(Heap& heap, std::string name_in) : Object(heap), name(std::move(name_in)) {}
  void clear() override {
    order.clear();
    bases.clear();
    attributes.items.clear();
  }
  bool derives_from(const ClassObject* other) const;
  /// The attribute in the first class of its order, from behind `behind` on where that is given.
  Value* find(Symbol name, const ClassObject* behind = nullptr);

  const std::string name;  ///< with its module where it is a library's
  std::vector<Held<ClassObject>> bases;
  std::vector<ClassObject*> order;  ///< method resolution order, itself first; its bases hold those behind
  Attributes attributes;
  bool is_module = false;  ///< torch.nn.Module or derived from it
  bool is_exception = false;
  bool is_native = false;
  bool renames = false;  ///< attributes go by other names where `attribute_map` says so (transformers' configurations)
  /// Of a dataclass: its fields in order.
  struct Field {
    Symbol name;
    Value default_value, factory;
  };
  std::vector<Field> fields;
  bool is_dataclass = false;
  /// Of a native class whose instances are no instances: int, str, list, torch.Tensor …; makes a value.
  Value constructor;
  std::function<bool(const Value&)> holds;  ///< isinstance of such a class; none: by the instance's class
};

struct ModuleState;

class InstanceObject final : public Object {
 public:
  InstanceObject(Heap& heap, Held<ClassObject> type_in);
  ~InstanceObject() override;
  void clear() override;
  Held<ClassObject> type;
  Attributes attributes;
  std::unique_ptr<ModuleState> module;  ///< of an nn.Module whose __init__ ran
};

/// A module of a library, or what an import of something unknown gives.
class NamespaceObject final : public Object {
 public:
  NamespaceObject(Heap& heap, std::string name_in, bool known_in) : Object(heap), name(std::move(name_in)), known(known_in) {}
  void clear() override { attributes.clear(); }
  const std::string name;
  const bool known;  ///< false: any use of it is refused
  std::unordered_map<Symbol, Value> attributes;
};

/// What gives one value after the other.
class IteratorObject : public Object {
 public:
  using Object::Object;
  /// The next value; unbound at the end.
  virtual Value next(Interpreter& interpreter) = 0;
};

/// torch.float32, torch.device("cuda") and the like: a value known by its name.
class TokenObject final : public Object {
 public:
  enum class Kind : std::uint8_t { dtype, device, other };
  TokenObject(Heap& heap, Kind kind_in, std::string name_in, int number_in = 0)
      : Object(heap), kind(kind_in), name(std::move(name_in)), number(number_in) {}
  const Kind kind;
  const std::string name;
  const int number;  ///< of a dtype: plimsoll's; of a device: 0 the host, 1 the accelerator
};

}  // namespace plimsoll::code
