/// What a pipeline rank of torch.distributed.pipelining does, or of Primus' pipeline over Megatron, in order: the slots of its schedule
/// with the gathering and resharding of its stages, the receives that its neighbours' sends call for, and reductions
/// (_PipelineScheduleRuntime of 2.15).
#pragma once

#include <cstdint>
#include <vector>

#include "plimsoll/schedule.hpp"

namespace plimsoll::program {

struct StageAction {
  enum class Kind { unshard, reshard, forward, backward, input_gradient, weight_gradient, reduce, receive_activation, receive_gradient };
  Kind kind;
  int stage = 0;
  int micro_batch = 0;  ///< of a pass or receive
};

/// Where a receive stands. _PipelineScheduleRuntime, which runs schedules of several chunks since 2.10, puts it where the neighbour's send
/// stands in a simulation, and so in front of sends that follow on the same stream; PipelineScheduleMulti._step_microbatches, which ran
/// them before, has all ranks take their steps together and exchanges behind each what the next one needs.
enum class Receives : std::uint8_t { with_send, before_use };

/// The actions of every rank.
std::vector<std::vector<StageAction>> actions_of(const Schedule& schedule, Receives receives = Receives::with_send);

}  // namespace plimsoll::program
