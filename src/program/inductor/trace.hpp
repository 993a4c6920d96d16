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
#include <unordered_set>
#include <utility>
#include <vector>

#include "program/checkpoint.hpp"
#include "program/inductor/fx.hpp"
#include "program/tape.hpp"

namespace plimsoll::program::inductor {

/// What of the traced operators is computed again.
struct Checkpointing {
  bool on = false;                                    ///< the whole graph is a checkpointed region
  std::shared_ptr<SelectivePolicy> policy = nullptr;  ///< whose outputs are kept, in all graphs of the region; null: nobody's
};

class Trace final : public OperatorTrace {
 public:
  /// `resident` live as long as the traced module: its parameters and buffers.
  explicit Trace(Tape& tape, const std::vector<Tensor>& resident, Checkpointing checkpointing = {});
  ~Trace() override;
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// Throws Error (refused): an operator without a decomposition here.
  void ran(const char* name, const List<const Tensor*>& inputs, const ToldNumbers& told, const std::vector<Tensor>& outputs) override;
  /// Throws Error (refused): a module whose code breaks its graph.
  void breaks(const std::vector<Tensor>& live) override;
  /// Both directions of what was traced since the trace was made, whose results are `results`: those that ask for a gradient have one. Ends
  /// the trace.
  JointGraph joint(const std::vector<Tensor>& results);
  /// Whether the trace knows the tensor as what one of its operators gave.
  bool made(const Tensor& tensor) const;
  int checkpoint = 0;  ///< the number of that whose operators run
  /// The traced module's tensors that are inputs, in the order of JointGraph::inputs: that in which the module's code takes them up,
  /// whatever order they are cast in.
  std::vector<Tensor> inputs() const;

 private:
  using Ints = std::vector<int>;
  using Gradients = std::function<Ints(const Ints& gradients)>;
  /// An operator as autograd sees it: its arguments, its results and what it saved, and what gives the gradients of its arguments.
  struct Recorded {
    Ints inputs, outputs;
    Gradients backward;
  };
  /// An operator that ran: those of its arguments that are defined, and what it gave.
  struct Ran {
    Ints in;
    const List<const Tensor*>& arguments;
    ToldNumbers told;
    const std::vector<Tensor>& out;

    DType type() const { return out.front().dtype(); }
    const Dims& sizes() const { return out.front().sizes(); }
  };
  using Operator = Ints (Trace::*)(const Ran& ran);
  static Operator operator_of(std::string_view name);

  int add(FxNode node, Tensor meta);
  int input(const Tensor& tensor);
  void take_up(const Ints& arguments);
  const Tensor& meta(int node) const { return metas_[static_cast<std::size_t>(node)]; }
  bool needs(int node) const { return needs_[static_cast<std::size_t>(node)]; }
  Ints record(Ints inputs, Ints outputs, Gradients backward);
  int validated(int gradient, int of);
  void bind(const Tensor& tensor, int node);
  void tag(const char* name, std::size_t first);
  void lies_as(int node, int other);
  void lies_in_rows(int node);

  // operators of ATen
  int pointwise(Aten op, const Ints& args, std::optional<DType> type = std::nullopt, std::int64_t number = 0);
  int with_number(Aten op, int x, double number, std::optional<DType> type = std::nullopt);
  int convert(int x, DType type);
  int row_major(int x);
  int view(int x, const Dims& sizes, Aten op = Aten::view);
  int reshaped(int x, const Dims& sizes);
  int permute(int x, const Dims& order);
  int slice(int x, int dimension, std::int64_t start, std::int64_t size, std::int64_t step = 1);
  int select(int x, int dimension, std::int64_t index);
  int cat(const Ints& parts, int dimension);
  int repeated(int x, int dimension, std::int64_t times);
  int stack(const Ints& parts, int dimension);
  int sum(int x, const Dims& dimensions, bool keep, Aten op = Aten::sum, std::optional<DType> type = std::nullopt);
  int product(int a, int b);
  Ints several(Aten op, const Ints& args, const std::vector<std::pair<Dims, DType>>& results, std::int64_t number = 0, double rate = 0);
  void attend_by(int item, AttentionKernels kernels) { graph_.at(graph_.at(item).args.front()).kernels = kernels; }
  int call(Aten op, const Ints& args, const Dims& sizes, DType type, std::int64_t number = 0);
  int gathered(int x, std::int64_t ranks);
  int scattered(int x, std::int64_t ranks);
  Dims leading(int x) const;

