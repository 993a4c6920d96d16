/// Layers of transformers' models under torch.compile, block by block, and the functions between them.
#pragma once

#include <functional>
#include <vector>

#include "program/inductor/module_graphs.hpp"
#include "program/module.hpp"
#include "program/modules/network.hpp"

namespace plimsoll::program {

/// Throws Error (refused): types whose compiled layers have not been held against the real compiler's.
void check_compiled_layer(Module& layer, const Tensor& hidden);

/// A layer's forward on its arguments, by the graphs that the compiler makes of an equal layer's. `kind` is the same of all equal layers;
/// `make` gives that layer's eager forward: what it is made of lies in `twin`, runs on `tape` as `eager` has it, and outlives both. A
/// checkpoint is part of the graph, which keeps its inputs alone. Throws Error (refused): an operator that the compiler does not know.
using LayerForward = std::function<Tensor(const std::vector<Tensor>& arguments)>;
using EagerLayer = std::function<LayerForward(Module& twin, Tape& tape, const RunOptions& eager)>;
Tensor run_compiled_layer(Module& layer, const RunOptions& options, const void* kind, const std::vector<Tensor>& arguments, const EagerLayer& make);

/// A function of transformers' code that frames call which hooks leave to Python (RunOptions::compiled_frames): a graph of its own, else it
/// runs as it is. `make` gives it for a module whose tensors it reads, which may have none; hooks around that are the caller's. `name` is
/// the same (a literal) of all calls that differ in nothing but their arguments. Throws Error (refused): as `run_compiled_layer`.
using FrameForward = std::function<std::vector<Tensor>(const std::vector<Tensor>& arguments)>;
using EagerFrame = std::function<FrameForward(Module& module, Tape& tape)>;
std::vector<Tensor> run_frame(const RunOptions& options, const char* name, Module& module, const std::vector<Tensor>& arguments,
                              const EagerFrame& make);

}  // namespace plimsoll::program
