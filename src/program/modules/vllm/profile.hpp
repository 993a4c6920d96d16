/// A pass of an engine: a forward of some tokens, and the sampler. The one by which vLLM measures itself, before it gives the rest of the
/// device to its cache, has as many tokens as a step may have and as many sequences as may run at once, and attends to nothing
/// (vllm/worker/model_runner.py and vllm/v1/worker/gpu_model_runner.py, profile_run).
#pragma once

#include <cstdint>

#include "plimsoll/model.hpp"
#include "plimsoll/program.hpp"
#include "program/tape.hpp"
#include "program/target_device.hpp"

namespace plimsoll::program {

/// How tokens are drawn from logits, with top-k and top-p on.
enum class Sampling : std::uint8_t {
  sorted,      ///< PyTorch's operators over the sorted vocabulary
  masked,      ///< a Triton kernel masks them where they are, in a row of the vocabulary per multiprocessor
  flashinfer,  ///< FlashInfer's kernels over probabilities
  none,        ///< V1 before 0.8: logits of every token of the pass, and no sampler
  direct,      ///< the second model runner's profile: a kernel over the logits as they are, none of the limits on
};

/// One rank's part of a profiled model.
struct ServedRank {
  const Model& model;
  TargetDevice device;
  TorchRelease torch;
  std::int64_t tp = 1;
  std::int64_t first_layer = 0, layers = 0;  ///< of its pipeline stage
  bool embeds = true;                        ///< the first stage
  bool samples = true;                       ///< the last stage; of releases that gather logits on one rank, that rank
  DType type = DType::bf16;
  bool compiled = false;             ///< torch.compile: a tensor dies behind its last use; else Python's frames keep their arguments
  bool reduces_in_place = false;     ///< partial sums of several ranks are reduced where they are
  bool gathers_everywhere = true;    ///< logits are gathered on all ranks, by a collective into a tensor of its own
  bool quantizes_inputs = false;     ///< products read their inputs in 8 bits, cast anew for each
  bool draws_hidden_states = false;  ///< the sampler's rows are drawn anew, as large as the hidden states' (rand_like)
  std::int64_t tokens = 0;           ///< of the pass
  std::int64_t sequences = 0;        ///< that are sampled
  Sampling sampling = Sampling::sorted;
  std::int64_t prompt = 0;   ///< a step of prompts: tokens of each; 0: of other steps
  std::int64_t context = 0;  ///< a step that decodes: tokens in the cache to which each attends; 0: of other steps
  DType cache = DType::bf16;
};

/// The pass as a program; weights are not in it. Throws Error (refused): a network whose layers no function here knows, by its block.
StepProgram lower_engine_pass(const ServedRank& rank);

/// Heads of which a rank holds keys and values: an even share, of fewer heads than ranks one, in copies.
std::int64_t kv_heads_on_rank(std::int64_t kv_heads, std::int64_t tp);

}  // namespace plimsoll::program
