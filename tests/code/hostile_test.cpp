// Texts that do not end, or grow without bound: refused, within the limits of steps, depth and memory.
#include <gtest/gtest.h>

#include "code/interpreter.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {
namespace {

std::string error_of(const std::string& text) {
  try {
    Interpreter interpreter(text, "m.py");
    interpreter.run();
  } catch (const Error& error) {
    return error.message();
  }
  return "none";
}

std::string times(const std::string& text, int count) {
  std::string made;
  for (int i = 0; i < count; ++i) made += text;
  return made;
}

TEST(Hostile, LoopsThatDoNotEnd) {
  for (const char* text : {"while True: pass\n", "i = 0\nwhile True: i += 1\n", "sum(i for i in range(1000000000000))\n",
                           "sorted([i % 7 for i in range(100000000)])\n", "a = list(range(100000))\nwhile True: -1 in a\n",
                           "a = list(range(100000))\nwhile True: a[:]\n",
                           "a = list(range(100000))\nwhile True:\n  a.insert(0, 1)\n  a.pop(0)\n", "while True:\n  class A: pass\n",
                           "import torch\nwhile True: torch.ones(2) + 1\n", "a = [1]\nfor i in range(60): a = [a, a]\nprint(a)\n",
                           "a = 'a ' * 1000\nwhile True: a.split()\n", "a = 'x'\nwhile True: a = a + a[:1000]\n"})
    EXPECT_EQ(error_of(text), "the code takes more than 5000000 steps") << text;
}

TEST(Hostile, ValuesWithoutBound) {
  for (const char* text :
       {"a = list(range(1000000000))\n", "a = [1]\nwhile True: a += a\n", "a = []\nwhile True: a.append('x' * 100000)\n",
        "a = []\nfor i in range(10000000): a = [a]\n", "import torch.nn as nn\na = []\nwhile True: a.append(nn.Linear(1, 1))\n"}) {
    const std::string error = error_of(text);
    EXPECT_TRUE(error == "the code's own values take more than 128 MiB" || error == "the code takes more than 5000000 steps")
        << text << error;
  }
  EXPECT_EQ(error_of("a = [0] * 1000000000\n"), "a list of more than 4000000 items");
  EXPECT_EQ(error_of("a = 'x' * 1000000000\n"), "a str of more than 4000000 items");
  EXPECT_EQ(error_of("a = 10 ** 10 ** 10\n"), "a whole number of more than 63 bits");
  EXPECT_EQ(error_of("a = 1 << 100000000000\n"), "a whole number of more than 63 bits");
  EXPECT_EQ(error_of("class A: pass\na = A()\nfor i in range(2000): setattr(a, 'a' + str(i), 1)\n"),
            "an object or class of more than 1000 attributes");
  EXPECT_EQ(error_of("import torch\ntorch.ones(1 << 40, 1 << 40)\n"), "a tensor of more than 2^50 elements is not modelled in code");
  EXPECT_EQ(error_of("import torch\ntorch.ones(1, 1, 1, 1, 1, 1, 1, 1, 1)\n"), "a tensor of more than 8 dimensions is not modelled in code");
}

TEST(Hostile, DepthWithoutBound) {
  EXPECT_EQ(error_of("def f(n): return f(n + 1)\nf(0)\n"), "the code calls functions more than 120 deep");
  EXPECT_EQ(error_of("class A:\n  def __getattr__(self, n): return self.z\nA().q\n"), "the code calls functions more than 120 deep");
  EXPECT_EQ(error_of("a = " + times("(", 100'000)), "brackets nested more than 90 deep");
  for (const char* text : {"not ", "-", "2 ** ", "lambda: ", "1 if 1 else "})
    EXPECT_EQ(error_of("a = " + times(text, 100'000) + "1\n"), "nested more than 90 deep") << text;
  EXPECT_EQ(error_of("a = " + times("1 + ", 100'000) + "1\n"), "an expression of more than 200 operators within each other");
  EXPECT_EQ(error_of("a" + times(".b", 100'000) + "\n"), "an expression of more than 200 operators within each other");
  const std::string deep = "for i in range(100000):\n  a = [a]\n  b = [b]\n";
  EXPECT_EQ(error_of("a = []\nb = []\n" + deep + "a == b\n"), "the code runs deeper than 1200 expressions within each other");
  EXPECT_EQ(error_of("a = ()\nfor i in range(1000): a = (a,)\n{a: 1}\n"), "a key of a dictionary of so many parts");
  EXPECT_EQ(error_of("a = 1\nif a: pass\n" + times("elif a: pass\n", 10'000)), "none");  // branches stand beside each other
}

TEST(Hostile, DeepValuesDieOneByOne) {  // a list within a list within …: destructors must not stand in each other
  EXPECT_EQ(error_of("a = []\nfor i in range(200000): a = [a]\na = 1\nb = {}\nfor i in range(200000): b = {1: b}\n"), "none");
  EXPECT_EQ(error_of("a = []\nfor i in range(100000):\n  b = []\n  b.append(b)\n"), "none");  // cycles end with their interpreter
}

}  // namespace
}  // namespace plimsoll::code
