/// A traced graph (torch.fx): one tensor a node, made by an operator of ATen after decomposition.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program::inductor {

/// Operators that a traced graph is made of.
enum class Aten : std::uint8_t {
  placeholder,
  // element-wise
  convert,
  power,
  add,
  add_number,
  subtract,
  subtract_from_number,
  multiply,
  multiply_number,
  divide,
  divide_by_number,
  negate,
  exp,
  sigmoid,
  rsqrt,
  tanh,
  erf,
  relu,
  cos,
  sin,
  log,
  less_equal_number,
  greater_number,
  greater_equal_number,
  less_number,
  not_equal_number,
  equal,
  less_equal,
  both,
  choose,
  choose_number,
  clone,
  index,
  iota,
  full,
  pad,
  slice_scatter,
  select_scatter,
  // random numbers: one drawing of all seeds, one of them, a value for every element
  seeds,
  seed,
  random,
  // sums
  sum,
  mean,
  amax,
  cumsum,
  var_mean,
  // views
  view,
  squeeze,
  unsqueeze,
  permute,
  slice,
  select,
  expand,
  cat,
  // several results, each a getitem
  split,
  attention,
  attention_backward,
  flex_attention,
  flex_attention_backward,
  getitem,
  product,
  addmm,
  // tables
  embedding,
  gather_element,
  index_put,
  // complex numbers, of which Inductor makes no code
  table_rows,
  gather_rows,
  view_as_complex,
  view_as_real,
  multiply_complex,
  conjugate,
  clone_complex,
  // functional collectives; each is followed by its wait
  all_gather,
  reduce_scatter,
  wait,
};

/// What becomes of an operator in Inductor.
enum class Lowering : std::uint8_t { input, pointwise, reduction, scan, view, cat, several, product, call, rows, element, scatter };

/// What the partitioner and the lowering know of an operator.
struct AtenRule {
  const char* name;  ///< what fx names its nodes by
  Lowering lowering;
  bool recomputable;   ///< of get_default_op_list: recomputed in backward, and fused with its neighbours
  int operations = 0;  ///< what it computes for an element by itself (OpCounterCSE)
  int constants = 0;   ///< that it computes with
};
const AtenRule& rule_of(Aten op);

/// Whose kernels an attention is.
enum class AttentionKernels : std::uint8_t { flash, efficient, cudnn };

/// What checkpointing says of a node (node.meta["recompute"]).
enum class Recompute : std::uint8_t { unsaid, must_save, prefer_recompute };

struct FxNode {
  Aten op = Aten::placeholder;
  std::vector<int> args = {};
  Dims sizes = {}, strides = {};
  DType type = DType::fp32;
  Dims dims = {};     ///< of permute its order, of split its parts, of a sum the dimensions that it sums
  /// Of slice and select, what puts either among zeros, cat and split; of a pad that which is padded; of an index that which the rows are in.
  int dimension = 0;
  /// Where a slice begins or is put among zeros; which element is selected, or put there; which result a getitem is; whether attention is
  /// causal; of a collective the ranks; an exponent.
  std::int64_t number = 0;
  std::int64_t step = 1;                          ///< of slice and slice_scatter
  std::optional<double> constant = std::nullopt;  ///< that an element-wise one computes with; none: nobody knows, or several
  double rate = 0;                                ///< of the dropout within attention
  AttentionKernels kernels = AttentionKernels::flash;  ///< of attention and its gradient
  Recompute recompute = Recompute::unsaid;
  int checkpoint = 0;      ///< of a node of a checkpoint its number (node.meta["ac_graph_id"]), of the whole graph's 0
  bool backward = false;   ///< a gradient's
  bool parameter = false;  ///< of a placeholder: it lives as long as the module
  std::string name = {};

  bool operator==(const FxNode&) const = default;
  std::int64_t elements() const { return sizes.product(); }
  /// Of a sum: whether it sums that dimension.
  bool sums(std::size_t at) const;
  std::int64_t bytes() const { return elements() * size_of(type); }
};

/// Nodes stand behind what they read.
struct FxGraph {
  std::vector<FxNode> nodes;
  std::vector<int> outputs;  ///< -1: None

  bool operator==(const FxGraph&) const = default;
  const FxNode& at(int node) const { return nodes[static_cast<std::size_t>(node)]; }
  FxNode& at(int node) { return nodes[static_cast<std::size_t>(node)]; }
  int size() const { return static_cast<int>(nodes.size()); }
  /// Who reads each node, each reader once.
  std::vector<std::vector<int>> users() const;
};

std::vector<std::int64_t> listed(const Dims& dims);

/// What the two directions are cut from: the forward's nodes, then those of its gradients.
struct JointGraph {
  FxGraph graph;              ///< its outputs: the results, then a gradient of each input or -1
  std::vector<int> inputs;    ///< placeholders of the forward, in the order in which the trace met them
  std::vector<int> tangents;  ///< placeholder of each result's gradient; -1: the result has none

  std::vector<int> results() const { return {graph.outputs.begin(), graph.outputs.begin() + static_cast<std::ptrdiff_t>(tangents.size())}; }
  std::vector<int> gradients() const { return {graph.outputs.begin() + static_cast<std::ptrdiff_t>(tangents.size()), graph.outputs.end()}; }

  bool operator==(const JointGraph&) const = default;
};

/// A graph made of another's nodes.
class FxCopy {
 public:
  explicit FxCopy(const FxGraph& original) : original_(original), numbers_(original.nodes.size(), -1) {}

  bool has(int node) const { return numbers_[static_cast<std::size_t>(node)] >= 0; }
  /// The node, behind all that it reads.
  void append(int node) { append(node, original_.at(node)); }
  /// The same with what stands in its place, told by the original's nodes.
  void append(int node, FxNode copy);
  /// With those of the original's nodes (-1: None) as its outputs.
  FxGraph with_outputs(const std::vector<int>& outputs) &&;
  /// The new number of each of the original's nodes; -1: it is not there.
  const std::vector<int>& numbers() const { return numbers_; }

 private:
  const FxGraph& original_;
  FxGraph copy_;
  std::vector<int> numbers_;
};

/// The graph without what nothing reads; `kept` tells the new number of each node, -1 of those that went. Placeholders stay.
FxGraph without_dead_code(const FxGraph& graph, std::vector<int>& kept);

}  // namespace plimsoll::program::inductor
