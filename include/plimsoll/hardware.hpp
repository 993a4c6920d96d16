/// Accelerators, nodes and clusters, as data with sources. One file per device (hardware/accelerators/*.json) and one per cluster
/// (hardware/clusters/*.json); docs/hardware.md describes both. Every number says where it comes from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plimsoll/dtype.hpp"
#include "plimsoll/product_kernels.hpp"
#include "plimsoll/sourced.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

/// One measured matrix product C[m,n] = A[m,k]·B[k,n].
struct GemmPoint {
  std::int64_t m, n, k;
  FlopsPerSecond rate;
};

/// Matrix products measured with one library.
struct GemmCurve {
  MathType type;
  Provenance provenance = Provenance::measured;
  std::string software, source;
  std::vector<GemmPoint> points;
};

/// Matrix products of exactly these shapes, timed on this device: what gemm_time is not asked for.
struct GemmTimes {
  struct Point {
    std::int64_t m, n, k, batch;
    Seconds time;
    std::string layout;  ///< as BLAS has it: "TN"; empty: of any
  };
  MathType type;
  Provenance provenance = Provenance::measured;
  std::string source;
  std::vector<Point> points;
};

/// Time of memory-bound kernels of one kind by the bytes that they move: straight lines between the points, the first of which is the
/// start of a kernel that moves nothing; beyond the last point the last line goes on.
struct StreamingCurve {
  struct Point {
    Bytes bytes;
    Seconds time;
  };
  std::string kernels;  ///< "elementwise", "reduction", "gather", "multi_tensor"
  Provenance provenance = Provenance::calibrated;
  std::string source;
  std::vector<Point> points;  ///< by rising size, at least two
};

/// Other published measurements, kept as they are: values with their units, for the sheet.
struct Measurement {
  std::string what, note, source;
  Provenance provenance = Provenance::measured;
  std::vector<std::pair<std::string, std::string>> values;
};

/// The dense peak of one arithmetic, and the fraction of it that large products sustain inside a training step
/// (clocks fall under load: modelled as a fraction of peak, so that clock and library count once).
struct ComputeRate {
  MathType type;
  Sourced<FlopsPerSecond> peak;
  Sourced<double> sustained;
};

/// Fractions of the *sustained* rate that fused attention reaches, head dimension 128, long sequences.
struct AttentionConstants {
  Sourced<double> forward, backward;
  Sourced<double> power;  ///< board powers that it draws at the boost clock; 0: no more than the board has
  double slower = 1;      ///< how much longer it takes under a power limit set on the board
  /// Products that a unit does in a clock, over those of the family's device on which hardware/kernels.json's laws were measured. Where a
  /// device has fewer, what a kernel does beside its products takes a smaller part of its time.
  Sourced<double> matrix_width{1, Provenance::derived, {}};
};

/// How long kernels of this very device take, over what the laws of hardware/kernels.json say; read off traces of it.
struct KernelPaces {
  Sourced<double> issue{1, Provenance::derived, {}};  ///< lane instructions of memory-bound kernels
  Sourced<double> attention_forward{1, Provenance::derived, {}}, attention_backward{1, Provenance::derived, {}};
};

/// Memory outside PyTorch's allocator and fixed buffers, per rank.
struct DeviceOverheads {
  Sourced<Bytes> context;         ///< runtime context and loaded kernels
  Sourced<Bytes> blas_workspace;  ///< per BLAS handle and stream
  Sourced<Bytes> first_communicator, further_communicator;
};

struct Accelerator {
  std::string name;            ///< "mi300x": the file's name
  std::string title;           ///< "AMD Instinct MI300X"
  std::string vendor;          ///< "AMD" | "NVIDIA"
  std::string family, target;  ///< "CDNA3", "gfx942"
  int launch_year = 0;
  std::string node;    ///< the cluster file that describes its usual node
  std::string server;  ///< that of the larger node that more GPUs stand in; empty: in several usual ones
  std::string note;

  Sourced<Bytes> memory_nominal;  ///< what the name says
  Sourced<Bytes> memory_usable;   ///< what the driver reports as total to a process
  std::string memory_type;
  Sourced<BytesPerSecond> memory_bandwidth;
  Sourced<double> memory_efficiency;  ///< share of it that streaming kernels reach
  Sourced<Bytes> last_level_cache;

