/// A graph as Inductor's scheduler sees it (torch/_inductor/scheduler.py and codegen/wrapper.py of PyTorch 2.15): kernels, products and
/// calls that make one buffer each, some of them fused. The order in which they run, which buffers take the place of others and where the
/// rest is let go follow the scheduler's own rules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "program/inductor/kernels.hpp"
#include "program/inductor/schedule.hpp"
#include "program/tape.hpp"

namespace plimsoll::program::inductor {

/// A buffer of a Graph, made by one of its operations or given to it.
struct Value {
  int index = -1;
  bool defined() const { return index >= 0; }
};

/// Operations are told in the order of the traced graph: Inductor names buffers by it, and breaks ties by these names. A graph runs once.
class Graph {
 public:
  explicit Graph(Tape& tape) : tape_(tape) {}

  /// A parameter, an argument or the incoming gradient: never written; let go behind its last reader. What is let go together goes in the
  /// order of its names.
  Value primal(Tensor tensor, std::string name);
  /// What the forward graph made for the backward one: let go behind its last reader, and a kernel may write into it (a donated buffer).
  /// Where it is a view, the scheduler counts its own `elements` alone.
  Value saved(Tensor tensor, std::int64_t elements, std::string name);

  /// One element-wise kernel; the output takes the place of the first of `may_replace` that nobody reads any more, of the same size and
  /// type.
  Value pointwise(const Dims& sizes, DType type, std::vector<Value> reads, const std::vector<Value>& may_replace = {});
  /// A kernel that sums.
  Value reduction(const Dims& sizes, DType type, std::vector<Value> reads);
  /// extern_kernels.mm, or addmm where there is a bias: [rows × columns].
  Value product(DType type, std::int64_t rows, std::int64_t columns, std::int64_t inner, std::vector<Value> factors, Turned turned,
                Value bias = {});

  /// A buffer whose parts were made in their places (ConcatKernel): it has no kernel, and is there before the first of them.
  Value concatenation(const Dims& sizes, DType type, const std::vector<Value>& parts);

  struct Output {
    Dims sizes;
    DType type;
    std::size_t result;  ///< which of what the operator returns
  };
  /// An operator that allocates by itself, as PyTorch's attention does: `run` gives all that it returns, which lives until `outputs` are
  /// taken from it. One of a `single` tensor has one name, that of several has a name of its own.
  std::vector<Value> call(std::vector<Value> reads, const std::vector<Output>& outputs,
                          std::function<std::vector<Tensor>(const std::vector<Tensor>& reads)> run, bool single = false);
  /// A name that Inductor gave to a buffer that it removed.
  void skip_name() { ++names_; }

  /// These operations are one kernel; inputs among them are none's.
  void fuse(const std::vector<Value>& values);
  /// All operations of one kernel: its buffers are made in this order, that in which it was fused, instead of that of their names.
  void order(const std::vector<Value>& values);
  /// One kernel sums over columns (`across`) and over rows [`rows` × `columns`] (scheduler.MixOrderReduction): the parts of the sums over
  /// rows lie in a workspace, and each of `totals` is taken from it in eager mode behind the kernel.
  void mix(const std::vector<Value>& across, const std::vector<Value>& parts, const std::vector<Value>& totals, std::int64_t rows,
           std::int64_t columns);
  /// The graph returns it.
  void result(Value value);

  /// The order of its kernels and what takes whose place.
  struct Schedule;
  /// Runs the graph by the schedule of one that was told the same, noted in `known` where there is none yet: results are then had from
  /// `take`.
  void run(std::shared_ptr<const Schedule>& known);
  /// A result, or an input that is one; gives up the graph's reference.
  Tensor take(Value value);

 private:
  enum class Owner : std::uint8_t { caller, forward, graph, call };
  struct Buffer {
    std::string name;
    Owner owner;
    Dims sizes;
    DType type;
    std::int64_t bytes = 0;
    bool result = false;
    bool workspace = false;    ///< of a kernel: none of the scheduler's buffers, but handed on like them
    int maker = -1;            ///< operation
    int whole = -1;            ///< buffer that it is a part of
    std::vector<int> readers;  ///< operations
    Tensor tensor;
    std::vector<Tensor> returned;  ///< what a call returned
  };
  struct Operation {
    enum class Kind : std::uint8_t { pointwise, reduction, product, call, element, concatenation };
    Kind kind;
    std::vector<int> reads, may_replace;
    std::int64_t rows = 0, columns = 0, inner = 0;  ///< of a product
    Turned turned = Turned::neither;
    bool biased = false;
    std::size_t element = 0;  ///< of what the call returned
    std::function<std::vector<Tensor>(const std::vector<Tensor>&)> run;
    int output = -1;
    int node = -1;
    int total = -1;           ///< of a part in the workspace: the buffer that its sum goes to
    bool made_early = false;  ///< a total from a workspace
  };
  /// A kernel with a workspace.
  struct Mixed {
    int operation;  ///< one of its
    int workspace;  ///< buffer
    std::int64_t columns;
    std::vector<int> parts;  ///< buffers
  };
  struct Node {
    std::vector<int> operations;
  };
  /// Where a buffer comes from: new memory (`from` < 0), or another buffer.
  struct Plan {
    std::vector<int> from;                 ///< per buffer; -1: new memory
    std::vector<std::vector<int>> let_go;  ///< per step: buffers
  };
  class Planner;

  const Buffer& at(int index) const { return buffers_[static_cast<std::size_t>(index)]; }
  Buffer& at(int index) { return buffers_[static_cast<std::size_t>(index)]; }
  int node_of(int operation) const { return operations_[static_cast<std::size_t>(operation)].node; }
  Value add_input(Owner owner, Tensor tensor, std::string name);
  Value add(Operation operation, const Dims& sizes, DType type, Owner owner = Owner::graph);
  void make_nodes();
  std::vector<int> makers(const std::vector<Value>& values) const;
  bool is_own(int buffer, int node) const;
  bool within_its_node(int buffer) const;
  std::vector<int> outside_readers(int buffer) const;
  bool is_let_go(int buffer) const;
  std::vector<ScheduledBuffer> scheduled_buffers() const;
  std::vector<ScheduledNode> scheduled_nodes() const;
  void execute(int node, const Plan& plan);
  void place(int buffer, int from);
  void launch_kernel(const Node& node);
  const Operation& maker(int buffer) const { return operations_[static_cast<std::size_t>(at(buffer).maker)]; }
  bool in_workspace(int buffer) const { return !at(buffer).workspace && at(buffer).maker >= 0 && maker(buffer).total >= 0; }
  bool made_early(int buffer) const { return !at(buffer).workspace && at(buffer).maker >= 0 && maker(buffer).made_early; }
  const Mixed* mixed(int node) const;
  void sum_workspace(const Mixed& mixed, const Node& node);

  Tape& tape_;
  int names_ = 0;  ///< that are given
  std::vector<Buffer> buffers_;
  std::vector<Operation> operations_;
  std::vector<std::vector<int>> fused_, ordered_;
  std::vector<Mixed> mixed_;
  std::vector<Node> nodes_;
};

}  // namespace plimsoll::program::inductor
