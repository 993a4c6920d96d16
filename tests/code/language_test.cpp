// The language: what functions of data/language.py return, against what CPython 3.11 printed of them (data/language.json).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "code/interpreter.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {
namespace {

std::string file(const std::string& name) {
  std::ifstream stream(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/code/data/" + name);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST(Language, AnswersAsCPython) {
  const auto expected = nlohmann::json::parse(file("language.json"));
  ASSERT_GE(expected.size(), 18U);
  for (const auto& [name, text] : expected.items()) {
    Interpreter interpreter(file("language.py"), "language.py");
    interpreter.run();
    EXPECT_EQ(interpreter.written(interpreter.call_from_outside(interpreter.global(name), {})), text.get<std::string>()) << name;
  }
}

/// What running the text says is wrong, with its place.
std::string error_of(const std::string& text) {
  try {
    Interpreter interpreter(text, "m.py");
    interpreter.run();
  } catch (const Error& error) {
    return error.where() + " | " + error.message() + (error.hint().empty() ? "" : " | " + error.hint());
  }
  return "none";
}

TEST(Language, SaysWhereAndWhatWasExpected) {
  EXPECT_EQ(error_of("a = (1,\n"), "m.py:1:5 | '(' is never closed");
  EXPECT_EQ(error_of("def f(a b): pass\n"), "m.py:1:9 | ')' expected, not 'b'");
  EXPECT_EQ(error_of("if 1\n  pass\n"), "m.py:1:5 | ':' expected, but the line ends");
  EXPECT_EQ(error_of("if 1:\npass\n"), "m.py:2:1 | an indented block expected, not 'pass'");
  EXPECT_EQ(error_of("if 1:\n    a = 1\n  b = 2\n"), "m.py:3:3 | indented by 2, like no block around");
  EXPECT_EQ(error_of("a = 'x\n"), "m.py:1:5 | a text without its closing quote");
  EXPECT_EQ(error_of("1 = a\n"), "m.py:1:1 | what stands here cannot be assigned to");
  EXPECT_EQ(error_of("x = 5 $ 2\n"), "m.py:1:7 | a character that Python has no use for");
  EXPECT_EQ(error_of("from a import *\n"), "m.py:1:1 | import * of 'a': which names it brings cannot be seen");
}

TEST(Language, SaysWhatPythonRaises) {
  EXPECT_EQ(error_of("a = 1\nraise ValueError(f'no {a}')\n"), "m.py:2:1 | ValueError: no 1");
  EXPECT_EQ(error_of("assert 1 == 2, 'differs'\n"), "m.py:1:1 | AssertionError: differs");
  EXPECT_EQ(error_of("class A: pass\nA().widht\n"), "m.py:2:1 | AttributeError: 'A' object has no attribute 'widht'");
  EXPECT_EQ(error_of("def f(width): pass\nf(widht=1)\n"),
            "m.py:2:1 | TypeError: f() got an unexpected keyword argument 'widht'. Did you mean 'width'?");
  EXPECT_EQ(error_of("{}['k']\n"), "m.py:1:1 | KeyError: 'k'");
  EXPECT_EQ(error_of("1 + 'a'\n"), "m.py:1:1 | TypeError: unsupported operand type(s) for +: 'int' and 'str'");
}

TEST(Language, RefusesByNameWhatItDoesNotKnow) {
  EXPECT_EQ(error_of("import torch\ntorch.pca_lowrank\n"), "m.py:2:1 | 'torch.pca_lowrank' is not modelled in code");
  EXPECT_EQ(error_of("import torch\ntorch.stak([])\n"), "m.py:2:1 | 'torch.stak' is not modelled in code | did you mean 'stack'?");
  EXPECT_EQ(error_of("width = 1\nwdth\n"), "m.py:2:1 | the name 'wdth' is not modelled in code | did you mean 'width'?");
  EXPECT_EQ(error_of("import os\nos.system('ls')\n"),
            "m.py:2:1 | 'os.system', which is imported from elsewhere, is not modelled in code | its text is not here: one file is read");
  EXPECT_EQ(error_of("open('x')\n").substr(0, 10), "m.py:1:1 |");
  EXPECT_EQ(error_of("def f():\n  yield 1\nf()\n"),
            "m.py:2:3 | a generator (yield) or coroutine (await), which runs piece by piece, is not modelled in code");
}

}  // namespace
}  // namespace plimsoll::code
