/// What a pipeline rank of torch.distributed.pipelining does, in order: the slots of its schedule with the gathering and resharding of its
/// stages, the receives that its neighbours' sends call for, and reductions (_PipelineScheduleRuntime of 2.15).
#pragma once

#include <vector>

#include "plimsoll/schedule.hpp"

namespace plimsoll::program {

struct StageAction {
  enum class Kind { unshard, reshard, forward, backward, input_gradient, weight_gradient, reduce, receive_activation, receive_gradient };
  Kind kind;
  int stage = 0;
  int micro_batch = 0;  ///< of a pass or receive
};

/// The actions of every rank.
std::vector<std::vector<StageAction>> actions_of(const Schedule& schedule);

}  // namespace plimsoll::program
