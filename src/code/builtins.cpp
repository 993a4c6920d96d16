// Builtin functions and types.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "code/iterators.hpp"
#include "code/library.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"
#include "units/real.hpp"

namespace plimsoll::code {

namespace {

Value made_by(Interpreter& i, FunctionIterator::Next next) { return Value(new FunctionIterator(i.heap(), std::move(next))); }

Value range(Interpreter& i, Bound& a) {
  const std::int64_t first = i.whole(a[0], "range()");
  const std::int64_t start = a.has(1) ? first : 0, stop = a.has(1) ? i.whole(a[1], "range()") : first,
                     step = a.has(2) ? i.whole(a[2], "range()") : 1;
  constexpr std::int64_t kMost = std::int64_t{1} << 61;
  if (step == 0) i.raise("ValueError", "range() arg 3 must not be zero");
  if (std::abs(start) > kMost || std::abs(stop) > kMost || std::abs(step) > kMost) i.unknown("a range of such numbers");
  return Value(new RangeObject(i.heap(), start, stop, step));
}

Value enumerate(Interpreter& i, Bound& a) {
  const std::int64_t start = a.has(1) ? i.whole(a[1], "enumerate()") : 0;
  return made_by(i, [walked = i.iterate(a[0]), at = start](Interpreter& inner) mutable {
    Value value = walked->next(inner);
    return value.is_bound() ? inner.tuple({Value::integer(at++), std::move(value)}) : Value();
  });
}

Value zip(Interpreter& i, Bound& a) {
  std::vector<Held<IteratorObject>> walked;
  for (const Value& each : a.rest) walked.push_back(i.iterate(each));
  return made_by(i, [walked = std::move(walked)](Interpreter& inner) {
    std::vector<Value> values;
    for (const auto& each : walked) {
      values.push_back(each->next(inner));
      if (!values.back().is_bound()) return Value();
    }
    return values.empty() ? Value() : inner.tuple(std::move(values));
  });
}

Value map(Interpreter& i, Bound& a) {
  return made_by(i, [function = a[0], walked = i.iterate(a[1])](Interpreter& inner) {
    Value value = walked->next(inner);
    return value.is_bound() ? inner.call(function, std::vector<Value>{std::move(value)}) : Value();
  });
}

Value filter(Interpreter& i, Bound& a) {
  return made_by(i, [function = a[0], walked = i.iterate(a[1])](Interpreter& inner) {
    for (Value value = walked->next(inner); value.is_bound(); value = walked->next(inner))
      if (inner.truth(function.is_none() ? value : inner.call(function, std::vector<Value>{value}))) return value;
    return Value();
  });
}

Value reversed(Interpreter& i, Bound& a) {
  std::vector<Value> items = i.all_of(a[0]);
  std::reverse(items.begin(), items.end());
  return Value(i.iterate(i.list(std::move(items))));
}

Value sorted(Interpreter& i, Bound& a) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : i.all_of(a[0])) {
    Value key = a.has(1) ? i.call(a[1], std::vector<Value>{item}) : item;
    keyed.emplace_back(std::move(key), std::move(item));
  }
  // Merged by hand: a comparison of the text's own may contradict itself, which std::stable_sort does not take.
  std::vector<std::pair<Value, Value>> other(keyed.size());
  const bool falls = a.has(2) && i.truth(a[2]);
  for (std::size_t width = 1; width < keyed.size(); width *= 2) {
    for (std::size_t start = 0; start < keyed.size(); start += 2 * width) {
      const std::size_t middle = std::min(start + width, keyed.size()), end = std::min(start + 2 * width, keyed.size());
      std::size_t left = start, right = middle;
      for (std::size_t at = start; at < end; ++at) {
        const bool take_right =
            left == middle ||
            (right < end && (falls ? i.less(keyed[left].first, keyed[right].first) : i.less(keyed[right].first, keyed[left].first)));
        other[at] = std::move(keyed[take_right ? right++ : left++]);
      }
    }
    keyed.swap(other);
  }
  std::vector<Value> items;
  for (auto& each : keyed) items.push_back(std::move(each.second));
  return i.list(std::move(items));
}