  int compute_units = 0;  ///< SMs or CUs
  int dies = 1;           ///< XCDs: tiles are dealt round-robin over them
  Sourced<std::int64_t> threads_per_unit;  ///< that a compute unit holds at a time; 0: not said
  Sourced<Bytes> shared_memory;            ///< that one block of threads can have; 0: not said
  Sourced<Hertz> clock;   ///< boost clock of the peaks
  Sourced<Watts> power;
  std::vector<ComputeRate> rates;
  ProductConstants gemm;
  AttentionConstants attention;
  KernelPaces paces;
  DeviceOverheads overheads;
  std::vector<StreamingCurve> streaming;  ///< of calibrated devices; empty: bandwidth, efficiency and a common start
  std::vector<GemmTimes> gemm_times;      ///< of calibrated devices

  std::vector<Measurement> measurements;
  std::vector<GemmCurve> gemm_curves;  ///< published measurements, kept as they are
  struct Source {
    std::string key, text;
  };
  std::vector<Source> sources;

  /// The rate of that arithmetic; refuses by name when the device has none or nobody published it.
  const ComputeRate& rate(MathType type) const;
  FlopsPerSecond peak(MathType type) const { return rate(type).peak.value; }
  FlopsPerSecond sustained(MathType type) const { return rate(type).peak.value * rate(type).sustained.value; }
  bool is_amd() const { return vendor == "AMD"; }
  /// CUDA's compute capability as major · 10 + minor: 90 of "sm_90"; 0 of other targets.
  int capability() const;
};

/// A kind of link: per direction.
struct Link {
  Sourced<BytesPerSecond> bandwidth;  ///< the sheet's
  Sourced<BytesPerSecond> achieved;   ///< what transfers reach
  Sourced<Seconds> latency;           ///< one hop
};

/// How the GPUs of a node reach each other.
enum class NodeFabric : std::uint8_t {
  mesh,       ///< one link (xGMI) between every two GPUs
  nvswitch,   ///< every GPU hangs on non-blocking switches
  pcie_tree,  ///< PCIe switches under CPU sockets
  links,      ///< an explicit list of GPU pairs (MI250X)
};
std::string_view name_of(NodeFabric fabric);

/// Direct links between two GPUs of a node.
struct GpuPair {
  int first, second;
  int links;
};

/// One size of a measured collective curve.
struct CollectivePoint {
  Bytes bytes;  ///< full buffer
  Seconds time;
};

/// An all-reduce or reduce-scatter measured over one group shape.
struct CollectiveCurve {
  int gpus, nodes;
  std::string source, note;
  std::vector<CollectivePoint> points;  ///< by rising size
  std::string algorithm = "ring";       ///< "ring" | "nvls": what the benchmark ran
  Seconds launch{};                     ///< the host's share of every point, where the benchmark issued each collective anew
};

/// A collective over some GPUs of a node, measured at the algorithm that the library itself chooses for each size.
struct MeasuredCollective {
  std::string kind;  ///< as CollectiveKind is named
  int gpus;
  std::string source, note;
  std::vector<CollectivePoint> points;  ///< by rising size; an all-gather's is its result, a reduce-scatter's its input, an all-to-all's what a rank holds
};

/// What a collective that runs beside computation takes of the memory's bandwidth (it moves two to three times the payload), and what it
/// loses to computation: factors of time, 1 or more. The compute units that it holds are its library's channels.
struct Contention {
  Sourced<double> memory_bound;   ///< kernels bound by memory beside a collective
  Sourced<double> communication;  ///< the collective beside computation
};

/// Latencies of one protocol of the NCCL cost model (microseconds in the library's tables; seconds here).
struct ProtocolLatency {
  Seconds base_ring, base_tree, intra_ring, intra_tree, network_ring, network_tree;
};

