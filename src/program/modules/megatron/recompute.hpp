/// Selective recomputation that keeps no output: CheckpointWithoutOutput of megatron/core/tensor_parallel/random.py, Megatron-core 0.16.1.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "plimsoll/strategy.hpp"
#include "program/tape.hpp"

namespace plimsoll::program {

/// Whether selective recomputation runs this module of a layer again (recompute_modules); none named means core_attn.
bool recomputes(const Recompute& recompute, std::string_view module);

/// A region whose outputs lose their memory once what follows has used them, and get it back, filled by a second run, when the gradient of
/// what follows is known.
class CheckpointWithoutOutput {
 public:
  using Region = std::function<std::vector<Tensor>(const std::vector<Tensor>& arguments)>;

  /// The region's outputs; it runs without recording.
  std::vector<Tensor> run(Tape& tape, Region region, const std::vector<Tensor>& arguments);
  /// discard_output_and_register_recompute: the outputs' memory is given back until the gradient of `following` arrives.
  void discard(const Tensor& following);

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< null before run, and where nothing is recorded
};

}  // namespace plimsoll::program