/// min() and max().
template <bool kLeast>
Value extreme(Interpreter& i, Bound& a) {
  const std::vector<Value> items = a.rest.size() == 1 ? i.all_of(a.rest.front()) : a.rest;
  const auto key_of = [&](const Value& item) { return a.has(0) ? i.call(a[0], std::vector<Value>{item}) : item; };
  if (items.empty()) {
    if (a[1].is_bound()) return a[1];
    i.raise("ValueError", "iterable argument is empty");
  }
  Value best = items.front(), best_key = key_of(best);
  for (std::size_t at = 1; at < items.size(); ++at) {
    const Value key = key_of(items[at]);
    if (kLeast ? i.less(key, best_key) : i.less(best_key, key)) best = items[at], best_key = key;
  }
  return best;
}

Value sum(Interpreter& i, Bound& a) {
  const Held<IteratorObject> walked = i.iterate(a[0]);
  Value total = a[1].is_bound() ? a[1] : Value::integer(0);
  for (Value value = walked->next(i); value.is_bound(); value = walked->next(i)) total = i.binary(Operator::add, total, value);
  return total;
}

template <bool kAll>
Value all_or_any(Interpreter& i, Bound& a) {
  const Held<IteratorObject> walked = i.iterate(a[0]);
  for (Value value = walked->next(i); value.is_bound(); value = walked->next(i))
    if (i.truth(value) != kAll) return Value::boolean(!kAll);
  return Value::boolean(kAll);
}

Value absolute(Interpreter& i, Bound& a) {
  if (a[0].is_integer())
    return a[0].as_integer() < 0 ? i.binary(Operator::subtract, Value::integer(0), a[0]) : Value::integer(a[0].as_integer());
  if (a[0].is_real()) return Value::real(std::abs(a[0].as_real()));
  return i.call(i.attribute(a[0], i.symbol("abs")), std::vector<Value>{});
}

Value rounded(Interpreter& i, Bound& a) {
  const double number = i.number(a[0], "round()");
  if (a.has(1)) {
    const double scale = std::pow(10.0, static_cast<double>(std::clamp<std::int64_t>(i.whole(a[1], "digits"), -300, 300)));
    return Value::real(std::nearbyint(number * scale) / scale);
  }
  if (a[0].is_integer()) return a[0];
  if (!(std::abs(number) < 0x1p62)) i.raise("OverflowError", "cannot convert float to integer");
  return Value::integer(static_cast<std::int64_t>(std::nearbyint(number)));
}

Value to_integer(Interpreter& i, Bound& a) {
  if (!a[0].is_bound()) return Value::integer(0);
  if (a[0].is_integer()) return Value::integer(a[0].as_integer());
  if (const auto* words = a[0].as<TextObject>()) {
    std::int64_t number = 0;
    const char *first = words->text.data(), *last = first + words->text.size();
    const auto [end, error] = std::from_chars(first, last, number);
    if (error != std::errc() || end != last) i.raise("ValueError", "invalid literal for int() with base 10: " + i.written(a[0]));
    return Value::integer(number);
  }
  const double number = i.number(a[0], "int()");
  if (!(std::abs(number) < 0x1p62)) i.raise("OverflowError", "cannot convert float to integer");
  return Value::integer(static_cast<std::int64_t>(number));
}

Value to_real(Interpreter& i, Bound& a) {
  if (!a[0].is_bound()) return Value::real(0);
  if (const auto* words = a[0].as<TextObject>()) {
    static constexpr std::pair<std::string_view, double> kNames[] = {{"inf", HUGE_VAL}, {"-inf", -HUGE_VAL}, {"infinity", HUGE_VAL},
                                                                     {"nan", NAN},      {"Inf", HUGE_VAL},   {"-Inf", -HUGE_VAL}};
    for (const auto& [name, number] : kNames)
      if (words->text == name) return Value::real(number);
    double number = 0;
    const char *first = words->text.data(), *last = first + words->text.size();
    const auto [end, error] = real_from_chars(first, last, number);
    if (error != std::errc() || end != last) i.raise("ValueError", "could not convert string to float: " + i.written(a[0]));
    return Value::real(number);
  }
  return Value::real(i.number(a[0], "float()"));
}