/// What the collective library does on this node (NCCL's or RCCL's tuning tables).
struct CollectiveLibrary {
  std::string name;  ///< "nccl" | "rccl"
  int channels = 0;  ///< each holds a compute unit while a collective runs
  Sourced<BytesPerSecond> ring;                       ///< bus bandwidth of the node's ring graph, all GPUs
  Sourced<BytesPerSecond> ll_max[3];                  ///< ceiling of the LL protocol on one, two, more nodes
  Sourced<BytesPerSecond> ll128_per_channel[3];       ///< ceiling of LL128's rings on one, two, more nodes; 0: the protocol is not used
  Sourced<BytesPerSecond> ll128_tree_per_channel[3];  ///< and of its trees
  Sourced<BytesPerSecond> tree_per_channel[3];        ///< ceiling of trees on one, two, more nodes
  ProtocolLatency ll, ll128, simple;
  Seconds network_overhead;
  Seconds tree_hop;  ///< what a level of a tree takes on this network beyond the library's tables, each way
  Sourced<BytesPerSecond> nvls;        ///< bus bandwidth of in-switch all-reduce; 0: none
  Sourced<double> nvls_tree;           ///< share of a node's NICs that it reaches between nodes; 0: all, where there are trees
  Sourced<BytesPerSecond> all_to_all;  ///< measured bus bandwidth of all-to-all on one node; 0: unknown
  Sourced<double> network_all_to_all;  ///< share of the NICs that an all-to-all across nodes reaches; 0: unknown, all of them
  bool pat = false;                    ///< parallel aggregated trees, for groups of one GPU per node (NCCL 2.23)
  Sourced<Seconds> launch;             ///< floor of any collective, and of the low-latency protocol
  Sourced<Seconds> pipeline;           ///< start of the pipelined protocol (all-reduce); 0: the library's own tables hold
  Sourced<double> ll_share;            ///< share of the bandwidth that the low-latency protocol reaches
  std::vector<CollectiveCurve> all_reduce, reduce_scatter;
  std::vector<MeasuredCollective> measured;  ///< goes before all else where it has that kind on one node
  Contention contention;
};

struct Node {
  int gpus = 1;           ///< of one fast domain: a server, or an NVL72 rack
  int gpus_per_host = 0;  ///< of one operating system; fewer than `gpus` in a rack-wide domain
  NodeFabric fabric = NodeFabric::mesh;
  Link gpu_link;                 ///< mesh, links: one link; nvswitch: GPU to its switches; pcie_tree: unused
  std::vector<GpuPair> pairs;    ///< fabric links only
  int gpus_per_pcie_switch = 0;  ///< 0: each GPU on its own root port
  int sockets = 1;
  Link host_link;    ///< GPU to the CPU or PCIe switch
  Link uplink;       ///< PCIe switch to the CPU
  Link socket_link;  ///< between CPU sockets
  int nics = 0;      ///< 0: the node has no fast network
  Link nic;
  Sourced<BytesPerSecond> host_memory_bandwidth;
  std::optional<Sourced<Bytes>> host_memory;  ///< of one host (gpus_per_host GPUs); empty: the file does not say
  CollectiveLibrary collectives;
};

/// The network between nodes: leaf switches of `nodes_per_leaf` nodes under a spine.
struct Fabric {
  std::int64_t nodes_per_leaf = 0;  ///< 0: all nodes under one non-blocking level
  double oversubscription = 1;      ///< capacity down / capacity up of a leaf
  bool rails = true;                ///< NIC i of every node on leaf i: traffic between equal ranks stays on its rail
};

struct Cluster {
  std::string name, title;
  Accelerator accelerator;
  Node node;
  Fabric fabric;
  std::int64_t nodes = 1;
  int gpus_per_node = 1;  ///< GPUs used of each node
  std::vector<Accelerator::Source> sources;

  std::int64_t gpus() const { return nodes * gpus_per_node; }
};

/// The device of that name or alias ("mi300x", "H100-SXM5-80GB"). Throws Error: unknown (nearest name), or refused by name.
Accelerator load_accelerator(const std::string& name_or_path);

/// "8xmi300x", "16x8xh100-sxm" (nodes × GPUs per node × device), "mi300x", a shipped cluster's name, or a JSON file's path.
/// Throws Error: unknown device (nearest name), GPU count that fills no whole nodes, absurd counts.
Cluster parse_cluster(const std::string& text);

/// `gpus` devices on their usual nodes: a part of one node, or whole nodes. `where` names the caller's key in errors.
Cluster cluster_of(const std::string& accelerator, std::int64_t gpus, int gpus_per_node = 0, const std::string& where = {});

/// Names of the shipped devices and clusters, sorted.
std::vector<std::string> shipped_accelerators();
std::vector<std::string> shipped_clusters();

/// Other names of a device that measured runs and people use, as (alias, name).
std::vector<std::pair<std::string, std::string>> accelerator_aliases();

/// A table of all devices and clusters, one line each.
std::string hardware_list();
/// A readable sheet of one device or cluster, every number with its provenance and source.
std::string hardware_sheet(const std::string& name);

}  // namespace plimsoll
