/// From a module that runs eagerly to the graph that AOTAutograd partitions: its operators, decomposed, and those of their gradients
/// (torch/_functorch/_aot_autograd, torch/_decomp/decompositions.py of PyTorch 2.15).
///
/// The module runs on a tape of its own, which tells the trace of every operator. Gradients follow in the order of autograd's engine, the
/// latest operator first; a second gradient of a value is added as soon as it is there. Copies of what lies in a row already, and operators
/// that were traced before, fall away as in the joint graph's passes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program/checkpoint.hpp"
#include "program/inductor/fx.hpp"
#include "program/tape.hpp"

namespace plimsoll::program::inductor {

/// What of the traced operators is computed again.
struct Checkpointing {
  bool on = false;                                  ///< the whole graph is a checkpointed region
  std::unique_ptr<SelectivePolicy> policy = nullptr;  ///< whose outputs are kept; null: nobody's
};

class Trace final : public OperatorTrace {
 public:
  explicit Trace(Tape& tape, Checkpointing checkpointing = {});
  ~Trace() override;
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Throws Error (refused): an operator without a decomposition here.
  void ran(const char* name, const List<const Tensor*>& inputs, std::int64_t number, const std::vector<Tensor>& outputs) override;
  /// Both directions of what was traced since the trace was made, whose result is `result`. Ends the trace.
  JointGraph joint(const Tensor& result);
  /// The traced module's tensors that are inputs, in the order of JointGraph::inputs.
  std::vector<Tensor> inputs() const;

 private:
  /// An operator as autograd sees it: its arguments, its results and what it saved, and what gives the gradients of its arguments.
  struct Recorded {
    std::vector<int> inputs, outputs;
    std::function<std::vector<int>(const std::vector<int>& gradients)> backward;
  };
  using Ints = std::vector<int>;

  int add(FxNode node, Tensor meta);
  int input(const Tensor& tensor);
  const Tensor& meta(int node) const { return metas_[static_cast<std::size_t>(node)]; }
  bool needs(int node) const { return needs_[static_cast<std::size_t>(node)]; }
  void record(Ints inputs, Ints outputs, std::function<Ints(const Ints&)> backward);
  void bind(const Tensor& tensor, int node);
  void tag(const char* name, std::size_t first);

  // operators
  int pointwise(Aten op, const Ints& args, std::optional<DType> type = std::nullopt);
  int convert(int x, DType type);
  int row_major(int x);
  int view(int x, const Dims& sizes);
  int permute(int x, const Dims& order);
  int slice(int x, int dimension, std::int64_t start, std::int64_t size);
  int cat(const Ints& parts, int dimension);
  int sum(int x, const Dims& dimensions, bool keep, Aten op = Aten::sum);
  int product(int a, int b);
  Ints several(Aten op, const Ints& args, const std::vector<std::pair<Dims, DType>>& results, std::int64_t number = 0);
  int call(Aten op, const Ints& args, const Dims& sizes, DType type, std::int64_t number = 0);
  int gathered(int x, std::int64_t ranks);
  int scattered(int x, std::int64_t ranks);

  // what the tape's operators are made of
  int linear(int x, int weight);
  int rms_norm(int x, int weight);
  int silu(int x);
  int multiply(int a, int b);
  int convert_recorded(int x, DType type);
  int viewed(int x, const Dims& sizes);
  int copied(int x);
  int sliced(int x, const Dims& sizes, std::int64_t start);
  int joined(const Ints& parts);
  int turned(int x, const Tensor& result);
  Ints split(int x, const std::vector<Tensor>& parts);
  int attention(const Ints& heads, bool causal);
  int flex_attention(const Ints& heads);
  int real_as_complex(int x);
  int complex_as_real(int x);
  int multiply_complex(int a, int b);
  int gather_sequence(int x, std::int64_t ranks);
  int scatter_sequence(int x, std::int64_t ranks);

  Tape& tape_;
  Checkpointing checkpointing_;
  FxGraph graph_;
  std::vector<Tensor> metas_;
  std::vector<bool> needs_;
  std::unordered_map<TensorImpl*, int> known_;
  std::vector<Tensor> alive_;  ///< so that no tensor takes another's place in `known_`
  Ints inputs_;
  std::vector<Recorded> recorded_;
  bool backward_ = false;
};

}  // namespace plimsoll::program::inductor
