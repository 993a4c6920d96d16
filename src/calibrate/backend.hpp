// A device that kernels run on. One interface for HIP, CUDA and the CPU; work is issued to streams and runs in their order.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/kernels/kernel_table.hpp"
#include "plimsoll/calibrate.hpp"
#include "plimsoll/program.hpp"

namespace plimsoll::calibrate {

enum class CopyDirection : std::uint8_t { host_to_device, device_to_host, device_to_device };

struct MemoryInfo {
  std::int64_t free, total;
};

/// D[m,n] = op(A)[m,k] · op(B)[k,n] of matrices by columns, as BLAS and Product have it, without gaps; `batch` times, a `stride` of
/// elements apart. D of 8-bit operands is bf16. The table's own kernels multiply rows of k by rows of k: "T N" with A and B exchanged.
struct GemmCall {
  DType type;
  std::int64_t m, n, k, batch = 1;
  bool transpose_a = true, transpose_b = false;
  Arithmetic arithmetic = Arithmetic::native;
  std::int64_t stride_a = 0, stride_b = 0, stride_d = 0;
  void *a = nullptr, *b = nullptr, *d = nullptr;

  std::int64_t leading_a() const { return transpose_a ? k : m; }
  std::int64_t leading_b() const { return transpose_b ? n : k; }
};
/// The call of one of a program's products, without its operands.
GemmCall gemm_call(const Product& product);

/// How the heads of a sequence lie in memory: each by itself, as our own kernels read them, or those of a token beside each other, as
/// frameworks project them.
enum class HeadOrder : std::uint8_t { heads_first, tokens_first };

/// A whole pass of fused attention, its helpers included: forward Q, K and V to the output and the rows' log Σ exp (fp32), backward these
/// and the output's gradient to those of Q, K and V.
struct AttentionCall {
  Attention attention;
  HeadOrder order = HeadOrder::tokens_first;
  void *q = nullptr, *k = nullptr, *v = nullptr, *output = nullptr, *log_sum = nullptr;
  void *gradient = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

/// Bytes of a device's last cache; where it does not say, of the largest that a GPU has (MI300's Infinity Cache).
inline std::int64_t cache_of(const DeviceFacts& facts) { return facts.cache_bytes > 0 ? facts.cache_bytes : std::int64_t{256} << 20; }

/// Every failing call throws Error(bad_input) that names the call, the driver's own word for the error and what to do.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual DeviceFacts facts() const = 0;
  virtual DeviceShape shape() const = 0;
  virtual MemoryInfo memory() const = 0;
  /// Where the device is, for libraries that count devices in another order: "0000:1b:00.0", or empty.
  virtual std::string pci_address() const { return {}; }

  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* memory) = 0;
  /// Addresses without memory, for expandable segments: `map` gives whole pages of `page` bytes to a part of them, `unmap` takes any run
  /// of such pages back.
  virtual void* reserve(std::size_t bytes) = 0;
  virtual void release_range(void* range) = 0;
  virtual void map(void* at, std::size_t bytes, std::size_t page) = 0;
  virtual void unmap(void* at, std::size_t bytes) = 0;
  /// Host memory that copies reach at full speed.
  virtual void* allocate_host(std::size_t bytes) = 0;
  virtual void release_host(void* memory) = 0;

  virtual void copy(void* to, const void* from, std::size_t bytes, CopyDirection direction, StreamId stream) = 0;
  virtual void fill(void* to, int byte, std::size_t bytes, StreamId stream) = 0;
  virtual void launch(const Kernel& kernel, const Sizes& sizes, const std::vector<void*>& buffers, StreamId stream) = 0;
  /// `stream` waits for what was issued to `other` so far.
  virtual void wait(StreamId stream, StreamId other) = 0;
  virtual void synchronize() = 0;

  /// Marks on a stream, for timing: seconds from one mark to another, once both are reached.
  virtual std::size_t mark(StreamId stream) = 0;
  virtual double between(std::size_t first, std::size_t last) = 0;
  virtual void forget_marks() = 0;
  /// Of a processor: seconds that each of its threads has had so far. What is missing to the time on the wall went to other work.
  virtual std::vector<double> processor_seconds() { return {}; }

  /// The driver's own stream, for a vendor's libraries; nullptr on the CPU.
  virtual void* native_stream(StreamId) { return nullptr; }

  /// The vendor's libraries of matrix products ("hipblaslt", "rocblas"), what frameworks prefer first.
  virtual std::vector<std::string> gemm_libraries() const { return {}; }
  virtual bool library_takes(const GemmCall&, std::size_t) { return false; }
  /// A product through one of them; false where it does not take it.
  virtual bool library_gemm(const GemmCall&, std::size_t, StreamId) { return false; }

  /// The vendor's library of fused attention ("cudnn"), or empty: why there is none is in `no_attention_library`.
  virtual std::string attention_library() const { return {}; }
  virtual std::string no_attention_library() const { return {}; }
  /// Why the library does not run such a pass; empty: it does.
  virtual std::string library_cannot(const Attention&, HeadOrder) { return "there is no library of attention"; }
  virtual void library_attention(const AttentionCall&, StreamId) {}

  /// A memory-bound kernel of a step program: reads and writes exactly those bytes. Returns what it moved.
  virtual Work stream_bytes(plimsoll::KernelKind kind, void* from, std::int64_t read, void* to, std::int64_t written, StreamId stream) = 0;
};

/// Why a kind of backend cannot be used here, or the backend itself.
struct FoundBackend {
  std::unique_ptr<Backend> backend;
  std::string why_not;
};

FoundBackend open_cpu();
FoundBackend open_hip(int device);
FoundBackend open_cuda(int device);

/// "hip", "cuda", "cpu", or "auto": the first of them that works. `tried` receives a line per backend that does not.
std::unique_ptr<Backend> open_backend(const std::string& name, int device, std::vector<std::string>& tried);

}  // namespace plimsoll::calibrate
