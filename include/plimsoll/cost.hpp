/// Time of kernels, collectives and copies. All closed forms; constants come from the hardware files, with their provenance.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/hardware.hpp"
#include "plimsoll/product_cost.hpp"
#include "plimsoll/program.hpp"
#include "plimsoll/topology.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

// ---- kernels -------------------------------------------------------------------------------------------------------

/// Time of C[m,n] = A[m,k]·Bᵀ, `batch` times, alone on the device: what a linear layer of that type runs (product_cost.hpp has the law).
Seconds gemm_time(const Accelerator& device, MathType type, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1);

/// Fused attention of that many FLOPs (causal ones counted as the kernel does them).
Seconds attention_time(const Accelerator& device, MathType type, Flops flops, bool backward, std::int64_t head_dim = 128);

/// A kernel bound by memory: start + bytes / (bandwidth · η · bytes/(bytes + half-performance size)), or what the device's measured
/// curve of those kernels says.
Seconds memory_bound_time(const Accelerator& device, Bytes bytes, std::string_view kernels = "elementwise");

/// Time to write so many bytes of elements of that type, and to copy so many from one place of the device's memory to another.
Seconds fill_time(const Accelerator& device, Bytes bytes, DType type);
Seconds device_copy_time(const Accelerator& device, Bytes bytes);

/// Between the end of a kernel and the start of the next of its stream, which waits for it: in no price.
Seconds kernel_gap(const Accelerator& device);
/// The same where a CUDA graph replays both.
Seconds kernel_gap_in_graph(const Accelerator& device);

/// Time of one kernel of a step program among those surroundings. Products and convolutions: product_cost.hpp.
Seconds price(const Kernel& kernel, const Accelerator& device, const Surroundings& around = {});
Seconds price(const Attention& attention, const Accelerator& device, const Surroundings& around = {});
Seconds price(const Pointwise& kernel, const Accelerator& device);
Seconds price(const Reduction& kernel, const Accelerator& device);
Seconds price(const RowWise& kernel, const Accelerator& device);
Seconds price(const Gather& kernel, const Accelerator& device);
Seconds price(const MultiTensor& kernel, const Accelerator& device);
Seconds price(const Unspecified& kernel, const Accelerator& device);

/// Board powers that a kernel draws on average while it runs among those surroundings: products and attention what they would at the boost clock, over the
/// time that their power makes them longer; others the device's power_elsewhere.
double draw(const Kernel& kernel, const Accelerator& device, const Surroundings& around = {});

/// What keeps a kernel from being faster.
enum class Limit : std::uint8_t {
  arithmetic,  ///< matrix or vector units, at the rate that its tiles reach
  bandwidth,   ///< the device's memory
  issue,       ///< instructions beside the bytes: casts, broadcasts, gathers
  latency,     ///< its launch takes longer than its work
  alignment,   ///< a product whose leading dimensions or addresses are no multiples of 16 bytes
};
std::string_view name_of(Limit limit);
Limit limit_of(const Kernel& kernel, const Accelerator& device, const Surroundings& around = {});
/// The product with all its sizes filled up to whole loads of 16 bytes; nothing where they are.
std::optional<Product> padded(const Product& product);

// ---- collectives: closed forms -------------------------------------------------------------------------------------
// D: bytes of the full buffer (of all-to-all: what each rank holds). B: bandwidth per rank and direction. α: latency per step.

/// 2(n−1)α + 2(n−1)/n · D/B
Seconds ring_all_reduce(Bytes buffer, std::int64_t n, BytesPerSecond bandwidth, Seconds latency = {});
/// (n−1)α + (n−1)/n · D/B; also reduce-scatter and all-to-all by pairs.
Seconds ring_all_gather(Bytes buffer, std::int64_t n, BytesPerSecond bandwidth, Seconds latency = {});
/// Double binary tree: 2·⌈log2 n⌉·α + 2D/B
Seconds tree_all_reduce(Bytes buffer, std::int64_t n, BytesPerSecond bandwidth, Seconds latency = {});
/// Recursive halving and doubling (n a power of two): 2·log2(n)·α + 2(n−1)/n · D/B
Seconds halving_doubling_all_reduce(Bytes buffer, std::int64_t n, BytesPerSecond bandwidth, Seconds latency = {});
/// Full mesh, all n−1 links at once: 2α + 2(D/n)/B_link
Seconds direct_all_reduce(Bytes buffer, std::int64_t n, BytesPerSecond link, Seconds latency = {});
/// α + (D/n)/B_link; also reduce-scatter and all-to-all on a mesh.
Seconds direct_all_gather(Bytes buffer, std::int64_t n, BytesPerSecond link, Seconds latency = {});
/// (n−1)α + D/B
Seconds ring_broadcast(Bytes buffer, std::int64_t n, BytesPerSecond bandwidth, Seconds latency = {});
/// Reduce-scatter in the node, all-reduce of 1/q over the k nodes, all-gather in the node, one after the other.
Seconds hierarchical_all_reduce(Bytes buffer, std::int64_t per_node, std::int64_t nodes, BytesPerSecond intra, BytesPerSecond inter);

// ---- collectives: what the library does ----------------------------------------------------------------------------

/// One (algorithm, protocol) of NCCL's cost model: time = latency + D / bandwidth.
struct ProtocolCost {
  std::string algorithm;  ///< "ring" | "tree" | "nvls" (one node) | "nvls_tree" (several) | "pat" (one GPU per node)
  std::string protocol;   ///< "LL" | "LL128" | "Simple"
  Seconds latency;
  BytesPerSecond bandwidth;  ///< algorithm bandwidth, D / time
  Seconds time(Bytes buffer) const { return latency + buffer / bandwidth; }
};
/// NCCL's cost model (tuning.cc) of every (algorithm, protocol) that the node's constants cover. All-reduce, all-gather, reduce-scatter,
/// broadcast. Throws Error for other kinds and for a group of one rank.
std::vector<ProtocolCost> protocol_costs(CollectiveKind kind, const GroupShape& group, const CollectiveLibrary& library);
/// The same at one size: trees, and rings across nodes, corrected by size as the library does.
std::vector<ProtocolCost> protocol_costs_at(CollectiveKind kind, Bytes buffer, const GroupShape& group, const CollectiveLibrary& library);
/// The cheapest of them at that size.
ProtocolCost best_protocol(CollectiveKind kind, Bytes buffer, const GroupShape& group, const CollectiveLibrary& library);

/// Bytes that each rank sends (and receives): the collective's volume.
double bytes_sent(CollectiveKind kind, Bytes buffer, std::int64_t n);

/// Time of one collective over a group: the cheapest algorithm, corrected by its measured curve where the cluster's file has one.
/// Throws Error (refused) for a kind without a price.
Seconds price(const Collective& collective, const GroupShape& group, const Cluster& cluster);

/// Time of one copy between host and device.
Seconds price(const Copy& copy, const Cluster& cluster);

}  // namespace plimsoll
