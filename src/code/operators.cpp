// Operators on values: arithmetic, comparisons, items.
#include <algorithm>
#include <cmath>

#include "code/interpreter.hpp"
#include "code/library.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

constexpr std::int64_t kMostItems = 4'000'000;  ///< of a list or a text that is multiplied

std::string_view sign_of(Operator op) {
  switch (op) {
    case Operator::add:
      return "+";
    case Operator::subtract:
    case Operator::negative:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::floor_divide:
      return "//";
    case Operator::modulo:
      return "%";
    case Operator::power:
      return "**";
    case Operator::matrix_multiply:
      return "@";
    case Operator::left_shift:
      return "<<";
    case Operator::right_shift:
      return ">>";
    case Operator::bit_and:
      return "&";
    case Operator::bit_or:
      return "|";
    case Operator::bit_xor:
      return "^";
    case Operator::less:
      return "<";
    case Operator::less_equal:
      return "<=";
    case Operator::greater:
      return ">";
    case Operator::greater_equal:
      return ">=";
    default:
      return "?";
  }
}

/// Names of the methods by which a class of one's own has an operator: of the left operand, of the right one.
std::pair<const char*, const char*> methods_of(Operator op) {
  switch (op) {
    case Operator::add:
      return {"__add__", "__radd__"};
    case Operator::subtract:
      return {"__sub__", "__rsub__"};
    case Operator::multiply:
      return {"__mul__", "__rmul__"};
    case Operator::divide:
      return {"__truediv__", "__rtruediv__"};
    case Operator::floor_divide:
      return {"__floordiv__", "__rfloordiv__"};
    case Operator::modulo:
      return {"__mod__", "__rmod__"};
    case Operator::power:
      return {"__pow__", "__rpow__"};
    case Operator::matrix_multiply:
      return {"__matmul__", "__rmatmul__"};
    case Operator::bit_and:
      return {"__and__", "__rand__"};
    case Operator::bit_or:
      return {"__or__", "__ror__"};
    default:
      return {nullptr, nullptr};
  }
}

std::int64_t floored(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

[[noreturn]] void too_large(const Interpreter& interpreter) { refuse("a whole number of more than 63 bits", interpreter.here()); }

Value whole_power(const Interpreter& interpreter, std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large(interpreter);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large(interpreter);
  }
  return Value::integer(result);
}

Value whole_binary(Interpreter& interpreter, Operator op, std::int64_t a, std::int64_t b, bool& known) {
  std::int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case Operator::add:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::subtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::multiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::floor_divide:
    case Operator::modulo:
      if (b == 0) interpreter.raise("ZeroDivisionError", "integer division or modulo by zero");
      if (b == -1) {
        overflows = __builtin_sub_overflow(std::int64_t{0}, op == Operator::modulo ? 0 : a, &result);
        break;
      }
      result = floored(a, b);
      if (op == Operator::modulo) result = a - result * b;
      break;
    case Operator::power:
      if (b < 0) {
        known = false;
        return {};
      }
      return whole_power(interpreter, a, b);
    case Operator::left_shift:
      if (b < 0) interpreter.raise("ValueError", "negative shift count");
      overflows = b >= 62 || __builtin_mul_overflow(a, std::int64_t{1} << b, &result);
      break;
    case Operator::right_shift:
      if (b < 0) interpreter.raise("ValueError", "negative shift count");
      result = a >> std::min<std::int64_t>(b, 63);
      break;
    case Operator::bit_and:
      result = a & b;
      break;
    case Operator::bit_or:
      result = a | b;
      break;
    case Operator::bit_xor:
      result = a ^ b;
      break;
    default:
      known = false;
      return {};
  }
  if (overflows) too_large(interpreter);
  return Value::integer(result);
}

Value real_binary(Interpreter& interpreter, Operator op, double a, double b, bool& known) {
  if ((op == Operator::divide || op == Operator::floor_divide || op == Operator::modulo) && b == 0)
    interpreter.raise("ZeroDivisionError", "division by zero");
  switch (op) {
    case Operator::add:
      return Value::real(a + b);
    case Operator::subtract:
      return Value::real(a - b);
    case Operator::multiply:
      return Value::real(a * b);
    case Operator::divide:
      return Value::real(a / b);
    case Operator::floor_divide:
      return Value::real(std::floor(a / b));
    case Operator::modulo:
      return Value::real(a - std::floor(a / b) * b);
    case Operator::power:
      return Value::real(std::pow(a, b));
    default:
      known = false;
      return {};
  }
}

