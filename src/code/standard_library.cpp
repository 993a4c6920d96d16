// math, dataclasses, functools, typing, … as far as modelling code uses them.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "code/iterators.hpp"
#include "code/library.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

template <double (*kFunction)(double)>
Value real_function(Interpreter& i, Bound& a) {
  const double result = kFunction(i.number(a[0], "arguments"));
  if (std::isnan(result)) i.raise("ValueError", "math domain error");
  return Value::real(result);
}

template <double (*kFunction)(double)>
Value whole_function(Interpreter& i, Bound& a) {
  if (a[0].is_integer()) return Value::integer(a[0].as_integer());
  const double result = kFunction(i.number(a[0], "arguments"));
  if (!(std::abs(result) < 0x1p62)) i.raise("OverflowError", "cannot convert float to integer");
  return Value::integer(static_cast<std::int64_t>(result));
}

Value logarithm(Interpreter& i, Bound& a) {
  const double x = i.number(a[0], "math.log()"), base = a.has(1) ? std::log(i.number(a[1], "math.log()")) : 1;
  if (x <= 0) i.raise("ValueError", "math domain error");
  if (base == 0) i.raise("ZeroDivisionError", "float division by zero");
  return Value::real(std::log(x) / base);
}

Value product(Interpreter& i, Bound& a) {
  Value result = Value::integer(1);
  for (const Value& each : i.all_of(a[0])) result = i.binary(Operator::multiply, result, each);
  return result;
}

Value greatest_divisor(Interpreter& i, Bound& a) {
  std::int64_t x = i.whole(a[0], "math.gcd()"), y = i.whole(a[1], "math.gcd()");
  while (y != 0) x = std::exchange(y, y == -1 ? 0 : x % y);
  return Value::integer(std::abs(std::max<std::int64_t>(x, -INT64_MAX)));
}

void define_math(Interpreter& i) {
  NamespaceObject& math = i.library("math");
  const auto function = [&](const char* name, const char* signature, Native run) {
    math.attributes[i.symbol(name)] = i.native(std::string("math.") + name, signature, std::move(run));
  };
  function("sqrt", "x", real_function<std::sqrt>);
  function("exp", "x", real_function<std::exp>);
  function("cos", "x", real_function<std::cos>);
  function("sin", "x", real_function<std::sin>);
  function("tanh", "x", real_function<std::tanh>);
  function("erf", "x", real_function<std::erf>);
  function("log2", "x", real_function<std::log2>);
  function("log10", "x", real_function<std::log10>);
  function("log", "x, base=", logarithm);
  function("floor", "x", whole_function<std::floor>);
  function("ceil", "x", whole_function<std::ceil>);
  function("pow", "x, y", [](Interpreter& inner, Bound& a) {
    return Value::real(std::pow(inner.number(a[0], "math.pow()"), inner.number(a[1], "math.pow()")));
  });
  function("prod", "iterable", product);
  function("gcd", "a, b", greatest_divisor);
  function("comb", "n, k", [](Interpreter& inner, Bound& a) {
    const std::int64_t n = inner.whole(a[0], "math.comb()"), k = inner.whole(a[1], "math.comb()");
    if (n < 0 || k < 0) inner.raise("ValueError", "n and k must be non-negative integers");
    if (n > 60) inner.unknown("math.comb() of more than 60");
    std::int64_t ways = k > n ? 0 : 1;
    const std::int64_t chosen = std::min(k, n - k);
    for (std::int64_t at = 1; at <= chosen; ++at) ways = ways * (n - chosen + at) / at;
    return Value::integer(ways);
  });
  function("isqrt", "n", [](Interpreter& inner, Bound& a) {
    const std::int64_t number = inner.whole(a[0], "math.isqrt()");
    if (number < 0) inner.raise("ValueError", "isqrt() argument must be nonnegative");
    auto root = static_cast<std::int64_t>(std::sqrt(static_cast<double>(number)));
    while (root > number / std::max<std::int64_t>(root, 1)) --root;
    while (root + 1 <= number / (root + 1)) ++root;
    return Value::integer(root);
  });
  function("isfinite", "x", [](Interpreter& inner, Bound& a) { return Value::boolean(std::isfinite(inner.number(a[0], "math.isfinite()"))); });
  function("isnan", "x", [](Interpreter& inner, Bound& a) { return Value::boolean(std::isnan(inner.number(a[0], "math.isnan()"))); });
  function("isinf", "x", [](Interpreter& inner, Bound& a) { return Value::boolean(std::isinf(inner.number(a[0], "math.isinf()"))); });
  math.attributes[i.symbol("pi")] = Value::real(std::numbers::pi);
  math.attributes[i.symbol("e")] = Value::real(std::numbers::e);
  math.attributes[i.symbol("inf")] = Value::real(HUGE_VAL);
}

