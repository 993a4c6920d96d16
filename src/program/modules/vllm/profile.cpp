#include "program/modules/vllm/profile.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"
#include "program/modules/vllm/layers.hpp"

namespace plimsoll::program {
namespace {

/// The layers of the rank's stage, block by block.
vllm::Stream run_layers(const ServedRank& rank, vllm::Layers& layers, vllm::Stream stream) {
  std::int64_t begin = 0;
  for (const Block& block : rank.model.blocks) {
    if (!is_layer(block)) continue;
    if (block.role != Block::Role::decoder) refuse("an engine's pass over an encoder (" + block.name + ") is not modelled", block.name);
    for (std::int64_t layer = begin; layer < begin + block.repeat; ++layer) {
      if (layer < rank.first_layer || layer >= rank.first_layer + rank.layers) continue;
      vllm::Stream next = layers.layer(block, layers.frames().hand(stream.hidden), layers.frames().hand(stream.residual));
      stream = std::move(next);
    }
    begin += block.repeat;
  }
  return stream;
}

}  // namespace

std::int64_t kv_heads_on_rank(std::int64_t kv_heads, std::int64_t tp) { return std::max<std::int64_t>(1, kv_heads / tp); }

StepProgram lower_engine_pass(const ServedRank& rank) {
  Tape tape(rank.device, rank.torch);
  tape.record_into(Tape::Part::step);
  const GradMode no_grad(tape, false);
  tape.phase(Phase::forward);
  {
    vllm::Layers layers(rank, tape);
    vllm::Stream stream;
    stream.hidden = rank.embeds ? layers.embedded() : tape.empty({rank.tokens, rank.model.hidden_size}, rank.type);
    if (!rank.embeds) stream.residual = tape.empty(stream.hidden.sizes(), rank.type);
    stream = run_layers(rank, layers, std::move(stream));
    if (rank.first_layer + rank.layers == rank.model.layers) {
      const Tensor hidden = layers.final_norm(std::move(stream.hidden), std::move(stream.residual));
      if (rank.sequences > 0) vllm::sample(rank, tape, layers, hidden);
    }
  }
  return tape.take();
}

}  // namespace plimsoll::program
