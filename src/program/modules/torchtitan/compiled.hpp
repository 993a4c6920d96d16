/// A Llama block of TorchTitan under torch.compile: what the two generated graphs allocate and free, in order.
#pragma once

#include "plimsoll/kernel.hpp"
#include "plimsoll/model.hpp"
#include "program/module.hpp"
#include "program/modules/tensor_parallel.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

struct CompiledBlock {
  Module* module = nullptr;  ///< the layer, with its projections and norms below it
  AttentionSpec attention;
  std::int64_t intermediate = 0;
  TensorParallel tensor_parallel;    ///< with the activations between the blocks cut over the sequence
  StreamId pieces = kComputeStream;  ///< on which asynchronous tensor parallelism moves pieces of the sequence
  AttentionLibrary attention_library = AttentionLibrary::flash2;
  std::int64_t context_ranks = 1;   ///< ring attention over all-gathered keys and values
  bool recomputed = false;          ///< full checkpointing: the backward graph starts from the block's input alone
  bool attends_again = false;       ///< per-operator checkpointing that does not list attention's kernel: the backward graph runs it again
  Scaling scaling = Scaling::none;  ///< of 8- and 4-bit products: torchao's linears, cast in the graph
  bool four_bits = false;           ///< NVFP4 products, which per-operator checkpointing does not know: of the block only attention is kept
};

/// The block's forward, one node of the graph. Per-operator checkpointing and none keep the same tensors here: queries, values, attention's
/// output and statistics, the gate, with tensor parallelism the reduced output projection; the partitioner computes the pointwise chains,
/// keys, the output and up projections again. Blocks that are recomputed as a whole make each tensor of the forward once, up to the gate.
Tensor run_compiled(Tape& tape, const CompiledBlock& block, const Tensor& x);

}  // namespace plimsoll::program