/// list * count, text * count.
Value repeated(Interpreter& interpreter, const Value& of, std::int64_t count) {
  count = std::max<std::int64_t>(count, 0);
  const auto check = [&](std::size_t size) {
    if (size > 0 && count > kMostItems / static_cast<std::int64_t>(size))
      refuse("a " + interpreter.type_name(of) + " of more than " + std::to_string(kMostItems) + " items", interpreter.here());
    interpreter.step(static_cast<std::int64_t>(size) * count / 8);
  };
  if (const auto* words = of.as<TextObject>()) {
    check(words->text.size());
    std::string made;
    for (std::int64_t i = 0; i < count; ++i) made += words->text;
    return interpreter.text(std::move(made));
  }
  const auto* sequence = of.as<SequenceObject>();
  check(sequence->items.size());
  std::vector<Value> items;
  for (std::int64_t i = 0; i < count; ++i) items.insert(items.end(), sequence->items.begin(), sequence->items.end());
  return interpreter.sequence(sequence->is_list() ? SequenceObject::Kind::list : SequenceObject::Kind::tuple, std::move(items));
}

/// The position of `key` among `count`; −1: outside.
std::int64_t position(std::int64_t key, std::int64_t count) {
  if (key < 0) key += count;
  return key < 0 || key >= count ? -1 : key;
}

struct Span {
  std::int64_t start = 0, step = 1, count = 0;
};

/// slice.indices().
Span span_of(Interpreter& interpreter, const SliceObject& slice, std::int64_t count) {
  Span span;
  span.step = slice.step.is_none() ? 1 : interpreter.whole(slice.step, "steps of slices");
  if (span.step == 0) interpreter.raise("ValueError", "slice step cannot be zero");
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    std::int64_t at = interpreter.whole(value, "bounds of slices");
    if (at < 0) at = std::max<std::int64_t>(at + count, span.step < 0 ? -1 : 0);
    return std::min(at, span.step < 0 ? count - 1 : count);
  };
  span.start = bound(slice.start, span.step < 0 ? count - 1 : 0);
  const std::int64_t stop = bound(slice.stop, span.step < 0 ? -1 : count);
  if (span.step > 0 && stop > span.start) span.count = (stop - span.start - 1) / span.step + 1;
  if (span.step < 0 && stop < span.start) span.count = (span.start - stop - 1) / -span.step + 1;
  return span;
}

}  // namespace

