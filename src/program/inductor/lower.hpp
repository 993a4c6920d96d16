/// Which nodes of a graph become buffers (torch/_inductor/graph.py, GraphLowering.run_node; lowering.py; ir.py, StorageBox of
/// PyTorch 2.15).
///
/// An element-wise node is an expression over loads; whoever reads it computes it again, until something makes it a buffer: a product or a
/// call that reads it, in its own strides where it stands if others read it too, a result of the graph, a sum, more than one reader while
/// it has more than four loads (config.realize_reads_threshold), more than eight loads (_realize_acc_reads_threshold_default), or more than
/// thirty operations (_realize_opcount_threshold_default), equal ones counted once. Views are other ways to index the same storage. A sum
/// over many rows is taken in two steps, one of fewer than eight elements is written out.
///
/// A buffer lies as the graph has its node where a result, a product or a copy for attention wants that, else as most of what it is made
/// from does (pick_loop_order). Attention takes what is in a buffer as it lies there, and its results lie alike (lowering.py,
/// sdpa_constraint); what is no buffer yet is copied for each call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "program/inductor/fx.hpp"
#include "program/inductor/kernels.hpp"

namespace plimsoll::program::inductor {

/// How an operation reads a buffer: an element's place is `offset` plus its index times `strides`, one for each dimension of the loops.
/// Where quotients and remainders of an index tell the place, `way` is what tells such ways apart, and strides are those of single steps.
struct Load {
  int buffer = -1;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
  std::size_t way = 0;
  std::int64_t places = 0;  ///< of such a way: elements of the loops that tell the place, even those whose first step does not move it
  bool once = false;        ///< of such a way: every place of the buffer is read, and once
  std::int64_t period = 0;  ///< of a remainder: the way begins anew after so many places, and offsets of as many are none (ModularIndexing)
  friend bool operator==(const Load&, const Load&) = default;
};

/// Part of a buffer as an operator of ATen gets it.
struct Region {
  int buffer = -1;
  Dims sizes, strides;
};

/// A buffer that the graph is given or makes.
struct LoweredBuffer {
  std::string name = {};  ///< of an input
  int input = -1;         ///< which placeholder it is; -1: the graph makes it
  int operation = -1;     ///< that makes it
  Dims sizes = {};
  std::vector<std::int64_t> strides = {};  ///< of its sizes
  int whole = -1;                          ///< the concatenation that it is a part of
  bool loose = false;                      ///< its strides are what it is made from would have, and fixed behind all calls (FlexibleLayout)
  DType type = DType::fp32;
};

/// Dimensions from the outermost to the innermost where those of the smallest steps are to be innermost (scheduler.py, pick_loop_order):
/// each list of `strides` has a vote on two of them.
std::vector<int> loop_order(const std::vector<std::int64_t>& sizes, const std::vector<std::vector<std::int64_t>>& strides);

struct LoweredOperation {
  enum class Kind : std::uint8_t { pointwise, reduction, product, call, concatenation } kind = Kind::pointwise;
  std::vector<int> outputs = {};  ///< buffers; of a call all that it gives
  // of loops
  std::vector<std::int64_t> kept = {}, summed = {};  ///< their sizes, those of 1 left out
  std::vector<std::int64_t> places = {};             ///< strides by which what is kept is written
  std::vector<Load> loads = {};                      ///< in the order in which they are met
  std::vector<std::int64_t> whole = {};              ///< of the first step of a sum: {kept, summed} elements of the whole sum; else empty
  // of products and calls
  int node = -1;                  ///< of the graph
  std::vector<int> results = {};  ///< which of what the node gives each output is; of a single tensor none
  std::vector<Region> arguments = {};
  std::int64_t rows = 0, columns = 0, inner = 0;
  Turned turned = Turned::neither;
  int changes = -1;      ///< of loops that add into a buffer, wherever its rows are: which one
  int names_behind = 0;  ///< of buffers that Inductor names and that are none here

  bool is_reduction() const { return kind == Kind::reduction; }
  bool is_loops() const { return kind == Kind::pointwise || kind == Kind::reduction; }
  std::int64_t kept_elements() const;
  std::int64_t summed_elements() const;
};

struct LoweredGraph {
  std::vector<LoweredBuffer> buffers;
  std::vector<LoweredOperation> operations;  ///< in the order in which Inductor names them
  std::vector<Region> results;               ///< of each output of the graph; without a buffer: None
};

/// Of its outputs the caller sees the first `results`: what lies behind them, tensors for the backward, may lie as it was made.
LoweredGraph lower(const FxGraph& graph, const Tape& tape, std::size_t results = 1);

}  // namespace plimsoll::program::inductor
