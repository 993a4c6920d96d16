/// A compiled module as one operator on the tape: its forward and its backward are the graphs that Inductor makes of what its eager
/// forward does (trace, partition, lower, fuse), and run as generated code does (graph).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "program/inductor/fuse.hpp"
#include "program/inductor/graph.hpp"
#include "program/inductor/lower.hpp"
#include "program/inductor/partition.hpp"
#include "program/inductor/trace.hpp"
#include "program/tape.hpp"

namespace plimsoll::program::inductor {

/// One direction: what is compiled once and runs many times.
struct CompiledGraph {
  FxGraph graph;
  LoweredGraph lowered;
  std::vector<FusedKernel> kernels;
  mutable std::shared_ptr<const Graph::Schedule> schedule = nullptr;  ///< of the runs after the first
};
CompiledGraph compile(FxGraph graph, const Tape& tape, std::size_t results = 1);

struct CompiledModule {
  CompiledGraph forward, backward;
  std::size_t inputs = 0;
  std::vector<bool> differentiated;  ///< of each result: whether it has a gradient
  /// Of each saved tensor: whether the backward may write into it, as nobody else has it (collect_fw_donated_buffer_idxs).
  std::vector<bool> donated;
};

CompiledModule compile(const JointGraph& joint, const Tape& tape);

/// Runs the module on arguments in the order of the joint graph's inputs; its results. A result that nobody differentiates has zeros for
/// its gradient (torch/_functorch/_aot_autograd/runtime_wrappers.py: its Function materializes them). The first graph of a frame checks the
/// frame's guards.
std::vector<Tensor> run_compiled(const char* name, const std::shared_ptr<const CompiledModule>& module,
                                 const std::vector<Tensor>& arguments, bool guarded);

}  // namespace plimsoll::program::inductor