Value Interpreter::binary(Operator op, const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    bool known = true;
    Value result;
    if (a.is_integer() && b.is_integer() && op != Operator::divide) {
      result = whole_binary(*this, op, a.as_integer(), b.as_integer(), known);
      if (known && a.is_boolean() && b.is_boolean() && (op == Operator::bit_and || op == Operator::bit_or || op == Operator::bit_xor))
        return Value::boolean(result.as_integer() != 0);
      if (known) return result;
      known = true;
    }
    result = real_binary(*this, op, a.as_real(), b.as_real(), known);
    if (known) return result;
  }
  if (torch_->is_tensor(a) || torch_->is_tensor(b)) return torch_->binary(op, a, b);
  const auto *words = a.as<TextObject>(), *other_words = b.as<TextObject>();
  if (words != nullptr && op == Operator::modulo) return text(percent_formatted(*this, words->text, b));
  if (words != nullptr && other_words != nullptr && op == Operator::add) {
    step(static_cast<std::int64_t>((words->text.size() + other_words->text.size()) / 8));
    return text(words->text + other_words->text);
  }
  const auto *sequence = a.as<SequenceObject>(), *other = b.as<SequenceObject>();
  if (op == Operator::add && sequence != nullptr && other != nullptr && sequence->is_list() == other->is_list()) {
    step(static_cast<std::int64_t>((sequence->items.size() + other->items.size()) / 8));
    std::vector<Value> items = sequence->items;
    items.insert(items.end(), other->items.begin(), other->items.end());
    return this->sequence(sequence->is_list() ? SequenceObject::Kind::list : SequenceObject::Kind::tuple, std::move(items));
  }
  if (op == Operator::multiply && (sequence != nullptr || words != nullptr) && b.is_integer()) return repeated(*this, a, b.as_integer());
  if (op == Operator::multiply && (other != nullptr || other_words != nullptr) && a.is_integer()) return repeated(*this, b, a.as_integer());
  auto *left = a.as<DictionaryObject>(), *right = b.as<DictionaryObject>();
  if (op == Operator::bit_or && left != nullptr && right != nullptr && left->is_set == right->is_set) {
    Value made(new DictionaryObject(heap_, left->is_set));
    for (const auto* each : {left, right})
      for (const auto& entry : each->entries())
        if (entry.key.is_bound()) made.as<DictionaryObject>()->set(entry.key, entry.value);
    return made;
  }
  if (left != nullptr && right != nullptr && left->is_set && right->is_set && (op == Operator::subtract || op == Operator::bit_and)) {
    Value made(new DictionaryObject(heap_, true));
    step(static_cast<std::int64_t>(left->size()));
    for (const auto& entry : left->entries())
      if (entry.key.is_bound() && (right->find(entry.key) != nullptr) == (op == Operator::bit_and))
        made.as<DictionaryObject>()->set(entry.key, Value::none());
    return made;
  }
  if (op == Operator::bit_or && a.as<ClassObject>() != nullptr) return a;  // a union of types in an annotation
  const auto [forward, backward] = methods_of(op);
  for (const auto& [self, argument, name] : {std::tuple{&a, &b, forward}, std::tuple{&b, &a, backward}}) {
    auto* instance = self->as<InstanceObject>();
    const Value* found = instance != nullptr && name != nullptr ? instance->type->find(symbol(name)) : nullptr;
    if (found != nullptr) return call(bind(*found, *self, instance->type.get()), std::vector<Value>{*argument});
  }
  if (const auto* library = a.as<NamespaceObject>(); library != nullptr && !library->known)
    foreign(*library);
  raise("TypeError", "unsupported operand type(s) for " + std::string(sign_of(op)) + ": '" + type_name(a) + "' and '" + type_name(b) + "'");
}

Value Interpreter::unary(Operator op, const Value& value) {
  if (torch_->is_tensor(value)) return torch_->unary(op, value);
  if (op == Operator::positive && value.is_number()) return value;
  if (op == Operator::negative && value.is_integer()) {
    std::int64_t result = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, value.as_integer(), &result)) too_large(*this);
    return Value::integer(result);
  }
  if (op == Operator::negative && value.is_real()) return Value::real(-value.as_real());
  if (op == Operator::invert && value.is_integer()) return Value::integer(~value.as_integer());
  raise("TypeError", "bad operand type for unary operator: '" + type_name(value) + "'");
}

bool Interpreter::equal(const Value& a, const Value& b) {
  step();
  const Depth deeper(*this);
  if (auto* instance = a.as<InstanceObject>()) {
    if (const Value* own = instance->type->find(symbol("__eq__")))
      return truth(call(bind(*own, a, instance->type.get()), std::vector<Value>{b}));
    if (auto* other = b.as<InstanceObject>();
        other != nullptr && instance->type->is_dataclass && other->type.get() == instance->type.get()) {
      for (const auto& field : instance->type->fields)
        if (!equal(attribute(a, field.name), attribute(b, field.name))) return false;
      return true;
    }
  }
  const auto *sequence = a.as<SequenceObject>(), *other = b.as<SequenceObject>();
  if (sequence != nullptr && other != nullptr) {
    if (sequence->is_list() != other->is_list() || sequence->items.size() != other->items.size()) return false;
    for (std::size_t i = 0; i < sequence->items.size(); ++i)
      if (!equal(sequence->items[i], other->items[i])) return false;
    return true;
  }
  auto *left = a.as<DictionaryObject>(), *right = b.as<DictionaryObject>();
  if (left != nullptr && right != nullptr) {
    if (left->size() != right->size() || left->is_set != right->is_set) return false;
    for (const auto& entry : left->entries()) {
      if (!entry.key.is_bound()) continue;
      const Value* found = right->find(entry.key);
      if (found == nullptr || !equal(entry.value, *found)) return false;
    }
    return true;
  }
  const auto *token = a.as<TokenObject>(), *second = b.as<TokenObject>();
  if (token != nullptr && second != nullptr) return token->kind == second->kind && token->name == second->name;
  if (token != nullptr && b.as<TextObject>() != nullptr) return token->name == b.as<TextObject>()->text;
  return equal_keys(a, b);
}

