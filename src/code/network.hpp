// A class of a text as a network of the planner.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "code/interpreter.hpp"
#include "plimsoll/code.hpp"
#include "program/modules/network_source.hpp"

namespace plimsoll::code {

/// A size of an input: 3, or so many times what the strategy says ("B", "8S", "2√S": of a square image of S patches).
struct Size {
  enum class Of : std::uint8_t { one, batch, sequence, side, target } of = Of::one;
  std::int64_t count = 1;
  bool operator==(const Size&) const = default;
};

/// An argument of forward: "idx:int64[B,S]".
struct Input {
  std::string name;
  DType type = DType::int64;
  std::vector<Size> sizes;
  bool in_parameter_type = false;     ///< floating, as the parameters are
  std::optional<double> filled = {};  ///< all of its elements are that number
};

/// "mask:int64[B,S]=1": a name, a type ("float": the parameters'), sizes of numbers, B, S and T (of the target, or of a prompt), and, where
/// it is known, what all of its elements are. Throws Error: what is no input, a type or a size that is not known.
Input parse_input(const std::string& text);
std::vector<Input> parse_inputs(const std::vector<std::string>& texts);
/// Those that a library's table tells, a sequence of such texts; none of None.
std::vector<Input> told_inputs(Interpreter& i, const Value& told);

/// Whether a size of one of them is so many times that.
bool any_of_size(const std::vector<Input>& inputs, Size::Of of);

/// Texts that have run, and the module that one of their classes made.
class BuiltModule {
 public:
  BuiltModule(std::unique_ptr<Interpreter> interpreter, Value module) : interpreter_(std::move(interpreter)), module_(std::move(module)) {}

  Interpreter& interpreter() { return *interpreter_; }
  const Value& module() const { return module_; }
  /// What wrappers see of it: the tree of its modules, what is fp32 in `type`, as Module.to(type) leaves it.
  std::unique_ptr<program::Module> tree(DType type, program::Tape& tape);
  /// Adds to a tree that was not made of the text (of a family's Model) the modules that it lacks, which have no parameters, before wrappers
  /// put hooks on all there are.
  void complete(program::Module& root, program::Tape& tape) const;
  /// Makes its modules those of a tree as `tree` gives it, whose tensors are on the device.
  void bind(program::Module& root, program::Tape& tape);
  /// Its parameters as a block of a Model, a module's own ones an operator.
  Block block();
  /// Of a class that is nn.Linear or transformers' Conv1D, or derived from one: how its weight lies.
  std::optional<program::WeightLayout> linear_layout(const ClassObject& type);

 private:
  void take_buffers();

  std::unique_ptr<Interpreter> interpreter_;
  Value module_;
};

/// How a network comes from texts.
struct Recipe {
  /// Reads the texts and makes the module; one of transformers with `type` as torch's default. Throws Error: see model_of_code.
  std::function<std::unique_ptr<BuiltModule>(const program::RunOptions& options, DType type)> build;
  std::vector<Input> inputs;
  program::CodeLibrary library = program::CodeLibrary::none;
  std::function<program::ModelParts()> parts = {};  ///< of a library's class
  std::int64_t vocabulary = 0;  ///< ids are below it, and none is a special token; 0: nothing is known of whole numbers
};

/// The network that a built module is on a tree of modules, which are on the device.
std::unique_ptr<program::Network> network_of(std::unique_ptr<BuiltModule> built, std::shared_ptr<const Recipe> recipe,
                                             const program::RunOptions& options, program::Module& root, program::Tape& tape);

/// PreTrainedModel.enable_input_require_grads of the embeddings at these paths.
void require_input_gradients(program::Module& root, const std::vector<std::string>& embeddings);

/// The source of a model of code.
std::shared_ptr<const ModelSource> make_source(Recipe recipe);

/// A class of one text, made with its arguments.
std::unique_ptr<BuiltModule> build_class(const CodeModel& code);

}  // namespace plimsoll::code
