// When tensors die: the order of allocations and frees on the tape, against what CPython's reference counts say.
#include <gtest/gtest.h>

#include <map>

#include "code/torch/torch.hpp"
#include "devices.hpp"

namespace plimsoll::code {
namespace {

/// "a b -a": tensors by letters in the order in which they are made, a minus where one dies; x is there before.
std::string lives(const std::string& body) {
  program::Tape tape(program::h100());
  Interpreter interpreter("import torch\n" + body, "m.py");
  interpreter.torch().put_on(tape);
  interpreter.run();
  {
    CallArguments arguments;
    arguments.positional.push_back(interpreter.torch().wrap(tape.empty({4}, DType::fp32)));
    const Value result = interpreter.call_from_outside(interpreter.global("f"), std::move(arguments));
  }
  std::string text;
  std::map<TensorId, char> names;
  for (const Instruction& each : tape.program().init) {
    if (each.kind == InstructionKind::alloc) {
      const char name = names.empty() ? 'x' : static_cast<char>('a' + names.size() - 1);
      names.emplace(each.id, name);
      text += std::string(text.empty() ? "" : " ") + name;
    } else if (each.kind == InstructionKind::free) {
      text += std::string(" -") + names.at(each.id);
    }
  }
  return text;
}

TEST(Lifetimes, NameIsBoundAnewBeforeItsOldValueDies) {
  // x = x + 1 evaluates a, then drops x, which nobody else holds: the caller gave it away.
  EXPECT_EQ(lives("def f(x):\n  x = x + 1\n  x = x * 2\n  return x\n"), "x a -x b -a -b");
}

TEST(Lifetimes, OperandsLiveUntilTheResultExists) { EXPECT_EQ(lives("def f(x):\n  return (x + 1) * (x + 2)\n"), "x a b c -a -b -x -c"); }

TEST(Lifetimes, ArgumentsMoveIntoTheFrame) {
  // g's parameter is the only reference to a; once it is bound anew, a is gone while g still runs.
  EXPECT_EQ(lives("def g(y):\n  y = y * 2\n  return y + 1\ndef f(x):\n  return g(x + 1)\n"), "x a b -a c -b -x -c");
  // g(*args): the tuple stays with the caller until g returns (CALL_FUNCTION_EX).
  EXPECT_EQ(lives("def g(y):\n  y = y * 2\n  return y + 1\ndef f(x):\n  return g(*(x + 1,))\n"), "x a b c -b -a -x -c");
}

TEST(Lifetimes, ModulesHoldTheirArguments) {
  // Module.__call__(self, *args): its frames hold the tuple until forward has returned.
  EXPECT_EQ(
      lives("class M(torch.nn.Module):\n  def forward(self, y):\n    y = y * 2\n    return y + 1\nm = M()\ndef f(x):\n  return m(x + 1)\n"),
      "x a b c -b -a -x -c");
}

TEST(Lifetimes, TuplesDieWhenTheyAreUnpacked) {
  EXPECT_EQ(lives("def f(x):\n  a, b = x + 1, x + 2\n  a = a + b\n  del b\n  return a\n"), "x a b c -a -b -x -c");
}

TEST(Lifetimes, LoopVariablesOutliveTheirLoop) {
  // The name i holds its last value until the frame ends; the list dies when the loop is done.
  EXPECT_EQ(lives("def f(x):\n  for i in [x + 1, x + 2]:\n    pass\n  return x * 3\n"), "x a b -a c -x -b -c");
}

TEST(Lifetimes, ClosuresHoldCells) {
  EXPECT_EQ(lives("def f(x):\n  y = x + 1\n  g = lambda: y * 2\n  y = g()\n  return y + 1\n"), "x a b -a c -x -b -c");
}

TEST(Lifetimes, ComprehensionsLetGoOfTheirVariable) {
  EXPECT_EQ(lives("def f(x):\n  n = len([y + 1 for y in [x * 2]])\n  return x\n"), "x a b -a -b -x");
}

}  // namespace
}  // namespace plimsoll::code
