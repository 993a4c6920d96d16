// What a traced kernel does: which of its operator's kernels it is, by its name, and how large, by the shapes that the operator was called
// with. Without shapes the name and the grid are all there is (rehearse/kernel_names.hpp).
#pragma once

#include <string>

#include "rehearse/kernel_names.hpp"
#include "trace/recorded_events.hpp"

namespace plimsoll::trace {

struct ReadKernel {
  Kernel kernel;
  bool shaped = false;  ///< else no more is known than the class of its name
};

/// `op`: null where the operator was not recorded.
ReadKernel read_kernel(const std::string& name, const rehearse::Launch& launch, const Operator* op);

/// A product's kernel by its name: nvjet, cuBLAS's and CUTLASS's, Tensile's of hipBLASLt and rocBLAS; not what adds up its parts.
bool is_product(std::string_view name);

}  // namespace plimsoll::trace
