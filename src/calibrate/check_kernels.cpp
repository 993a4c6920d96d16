// Every kernel and every library's product, run once on a small problem before anything is timed.
#include <fmt/format.h>

#include <functional>

#include "calibrate/workload.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

/// A problem that the reference does in a moment.
Sizes small_problem(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::empty:
      return {};
    case KernelKind::cache_read:
      return {1024, 4, 2};
    case KernelKind::pointer_chase:
      return {256, 64};
    case KernelKind::vector_rate:
    case KernelKind::matrix_rate:
      return {1, 1};
    case KernelKind::gemm:
      return {64, 64, 128};
    case KernelKind::attention:
    case KernelKind::attention_backward:
      return {1, 1, 128, 1};
    case KernelKind::rmsnorm:
    case KernelKind::softmax:
    case KernelKind::cross_entropy:
    case KernelKind::transpose:
      return {8, 256};
    default:
      return {2048};
  }
}

/// Runs a kernel's problem by `run` and compares.
void check_problem(Backend& backend, const Kernel& kernel, const Sizes& sizes, const std::string& who,
                   const std::function<void(const std::vector<void*>&)>& run) {
  const HostBuffers before = make_buffers(kernel, sizes, backend.shape(), 42);
  std::vector<void*> buffers;
  for (const auto& data : before) {
    buffers.push_back(backend.allocate(std::max<std::size_t>(data.size(), 16)));
    backend.copy(buffers.back(), data.data(), data.size(), CopyDirection::host_to_device, kComputeStream);
  }
  run(buffers);
  HostBuffers after = before;
  for (std::size_t i = 0; i < before.size(); ++i)
    backend.copy(after[i].data(), buffers[i], after[i].size(), CopyDirection::device_to_host, kComputeStream);
  backend.synchronize();
  for (void* memory : buffers) backend.release(memory);
  if (kernel.kind == KernelKind::empty) return;
  const Check check = check_answer(kernel, sizes, backend.shape(), {before}, {after});
  if (!check.passed())
    fail(fmt::format("{} gives a wrong answer: {}", who, check.where), backend.facts().name,
         "nothing measured on this device can be trusted");
}

/// Products of every type that a library takes.
void check_libraries(Backend& backend, const Kernel& kernel) {
  const Sizes sizes = small_problem(kernel);
  const std::vector<std::string> libraries = backend.gemm_libraries();
  for (std::size_t i = 0; i < libraries.size(); ++i) {
    if (!backend.library_takes({kernel.type, sizes[0], sizes[1], sizes[2]}, i)) continue;
    check_problem(
        backend, kernel, sizes, fmt::format("{}'s product of {}", libraries[i], name_of(kernel.type)),
        [&](const std::vector<void*>& buffers) {
          backend.library_gemm({kernel.type, sizes[0], sizes[1], sizes[2], buffers[0], buffers[1], buffers[2]}, i, kComputeStream);
        });
  }
}

}  // namespace

void check_kernels(Backend& backend) {
  for (const Kernel& kernel : kernel_table()) {
    if (!kernel.runs_on(backend.shape().target) || kernel.collective()) continue;
    const Sizes sizes = small_problem(kernel);
    check_problem(backend, kernel, sizes, std::string(kernel.name),
                  [&](const std::vector<void*>& buffers) { backend.launch(kernel, sizes, buffers, kComputeStream); });
    if (&kernel == find_kernel(KernelKind::gemm, kernel.type, backend.shape().target)) check_libraries(backend, kernel);
  }
}

}  // namespace plimsoll::calibrate
