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
    case KernelKind::sums:
      return {6000, 2};
    case KernelKind::rmsnorm:
    case KernelKind::softmax:
    case KernelKind::cross_entropy:
    case KernelKind::transpose:
      return {8, 256};
    default:
      return {2048};
  }
}

/// Runs a kernel's problem by `run` and compares: what is wrong with the answer, empty for a right one.
std::string wrong_answer(Backend& backend, const Kernel& kernel, const Sizes& sizes,
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
  if (kernel.kind == KernelKind::empty) return {};
  const Check check = check_answer(kernel, sizes, backend.shape(), {before}, {after});
  return check.passed() ? std::string() : check.where;
}

/// Products of every type that a library takes; of fp32 also as tf32 where the table's own kernel is that.
void check_libraries(Backend& backend, const Kernel& kernel, std::vector<WrongKernel>& wrong) {
  const Sizes sizes = small_problem(kernel);
  const std::vector<std::string> libraries = backend.gemm_libraries();
  for (std::size_t i = 0; i < libraries.size(); ++i)
    for (const Arithmetic arithmetic : {Arithmetic::native, Arithmetic::tf32}) {
      const bool rounds = arithmetic == Arithmetic::tf32;
      if (rounds && !multiplies_as_tf32(kernel)) continue;
      GemmCall call{kernel.type, sizes[1], sizes[0], sizes[2]};  // rows are columns of a library, and its first operand our second
      call.arithmetic = arithmetic;
      if (!backend.library_takes(call, i)) continue;
      const std::string where = wrong_answer(backend, kernel, sizes, [&](const std::vector<void*>& buffers) {
        call.a = buffers[1], call.b = buffers[0], call.d = buffers[2];
        backend.library_gemm(call, i, kComputeStream);
      });
      if (!where.empty()) wrong.push_back({libraries[i], rounds ? "tf32" : std::string(name_of(kernel.type)), where});
    }
}

/// Attention of a library, with query heads that share a key head: every type, width and direction that it takes.
void check_attention_library(Backend& backend, std::vector<WrongKernel>& wrong) {
  if (backend.attention_library().empty()) return;
  const Sizes sizes{4, 2, 256, 1};
  for (const auto& [pass, kernel] : attention_passes()) {
    AttentionCall call;
    call.attention = {AttentionLibrary::cudnn, pass.backward ? Attention::Part::backward : Attention::Part::forward, pass.type, true};
    call.attention.heads = sizes[0], call.attention.kv_heads = sizes[1];
    call.attention.queries = call.attention.keys = sizes[2];
    call.attention.head_dim = call.attention.value_dim = pass.width;
    call.order = HeadOrder::heads_first;
    if (!backend.library_cannot(call.attention, call.order).empty()) continue;
    const std::string where = wrong_answer(backend, kernel, sizes, [&, backward = pass.backward](const std::vector<void*>& at) {
      call.q = at[0], call.k = at[1], call.v = at[2], call.output = at[3], call.log_sum = at[4];
      if (backward) call.gradient = at[5], call.dq = at[6], call.dk = at[7], call.dv = at[8];
      backend.library_attention(call, kComputeStream);
    });
    if (!where.empty()) wrong.push_back({backend.attention_library(), std::string(name_of(pass.type)), where});
  }
}

bool on_matrix_units(KernelKind kind) {
  return kind == KernelKind::matrix_rate || kind == KernelKind::gemm || kind == KernelKind::attention ||
         kind == KernelKind::attention_backward;
}

}  // namespace

std::string WrongKernel::text() const { return fmt::format("{} of {} gives a wrong answer and is left out: {}", kernel, type, where); }

/// A product of a model's step runs through any of them, a backward pass through several kernels.
bool WrongKernel::ran(const Sample& sample) const {
  if (sample.kernel == kernel) return sample.type.empty() || sample.type == type || sample.kernel.find(type) != std::string::npos;
  if (kernel.rfind("attention", 0) == 0) return sample.kernel == plimsoll::name_of(plimsoll::KernelKind::attention_backward);
  return sample.kind == SampleKind::gemm && sample.type == type && sample.kernel == plimsoll::name_of(plimsoll::KernelKind::gemm);
}

std::vector<WrongKernel> check_kernels(Backend& backend) {
  std::vector<WrongKernel> wrong;
  for (const Kernel& kernel : kernel_table()) {
    if (!kernel.runs_on(backend.shape().target) || kernel.collective()) continue;
    const Sizes sizes = small_problem(kernel);
    const std::string where = wrong_answer(
        backend, kernel, sizes, [&](const std::vector<void*>& buffers) { backend.launch(kernel, sizes, buffers, kComputeStream); });
    if (!where.empty() && !on_matrix_units(kernel.kind))
      fail(fmt::format("{} gives a wrong answer: {}", kernel.name, where), backend.facts().name,
           "nothing measured on this device can be trusted");
    if (!where.empty()) wrong.push_back({std::string(kernel.name), std::string(name_of(kernel.type)), where});
    if (&kernel == find_kernel(KernelKind::gemm, kernel.type, backend.shape().target)) check_libraries(backend, kernel, wrong);
  }
  check_attention_library(backend, wrong);
  return wrong;
}

}  // namespace plimsoll::calibrate
