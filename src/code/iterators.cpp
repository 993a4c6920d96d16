#include "code/iterators.hpp"

#include "code/torch/torch.hpp"

namespace plimsoll::code {

Value SequenceIterator::next(Interpreter& interpreter) {
  interpreter.step();
  const auto* sequence = of_.as<SequenceObject>();
  if (sequence == nullptr) return {};
  if (at_ < sequence->items.size()) return sequence->items[at_++];
  of_ = Value();  // an iterator that is done lets go of its list
  return {};
}

Value RangeIterator::next(Interpreter& interpreter) {
  interpreter.step();
  if (left_ <= 0) return {};
  --left_;
  const std::int64_t now = at_;
  if (left_ > 0) at_ += step_;
  return Value::integer(now);
}

Value FunctionIterator::next(Interpreter& interpreter) {
  interpreter.step();
  return next_ ? next_(interpreter) : Value();
}

ComprehensionIterator::ComprehensionIterator(Interpreter& interpreter, const FunctionCode& code, Held<IteratorObject> first,
                                             std::vector<Held<CellObject>> captured, Held<CellObject> class_cell)
    : IteratorObject(interpreter.heap()), code_(code), class_cell_(std::move(class_cell)) {
  Interpreter::Frame frame(interpreter, code);
  frame.open_cells(captured);
  slots_ = std::move(frame.slots);
  walked_.push_back(std::move(first));
}

void ComprehensionIterator::clear() {
  slots_.clear();
  walked_.clear();
  class_cell_ = {};
  done_ = true;
}

Value ComprehensionIterator::next(Interpreter& interpreter) {
  if (done_) return {};
  Interpreter::Frame frame(interpreter, code_);
  frame.slots = std::move(slots_);
  frame.class_cell = class_cell_;
  const auto stays = [&](const Clause& clause) {
    for (const ExpressionPtr& condition : clause.conditions)
      if (!interpreter.truth(interpreter.evaluate(*condition, frame))) return false;
    return true;
  };
  while (!walked_.empty()) {
    const Clause& clause = code_.clauses[walked_.size() - 1];
    Value value = walked_.back()->next(interpreter);
    if (!value.is_bound()) {
      walked_.pop_back();
      continue;
    }
    interpreter.assign(*clause.target, std::move(value), frame);
    if (!stays(clause)) continue;
    if (walked_.size() < code_.clauses.size()) {
      const Value source = interpreter.evaluate(*code_.clauses[walked_.size()].source, frame);
      walked_.push_back(interpreter.iterate(source));
      continue;
    }
    Value made = interpreter.evaluate(*code_.parts[0], frame);
    if (code_.parts.size() > 1) {
      std::vector<Value> pair{std::move(made)};
      pair.push_back(interpreter.evaluate(*code_.parts[1], frame));
      made = interpreter.tuple(std::move(pair));
    }
    slots_ = std::move(frame.slots);
    return made;
  }
  done_ = true;
  return {};
}

namespace {

/// Values of that many, each made when it is asked for.
template <class Make>
Held<IteratorObject> counted(Interpreter& interpreter, Value of, std::int64_t count, Make make) {
  return Held<IteratorObject>(
      new FunctionIterator(interpreter.heap(), [of = std::move(of), count, at = std::int64_t{0}, make](Interpreter& i) mutable {
        return at < count ? make(i, of, at++) : Value();
      }));
}

Held<IteratorObject> keys_of(Interpreter& interpreter, const Value& of) {
  const auto next = [of, at = std::size_t{0}](Interpreter&) mutable {
    const auto& entries = of.as<DictionaryObject>()->entries();
    while (at < entries.size() && !entries[at].key.is_bound()) ++at;
    return at < entries.size() ? entries[at++].key : Value();
  };
  return Held<IteratorObject>(new FunctionIterator(interpreter.heap(), next));
}

}  // namespace

Held<IteratorObject> Interpreter::iterate(const Value& of) {
  if (of.as<SequenceObject>() != nullptr) return Held<IteratorObject>(new SequenceIterator(heap_, of));
  if (auto* iterator = of.as<IteratorObject>()) return Held<IteratorObject>(iterator);
  if (const auto* range = of.as<RangeObject>())
    return Held<IteratorObject>(new RangeIterator(heap_, range->start, range->step, range->size()));
  if (of.as<DictionaryObject>() != nullptr) return keys_of(*this, of);
  if (const auto* words = of.as<TextObject>())
    return counted(*this, of, static_cast<std::int64_t>(words->text.size()), [](Interpreter& i, const Value& from, std::int64_t at) {
      return i.text(from.as<TextObject>()->text.substr(static_cast<std::size_t>(at), 1));
    });
  if (torch_->is_tensor(of)) return iterate(torch_->rows_of(of));
  if (auto* instance = of.as<InstanceObject>()) {
    if (instance->type->find(symbol("__iter__")) != nullptr) return iterate(call(attribute(of, symbol("__iter__")), std::vector<Value>{}));
    if (instance->type->find(symbol("__getitem__")) != nullptr && instance->type->find(symbol("__len__")) != nullptr)
      return counted(*this, of, length(of),
                     [](Interpreter& i, const Value& from, std::int64_t at) { return i.item(from, Value::integer(at)); });
  }
  raise("TypeError", "'" + type_name(of) + "' object is not iterable");
}

std::vector<Value> Interpreter::all_of(const Value& of) {
  if (const auto* sequence = of.as<SequenceObject>()) {
    step(static_cast<std::int64_t>(sequence->items.size() / 8));
    return sequence->items;
  }
  const Held<IteratorObject> walked = iterate(of);
  Value gathered = list({});  // a list, so that its memory is bounded
  auto& items = *gathered.as<SequenceObject>();
  for (Value value = walked->next(*this); value.is_bound(); value = walked->next(*this)) items.append(std::move(value));
  std::vector<Value> values = std::move(items.items);
  items.items.clear();
  items.recount();
  return values;
}

}  // namespace plimsoll::code