/// The attribute; unbound where there is none, or where a property or __getattr__ says so by an AttributeError.
Value attribute_if_any(Interpreter& i, const Value& of, Symbol name) {
  try {
    return i.attribute_or(of, name);
  } catch (const Raised& raised) {
    const auto* error = raised.exception.as<InstanceObject>();
    if (error == nullptr || !error->type->derives_from(i.builtin_class("AttributeError"))) throw;
    return {};
  }
}

Value get_attribute(Interpreter& i, Bound& a) {
  const Symbol name = i.symbol(i.words(a[1], "attribute names"));
  const auto* library = a[0].as<NamespaceObject>();
  if (library != nullptr && !library->known) return i.attribute(a[0], name);
  Value found = a[2].is_bound() ? attribute_if_any(i, a[0], name) : i.attribute_or(a[0], name);
  if (found.is_bound()) return found;
  return a[2].is_bound() ? a[2] : i.attribute(a[0], name);
}

Value has_attribute(Interpreter& i, Bound& a) {
  const auto* library = a[0].as<NamespaceObject>();
  if (library != nullptr && !library->known) i.foreign(*library);
  return Value::boolean(attribute_if_any(i, a[0], i.symbol(i.words(a[1], "attribute names"))).is_bound());
}

Value to_dictionary(Interpreter& i, Bound& a) {
  Value made(new DictionaryObject(i.heap()));
  auto& dictionary = *made.as<DictionaryObject>();
  if (a[0].is_bound()) {
    if (const auto* other = a[0].as<DictionaryObject>()) {
      for (const auto& entry : other->entries())
        if (entry.key.is_bound()) dictionary.set(entry.key, entry.value);
    } else {
      for (const Value& pair : i.all_of(a[0])) {
        const std::vector<Value> items = i.all_of(pair);
        if (items.size() != 2) i.raise("ValueError", "dictionary update sequence element is no pair");
        dictionary.set(items[0], items[1]);
      }
    }
  }
  for (const auto& [name, value] : a.keyword_rest) dictionary.set(i.text(i.names().text(name)), value);
  return made;
}

Value to_set(Interpreter& i, Bound& a) {
  Value made(new DictionaryObject(i.heap(), true));
  if (a[0].is_bound())
    for (const Value& each : i.all_of(a[0])) made.as<DictionaryObject>()->set(each, Value::none());
  return made;
}

Value next(Interpreter& i, Bound& a) {
  auto* walked = a[0].as<IteratorObject>();
  if (walked == nullptr) i.raise("TypeError", "'" + i.type_name(a[0]) + "' object is not an iterator");
  const Value held = a[0];
  Value value = walked->next(i);
  if (value.is_bound()) return value;
  if (a[1].is_bound()) return a[1];
  i.raise("StopIteration", "");
}

Value type_of(Interpreter& i, Bound& a) { return Value(static_cast<Object*>(i.class_of(a[0]))); }

Value super(Interpreter& i, Bound& a) {
  if (!a.has(0)) return i.super_of_frame();
  const auto* owner = a[0].as<ClassObject>();
  if (owner == nullptr || !a.has(1)) i.raise("TypeError", "super() argument 1 must be a type");
  Held<WrapperObject> made(new WrapperObject(i.heap(), WrapperObject::Kind::super, a[1]));
  made->owner = owner;
  return Value(made);
}

Value is_subclass(Interpreter& i, Bound& a) {
  const auto *type = a[0].as<ClassObject>(), *other = a[1].as<ClassObject>();
  if (type == nullptr || other == nullptr) i.raise("TypeError", "issubclass() arg 1 must be a class");
  return Value::boolean(type->derives_from(other));
}

Native wraps(WrapperObject::Kind kind) {
  return [kind](Interpreter& i, Bound& a) { return Value(new WrapperObject(i.heap(), kind, a[0])); };
}

struct Function {
  const char *name, *signature;
  Value (*run)(Interpreter&, Bound&);
};

Value print(Interpreter& i, Bound& a) {
  for (const Value& each : a.rest) (void)i.shown(each);  // may fail, as a program's own line does
  return Value::none();
}

