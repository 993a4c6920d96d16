// What is walked by a for.
#pragma once

#include "code/frame.hpp"

namespace plimsoll::code {

/// Values of a list as it is when each is asked for, or of a tuple.
class SequenceIterator final : public IteratorObject {
 public:
  SequenceIterator(Heap& heap, Value of) : IteratorObject(heap), of_(std::move(of)) {}
  void clear() override { of_ = Value(); }
  Value next(Interpreter& interpreter) override;

 private:
  Value of_;
  std::size_t at_ = 0;
};

class RangeIterator final : public IteratorObject {
 public:
  RangeIterator(Heap& heap, std::int64_t start, std::int64_t step, std::int64_t count)
      : IteratorObject(heap), at_(start), step_(step), left_(count) {}
  Value next(Interpreter& interpreter) override;

 private:
  std::int64_t at_, step_, left_;
};

/// Values that a function gives: zip, enumerate, map …
class FunctionIterator final : public IteratorObject {
 public:
  using Next = std::function<Value(Interpreter&)>;
  FunctionIterator(Heap& heap, Next next) : IteratorObject(heap), next_(std::move(next)) {}
  void clear() override { next_ = nullptr; }
  Value next(Interpreter& interpreter) override;

 private:
  Next next_;
};

/// A comprehension or a generator expression, one value at a time.
class ComprehensionIterator final : public IteratorObject {
 public:
  ComprehensionIterator(Interpreter& interpreter, const FunctionCode& code, Held<IteratorObject> first,
                        std::vector<Held<CellObject>> captured, Held<CellObject> class_cell);
  void clear() override;
  Value next(Interpreter& interpreter) override;

 private:
  const FunctionCode& code_;
  std::vector<Value> slots_;
  std::vector<Held<IteratorObject>> walked_;  ///< of the clauses that are entered
  Held<CellObject> class_cell_;
  bool done_ = false;
};

}  // namespace plimsoll::code
