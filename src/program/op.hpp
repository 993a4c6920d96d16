/// How an operator is written: one Op per call, from its arguments to its outputs.
///
///     Tensor silu(const Tensor& x) {
///       Op op("silu", {&x});
///       op.save(x);                                    // before the kernel, as VariableType does
///       Tensor y = op.elementwise({&x}, x.dtype());     // allocates the output, launches one kernel
///       return op.done(y, [](BackwardCall& b) {
///         const Tensor x = b.saved(0);
///         b.give(0, elementwise(b.tape, {&b.grad(), &x}, x.dtype()));   // temporaries: plain tensors of this scope
///       });
///     }
#pragma once

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "program/kernels.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// Sizes after broadcasting all tensors against each other.
Dims broadcast_sizes(std::initializer_list<const Tensor*> tensors);
/// Strides that TensorIterator gives the output of an elementwise operator: the permutation of its inputs.
Dims elementwise_strides(const Dims& sizes, std::initializer_list<const Tensor*> tensors);
/// Strides of empty_like(x): x's own when dense, else its permutation, packed.
Dims like_strides(const Tensor& x);

/// One elementwise kernel over broadcast inputs into a new tensor; takes no part in autograd.
Tensor elementwise(Tape& tape, std::initializer_list<const Tensor*> inputs, DType type);
/// A new tensor as empty_like(x) makes it (no kernel).
Tensor empty_like(const Tensor& x);
/// A new tensor set to zero: a memory set of the device, no kernel.
Tensor zeros(Tape& tape, const Dims& sizes, DType type);
/// One kernel that reads `inputs` and writes into `target` (copy_, mul_, add_ …).
void in_place(const Tensor& target, std::initializer_list<const Tensor*> inputs);

/// The outputs of the operator `name` (a literal): those of `compute`, or those that a selective checkpoint kept of its first run.
template <class Function>
std::vector<Tensor> selected(Tape& tape, const char* name, Function&& compute) {
  if (!tape.selective_outputs) return compute();
  std::vector<Tensor> outputs = tape.selective_outputs->kept(name);
  if (!outputs.empty()) return outputs;
  outputs = compute();
  tape.selective_outputs->computed(name, outputs);
  return outputs;
}

class Op {
 public:
  /// `name` is a literal. Undefined tensors may stand among the inputs (a missing bias).
  Op(const char* name, std::initializer_list<const Tensor*> inputs);
  Op(const char* name, List<const Tensor*> inputs);
  ~Op();
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;

  Tape& tape() const { return tape_; }
  /// Whether a gradient is recorded at all.
  bool differentiable() const { return differentiable_; }
  /// Whether input `input` will need a gradient.
  bool needs(std::size_t input) const { return differentiable_ && inputs_[input]->defined() && inputs_[input]->requires_grad(); }

  /// Saves an input for the backward; its index for BackwardCall::saved is the order of the calls.
  void save(const Tensor& input) { save_if(true, input); }
  /// The same, only if `condition`: else an undefined tensor takes the index.
  void save_if(bool condition, const Tensor& input) {
    if (differentiable_) saved_.emplace_back(condition ? input : Tensor(), false);
  }
  /// What a trace could not tell from its tensors' shapes (OperatorTrace::ran).
  void tell_number(std::int64_t number) { told_.number = number; }
  void tell_rate(double rate) { told_.rate = rate; }
  /// Input `input` reaches the kernel transposed (F.linear's weight).
  void see_transposed(int input) { transposed_input_ = input; }
  void save_output(const Tensor& output) { save_output_if(true, output); }
  void save_output_if(bool condition, const Tensor& output) { pending_.emplace_back(condition && output.defined(), output); }

  /// A new tensor, row-major.
  Tensor output(const Dims& sizes, DType type) { return tape_.empty(sizes, type); }
  Tensor elementwise(std::initializer_list<const Tensor*> inputs, DType type) { return program::elementwise(tape_, inputs, type); }

  /// Ends the operator: `outputs` get a node whose backward is `backward`. Outputs that need no gradient are not listed.
  template <class Function>
  void finish(std::initializer_list<Tensor*> outputs, Function&& backward) {
    if (tape_.trace) tell_trace(outputs);
    if (!differentiable_) return;
    NodeRef node(new FunctionNode<std::decay_t<Function>>(std::forward<Function>(backward)));
    tie(*node);
    for (Tensor* output : outputs) Tape::set_history(*output, node);
    save_outputs(*node);
  }
  template <class Function>
  Tensor done(Tensor& output, Function&& backward) {
    finish({&output}, std::forward<Function>(backward));
    return std::move(output);
  }
  /// Ends an operator that takes no part in autograd.
  Tensor done(Tensor& output) {
    if (tape_.trace) tell_trace({&output});
    return std::move(output);
  }
  /// The same for many outputs (split, unbind).
  template <class Function>
  void finish_all(std::vector<Tensor>& outputs, Function&& backward) {
    if (tape_.trace) tell_trace(outputs);
    if (!differentiable_) return;
    NodeRef node(new FunctionNode<std::decay_t<Function>>(std::forward<Function>(backward)));
    tie(*node);
    for (Tensor& output : outputs) Tape::set_history(output, node);
    save_outputs(*node);
  }

 private:
  void tie(Node& node);
  void save_outputs(Node& node);
  void tell_trace(std::initializer_list<Tensor*> outputs);
  void tell_trace(const std::vector<Tensor>& outputs);

  List<const Tensor*> inputs_;
  Tape& tape_;
  const char* name_;
  const char* name_before_;
  bool differentiable_;
  int transposed_input_ = -1;
  ToldNumbers told_;
  List<SavedTensor> saved_;
  List<std::pair<bool, Tensor>> pending_;
};

}  // namespace plimsoll::program