/// What field(default=…, default_factory=…) stands for until its class is made.
constexpr const char* kField = "dataclasses.field";

Value dataclass(Interpreter& i, const Value& of) {
  auto* type = of.as<ClassObject>();
  if (type == nullptr) i.raise("TypeError", "dataclass() should be called with a class");
  const Value* annotations = type->attributes.find(i.symbol("__annotations__"));
  const std::vector<Value> names = annotations != nullptr ? i.all_of(*annotations) : std::vector<Value>{};
  for (const Value& name : names) {
    ClassObject::Field field{i.symbol(i.words(name, "fields")), {}, {}};
    if (const Value* own = type->attributes.find(field.name)) field.default_value = *own;
    if (const auto* made = field.default_value.as<InstanceObject>(); made != nullptr && made->type->name == kField) {
      const Value held = field.default_value;
      field.default_value = i.attribute_or(held, i.symbol("default"));
      field.factory = i.attribute_or(held, i.symbol("default_factory"));
      type->attributes.erase(field.name);
    }
    const auto known = std::find_if(type->fields.begin(), type->fields.end(), [&](const auto& each) { return each.name == field.name; });
    if (known != type->fields.end())
      *known = std::move(field);
    else
      type->fields.push_back(std::move(field));
  }
  type->is_dataclass = true;
  return of;
}

void define_dataclasses(Interpreter& i) {
  NamespaceObject& library = i.library("dataclasses");
  library.attributes[i.symbol("dataclass")] = i.native("dataclass", "type=, **options", [](Interpreter& inner, Bound& a) {
    if (a.has(0)) return dataclass(inner, a[0]);
    return inner.native("dataclass", "type", [](Interpreter& again, Bound& given) { return dataclass(again, given[0]); });
  });
  const Held<ClassObject> field_type = i.native_class(kField, {i.builtin_class("object")});
  library.attributes[i.symbol("field")] =
      i.native("field", "*, default=, default_factory=, **options", [field_type](Interpreter& inner, Bound& a) {
        Held<InstanceObject> made(new InstanceObject(inner.heap(), field_type));
        if (a[0].is_bound()) made->attributes.set(inner.symbol("default"), a[0]);
        if (a[1].is_bound()) made->attributes.set(inner.symbol("default_factory"), a[1]);
        return Value(made);
      });
  library.attributes[i.symbol("asdict")] = i.native("asdict", "of", [](Interpreter& inner, Bound& a) {
    const auto* instance = a[0].as<InstanceObject>();
    if (instance == nullptr) inner.raise("TypeError", "asdict() should be called on dataclass instances");
    Value made(new DictionaryObject(inner.heap()));
    for (const auto& field : instance->type->fields)
      made.as<DictionaryObject>()->set(inner.text(inner.names().text(field.name)), inner.attribute(a[0], field.name));
    return made;
  });
}

/// A decorator that changes nothing that matters here.
Value unchanged(Interpreter& i, Bound& a) {
  if (a.has(0)) return a[0];
  return i.native("decorator", "function", [](Interpreter&, Bound& given) { return given[0]; });
}

Value partial(Interpreter& i, Bound& a) {
  const auto* of = a[0].as<WrapperObject>();
  if (of != nullptr && of->kind != WrapperObject::Kind::partial) of = nullptr;
  // A partial of a partial is one of the function within (functools.partial.__new__).
  Held<WrapperObject> made(new WrapperObject(i.heap(), WrapperObject::Kind::partial, of != nullptr ? of->inner : a[0]));
  if (of != nullptr) made->arguments = of->arguments;
  auto& [positional, keywords] = made->arguments;
  positional.insert(positional.end(), a.rest.begin(), a.rest.end());
  for (const auto& each : a.keyword_rest) {
    const auto known = std::find_if(keywords.begin(), keywords.end(), [&](const auto& keyword) { return keyword.first == each.first; });
    if (known == keywords.end())
      keywords.push_back(each);
    else
      known->second = each.second;
  }
  return Value(made);
}

