#include "calibrate/program_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

using ProgramKind = plimsoll::KernelKind;

std::byte* at(void* memory, std::int64_t bytes) { return static_cast<std::byte*>(memory) + bytes; }

// ---- products --------------------------------------------------------------------------------------------------------

/// The table's product of that type that takes such a k.
const Kernel& gemm_kernel(const plimsoll::Kernel& kernel, const DeviceShape& device) {
  const Kernel* found = find_kernel(KernelKind::gemm, kernel.type, device.target);
  if (!found) refuse(fmt::format("a product of {} has no kernel on {}", name_of(kernel.type), name_of(device.target)), "replay");
  const std::string why = found->cannot({kernel.m, kernel.n, kernel.k});
  if (!why.empty()) refuse(fmt::format("the product {} x {} x {}: {}", kernel.m, kernel.n, kernel.k, why), "replay");
  return *found;
}

Work run_gemm(Backend& backend, const plimsoll::Kernel& kernel, void* from, void* to, StreamId stream) {
  const std::int64_t element = size_of(kernel.type);
  const std::int64_t a = kernel.m * kernel.k * element, b = kernel.n * kernel.k * element, c = kernel.m * kernel.n * element;
  Work done{0, 0, 0};
  for (std::int64_t i = 0; i < kernel.batch; ++i) {
    const GemmCall call{kernel.type, kernel.m, kernel.n, kernel.k, at(from, i * (a + b)), at(from, i * (a + b) + a), at(to, i * c)};
    const Sizes sizes{kernel.m, kernel.n, kernel.k};
    if (!backend.library_gemm(call, stream)) backend.launch(gemm_kernel(kernel, backend.shape()), sizes, {call.a, call.b, call.c}, stream);
    done.bytes_read += static_cast<double>(a + b);
    done.bytes_written += static_cast<double>(c);
    done.flops += 2.0 * static_cast<double>(kernel.m) * static_cast<double>(kernel.n) * static_cast<double>(kernel.k);
  }
  return done;
}

// ---- attention -------------------------------------------------------------------------------------------------------

/// Sizes {heads, kv_heads, sequence, causal} of the table's attention for a program's kernel, and the kernel.
struct Attention {
  const Kernel* kernel;
  Sizes sizes;
};

Attention attention_of(const plimsoll::Kernel& kernel, const DeviceShape& device) {
  const auto refused = [&](const std::string& why) {
    refuse(fmt::format("attention of {} over {} x {} with heads of {}: {}", name_of(kernel.type), kernel.m, kernel.n, kernel.k, why),
           "replay", "with --attention eager its products and softmax run one by one");
  };
  if (kernel.m == 0) refused("its program does not say its shape");
  if (kernel.type != DType::bf16) refused("the kernels are of bf16");
  if (kernel.m != kernel.n) refused("the kernels take equal lengths");
  const std::string name = fmt::format("attention_bf16_d{}", kernel.k);
  const Kernel* found = nullptr;
  for (const Kernel& row : kernel_table())
    if (row.name == name && row.runs_on(device.target)) found = &row;
  if (!found) refused("there is no such kernel");
  const double pairs = static_cast<double>(kernel.batch) * static_cast<double>(kernel.m * kernel.n * kernel.k);
  const double passes = kernel.kind == ProgramKind::attention ? 4 : 10;
  const bool causal = kernel.flops < 0.75 * passes * pairs;
  const Sizes sizes{kernel.batch, kernel.batch, kernel.m, causal ? 1 : 0};
  if (const std::string why = found->cannot(sizes); !why.empty()) refused(why);
  return {found, sizes};
}

/// A backward pass does two and a half times the products of a forward: the forward kernel twice, and once on half of the heads.
Work run_attention(Backend& backend, const plimsoll::Kernel& kernel, void* from, void* to, StreamId stream) {
  const DeviceShape device = backend.shape();
  const Attention attention = attention_of(kernel, device);
  const std::int64_t heads = attention.sizes[0];
  std::vector<std::int64_t> runs{heads};
  if (kernel.kind == ProgramKind::attention_backward) runs = {heads, heads, (heads + 1) / 2};
  Work done{0, 0, 0};
  for (std::int64_t count : runs) {
    Sizes sizes = attention.sizes;
    sizes[0] = sizes[1] = count;
    const std::int64_t one = count * sizes[2] * kernel.k * 2;
    backend.launch(*attention.kernel, sizes, {from, at(from, one), at(from, 2 * one), to, at(to, one)}, stream);
    const Work work = attention.kernel->work(sizes, device);
    done.bytes_read += work.bytes_read;
    done.bytes_written += work.bytes_written;
    done.flops += work.flops;
  }
  return done;
}

bool is_attention(ProgramKind kind) { return kind == ProgramKind::attention || kind == ProgramKind::attention_backward; }

}  // namespace

Operands operands_of(const plimsoll::Kernel& kernel, const DeviceShape& device) {
  const std::int64_t element = size_of(kernel.type);
  if (kernel.kind == ProgramKind::gemm)
    return {kernel.batch * (kernel.m + kernel.n) * kernel.k * element, kernel.batch * kernel.m * kernel.n * element};
  if (is_attention(kernel.kind)) {
    const Attention attention = attention_of(kernel, device);
    const std::int64_t one = attention.sizes[0] * attention.sizes[2] * kernel.k * 2;
    return {3 * one, one + attention.sizes[0] * attention.sizes[2] * 4};
  }
  return {kernel.bytes_read, kernel.bytes_written};
}

Work run_program_kernel(Backend& backend, const plimsoll::Kernel& kernel, void* from, void* to, StreamId stream) {
  if (kernel.kind == ProgramKind::gemm) return run_gemm(backend, kernel, from, to, stream);
  if (is_attention(kernel.kind)) return run_attention(backend, kernel, from, to, stream);
  if (kernel.kind == ProgramKind::convolution)
    refuse("convolutions have no calibration kernel", "replay", "networks of matrix products are replayed");
  Work done = backend.stream_bytes(kernel.kind, from, kernel.bytes_read, to, kernel.bytes_written, stream);
  done.flops += kernel.flops;
  return done;
}

}  // namespace plimsoll::calibrate
