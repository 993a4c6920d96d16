/// Where a graph's nodes are: buffers that are made, and expressions that their readers compute (torch/_inductor/ir.py, StorageBox;
/// graph.py, GraphLowering.run_node of PyTorch 2.15). The rules by which an expression becomes a buffer are lower.hpp's.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "program/inductor/expressions.hpp"
#include "program/inductor/fx.hpp"
#include "program/inductor/lower.hpp"

namespace plimsoll::program::inductor {

class Realizer {
 protected:
  Realizer(const FxGraph& graph, const Tape& tape);

  struct Storage {
    int buffer = -1;  ///< -1: an expression
    Expression expression = {};
    std::vector<std::int64_t> sizes = {};
    std::vector<std::int64_t> strides = {};  ///< of a buffer that views count by its places; else its own
    DType type = DType::fp32;
  };
  struct Box {
    int storage = -1;
    View view;
  };

  const FxNode& at(int node) const { return graph_.at(node); }
  Box& box(int node) { return boxes_[static_cast<std::size_t>(node)]; }
  Storage& storage(int node) { return storages_[static_cast<std::size_t>(box(node).storage)]; }
  const std::vector<int>& users(int node) const { return users_[static_cast<std::size_t>(node)]; }
  LoweredOperation& operation() { return out_.operations.back(); }

  int add_buffer(LoweredBuffer buffer);
  /// A buffer of the operation that was added last, as its node's.
  int output_of_last(const Dims& sizes, DType type);
  /// The strides of a buffer that nobody has fixed: longer ones than 1024 elements are padded to whole 128 bytes (ir.py,
  /// Layout._pad_strides). Those of masks are where they are made (Graph::place).
  static std::vector<std::int64_t> with_whole_rows(const std::vector<std::int64_t>& sizes, std::vector<std::int64_t> strides, DType type);
  /// Whole numbers' rows lie so.
  static std::vector<std::int64_t> padded_strides(const Dims& sizes, DType type);
  /// The node's elements are the buffer's, which lies as the node does: views of it count its places in memory.
  void place(int node, int buffer) { place_as(node, buffer, listed(at(node).strides)); }
  void place_as(int node, int buffer, const std::vector<std::int64_t>& strides);
  /// Another operator's view of the same elements.
  void alias(int node, int of);
  void place_within(int node, int buffer, const FxNode& as);
  const std::vector<std::int64_t>& strides_of(const Storage& s) const;
  /// What an element-wise reader of `node` computes at `view` of it.
  void load_into(Expression& expression, int node, const View& view);
  /// `argument` broadcast to `sizes`.
  View broadcast(int argument, const std::vector<std::int64_t>& sizes);
  void hold(int node, Expression expression);
  /// What expressions share: a constant, the bound of a slice, a dimension's index, a node in another type or multiplied by itself, each in
  /// one way of indexing.
  using Shared = std::tuple<int, double, std::int64_t, std::size_t>;
  enum SharedKind : int { kConstant, kBound, kIndex, kConverted, kPower };
  /// Operations of an expression, equal ones once (OpCounterCSE).
  int operations_of(const Expression& expression) const;
  /// The types that a node's arguments are taken to, and the products that a power is made of.
  void add_steps(std::set<Shared>& shared, int node, std::size_t way) const;
  /// A slice put among zeros compares its dimension's index with its bounds, and chooses 0 outside.
  void add_bounds(std::set<Shared>& shared, const Load& value) const;
  /// A concatenation compares its dimension's index with 0 and with where its parts end.
  void add_parts(std::set<Shared>& shared, const Load& value) const;
  /// Whether a slice ends before its dimension does.
  bool ends_inside(int node) const;
  int operations_of(int node) const;
  /// The buffer that `node`'s elements are in, made now where there is none. Of a result of the graph it lies as the node.
  int realize(int node, bool as_it_lies = false);
  /// The buffer's strides where the node is realized: as what it is made from lies, where nobody wants it otherwise.
  std::vector<std::int64_t> chosen_strides(int node);
  /// Loads as they count for the strides of what a call reads: loose buffers as if they lay in a row.
  std::vector<Load> with_loose_in_a_row(std::vector<Load> loads) const;
  /// Computes the node's expression into a buffer of those strides.
  int put(int node, std::vector<std::int64_t> strides, bool fixed = false);
  int compute(const Expression& expression, DType type, std::vector<std::int64_t> strides, bool fixed = false);
  /// The node's elements as a call reads them: in a buffer that lies as the node does, a copy of its own where they are a view of an
  /// expression (ExternKernel.require_exact_strides).
  Region region(int node);
  /// The same of a buffer as it lies in memory, which may be otherwise than the graph has it, where its rows are dense.
  Region as_it_lies(int node);
  /// The same as attention reads them (lowering.py, sdpa_constraint): what is in a buffer as it lies, else a copy for this call alone. Of
  /// the `bias` of a forward's scores dimensions that are expanded stay so.
  Region attended(int node, bool bias);
  /// The same as a product reads them: a view of an expression is one of its buffer (ExternKernel.realize_input).
  Region factor(int node);
  /// The node in a buffer of its own that lies as it does, a copy where it is a view of an expression (need_fixed_layout).
  void fix(int node);
  void realize_by_rule(int node);

  const FxGraph& graph_;
  const Tape& tape_;
  std::vector<std::vector<int>> users_;
  std::vector<Box> boxes_;
  std::vector<Storage> storages_;
  std::vector<bool> is_result_;
  LoweredGraph out_;
};

}  // namespace plimsoll::program::inductor