void define_functools(Interpreter& i) {
  NamespaceObject& library = i.library("functools");
  const Held<ClassObject> partial_type = i.native_class("functools.partial", {i.builtin_class("object")});
  partial_type->constructor = i.native("functools.partial", "function, *args, **kwargs", partial);
  partial_type->holds = [](const Value& value) {
    const auto* wrapper = value.as<WrapperObject>();
    return wrapper != nullptr && wrapper->kind == WrapperObject::Kind::partial;
  };
  library.attributes[i.symbol("partial")] = Value(partial_type);
  const Held<ClassObject> function_type = i.native_class("types.FunctionType", {i.builtin_class("object")});
  function_type->holds = [](const Value& value) { return value.as<FunctionObject>() != nullptr; };
  i.library("types").attributes[i.symbol("FunctionType")] = Value(function_type);
  library.attributes[i.symbol("wraps")] = i.native("functools.wraps", "wrapped", [](Interpreter& inner, Bound& a) {
    return inner.native("decorator", "function", [wrapped = a[0]](Interpreter& again, Bound& given) {
      if (auto* function = given[0].as<FunctionObject>()) {
        function->attributes.set(again.symbol("__wrapped__"), wrapped);
        if (Value name = again.attribute_or(wrapped, again.symbol("__name__")); name.is_bound())
          function->attributes.set(again.symbol("__name__"), std::move(name));
      }
      return given[0];
    });
  });
  library.attributes[i.symbol("cached_property")] = i.native("functools.cached_property", "function", [](Interpreter& inner, Bound& a) {
    return Value(new WrapperObject(inner.heap(), WrapperObject::Kind::cached_property, a[0]));
  });
  i.library("types").attributes[i.symbol("MethodType")] = i.native("types.MethodType", "function, instance", [](Interpreter& inner, Bound& a) {
    return Value(new BoundMethodObject(inner.heap(), a[1], a[0]));
  });
  NamespaceObject& collections = i.library("collections");
  collections.attributes[i.symbol("OrderedDict")] = Value(static_cast<Object*>(i.builtin_class("dict")));
  for (const char* name : {"abstractmethod"}) i.library("abc").attributes[i.symbol(name)] = i.native(name, "function=", unchanged);
  i.library("abc").attributes[i.symbol("ABC")] = Value(static_cast<Object*>(i.builtin_class("object")));
}

void define_itertools(Interpreter& i) {
  i.library("itertools").attributes[i.symbol("cycle")] = i.native("itertools.cycle", "iterable", [](Interpreter& inner, Bound& a) {
    return Value(new FunctionIterator(inner.heap(), [items = inner.list(inner.all_of(a[0])), at = std::size_t{0}](Interpreter&) mutable {
      const auto& all = items.as<SequenceObject>()->items;
      return all.empty() ? Value() : all[at++ % all.size()];
    }));
  });
}

/// Names that stand in annotations alone.
void define_typing(Interpreter& i) {
  for (const char* name : {"Any", "Callable", "Dict", "Final", "Iterable", "Iterator", "List", "Literal", "Mapping", "NamedTuple",
                           "Optional", "Protocol", "Sequence", "Tuple", "Type", "Union", "TYPE_CHECKING"}) {
    const Value value = std::string_view(name) == "TYPE_CHECKING" ? Value::boolean(false)
                                                                  : Value(new TokenObject(i.heap(), TokenObject::Kind::other, name));
    i.library("typing").attributes[i.symbol(name)] = value;
  }
  for (const char* name : {"annotations", "division", "print_function"}) i.library("__future__").attributes[i.symbol(name)] = Value::none();
}