bool Interpreter::less(const Value& a, const Value& b) {
  step();
  const Depth deeper(*this);
  if (a.is_number() && b.is_number()) return a.is_integer() && b.is_integer() ? a.as_integer() < b.as_integer() : a.as_real() < b.as_real();
  if (a.as<TextObject>() != nullptr && b.as<TextObject>() != nullptr) return a.as<TextObject>()->text < b.as<TextObject>()->text;
  const auto *sequence = a.as<SequenceObject>(), *other = b.as<SequenceObject>();
  if (sequence != nullptr && other != nullptr) {
    for (std::size_t i = 0; i < std::min(sequence->items.size(), other->items.size()); ++i)
      if (!equal(sequence->items[i], other->items[i])) return less(sequence->items[i], other->items[i]);
    return sequence->items.size() < other->items.size();
  }
  if (auto* instance = a.as<InstanceObject>())
    if (const Value* own = instance->type->find(symbol("__lt__")))
      return truth(call(bind(*own, a, instance->type.get()), std::vector<Value>{b}));
  raise("TypeError", "'<' not supported between instances of '" + type_name(a) + "' and '" + type_name(b) + "'");
}

bool Interpreter::contains(const Value& container, const Value& wanted) {
  if (auto* dictionary = container.as<DictionaryObject>()) return dictionary->find(wanted) != nullptr;
  if (const auto* words = container.as<TextObject>()) {
    step(static_cast<std::int64_t>(words->text.size() / 16));
    return words->text.find(this->words(wanted, "what is looked for in a text")) != std::string::npos;
  }
  if (const auto* range = container.as<RangeObject>(); range != nullptr && wanted.is_integer()) {
    const std::int64_t at = wanted.as_integer() - range->start;
    return at % range->step == 0 && at / range->step >= 0 && at / range->step < range->size();
  }
  if (auto* instance = container.as<InstanceObject>())
    if (const Value* own = instance->type->find(symbol("__contains__")))
      return truth(call(bind(*own, container, instance->type.get()), std::vector<Value>{wanted}));
  const Held<IteratorObject> walked = iterate(container);
  for (Value value = walked->next(*this); value.is_bound(); value = walked->next(*this))
    if (value.same(wanted) || equal(value, wanted)) return true;
  return false;
}

Value Interpreter::compared(Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::is:
    case Operator::is_not: {
      const auto *token = a.as<TokenObject>(), *other = b.as<TokenObject>();
      const bool same = a.same(b) || (token != nullptr && other != nullptr && token->kind == other->kind && token->name == other->name);
      return Value::boolean(same == (op == Operator::is));
    }
    case Operator::in:
    case Operator::not_in:
      return Value::boolean(contains(b, a) == (op == Operator::in));
    default:
      break;
  }
  for (const Value* side : {&a, &b})
    if (const auto* library = side->as<NamespaceObject>(); library != nullptr && !library->known) foreign(*library);
  if (torch_->is_tensor(a) || torch_->is_tensor(b)) return torch_->compared(op, a, b);
  return Value::boolean(compare(op, a, b));
}

bool Interpreter::compare(Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::equal:
      return equal(a, b);
    case Operator::not_equal:
      return !equal(a, b);
    case Operator::less:
      return less(a, b);
    case Operator::greater:
      return less(b, a);
    case Operator::less_equal:
      return less(a, b) || equal(a, b);
    default:
      return less(b, a) || equal(a, b);
  }
}

