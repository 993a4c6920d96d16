// A class of a text as a network of the planner.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "code/interpreter.hpp"
#include "plimsoll/code.hpp"
#include "program/modules/network_source.hpp"

namespace plimsoll::code {

/// An argument of forward: "idx:int64[B,S]".
struct Input {
  std::string name;
  DType type = DType::int64;
  std::vector<std::int64_t> sizes;  ///< kBatch, kSequence, or a number
  static constexpr std::int64_t kBatch = -1, kSequence = -2;
};

/// Throws Error: what is no input, a type or a size that is not known.
Input parse_input(const std::string& text);

/// A text that has run, and the module that its class made.
class BuiltModule {
 public:
  /// Throws Error: see model_of_code.
  explicit BuiltModule(const CodeModel& code);

  Interpreter& interpreter() { return interpreter_; }
  const Value& module() const { return module_; }
  /// What wrappers see of it: the tree of its modules, in `type` where that is not fp32.
  std::unique_ptr<program::Module> tree(DType type, program::Tape& tape);
  /// Makes its modules those of a tree as `tree` gives it, whose tensors are on the device.
  void bind(program::Module& root, program::Tape& tape);

 private:
  Value made(const CodeModel& code);
  Value configuration(const std::vector<std::pair<std::string, Value>>& arguments, const std::string& class_name);

  Interpreter interpreter_;
  Value module_;
};

/// The source of a model of code.
std::shared_ptr<const ModelSource> make_source(const CodeModel& code, std::vector<Input> inputs);

}  // namespace plimsoll::code
