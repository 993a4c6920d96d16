#include "program/inductor/pad_products.hpp"

#include <utility>

#include "plimsoll/units.hpp"

namespace plimsoll::program::inductor {

namespace {

class Padder {
 public:
  Padder(const FxGraph& graph, bool tf32) : graph_(graph), tf32_(tf32) {}

  FxGraph run(std::vector<int>& kept) {
    for (int node = 0; node < graph_.size(); ++node) {
      FxNode n = graph_.at(node);
      for (int& arg : n.args) arg = numbers_[static_cast<std::size_t>(arg)];
      numbers_.push_back(n.op == Aten::product && is_padded(n) ? padded(n) : add(std::move(n)));
    }
    for (const int output : graph_.outputs) made_.outputs.push_back(output < 0 ? -1 : numbers_[static_cast<std::size_t>(output)]);
    kept = std::move(numbers_);
    return std::move(made_);
  }

 private:
  int add(FxNode node) {
    made_.nodes.push_back(std::move(node));
    return made_.size() - 1;
  }

  std::int64_t whole(std::int64_t size, DType type) const {
    constexpr std::int64_t kWholeBytes = 16;
    return round_up(size, kWholeBytes / size_of(type));
  }

  /// Whether the matrix lies in memory in rows of whole 16 bytes.
  bool lies_whole(const FxNode& matrix) const {
    const std::int64_t row = matrix.sizes[matrix.strides[1] == 1 ? 1 : 0];
    return whole(row, matrix.type) == row;
  }

  /// Whether a matrix lies in rows that tensor cores do not take, which is what makes the product slow, and arithmetic bounds it
  /// (is_mm_compute_bound): an H100 computes 295 operations while it moves a byte, half of which is asked for.
  bool is_padded(const FxNode& n) const {
    constexpr double kLeastIntensity = 148;
    if (n.type == DType::fp32 ? !tf32_ : size_of(n.type) != 2) return false;
    const FxNode &a = made_.at(n.args[0]), &b = made_.at(n.args[1]);
    const auto rows = static_cast<double>(a.sizes[0]), inner = static_cast<double>(a.sizes[1]), columns = static_cast<double>(b.sizes[1]);
    const bool whole_rows = lies_whole(a) && lies_whole(b) && lies_whole(n);
    return !whole_rows && rows * inner * columns > kLeastIntensity * (rows * inner + inner * columns + rows * columns);
  }

  /// The node with zeros behind the end of that dimension, in memory as the node is.
  int with_zeros(int node, int dimension, const FxNode& product) {
    const FxNode& before = made_.at(node);
    const std::int64_t size = whole(before.sizes[dimension], before.type);
    if (size == before.sizes[dimension]) return node;
    FxNode pad = product;
    pad.op = Aten::pad;
    pad.args = {node};
    pad.sizes = before.sizes, pad.sizes[dimension] = size;
    pad.strides = before.strides[0] >= before.strides[1] ? Dims{pad.sizes[1], 1} : Dims{1, pad.sizes[0]};
    pad.type = before.type;
    pad.dimension = dimension;
    pad.name = product.name + "_pad";
    return add(std::move(pad));
  }

  int padded(FxNode n) {
    const Dims sizes = n.sizes;
    const int a = with_zeros(with_zeros(n.args[0], 0, n), 1, n), b = with_zeros(with_zeros(n.args[1], 0, n), 1, n);
    n.args = {a, b};
    n.sizes = {made_.at(a).sizes[0], made_.at(b).sizes[1]};
    n.strides = {n.sizes[1], 1};
    FxNode cut = n;
    int whole = add(std::move(n));
    for (int dimension = 0; dimension < 2; ++dimension) {
      if (sizes[dimension] == cut.sizes[dimension]) continue;
      cut.op = Aten::slice;
      cut.args = {whole};
      cut.sizes[dimension] = sizes[dimension];
      cut.dimension = dimension;
      cut.name += "_slice";
      whole = add(cut);
    }
    return whole;
  }

  const FxGraph& graph_;
  bool tf32_;
  FxGraph made_;
  std::vector<int> numbers_;
};

}  // namespace

FxGraph with_padded_products(const FxGraph& graph, bool tf32, std::vector<int>& kept) { return Padder(graph, tf32).run(kept); }

}  // namespace plimsoll::program::inductor