void define_others(Interpreter& i) {
  NamespaceObject& context = i.library("contextlib");
  const Held<ClassObject> null = i.native_class("contextlib.nullcontext", {i.builtin_class("object")});
  null->attributes.set(i.symbol("__init__"), i.method("nullcontext", "self, result=", [](Interpreter& inner, Bound& a) {
    a[0].as<InstanceObject>()->attributes.set(inner.symbol("result"), a[1].is_bound() ? a[1] : Value::none());
    return Value::none();
  }));
  null->attributes.set(i.symbol("__enter__"), i.method("__enter__", "self", [](Interpreter& inner, Bound& a) {
    return inner.attribute(a[0], inner.symbol("result"));
  }));
  null->attributes.set(i.symbol("__exit__"),
                       i.method("__exit__", "self, *args", [](Interpreter&, Bound&) { return Value::boolean(false); }));
  context.attributes[i.symbol("nullcontext")] = Value(null);
  NamespaceObject& warnings = i.library("warnings");
  warnings.attributes[i.symbol("warn")] = i.native("warnings.warn", "*args, **kwargs", [](Interpreter&, Bound&) { return Value::none(); });
  NamespaceObject& logging = i.library("logging");
  const Held<ClassObject> logger = i.native_class("logging.Logger", {i.builtin_class("object")});
  for (const char* name : {"debug", "info", "warning", "error", "warning_once"})
    logger->attributes.set(i.symbol(name), i.method(name, "self, *args, **kwargs", [](Interpreter&, Bound&) { return Value::none(); }));
  logging.attributes[i.symbol("getLogger")] = i.native(
      "logging.getLogger", "name=", [logger](Interpreter& inner, Bound&) { return Value(new InstanceObject(inner.heap(), logger)); });
  NamespaceObject& inspect = i.library("inspect");
  inspect.attributes[i.symbol("isfunction")] =
      i.native("inspect.isfunction", "value", [](Interpreter&, Bound& a) { return Value::boolean(a[0].as<FunctionObject>() != nullptr); });
}

}  // namespace

void fill_fields(Interpreter& i, InstanceObject& instance, CallArguments arguments) {
  const auto& fields = instance.type->fields;
  if (arguments.positional.size() > fields.size())
    i.raise("TypeError", instance.type->name + "() takes " + std::to_string(fields.size()) + " arguments, and was given more");
  std::vector<Value> values(fields.size());
  for (std::size_t at = 0; at < arguments.positional.size(); ++at) values[at] = std::move(arguments.positional[at]);
  const auto field_of = [&](Symbol name) {
    return std::find_if(fields.begin(), fields.end(), [&](const auto& field) { return field.name == name; });
  };
  // Old names of fields, where a class has a table of them (a metaclass renames transformers').
  const Value* const table = instance.type->find(i.symbol("_renamed_fields"));
  auto* const renamed = table != nullptr ? table->as<DictionaryObject>() : nullptr;
  for (auto& [name, value] : arguments.keywords) {
    auto found = field_of(name);
    if (found == fields.end() && renamed != nullptr)
      if (const Value* now = renamed->find(i.text(i.names().text(name)))) found = field_of(i.symbol(i.words(*now, "names of fields")));
    if (found == fields.end()) {
      std::vector<std::string> known;
      for (const auto& field : fields) known.push_back(i.names().text(field.name));
      const std::string nearest = nearest_name(i.names().text(name), known);
      i.raise("TypeError", instance.type->name + "() got an unexpected keyword argument '" + i.names().text(name) + "'" +
                               (nearest.empty() ? std::string() : ". Did you mean '" + nearest + "'?"));
    }
    values[static_cast<std::size_t>(found - fields.begin())] = std::move(value);
  }
  for (std::size_t at = 0; at < fields.size(); ++at) {
    if (!values[at].is_bound() && fields[at].factory.is_bound()) values[at] = i.call(fields[at].factory, std::vector<Value>{});
    if (!values[at].is_bound()) values[at] = fields[at].default_value;
    if (!values[at].is_bound())
      i.raise("TypeError", instance.type->name + "() missing required argument: '" + i.names().text(fields[at].name) + "'");
    instance.attributes.set(fields[at].name, std::move(values[at]));
  }
}

void define_standard_library(Interpreter& i) {
  define_math(i);
  define_dataclasses(i);
  define_functools(i);
  define_itertools(i);
  define_typing(i);
  define_others(i);
}

}  // namespace plimsoll::code
