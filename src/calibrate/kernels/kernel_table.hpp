// The one table of calibration kernels: how each is called, how large its launch is, what it moves and computes, and how its answer is
// checked. The same row serves the AMD code object, the NVIDIA PTX, the emulator and the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/dtype.hpp"

namespace plimsoll::calibrate {

/// Where a kernel exists. AMD: code objects; NVIDIA: PTX, which the driver compiles for its device and for every later generation
/// (sm_90a only for Hopper itself: it holds the warp-group matrix instructions).
enum class Target : std::uint8_t { gfx90a, gfx942, gfx950, sm_80, sm_90, sm_90a, cpu };
constexpr Target all_targets[] = {Target::gfx90a, Target::gfx942, Target::gfx950, Target::sm_80,
                                  Target::sm_90,  Target::sm_90a, Target::cpu};
std::string_view name_of(Target target);
/// The target of that name, or of an AMD name with features ("gfx942:sramecc+:xnack-"); `found` says whether there is one.
Target target_named(std::string_view name, bool& found);

/// The two 8-bit formats with 4 exponent bits: of MI300 (bias 8, 0x80 is NaN) and of OCP (bias 7; MI350, NVIDIA).
enum class Fp8Format : std::uint8_t { e4m3_fnuz, e4m3_ocp };
Fp8Format fp8_format(Target target);

/// What a launch geometry depends on.
struct DeviceShape {
  Target target;
  std::int32_t compute_units;  ///< CUs, SMs or threads
  std::int32_t wave() const;   ///< lanes that execute together: 64, 32 or 1
};

/// The sizes of one problem, in the order of the row's `size_names`.
using Sizes = std::vector<std::int64_t>;

enum class Role : std::uint8_t { in, out, in_out };

/// Random inputs: a device that multiplies zeros or small integers runs at a clock that no training run sees.
enum class Fill : std::uint8_t {
  zeros,
  uniform,       ///< (-1, 1)
  positive,      ///< (0, 1): second moments
  small,         ///< (-1, 1) / 1024: gradients
  target_class,  ///< int32 in [0, sizes[1])
  chain,         ///< int32: one random cycle through all elements
};

/// One device buffer. With `of_every_rank` the argument is a device table of pointers to this buffer of each rank, in rank order.
struct Buffer {
  std::string_view name;
  DType type;
  Role role;
  Fill fill;
  std::int64_t (*count)(const Sizes& sizes);  ///< elements
  bool of_every_rank = false;
};

enum class ScalarType : std::uint8_t { i32, u64, f32 };

/// One scalar argument: a function of the sizes, or (value == nullptr) given at each launch.
struct Scalar {
  std::string_view name;
  ScalarType type;
  double (*value)(const Sizes& sizes);
};

/// One-dimensional launch.
struct Launch {
  std::uint32_t blocks, threads;
  std::uint32_t shared_bytes = 0;  ///< of shared memory beside what the kernel declares itself; beyond 48 KiB it must be allowed first
};

/// What one launch moves to and from memory and computes. Bytes are those that must cross (compulsory traffic), FLOPs those of the
/// algorithm (2 per multiply-add); transcendental functions count one.
struct Work {
  double bytes_read, bytes_written, flops;
  double bytes() const { return bytes_read + bytes_written; }
};

enum class KernelKind : std::uint8_t {
  empty,
  copy,
  triad,
  cache_read,
  pointer_chase,
  vector_rate,
  matrix_rate,
  gemm,
  attention,
  attention_delta,  ///< sums of the products of the output and its gradient, which the backward pass begins with
  attention_backward,
  sums,  ///< of pieces of a buffer
  rmsnorm,
  softmax,
  cross_entropy,
  swiglu,
  add,
  adam,
  transpose,
  cast,
  all_reduce,
  all_gather,
  reduce_scatter,
};
std::string_view name_of(KernelKind kind);

/// Host copies of a kernel's buffers, in table order.
using HostBuffers = std::vector<std::vector<std::byte>>;

/// The worst element of an answer against the double-precision reference, in units of what that element's rounding allows.
struct Check {
  double worst = 0;          ///< |answer − reference| / tolerance
  std::int64_t checked = 0;  ///< elements compared
  std::string where;         ///< "c[17] of rank 0 is 1.25, expected 1.5": the worst element
  bool passed() const { return checked > 0 && worst <= 1; }
};

/// What a reference check sees: one rank's buffers, or those of all ranks for a collective.
struct Answer {
  const Sizes& sizes;
  DeviceShape device;
  const std::vector<HostBuffers>& before;  ///< by rank
  const std::vector<HostBuffers>& after;   ///< by rank
};

/// One kernel. Its arguments are its buffers as pointers, in order, then its scalars, in order.
struct Kernel {
  std::string_view name;  ///< the symbol in the code objects
  KernelKind kind;
  DType type;  ///< of the elements that it streams or multiplies
  std::vector<std::string_view> size_names;
  std::vector<Buffer> buffers;
  std::vector<Scalar> scalars;
  std::vector<Target> targets;
  Launch (*launch)(const Sizes& sizes, const DeviceShape& device);
  Work (*work)(const Sizes& sizes, const DeviceShape& device);
  /// Why the kernel cannot run these sizes ("k must be a multiple of 32"), or empty.
  std::string (*cannot)(const Sizes& sizes);
  Check (*check)(const Answer& answer);
  std::string_view doc;  ///< one line: what it measures

  bool runs_on(Target target) const;
  bool collective() const;
};

const std::vector<Kernel>& kernel_table();
/// The kernel of that name; fails with the nearest name.
const Kernel& kernel_named(std::string_view name);
/// The kernel of that name or, where the target has it, its form with warp-group instructions.
const Kernel& kernel_for(std::string_view name, Target target);
/// The kernel of that kind and type, or nullptr.
const Kernel* find_kernel(KernelKind kind, DType type, Target target);

/// A pass of attention through a vendor's library: by the operands' type, the heads' width and the direction.
struct AttentionPass {
  DType type;
  std::int64_t width;
  bool backward;
  auto operator<=>(const AttentionPass&) const = default;
};
/// Those that are checked: rows as the table's, without code of ours.
const std::map<AttentionPass, Kernel>& attention_passes();

/// Input data for a kernel, the same for the same seed (of `rank` in a collective). Output buffers hold a pattern that no kernel writes.
/// Of longer buffers than `most_bytes` only the beginning is made; a chain is whole.
HostBuffers make_buffers(const Kernel& kernel, const Sizes& sizes, const DeviceShape& device, std::uint64_t seed, int rank = 0,
                         std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max());

/// Compares an answer with the double-precision reference; large problems by a sample of rows or elements. `before` are the buffers
/// made by make_buffers, `after` those copied back, by rank (one rank for all but collectives).
Check check_answer(const Kernel& kernel, const Sizes& sizes, const DeviceShape& device, const std::vector<HostBuffers>& before,
                   const std::vector<HostBuffers>& after);

/// The arguments of a launch as hipModuleLaunchKernel and cuLaunchKernel want them: one pointer to each value.
class PackedArguments {
 public:
  /// `buffers`: device pointers in table order (for of_every_rank: the device table); `at_launch`: the scalars without a value, in order
  /// (collectives: rank, epoch; the epoch rises by one with each launch on the same flags).
  PackedArguments(const Kernel& kernel, const Sizes& sizes, const std::vector<void*>& buffers, const std::vector<double>& at_launch = {});
  void** pointers() { return pointers_.data(); }

 private:
  std::vector<std::uint64_t> values_;
  std::vector<void*> pointers_;
};

}  // namespace plimsoll::calibrate