/// dir(): of a library its names, of an object those of its own attributes and its classes'.
Value names_in(Interpreter& i, Bound& a) {
  std::set<std::string> names;
  const auto add = [&](const auto& items) {
    for (const auto& item : items) names.insert(i.names().text(item.first));
  };
  if (const auto* library = a[0].as<NamespaceObject>(); library != nullptr && library->known)
    add(library->attributes);
  else if (const auto* instance = a[0].as<InstanceObject>()) {
    add(instance->attributes.items);
    for (const ClassObject* type : instance->type->order) add(type->attributes.items);
  } else
    i.unknown("dir() of a " + i.type_name(a[0]));
  std::vector<Value> listed;
  for (const std::string& name : names) listed.push_back(i.text(name));
  return i.list(std::move(listed));
}

constexpr Function kFunctions[] = {
    {"len", "of", [](Interpreter& i, Bound& a) { return Value::integer(i.length(a[0])); }},
    {"enumerate", "iterable, start=", enumerate},
    {"zip", "*iterables, strict=", zip},
    {"map", "function, iterable", map},
    {"filter", "function, iterable", filter},
    {"reversed", "of", reversed},
    {"sorted", "iterable, *, key=, reverse=", sorted},
    {"min", "*values, key=, default=", extreme<true>},
    {"max", "*values, key=, default=", extreme<false>},
    {"sum", "iterable, start=", sum},
    {"all", "iterable", all_or_any<true>},
    {"any", "iterable", all_or_any<false>},
    {"abs", "x", absolute},
    {"pow", "base, exp", [](Interpreter& i, Bound& a) { return i.binary(Operator::power, a[0], a[1]); }},
    {"round", "number, ndigits=", rounded},
    {"getattr", "of, name, default=", get_attribute},
    {"hasattr", "of, name", has_attribute},
    {"setattr", "of, name, value",
     [](Interpreter& i, Bound& a) { return i.set_attribute(a[0], i.symbol(i.words(a[1], "attribute names")), a[2]), Value::none(); }},
    {"delattr", "of, name",
     [](Interpreter& i, Bound& a) { return i.erase_attribute(a[0], i.symbol(i.words(a[1], "attribute names"))), Value::none(); }},
    {"dir", "of", names_in},
    {"ord", "letter",
     [](Interpreter& i, Bound& a) {
       const std::string& letter = i.words(a[0], "letters");
       if (letter.size() != 1)
         i.raise("TypeError", "ord() expected a character, but string of length " + std::to_string(letter.size()) + " found");
       return Value::integer(static_cast<unsigned char>(letter[0]));
     }},
    {"chr", "code",
     [](Interpreter& i, Bound& a) {
       const std::int64_t code = i.whole(a[0], "codes of letters");
       if (code < 0 || code > 127) i.unknown("chr() beyond ASCII");
       return i.text(std::string(1, static_cast<char>(code)));
     }},
    {"isinstance", "value, types", [](Interpreter& i, Bound& a) { return Value::boolean(i.is_instance(a[0], a[1])); }},
    {"issubclass", "type, other", is_subclass},
    {"iter", "of", [](Interpreter& i, Bound& a) { return Value(i.iterate(a[0])); }},
    {"next", "iterator, default=", next},
    {"print", "*values, sep=, end=, flush=, file=", print},
    {"super", "type=, self=", super},
    {"repr", "value", [](Interpreter& i, Bound& a) { return i.text(i.written(a[0])); }},
    {"id", "value",
     [](Interpreter&, Bound& a) {
       return Value::integer(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(a[0].object()) / 16));
     }},
    {"callable", "value", [](Interpreter&, Bound& a) { return Value::boolean(is_callable(a[0])); }},
};

constexpr Function kTypes[] = {
    {"int", "x=, base=", to_integer},
    {"float", "x=", to_real},
    {"bool", "x=", [](Interpreter& i, Bound& a) { return Value::boolean(a[0].is_bound() && i.truth(a[0])); }},
    {"str", "x=", [](Interpreter& i, Bound& a) { return i.text(a[0].is_bound() ? i.shown(a[0]) : std::string()); }},
    {"list", "iterable=", [](Interpreter& i, Bound& a) { return i.list(a[0].is_bound() ? i.all_of(a[0]) : std::vector<Value>{}); }},
    {"tuple", "iterable=", [](Interpreter& i, Bound& a) { return i.tuple(a[0].is_bound() ? i.all_of(a[0]) : std::vector<Value>{}); }},
    {"dict", "iterable=, **kwargs", to_dictionary},
    {"set", "iterable=", to_set},
    {"frozenset", "iterable=", to_set},
    {"range", "start, stop=, step=", range},
    {"slice", "start, stop=, step=",
     [](Interpreter& i, Bound& a) {
       if (!a[1].is_bound()) return Value(new SliceObject(i.heap(), Value::none(), a[0], Value::none()));
       return Value(new SliceObject(i.heap(), a[0], a[1], a[2].is_bound() ? a[2] : Value::none()));
     }},
    {"type", "value", type_of},
    {"NoneType", "", [](Interpreter&, Bound&) { return Value::none(); }},
};

