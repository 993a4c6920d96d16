/// What a graph of cuDNN's operations does, told from its descriptors, and the memory that its engine asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cudnn_descriptors.hpp"

namespace plimsoll::device::cuda {

/// As a record's LibraryCall has it.
struct Work {
  std::string name;  ///< and what the numbers say
  std::vector<std::int64_t> numbers;
  record::Type type = record::Type::unknown;
};
/// `pack`: the variant pack that it is run with, which has the numbers that stand in no tensor of the device.
Work work_of(const Contents& graph, const Contents& pack);

/// The same of a graph that is attention, composed of products or one operation; nothing for another.
std::optional<Work> attention_of(const Contents& graph, const Contents& pack);
/// Bytes that composed attention keeps: see workspace_of.
std::optional<std::int64_t> attention_workspace(const Contents& graph);

/// Bytes of device memory that a plan of the graph wants beside its tensors. Of attention what the kernels on sm_90 are seen to write: the
/// tile counter that they share and, backward where query heads share a key head, both gradients of every query head; what else they keep
/// cuDNN's frontend allocates itself. 0 for anything else: what other engines ask for is not public.
std::int64_t workspace_of(const Contents& graph);

}  // namespace plimsoll::device::cuda
