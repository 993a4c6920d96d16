// The frame of a body that runs.
#pragma once

#include <exception>
#include <utility>
#include <vector>

#include "code/interpreter.hpp"

namespace plimsoll::code {

struct Interpreter::Frame {
  Frame(Interpreter& interpreter_in, const FunctionCode& code_in)
      : interpreter(interpreter_in),
        code(code_in),
        before(interpreter_in.frame_),
        slots(code_in.slots.size()),
        called_at_(interpreter_in.place_),
        called_in_(interpreter_in.running_),
        exceptions_(std::uncaught_exceptions()) {
    interpreter.frame_ = this;
    interpreter.running_ = code.module;
  }
  /// The caller's line runs on, but where an error is on its way, which is of the line that ran last.
  ~Frame() {
    interpreter.frame_ = before;
    if (std::uncaught_exceptions() > exceptions_) return;
    interpreter.place_ = called_at_;
    interpreter.running_ = called_in_;
  }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  /// Makes the cells of its own slots, and takes over those of functions around.
  void open_cells(const std::vector<Held<CellObject>>& captured) {
    for (const int slot : code.cells) {
      Held<CellObject> cell(new CellObject(interpreter.heap_));
      cell->value = std::move(slots[static_cast<std::size_t>(slot)]);
      slots[static_cast<std::size_t>(slot)] = Value(cell);
    }
    for (std::size_t i = 0; i < captured.size(); ++i) slots[static_cast<std::size_t>(code.captured[i].slot)] = Value(captured[i]);
  }
  /// Cells that a function made here captures.
  std::vector<Held<CellObject>> cells_for(const FunctionCode& inner) const {
    std::vector<Held<CellObject>> cells;
    for (const FunctionCode::Captured& each : inner.captured)
      cells.emplace_back(slots[static_cast<std::size_t>(each.outer)].as<CellObject>());
    return cells;
  }
  Value& variable(const Expression& name) {
    Value& slot = slots[static_cast<std::size_t>(name.slot)];
    return name.storage == Storage::cell ? slot.as<CellObject>()->value : slot;
  }

  Interpreter& interpreter;
  const FunctionCode& code;
  Frame* before;
  std::vector<Value> slots;
  Attributes* names = nullptr;  ///< of a class body
  Held<CellObject> class_cell;
  Value returned;

 private:
  Place called_at_;
  const TextModule* called_in_;
  int exceptions_;
};

}  // namespace plimsoll::code
