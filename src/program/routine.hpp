/// A stage's pass forward and the passes back of what it made: recorded once, and written down again for micro-batches that do the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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
  /// `backs`: the passes in which one goes back, one after the other; none of what has no gradients.
  explicit Routine(Tape& tape, std::size_t backs = 1) : tape_(tape), backs_(backs) {}

  /// Thrown where passes were written down that do not do what one which runs does: all must be recorded without routines.
  struct Differs {};

  bool knows_forward() const { return known_; }
  /// Before a pass forward on `input` (undefined: none) runs.
  void begin_forward(const Tensor& input);
  /// Behind it: `made` is all of it that the caller holds, each once, that which goes back first. Throws Differs.
  void end_forward(const Tensor& input, const std::vector<Tensor>& made);
  /// A pass forward: what it made.
  std::vector<Tensor> forward(const Tensor& input);
  /// The graph that a pass forward which was called stands for; null where `output` comes of another.
  static NodeRef call_of(const Tensor& output);

  bool knows_backward() const { return known_ && passes_.size() == 1 + backs_; }
  /// Before the next pass back runs of what the known pass forward made.
  void begin_backward(const Tensor& input, const Tensor& output);
  /// Behind it: `output` may be another tensor than before. Throws Differs.
  void end_backward(const Tensor& input, const Tensor& output);
  /// The next pass back of a call. Throws Differs.
  void backward(const NodeRef& call, const Tensor& input, Tensor& output);

 private:
  /// Instructions that name a tensor as the `id`-th of a pass: which they are, and of which pass.
  struct Named {
    std::uint32_t at, pass;
  };
  struct Pass {
    std::vector<Instruction> instructions;
    std::vector<Named> naming;
    std::vector<std::uint32_t> of_caller;  ///< which are labelled by the operator that calls, as additions of gradients between nodes are
    TensorId births = 0;
    const char* operator_name = nullptr;  ///< the last that ran; null: the caller's
    TensorId first = 0;              ///< the name of its first tensor, as it ran
  };
  /// A tensor that a pass leaves to its caller.
  struct Form {
    Dims sizes, strides;
    DType type = DType::fp32;
    bool requires_grad = false;
    bool shared = false;     ///< the graph holds it too
    std::uint32_t pass = 0;  ///< whose `id`-th it is
    TensorId id = 0;
    std::size_t at = 0;  ///< the instruction that allocates it
  };
  /// An instruction that frees what the caller, or the graph, held.
  struct Drop {
    std::uint32_t pass, at;
    std::size_t made;
  };
  class Call;

  std::vector<Instruction>& recording() const;
  void begin();
  Pass end_of_back();
  bool read(Pass& pass) const;
  std::optional<Form> read(const Pass& pass, const Tensor& tensor, std::uint32_t holders) const;
  bool learn_forward(Pass pass, const Tensor& input, const std::vector<Tensor>& made);
  bool learn_backward(Pass pass, const Tensor& input, const Tensor& output);
  bool nothing_else_is_left();
  void write(const Call& call, std::uint32_t pass, std::size_t from, std::size_t to);
  Tensor tensor_of(const Call& call, const Form& form, std::size_t begin) const;

  Tape& tape_;
  std::size_t backs_;
  std::size_t began_at_ = 0;    ///< of the pass that runs: its first instruction,
  TensorId began_with_ = 0;     ///< and the name of its first tensor
  const char* caller_ = "";     ///< the operator that runs a pass back,
  std::uint32_t stand_in_ = 0;  ///< and the label that what this operator does has meanwhile
  Category input_was_ = Category::temporary, input_becomes_ = Category::temporary;
  bool tried_ = false, known_ = false, called_ = false;
  std::vector<Pass> passes_;  ///< that are known: forward, then those back
  std::vector<Form> made_;
  std::vector<Drop> drops_;
  std::optional<Form> gradient_, replaced_;  ///< of the input, if it gets one; what stands in the output's place, if something does
  bool had_gradient_ = false;                ///< the input, before the pass back that runs
  const TensorImpl* output_ = nullptr;       ///< before it; told by its address alone
};

}  // namespace plimsoll::program