/// Exceptions, each behind its base.
constexpr std::pair<const char*, const char*> kExceptions[] = {{"BaseException", "object"},
                                                               {"Exception", "BaseException"},
                                                               {"ArithmeticError", "Exception"},
                                                               {"ZeroDivisionError", "ArithmeticError"},
                                                               {"OverflowError", "ArithmeticError"},
                                                               {"AssertionError", "Exception"},
                                                               {"AttributeError", "Exception"},
                                                               {"ImportError", "Exception"},
                                                               {"ModuleNotFoundError", "ImportError"},
                                                               {"LookupError", "Exception"},
                                                               {"IndexError", "LookupError"},
                                                               {"KeyError", "LookupError"},
                                                               {"NameError", "Exception"},
                                                               {"UnboundLocalError", "NameError"},
                                                               {"RuntimeError", "Exception"},
                                                               {"NotImplementedError", "RuntimeError"},
                                                               {"StopIteration", "Exception"},
                                                               {"TypeError", "Exception"},
                                                               {"ValueError", "Exception"},
                                                               {"OSError", "Exception"},
                                                               {"FileNotFoundError", "OSError"},
                                                               {"Warning", "Exception"},
                                                               {"UserWarning", "Warning"},
                                                               {"DeprecationWarning", "Warning"},
                                                               {"FutureWarning", "Warning"}};

}  // namespace

bool is_callable(const Value& value) {
  return value.as<FunctionObject>() != nullptr || value.as<NativeObject>() != nullptr || value.as<BoundMethodObject>() != nullptr ||
         value.as<ClassObject>() != nullptr || value.as<InstanceObject>() != nullptr || value.as<WrapperObject>() != nullptr;
}

void define_builtins(Interpreter& i) {
  for (const Function& each : kFunctions) i.define(i.symbol(each.name), i.native(each.name, each.signature, each.run));
  const Held<ClassObject> object = i.native_class("object", {});
  i.define(i.symbol("object"), Value(object));
  for (const Function& each : kTypes) {
    const bool is_integer = std::string_view(each.name) == "bool";
    const Held<ClassObject> type = i.native_class(each.name, {is_integer ? i.builtin_class("int") : object.get()});
    type->constructor = i.native(each.name, each.signature, each.run);
    i.define(i.symbol(each.name), Value(type));
  }
  i.builtin_class("dict")->attributes.set(i.symbol("fromkeys"), i.native("dict.fromkeys", "keys, value=", [](Interpreter& inner, Bound& a) {
    Value made(new DictionaryObject(inner.heap()));
    for (const Value& each : inner.all_of(a[0])) made.as<DictionaryObject>()->set(each, a[1].is_bound() ? a[1] : Value::none());
    return made;
  }));
  for (const auto& [name, base] : kExceptions) {
    const Held<ClassObject> type = i.native_class(name, {i.builtin_class(base)});
    type->is_exception = true;
    type->attributes.set(i.symbol("__init__"), i.method(name, "self, *args, **kwargs", [](Interpreter& inner, Bound& a) {
      if (auto* instance = a[0].as<InstanceObject>()) instance->attributes.set(inner.symbol("args"), inner.tuple(a.rest));
      return Value::none();
    }));
    i.define(i.symbol(name), Value(type));
  }
  i.define(i.symbol("NotImplemented"), Value::not_implemented());
  i.define(i.symbol("staticmethod"), i.native("staticmethod", "function", wraps(WrapperObject::Kind::static_method)));
  i.define(i.symbol("classmethod"), i.native("classmethod", "function", wraps(WrapperObject::Kind::class_method)));
  i.define(i.symbol("property"), i.native("property", "function", wraps(WrapperObject::Kind::property)));
}

}  // namespace plimsoll::code
