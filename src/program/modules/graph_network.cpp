// Networks whose blocks state their operators and edges: graph files, and transformers' resnet. Each operator is run as its module of
// torch.nn; a block as a Sequential, which holds its input until it returns.
#include <algorithm>

#include "plimsoll/error.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/modules/transformers/families.hpp"
#include "program/ops/ops.hpp"

namespace plimsoll::program {

namespace {

constexpr double kSomeRate = 0.1;  ///< of a dropout: any rate above 0 allocates alike

/// One block, ready to run in any of its repeats.
class GraphBlock {
 public:
  GraphBlock(const Block& block, Module& root, Tape& tape) : block_(block), root_(root), tape_(tape), inputs_(block.operators.size()) {
    last_reader_.resize(block.operators.size(), -1);
    for (const plimsoll::Edge& edge : block.edges) {
      const Operator& reader = block.operators[static_cast<std::size_t>(edge.to)];
      if (edge.from < kBlockInput) refuse("a block '" + block.name + "' with side inputs is not modelled");
      inputs_[static_cast<std::size_t>(edge.to)].push_back(edge.from);
      if (edge.from < 0) continue;
      // `x += y`: y is a name of its own, which lives until the block returns.
      const bool named = reader.function == "in_place" && inputs_[static_cast<std::size_t>(edge.to)].size() > 1;
      int& last = last_reader_[static_cast<std::size_t>(edge.from)];
      last = named ? static_cast<int>(block.operators.size()) : std::max(last, edge.to);
    }
  }

  /// A block that is a module of its own is called as one: its wrapper's hooks run.
  Tensor run(std::int64_t index, Tensor input) const {
    const std::string path = path_of(index);
    Module* const module = path.empty() ? nullptr : root_.find(path);
    if (module == nullptr) return run_operators(index, input);
    ModuleCall call(*module, tape_, {&input});
    return call.done(run_operators(index, input));
  }

 private:
  Tensor run_operators(std::int64_t index, const Tensor& input) const {
    std::vector<Tensor> values(block_.operators.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Operator& op = block_.operators[i];
      std::vector<Tensor> arguments;
      for (const int from : inputs_[i]) arguments.push_back(from < 0 ? input : values[static_cast<std::size_t>(from)]);
      const LabelScope label(tape_, tape_.intern(name_of(op, index)));
      values[i] = apply(op, index, arguments);
      check_shape(op, values[i]);
      arguments.clear();
      for (std::size_t j = 0; j < i; ++j)
        if (last_reader_[j] == static_cast<int>(i)) values[j].reset();
    }
    return values.back();
  }

  std::string path_of(std::int64_t index) const {
    std::string path = block_.name;
    if (block_.numbered) path += (path.empty() ? "" : ".") + std::to_string(block_.first + index);
    return path;
  }

  std::string name_of(const Operator& op, std::int64_t index) const {
    std::string path = path_of(index);
    if (!op.name.empty()) path += (path.empty() ? "" : ".") + op.name;
    return path;
  }

  void check_shape(const Operator& op, const Tensor& value) const {
    std::vector<std::int64_t> sizes;
    for (int i = 1; i < value.rank(); ++i) sizes.push_back(value.size(i));
    if (sizes != op.output_per_token) refuse("images that are not square are not modelled", block_.name + "." + op.name);
  }

