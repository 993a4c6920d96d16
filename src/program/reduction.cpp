#include "program/reduction.hpp"

#include <algorithm>

#include "program/op.hpp"

namespace plimsoll::program {

namespace {

std::int64_t last_power_of_two(std::int64_t n) {
  std::int64_t power = 1;
  while (power * 2 <= n) power *= 2;
  return power;
}

/// One dimension of the iteration after coalescing: size, stride of the input in elements, reduced or kept.
struct IterationDimension {
  std::int64_t size, stride;
  bool reduced;
};

/// Dimensions from the fastest outwards, reduced ones first as TensorIterator puts them (their output stride is 0), neighbours merged.
std::vector<IterationDimension> iteration(const Tensor& x, const std::vector<bool>& reduced) {
  std::vector<IterationDimension> dimensions;
  for (int i = 0; i < x.rank(); ++i) {
    if (x.size(i) != 1) dimensions.push_back({x.size(i), x.strides()[i], reduced[static_cast<std::size_t>(i)]});
  }
  std::stable_sort(dimensions.begin(), dimensions.end(), [](const IterationDimension& a, const IterationDimension& b) {
    return a.reduced != b.reduced ? a.reduced : a.stride < b.stride;
  });
  std::vector<IterationDimension> merged;
  for (const IterationDimension& dimension : dimensions) {
    if (!merged.empty() && merged.back().reduced == dimension.reduced && merged.back().size * merged.back().stride == dimension.stride) {
      merged.back().size *= dimension.size;
    } else {
      merged.push_back(dimension);
    }
  }
  return merged;
}

/// get_output_vec_size: how many neighbouring outputs one thread makes.
std::int64_t output_vector(const std::vector<IterationDimension>& dimensions, std::size_t reduced_count) {
  std::int64_t size = 4;
  const auto limit = [&size](std::int64_t n) {
    while (n % size != 0) size /= 2;
  };
  limit(dimensions[reduced_count].size);
  for (std::size_t i = 0; i < dimensions.size(); ++i) {
    if (i != reduced_count) limit(dimensions[i].stride);
  }
  return size;
}

}  // namespace

ReductionScratch reduction_scratch(const Tape& tape, const Tensor& x, const std::vector<bool>& reduced, std::int64_t accumulator_bytes) {
  constexpr std::int64_t kMostThreads = 512, kWarp = 32, kInputVector = 4, kLeastValues = 16, kMostValues = 256;
  const std::vector<IterationDimension> dimensions = iteration(x, reduced);
  if (dimensions.empty()) return {};
  std::int64_t inputs = 1, outputs = 1;
  std::size_t reduced_count = 0;
  for (const IterationDimension& dimension : dimensions) {
    (dimension.reduced ? inputs : outputs) *= dimension.size;
    reduced_count += dimension.reduced ? 1 : 0;
  }
  const bool along_fastest =
      reduced_count == dimensions.size() || (reduced_count > 0 && dimensions[0].stride < dimensions[reduced_count].stride);
  std::int64_t dim0 = along_fastest ? inputs : outputs, dim1 = along_fastest ? outputs : inputs;
  const std::int64_t fastest_stride = along_fastest ? dimensions[0].stride : dimensions[reduced_count].stride;
  std::int64_t vector = 1;
  if (fastest_stride == 1) {
    if (along_fastest && dim0 >= 128 && reduced_count == 1) {
      dim0 /= kInputVector;
    } else if (!along_fastest) {
      vector = output_vector(dimensions, reduced_count);
      dim0 /= vector;
    }
  }
  const std::int64_t most = kMostThreads / vector;
  const std::int64_t power0 = dim0 < most ? last_power_of_two(dim0) : most, power1 = dim1 < most ? last_power_of_two(dim1) : most;
  std::int64_t width = std::min(power0, kWarp);
  const std::int64_t height = std::min(power1, most / width);
  width = std::min(power0, most / height);

  std::int64_t step_input = along_fastest ? width : 1, step_output = along_fastest ? 1 : width;
  const auto values = [&] { return ceil_div(inputs, step_input); };
  const bool across_warps = values() >= std::min(height * 16, kMostValues);
  (across_warps ? step_input : step_output) *= height;
  const std::int64_t grid = ceil_div(outputs / vector, step_output);
  const std::int64_t target = tape.device.units * (tape.device.threads_per_unit / (width * height));
  if (!across_warps || values() < kMostValues || grid > target) return {};
  // std::clamp(by the device, least, most); ATen calls it with these bounds even when least > most cannot happen.
  const std::int64_t blocks = std::clamp(ceil_div(target, grid), ceil_div(values(), kMostValues), ceil_div(values(), kLeastValues));
  if (blocks <= 1) return {};
  std::int64_t buffer = accumulator_bytes * outputs * blocks;
  if (!along_fastest) buffer *= width * vector;
  return {buffer, 4 * grid};
}

ReductionMemory reduction_memory(const Tensor& x, const std::vector<bool>& reduced, std::int64_t accumulator_bytes) {
  Tape& tape = x.tape();
  const ReductionScratch scratch = reduction_scratch(tape, x, reduced, accumulator_bytes);
  ReductionMemory memory;
  if (scratch.buffer > 0) {
    memory.buffer = tape.empty({scratch.buffer}, DType::uint8, Category::workspace);
    memory.semaphores = tape.empty({scratch.semaphores}, DType::uint8, Category::workspace);
    memset(memory.semaphores);
  }
  return memory;
}

void reduce_into(const Tensor& y, const Tensor& x, const std::vector<bool>& reduced, std::int64_t accumulator_bytes) {
  const ReductionMemory memory = reduction_memory(x, reduced, accumulator_bytes);
  reduce(y, x, reduced);
}

Tensor reduce(const Tensor& x, const std::vector<bool>& reduced, bool keep, DType type, std::int64_t accumulator_bytes) {
  Dims sizes;
  for (int i = 0; i < x.rank(); ++i) {
    if (!reduced[static_cast<std::size_t>(i)]) {
      sizes.push_back(x.size(i));
    } else if (keep) {
      sizes.push_back(1);
    }
  }
  Tensor y = x.tape().empty(sizes, type);
  reduce_into(y, x, reduced, accumulator_bytes);
  return y;
}

}  // namespace plimsoll::program
