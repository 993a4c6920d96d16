/// From a model and a resolved strategy to the program of one rank.
#pragma once

#include "plimsoll/model.hpp"
#include "plimsoll/program.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::program {

/// transformers' modules in eager PyTorch on one device: forward, backward, optimizer (plain engine).
StepProgram lower_hf_eager(const Model& model, const Strategy& strategy);

/// The same under DistributedDataParallel.
StepProgram lower_hf_ddp(const Model& model, const Strategy& strategy);

/// The same under fully_shard.
StepProgram lower_hf_fsdp2(const Model& model, const Strategy& strategy);

}  // namespace plimsoll::program
