/// A Llama block of TorchTitan 0.3 under torch.compile, whose graphs Inductor schedules (modules/inductor_graph.hpp).
#pragma once

#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/torchtitan/decoder.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// Throws Error (refused) unless the graphs of the block are known.
void check_compiled_llama(const Block& block, const TitanRun& run);

/// The block's forward, one node of the graph; `positions` are those of its tokens.
Tensor compiled_llama_block(Module& module, const Block& block, const TitanRun& run, const Tensor& x, const Tensor& positions);

}  // namespace plimsoll::program
