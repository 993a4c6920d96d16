/// A stage's pass forward and the pass back of what it made: recorded once, and written down again for micro-batches that do the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// One stage's. A pass runs between `begin_…` and `end_…`; once one was seen, others may be called instead: `forward` and `backward` write
/// the same instructions, naming other tensors, and make only those tensors that the caller holds. A pass forward that runs after some were
/// called is held against what was written.
///
/// It is the caller's promise that passes back come in the order of those forward, that none of those that are called differs by its place in
/// the step, and that passes leave their modules' and wrappers' own state as they found it.
class Routine {
 public:
  explicit Routine(Tape& tape) : tape_(tape) {}

  /// Thrown where passes were written down that do not do what one which runs does: all must be recorded without routines.
  struct Differs {};

  bool knows_forward() const { return forward_known_; }
  /// Before a pass forward on `input` (undefined: none) runs.
  void begin_forward(const Tensor& input);
  /// Behind it: `made` is all of it that the caller holds, each once, that which goes back first. Throws Differs.
  void end_forward(const Tensor& input, const std::vector<Tensor>& made);
  /// A pass forward: what it made.
  std::vector<Tensor> forward(const Tensor& input);
  /// Whether a pass that was called made it.
  static bool made(const Tensor& output);

  bool knows_backward() const { return backward_known_; }
  /// Before the pass back runs whose pass forward is the known one.
  void begin_backward() { began_ = begin(); }
  /// Behind it: `output` may be another tensor than before. Throws Differs.
  void end_backward(const Tensor& input, const Tensor& output);
  /// The pass back from `output`, which `forward` made. Throws Differs.
  void backward(const Tensor& input, Tensor& output);

 private:
  /// Where a pass began: instructions, and names of tensors.
  struct Begun {
    std::size_t at = 0;
    TensorId first = 0;
  };
  /// Instructions whose tensors are named from 0 on: those that the pass forward made, and behind these those of the pass back.
  struct Pass {
    std::vector<Instruction> instructions;
    std::vector<std::uint32_t> naming;  ///< which of them name a tensor
    TensorId births = 0;
  };
  /// A tensor that a pass leaves to its caller.
  struct Form {
    Dims sizes, strides;
    DType type = DType::fp32;
    bool requires_grad = false;
    TensorId name = 0;   ///< as its pass names it
    std::size_t at = 0;  ///< the instruction that allocates it
  };
  class Call;

  std::vector<Instruction>& recording() const;
  Begun begin() const { return {tape_.recorded(), tape_.take_names(0)}; }
  bool read(const Begun& begun, TensorId forward, TensorId births, Pass& pass) const;
  bool read(const Pass& pass, const Tensor& tensor, TensorId forward, Form& form) const;
  bool learn_forward(const Tensor& input, const std::vector<Tensor>& made);
  bool learn_backward(const Tensor& input, const Tensor& output);
  bool nothing_else_is_left() const;
  void write(const Pass& pass, std::size_t from, std::size_t to, TensorId forward, TensorId backward);
  Tensor tensor_of(const Pass& pass, const Form& form, std::size_t begin, TensorId name) const;

  Tape& tape_;
  Begun began_;
  Category input_was_ = Category::temporary;
  bool tried_ = false, forward_known_ = false, backward_known_ = false, called_ = false;
  TensorId first_ = 0;  ///< the name of the known pass forward's first tensor, as it ran
  Pass forward_, backward_;
  std::vector<Form> made_;
  Category input_becomes_ = Category::temporary;
  const TensorImpl* output_ = nullptr;  ///< of the known pass forward; told by its address alone
  std::vector<Form> gradient_, replaced_;  ///< of the input, if it gets one; what stands in the output's place, if something does
};

}  // namespace plimsoll::program
