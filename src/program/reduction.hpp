/// Reductions of one tensor over some of its dimensions: ATen's gpu_reduce_kernel and its scratch memory.
#pragma once

#include <vector>

#include "program/tape.hpp"

namespace plimsoll::program {

/// Scratch of a reduction that is split over thread blocks; zero when it is not (Reduce.cuh, setReduceConfig).
struct ReductionScratch {
  std::int64_t buffer = 0, semaphores = 0;
};

/// `reduced[i]`: dimension i is reduced. `accumulator_bytes`: of one partial result (4: fp32 sums).
ReductionScratch reduction_scratch(const Tape& tape, const Tensor& x, const std::vector<bool>& reduced, std::int64_t accumulator_bytes);

/// That scratch while the reduction runs, its semaphores set to zero.
struct ReductionMemory {
  Tensor buffer, semaphores;
};
ReductionMemory reduction_memory(const Tensor& x, const std::vector<bool>& reduced, std::int64_t accumulator_bytes);

/// One reduction kernel with its scratch; the result keeps reduced dimensions as 1 or drops them.
Tensor reduce(const Tensor& x, const std::vector<bool>& reduced, bool keep, DType type, std::int64_t accumulator_bytes = 4);

/// The same into a tensor that stands already.
void reduce_into(const Tensor& y, const Tensor& x, const std::vector<bool>& reduced, std::int64_t accumulator_bytes = 4);

}  // namespace plimsoll::program
