// What of the standard library is told in Python: names beside those that are native (standard_library.cpp).
#include "code/library_texts.hpp"

#include "code/library.hpp"
#include "code/torch/torch.hpp"

namespace plimsoll::code {

namespace {

constexpr const char* kTypingExtensions = R"py(
def dataclass_transform(**options):
    return lambda of: of


def override(of):
    return of
)py";

constexpr const char* kTyping = R"py(
def cast(type, value):
    return value


def overload(function):
    return function


def override(function):
    return function


def TypeVar(name, *bounds, **options):
    return None


def get_type_hints(of):
    return {}
)py";

constexpr const char* kFunctools = R"py(
def lru_cache(maxsize=128, typed=False):
    if callable(maxsize):
        return maxsize
    return lambda function: function


def cache(function):
    return function


def reduce(function, iterable, *initial):
    items = list(iterable)
    if initial:
        value = initial[0]
    elif items:
        value = items.pop(0)
    else:
        raise TypeError("reduce() of empty iterable with no initial value")
    for item in items:
        value = function(value, item)
    return value
)py";

constexpr const char* kItertools = R"py(
class chain:
    def __init__(self, *iterables):
        self._items = [item for iterable in iterables for item in iterable]

    def __iter__(self):
        return iter(self._items)

    @classmethod
    def from_iterable(cls, iterables):
        return cls(*iterables)


def accumulate(iterable, function=None, initial=None):
    sums = [] if initial is None else [initial]
    for item in iterable:
        if not sums:
            sums.append(item)
        else:
            sums.append(sums[-1] + item if function is None else function(sums[-1], item))
    return sums


def product(*iterables):
    made = [()]
    for iterable in iterables:
        items = list(iterable)
        made = [each + (item,) for each in made for item in items]
    return made


def groupby(iterable, key=None):
    groups = []
    for item in iterable:
        value = item if key is None else key(item)
        if groups and groups[-1][0] == value:
            groups[-1][1].append(item)
        else:
            groups.append((value, [item]))
    return groups


def islice(iterable, *bounds):
    return list(iterable)[slice(*bounds)]


def zip_longest(*iterables, fillvalue=None):
    lists = [list(each) for each in iterables]
    most = max(len(each) for each in lists)
    return [tuple(each[at] if at < len(each) else fillvalue for each in lists) for at in range(most)]


def pairwise(iterable):
    items = list(iterable)
    return list(zip(items, items[1:]))
)py";

constexpr const char* kOperator = R"py(
def mul(a, b):
    return a * b


def add(a, b):
    return a + b


def or_(a, b):
    return a | b


def and_(a, b):
    return a & b


def itemgetter(*keys):
    return lambda of: of[keys[0]] if len(keys) == 1 else tuple(of[key] for key in keys)


def attrgetter(name):
    def get(of):
        for part in name.split("."):
            of = getattr(of, part)
        return of

    return get
)py";

constexpr const char* kOs = R"py(
class _Environment:
    def get(self, name, default=None):
        return default

    def __contains__(self, name):
        return False


environ = _Environment()


def getenv(name, default=None):
    return default
)py";

constexpr const char* kContextlib = R"py(
def contextmanager(function):  # a generator, which is refused where it runs
    return function


def suppress(*types):
    from contextlib import nullcontext

    return nullcontext()
)py";

constexpr const char* kEnum = R"py(
class _Member:
    def __init__(self, name, value):
        self.name = name
        self.value = value

    def __eq__(self, other):
        return self is other or self.value == other


class Enum:
    def __init_subclass__(cls, **kwargs):
        for name, value in list(cls.__dict__.items()):
            if not name.startswith("_") and not callable(value):
                setattr(cls, name, _Member(name, value))


StrEnum = IntEnum = Enum
)py";

constexpr const char* kInspect = R"py(
class Parameter:
    POSITIONAL_ONLY = 0
    POSITIONAL_OR_KEYWORD = 1
    VAR_POSITIONAL = 2
    KEYWORD_ONLY = 3
    VAR_KEYWORD = 4

    class empty:
        pass

    def __init__(self, name, kind, default):
        self.name = name
        self.kind = kind
        self.default = default


class Signature:
    def __init__(self, parameters):
        self.parameters = parameters


def signature(function):
    from plimsoll import parameters_of

    found = {}
    for name, kind, has_default in parameters_of(function):
        found[name] = Parameter(name, kind, None if has_default else Parameter.empty)
    return Signature(found)


def unwrap(function):
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def get_annotations(of):
    return {}
)py";

constexpr const char* kRandom = R"py(
def random():
    from plimsoll import refuse

    refuse("a number that is drawn (random.random)")
)py";

constexpr const char* kCollections = R"py(
def namedtuple(name, fields, **options):
    from plimsoll import refuse

    refuse("collections.namedtuple")
)py";

constexpr std::pair<const char*, const char*> kTexts[] = {
    {"typing_extensions", kTypingExtensions}, {"typing", kTyping},         {"functools", kFunctools}, {"itertools", kItertools},
    {"operator", kOperator},                  {"os", kOs}, {"contextlib", kContextlib}, {"enum", kEnum},
    {"inspect", kInspect},                    {"random", kRandom},         {"collections", kCollections},
};

/// parameters_of(function): name, inspect's kind, whether it has a default.
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
    for (const NativeObject::Parameter& each : native->parameters)
      rows.push_back(i.tuple({i.text(i.names().text(each.name)), Value::integer(each.keyword_only ? 3 : 1), Value::boolean(!each.required)}));
    return i.list(std::move(rows));
  }
  const auto* function = of.as<FunctionObject>();
  if (function == nullptr) i.unknown("the signature of a " + i.type_name(of));
  for (const Parameter& each : function->code.parameters) {
    if (bound && &each == &function->code.parameters.front()) continue;
    const int kind = each.kind == Parameter::Kind::positional_only ? 0
                     : each.kind == Parameter::Kind::usual         ? 1
                     : each.kind == Parameter::Kind::sequence      ? 2
                     : each.kind == Parameter::Kind::keyword_only  ? 3
                                                                   : 4;
    rows.push_back(i.tuple({i.text(i.names().text(each.name)), Value::integer(kind), Value::boolean(each.default_value != nullptr)}));
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

void define_library_texts(Interpreter& i) {
  for (const auto& [module, text] : kTexts) i.put_over(module, text);
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
  abstract("Iterable", [](const Value& value) {
    return value.as<SequenceObject>() != nullptr || value.as<TextObject>() != nullptr || value.as<DictionaryObject>() != nullptr ||
           value.as<RangeObject>() != nullptr || value.as<IteratorObject>() != nullptr || Torch::is_tensor(value);
  });
  NamespaceObject& dataclasses = i.library("dataclasses");
  dataclasses.attributes[i.symbol("MISSING")] = Value(new TokenObject(i.heap(), TokenObject::Kind::other, "dataclasses.MISSING"));
  dataclasses.attributes[i.symbol("fields")] = i.native("dataclasses.fields", "of", fields);
  dataclasses.attributes[i.symbol("is_dataclass")] = i.native("dataclasses.is_dataclass", "of", is_dataclass);
}

}  // namespace plimsoll::code
