/// In which order Inductor runs the kernels of a graph (torch/_inductor/memory.py of PyTorch 2.15, reorder_for_peak_memory).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll::program::inductor {

/// A buffer as the scheduler counts it.
struct ScheduledBuffer {
  std::string name;
  std::int64_t allocated = 0;  ///< bytes, by the node that makes it
  std::int64_t freed = 0;      ///< bytes, behind its last reader
  bool result = false;         ///< the graph returns it: never freed
  bool input = false;          ///< there from the beginning
  std::vector<int> readers;    ///< nodes, without the one that makes it
  int maker = -1;              ///< node; -1: an input
};

/// A kernel: the buffers that it reads from others and those it makes. Inputs that the scheduler does not free are not told.
struct ScheduledNode {
  std::vector<int> reads, writes;
};

/// The nodes, told in the order of their first operations, in the order in which they run: the first of the smallest estimated peak among
/// depth-first order, "least peak memory first", breadth-first order and depth-first order by size.
std::vector<int> schedule(const std::vector<ScheduledNode>& nodes, const std::vector<ScheduledBuffer>& buffers);

/// Estimated bytes at each step of that order and behind the last (estimate_peak_memory).
std::vector<std::int64_t> memory_by_step(const std::vector<int>& order, const std::vector<ScheduledBuffer>& buffers);

}  // namespace plimsoll::program::inductor
