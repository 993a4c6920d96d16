#include "plimsoll/program.hpp"

namespace plimsoll {

std::string_view name_of(Category category) {
  constexpr std::string_view kNames[kCategories] = {
      "parameters", "gradients", "optimizer_states", "activations", "temporaries", "communication_buffers", "workspaces", "inputs"};
  return kNames[static_cast<int>(category)];
}

std::string_view name_of(Phase phase) {
  constexpr std::string_view kNames[kPhases] = {"init", "forward", "loss", "backward", "optimizer", "end", "rollout", "scoring", "encoding"};
  return kNames[static_cast<int>(phase)];
}

std::string_view name_of(HostWork work) {
  constexpr std::string_view kNames[kHostWorks] = {"module",     "operation", "cast",       "backward_node",    "python_function",
                                                   "accumulate", "checkpoint", "saved_hook", "unit",             "collective",
                                                   "optimizer",  "optimizer_tensor", "compiled_call", "compiled_layer",
                                                   "memory_traffic", "zero_module", "zero_gather", "zero_parameter"};
  return kNames[static_cast<std::size_t>(work)];
}

std::string_view name_of(CollectiveKind kind) {
  constexpr std::string_view kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "receive"};
  return kNames[static_cast<int>(kind)];
}

std::string_view name_of(Group group) {
  constexpr std::string_view kNames[] = {"world", "data_shard", "data_replicate", "tensor", "pipeline", "context", "expert", "expert_data"};
  return kNames[static_cast<int>(group)];
}

}  // namespace plimsoll