  // what the tape's operators are made of
  Ints linear(const Ran& ran);
  Ints linear_without_bias(int x, int weight);
  Ints addmm(const Ran& ran);
  Ints biased_product(const Ints& in, bool transposed);
  Ints rms_norm(const Ran& ran);
  Ints layer_norm(const Ran& ran);
  Ints silu(const Ran& ran);
  Ints gelu(const Ran& ran);
  int gelu_by_tanh_gradient(int gradient, int x);
  Ints tanh(const Ran& ran);
  Ints sigmoid(const Ran& ran);
  Ints exponential(const Ran& ran);
  Ints relu(const Ran& ran);
  Ints power(const Ran& ran);
  Ints rsqrt(const Ran& ran);
  Ints mean(const Ran& ran);
  Ints multiply(const Ran& ran);
  Ints in_place(const Ran& ran, Operator run);
  Ints multiply_in_place(const Ran& ran);
  Ints sum_of(const Ran& ran);
  Ints add_in_place(const Ran& ran);
  Ints difference(const Ran& ran);
  Ints divide(const Ran& ran);
  Ints negate(const Ran& ran);
  Ints converted(const Ran& ran);
  Ints viewed(const Ran& ran);
  Ints squeezed(const Ran& ran);
  Ints unsqueezed(const Ran& ran);
  Ints packed(const Ran& ran);
  Ints copied(const Ran& ran);
  Ints sliced(const Ran& ran);
  Ints joined(const Ran& ran);
  Ints stacked(const Ran& ran);
  Ints selected(const Ran& ran);
  Ints unbound(const Ran& ran);
  Ints turned(const Ran& ran);
  Ints expanded(const Ran& ran);
  Ints split(const Ran& ran);
  Ints same(const Ran& ran);
  Ints range(const Ran& ran);
  Ints multiply_by_one(const Ran& ran);
  Ints less_a_number(const Ran& ran);
  Ints unequal(const Ran& ran);
  Ints equal(const Ran& ran);
  Ints less_equal(const Ran& ran);
  Ints both(const Ran& ran);
  Ints indexed(const Ran& ran);
  Ints filled_with_true(const Ran& ran);
  Ints running_sum(const Ran& ran);
  Ints cosine(const Ran& ran);
  Ints sine(const Ran& ran);
  Ints padded(const Ran& ran);
  Ints embedding(const Ran& ran);
  Ints log_softmax(const Ran& ran);
  Ints nll_loss(const Ran& ran);
  Ints dropout(const Ran& ran);
  Ints score_bias(const Ran& ran);
  Ints flash_attention(const Ran& ran);
  Ints efficient_attention(const Ran& ran);
  Ints cudnn_attention(const Ran& ran);
  Ints attention(const Ran& ran, AttentionKernels kernels);
  Ints flex_attention(const Ran& ran);
  Ints table_rows(const Ran& ran);
  Ints gather_rows(const Ran& ran);
  int real_as_complex(int x);
  int complex_as_real(int x);
  Ints as_complex(const Ran& ran);
  Ints as_real(const Ran& ran);
  Ints multiply_complex(int a, int b);
  Ints gather_sequence(const Ran& ran);
  Ints scatter_sequence(const Ran& ran);

  Tape& tape_;
  std::unordered_set<const TensorImpl*> resident_;
  Checkpointing checkpointing_;
  FxGraph graph_;
  std::vector<Tensor> metas_;
  std::vector<bool> needs_;
  std::unordered_map<TensorImpl*, int> known_;
  std::vector<Tensor> alive_;  ///< so that no tensor takes another's place in `known_`
  Ints inputs_;                ///< placeholders in the order in which operators take them up, then the others
  std::size_t taken_up_ = 0;   ///< of them
  std::vector<Recorded> recorded_;
  int seeds_ = -1;  ///< of all dropouts
  bool backward_ = false;
};

}  // namespace plimsoll::program::inductor