Value Interpreter::item(const Value& of, const Value& key) {
  if (torch_->is_tensor(of)) return torch_->indexed(of, key);
  if (auto* dictionary = of.as<DictionaryObject>(); dictionary != nullptr && !dictionary->is_set) {
    const Value* found = dictionary->find(key);
    if (found == nullptr) raise("KeyError", written(key));
    return *found;
  }
  const auto* sequence = of.as<SequenceObject>();
  const auto* words = of.as<TextObject>();
  const auto* range = of.as<RangeObject>();
  if (sequence != nullptr || words != nullptr || range != nullptr) {
    const std::int64_t count = length(of);
    if (const auto* slice = key.as<SliceObject>()) {
      const Span span = span_of(*this, *slice, count);
      if (range != nullptr) {
        std::vector<Value> items;
        step(span.count);
        for (std::int64_t i = 0; i < span.count; ++i)
          items.push_back(Value::integer(range->start + (span.start + i * span.step) * range->step));
        return list(std::move(items));
      }
      step(span.count / 8);
      if (words != nullptr) {
        std::string made;
        for (std::int64_t i = 0; i < span.count; ++i) made += words->text[static_cast<std::size_t>(span.start + i * span.step)];
        return text(std::move(made));
      }
      std::vector<Value> items;
      items.reserve(static_cast<std::size_t>(span.count));
      for (std::int64_t i = 0; i < span.count; ++i) items.push_back(sequence->items[static_cast<std::size_t>(span.start + i * span.step)]);
      return this->sequence(sequence->kind, std::move(items));
    }
    const std::int64_t at = position(whole(key, "indices"), count);
    if (at < 0) raise("IndexError", type_name(of) + " index out of range");
    if (range != nullptr) return Value::integer(range->start + at * range->step);
    if (words != nullptr) return text(words->text.substr(static_cast<std::size_t>(at), 1));
    return sequence->items[static_cast<std::size_t>(at)];
  }
  if (auto* instance = of.as<InstanceObject>())
    if (const Value* own = instance->type->find(symbol("__getitem__")))
      return call(bind(*own, of, instance->type.get()), std::vector<Value>{key});
  if (of.as<ClassObject>() != nullptr) return of;  // list[int] in an annotation
  if (const auto* token = of.as<TokenObject>(); token != nullptr && token->kind == TokenObject::Kind::other) return of;
  if (const auto* library = of.as<NamespaceObject>(); library != nullptr && !library->known) return of;
  raise("TypeError", "'" + type_name(of) + "' object is not subscriptable");
}

/// list[start:stop] = values: as many stand there afterwards as are given.
void Interpreter::set_slice(SequenceObject& list, const SliceObject& slice, std::vector<Value> values) {
  const Span span = span_of(*this, slice, static_cast<std::int64_t>(list.items.size()));
  if (span.step != 1) unknown("values put into every k-th place of a list");
  const auto first = list.items.begin() + span.start;
  const auto place = list.items.erase(first, first + span.count);
  list.items.insert(place, std::make_move_iterator(values.begin()), std::make_move_iterator(values.end()));
  list.recount();
}

void Interpreter::set_item(const Value& of, const Value& key, Value value) {
  if (torch_->is_tensor(of)) return torch_->set_indexed(of, key, value);
  if (auto* dictionary = of.as<DictionaryObject>(); dictionary != nullptr && !dictionary->is_set)
    return dictionary->set(key, std::move(value));
  if (auto* sequence = of.as<SequenceObject>(); sequence != nullptr && sequence->is_list()) {
    if (const auto* slice = key.as<SliceObject>()) return set_slice(*sequence, *slice, all_of(value));
    const std::int64_t at = position(whole(key, "indices"), length(of));
    if (at < 0) raise("IndexError", "list assignment index out of range");
    sequence->items[static_cast<std::size_t>(at)] = std::move(value);
    return;
  }
  if (auto* instance = of.as<InstanceObject>())
    if (const Value* own = instance->type->find(symbol("__setitem__")))
      return (void)call(bind(*own, of, instance->type.get()), std::vector<Value>{key, std::move(value)});
  raise("TypeError", "'" + type_name(of) + "' object does not support item assignment");
}

std::int64_t Interpreter::length(const Value& of) {
  if (const auto* sequence = of.as<SequenceObject>()) return static_cast<std::int64_t>(sequence->items.size());
  if (const auto* dictionary = of.as<DictionaryObject>()) return static_cast<std::int64_t>(dictionary->size());
  if (const auto* words = of.as<TextObject>()) return static_cast<std::int64_t>(words->text.size());
  if (const auto* range = of.as<RangeObject>()) return range->size();
  if (torch_->is_tensor(of)) return torch_->tensor(of).size(0);
  if (auto* instance = of.as<InstanceObject>())
    if (const Value* own = instance->type->find(symbol("__len__")))
      return whole(call(bind(*own, of, instance->type.get()), std::vector<Value>{}), "lengths");
  raise("TypeError", "object of type '" + type_name(of) + "' has no len()");
}

}  // namespace plimsoll::code