  Tensor apply(const Operator& op, std::int64_t index, const std::vector<Tensor>& x) const {
    Module* module = op.parameters.empty() ? nullptr : root_.find(name_of(op, index));
    const auto parameter = [&](const char* name) { return module ? module->tensor(name) : Tensor(); };
    switch (op.kind) {
      case OperatorKind::convolution:
        return convolution(x[0], parameter("weight"), parameter("bias"), {.stride = op.stride, .padding = op.padding, .groups = op.groups});
      case OperatorKind::batch_norm:
        return batch_norm(x[0], parameter("weight"), parameter("bias"));
      case OperatorKind::layer_norm:
        return layer_norm(x[0], parameter("weight"), parameter("bias"));
      case OperatorKind::linear:
        return linear(x[0], parameter("weight"), parameter("bias"));
      case OperatorKind::pool:
        return pooled(op, x[0]);
      case OperatorKind::activation:
        return op.function == "relu_" ? relu_into(x[0]) : activate(op.function, x[0]);
      case OperatorKind::dropout:
        return op.function == "none" ? x[0] : dropout(x[0], kSomeRate);
      case OperatorKind::add:
        return joined(x, op.function == "in_place" ? add_into : add);
      case OperatorKind::multiply:
        return joined(x, multiply);
      case OperatorKind::scale:
        return multiply_scalar(x[0]);
      case OperatorKind::softmax:
        return softmax(x[0], x[0].dtype());
      case OperatorKind::reshape:
        return reshaped(op, x[0]);
      default:
        refuse("'" + std::string(plimsoll::name_of(op.kind)) + "' of a graph is not modelled in a training step",
               block_.name + "." + op.name);
    }
  }

  static Tensor pooled(const Operator& op, const Tensor& x) {
    if (op.output_per_token.size() == 1) return reshaped(op, global_average_pool(x));
    return (op.function == "max" ? max_pool : average_pool)(x, {op.kernel, op.stride, op.padding});
  }

  static Tensor reshaped(const Operator& op, const Tensor& x) {
    Dims sizes{x.size(0)};
    if (static_cast<int>(op.output_per_token.size()) >= Dims::kMost) refuse("tensors of so many dimensions are not modelled", op.name);
    for (const std::int64_t size : op.output_per_token) sizes.push_back(size);
    return reshape(x, sizes);
  }

  static Tensor joined(const std::vector<Tensor>& x, Tensor (*join)(const Tensor&, const Tensor&)) {
    Tensor y = join(x[0], x[1]);
    for (std::size_t i = 2; i < x.size(); ++i) y = join(y, x[i]);
    return y;
  }

  const Block& block_;
  Module& root_;
  Tape& tape_;
  std::vector<std::vector<int>> inputs_;  ///< of each operator: operators of the block, or kBlockInput
  std::vector<int> last_reader_;
};

class GraphNetwork final : public Network {
 public:
  GraphNetwork(const Model& model, const RunOptions& options, Module& root, Tape& tape) : model_(model), root_(root), tape_(tape) {
    if (model.task != Model::Task::image_classification)
      refuse("training steps are modelled of graphs that classify images", model.name, "input {\"image\": [channels, height, width]}");
    if (options.checkpointing != RunOptions::Checkpointing::none) refuse("recomputation within a graph is not modelled", "recompute");
    for (const Block& block : model.blocks) {
      if (block.input) refuse("blocks that read another than the one before are not modelled", block.name);
      blocks_.emplace_back(block, root, tape);
    }
  }

  Tensor loss(const Batch& batch) override {
    Tensor pixels = batch.input_ids, labels = batch.labels;
    ModuleCall call(root_, tape_, {&pixels, &labels});
    Tensor hidden = pixels;
    for (std::size_t i = 0; i < blocks_.size(); ++i)
      for (std::int64_t repeat = 0; repeat < model_.blocks[i].repeat; ++repeat) hidden = blocks_[i].run(repeat, hidden);
    if (hidden.rank() != 2) refuse("a graph that classifies ends in one vector per image", model_.name);
    tape_.phase(Phase::loss);
    Tensor loss = cross_entropy(hidden, view(labels, {-1}));
    call.done({&loss, &hidden});
    return loss;
  }

 private:
  const Model& model_;
  Module& root_;
  Tape& tape_;
  std::vector<GraphBlock> blocks_;
};

}  // namespace

std::unique_ptr<Network> make_graph_network(const Model& model, const RunOptions& options, Module& root, Tape& tape) {
  return std::make_unique<GraphNetwork>(model, options, root, tape);
}

}  // namespace plimsoll::program
