/// Measuring a machine, fitting its hardware file, and running a predicted step for real. Unlike the rest of the library this reads
/// clocks and devices. docs/calibrate.md and docs/replay.md describe method and files.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/document.hpp"
#include "plimsoll/explain.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/play.hpp"
#include "plimsoll/trace.hpp"

namespace plimsoll {

// ---- samples -------------------------------------------------------------------------------------------------------

enum class SampleKind : std::uint8_t {
  launch,              ///< empty kernels one after the other: time per launch
  round_trip,          ///< one empty kernel and the wait for it
  stream,              ///< a kernel bound by the bytes it moves
  cache_read,          ///< a buffer read again and again: `bytes` is its size
  pointer_chase,       ///< one dependent load: `bytes` is the size of the chain
  matrix_rate,         ///< matrix instructions on registers
  gemm,                ///< m × n × k, batch times
  attention,           ///< fused attention forward: m queries × n keys, head size k, batch · heads
  attention_backward,  ///< the whole pass
  host_to_device,
  device_to_host,
  peer_copy,
  collective,      ///< `group` names it; `bytes` is the full buffer
  context_memory,  ///< device memory that the runtime's context takes: `bytes`
  allocation,      ///< one allocation and its release through the caching allocator, whose driver is not asked
  reference,       ///< how fast the machine was at that moment: `kernel` "product" or "stream", always the same
};
std::string_view name_of(SampleKind kind);

/// One quantity, measured several times.
struct Sample {
  SampleKind kind = SampleKind::stream;
  std::string kernel;  ///< what ran: "plm_triad_f32", "all_reduce", "Triad"
  std::string group;   ///< of streams the kind of kernels they stand for ("elementwise"); of collectives their kind ("all_reduce")
  std::string type;    ///< of the operands: "bf16"; empty where it does not matter
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  std::int64_t kv_batch = 0;  ///< of attention: batch · key heads; 0: as many as `batch`
  bool causal = false;        ///< of attention
  std::string layout;       ///< of a product, as BLAS has it: "TN" of a linear's forward pass, "NN", "NT"; empty: both operands in rows
  std::int64_t bytes = 0;   ///< moved; of collectives: full buffer
  std::int64_t reuse = -1;  ///< bytes that other work moved since the operands were touched, as in a model's step; −1: no model's
  double flops = 0;
  int ranks = 1, nodes = 1;
  double seconds = 0;  ///< median of the runs, at the clock that the device sustains
  double fastest = 0;  ///< of the fastest run: the burst clock
  double spread = 0;   ///< 1.4826 · median absolute deviation / median: a standard deviation where the noise is normal
  int runs = 1;
  double clock_hertz = 0, watts = 0;  ///< during the run; 0: unknown
  std::string tool;                   ///< "plimsoll", "rccl-tests", …
  // Of kernels of a traced step; not written to files of samples.
  std::optional<Kernel> work;  ///< attention, or a kernel bound by memory
  double matrix_share = 0;     ///< of the step's kernel time that products and attention took (Surroundings); 0: alone
};

/// The device that was measured. Empty and 0: unknown.
struct DeviceFacts {
  std::string backend;  ///< "hip", "cuda", "cpu"
  std::string name, target, driver, library, date;
  int compute_units = 0, devices = 1;  ///< devices: of this kind in the machine; 0: unknown
  std::vector<std::string> left_out;   ///< kernels and libraries' products whose answers were wrong: "cublaslt fp8"
  std::int64_t memory_bytes = 0, cache_bytes = 0;
  double clock_hertz = 0, watts = 0;
};

struct SampleSet {
  DeviceFacts device;
  std::vector<Sample> samples;
};

/// One JSON object per line, the device first (schema "plimsoll/samples/1"): what a measurement writes as it goes.
std::string to_json_line(const DeviceFacts& device);
std::string to_json_line(const Sample& sample);
/// Reads such lines. Throws Error with the line's number: cut off, not of this schema, a time that is not positive.
SampleSet parse_samples(const std::string& lines, const std::string& where);
SampleSet load_samples(const std::string& path);

/// "rccl-tests", "nccl-tests", "hipblaslt-bench", "babelstream", "transferbench", "rocm-bandwidth-test".
std::vector<std::string> sample_importers();
/// Reads what a vendor's tool printed. Throws Error: unknown tool, columns that are not the tool's, a table that is cut off.
std::vector<Sample> import_samples(const std::string& tool, const std::string& text, const std::string& where);
/// The kernels of a traced training run whose shapes are known, and its device as far as the trace names it; equal kernels are one sample.
/// Throws Error where no kernel says what it does.
SampleSet samples_of(const Trace& trace);

// ---- measuring -----------------------------------------------------------------------------------------------------

/// How far a measurement is.
struct MeasureProgress {
  std::size_t done = 0, total = 0;
  double elapsed = 0, remaining = 0;  ///< seconds
  std::string what;                   ///< now
};

struct MeasureOptions {
  std::string backend = "auto";  ///< "auto", "hip", "cuda", "cpu"
  int device = 0;
  std::optional<double> seconds;  ///< of measuring in all; empty: as long as two visits to everything take
  Bytes largest{INT64_MAX};  ///< no buffer is larger
  std::string samples_path;  ///< every sample is written here as soon as it is there; empty: nowhere
  std::function<void(const MeasureProgress&)> progress;
  std::function<bool()> stop;  ///< asked between runs: true ends the measurement, what was measured stays
};

/// A device that is being measured. Throws Error where it cannot be opened or where a call fails; samples written until then are whole.
class MeasureSession {
 public:
  explicit MeasureSession(const MeasureOptions& options);
  ~MeasureSession();
  MeasureSession(const MeasureSession&) = delete;
  MeasureSession& operator=(const MeasureSession&) = delete;

  /// Bandwidths, rates, launches and copies, within `share` of the seconds.
  void measure_machine(double share = 1);
  /// Every product, attention and memory-bound kernel of a step, with exactly its sizes and on operands as cold as in the step, within
  /// `share` of the seconds.
  void measure_program(const PlayableRank& rank, double share = 1);

  const SampleSet& set() const;
  bool interrupted() const;
  /// Backends that were tried and why they did not do; kernels whose two visits disagree; what disturbed the runs.
  const std::vector<std::string>& warnings() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Collectives across the processes that mpirun started.
struct CollectiveMeasurement {
  int rank = 0, ranks = 1;
  SampleSet set;
  std::vector<std::string> notes;
};

/// Every process calls it; each of a GPU backend takes the device of its place in the node and talks through RCCL or NCCL, those of the
/// CPU through MPI itself. Rank 0 writes the samples. Throws Error without an MPI, with one process, or for a wrong answer.
CollectiveMeasurement measure_collectives(const MeasureOptions& options);

// ---- the doctor ----------------------------------------------------------------------------------------------------

/// Something about this machine that a measurement or a training run should know.
struct Finding {
  bool spoils = false;  ///< a measurement made now would not be worth keeping
  std::string what, advice;
};

struct SeenLink {
  std::int64_t to = 0;                                               ///< device, or −1: the host
  std::string type;                                                  ///< "xGMI", "PCIe"
  std::int64_t weight = 0, least_megabytes = 0, most_megabytes = 0;  ///< per second
};

struct SeenDevice {
  std::string backend, name, target;
  std::int64_t compute_units = 0, dies = 1, memory_bytes = 0, used_bytes = -1;  ///< −1: unknown
  double clock_hertz = 0, watts = 0, cap_watts = 0;
  std::int64_t busy_percent = -1, numa_node = -1;
  std::string partition;  ///< "SPX/NPS1"
  std::vector<SeenLink> links;
};

/// A backend and whether it works here.
struct SeenBackend {
  std::string name;
  bool works = false;
  std::string detail;  ///< library and version, or why not
};

struct Examination {
  std::string processor;
  int processors = 0;
  std::int64_t memory_bytes = 0;
  std::vector<std::string> numa_nodes;  ///< "node0: processors 0-63"
  std::vector<SeenDevice> devices;
  std::vector<SeenBackend> backends;
  std::vector<Finding> findings;  ///< what spoils first
};

/// Looks at processors, devices, drivers and settings; changes nothing. Files of /proc and /sys are read below `root`.
Examination examine(const std::string& root = "/");
std::string to_text(const Examination& examination);
/// The object of schema "plimsoll/doctor/1".
std::string to_json(const Examination& examination);

// ---- the fit -------------------------------------------------------------------------------------------------------

/// |predicted / measured − 1| of the samples of one kind, predicted with the constants that were fitted to them.
struct FitResidual {
  std::string what;
  std::size_t samples = 0;
  double median = 0, ninetieth = 0, worst = 0;
};

/// A fitted machine: what was measured is `calibrated`, the rest keeps the provenance of the shipped file it was taken from.
struct Calibration {
  Cluster cluster;
  std::string base;  ///< the shipped device that gave what was not measured; empty: none is like it
  std::vector<FitResidual> residuals;
  std::vector<std::string> notes;  ///< what was not fitted, and why
};

struct FitOptions {
  std::string name;  ///< of the device in the file; empty: from the samples
  std::string base;  ///< the shipped device to start from; empty: the one that the samples' device looks like
};

/// Fits the constants of the cost model (cost.hpp) to the samples. Throws Error when there is too little to fit anything.
Calibration fit_hardware(const SampleSet& set, const FitOptions& options = {});

/// The file of a cluster with its device, to be read back with --on FILE.
std::string to_json(const Cluster& cluster);
/// What was fitted and how well, in words.
std::string to_text(const Calibration& calibration);

// ---- replay --------------------------------------------------------------------------------------------------------

struct ReplayOptions {
  std::string backend = "auto";
  int device = 0;
  int steps = 5;               ///< steady steps that are timed, after the first ones
  bool collectives = false;    ///< with the processes that mpirun started, one for each device of the cluster; else they are left out
  std::function<bool()> stop;  ///< asked after every step
};

inline constexpr const char* kCopiesLine = "copies";
inline constexpr const char* kCollectivesLine = "collectives";
inline constexpr const char* kHostLine = "between kernels";  ///< allocations, of a processor, which does one thing at a time

/// The kernels of one kind in one steady step.
struct ReplayLine {
  std::string what;  ///< "gemm", "elementwise", …, or one of the names above
  std::int64_t count = 0;
  double flops = 0, bytes = 0;            ///< as the program says
  double done_flops = 0, done_bytes = 0;  ///< as it was really done
  double predicted = 0;                   ///< seconds, at the clock at which the device was calibrated
  double predicted_now = 0;               ///< at the clock during this replay
  double measured = 0;
};

/// Time of a reference kernel during a replay over its time during the calibration; 1 where it was not calibrated with them.
struct ClockSlowdown {
  double product = 1;  ///< of a product in the caches
  double stream = 1;   ///< of a pass through memory
};

/// One step of a rank, predicted and executed.
struct Replay {
  DeviceFacts device;
  std::vector<ReplayLine> lines;
  double predicted_step = 0;              ///< seconds, at the clock at which the device was calibrated
  double predicted_now = 0;               ///< at the clock during this replay
  double measured_step = 0, spread = 0;   ///< without the time that other work had a processor; the spread as in Sample
  double taken = 0;                       ///< share of the time that other work had one of a processor's threads' processors
  std::optional<ClockSlowdown> slowdown;  ///< empty: the device's file has no reference to compare with
  int steps = 0;
  Bytes predicted_allocated, replayed_allocated;  ///< peaks over the steps: played, and of the allocator that really gave memory
  Bytes predicted_reserved, replayed_reserved;
  Bytes driver_peak;                      ///< segments that the driver or the system held for the replay at once
  int rank = 0, ranks = 1;                ///< of the processes that took part
  std::int64_t collectives_left_out = 0;  ///< there are no peers
  std::vector<std::string> notes;

  std::int64_t kernels() const;
};

/// Executes the step program of a rank: every allocation through the allocator's own rules on memory of the device, every kernel with
/// its shape on its stream. Throws Error(refused) where the device has no kernel of a kind, Error(bad_input) where a call fails.
Replay replay(const PlayableRank& rank, const Cluster& cluster, const ReplayOptions& options);
std::string to_text(const Replay& replay);
/// One object "plimsoll/replay/1" (docs/replay.md).
std::string to_json(const Replay& replay);
Document document_of(const Replay& replay);

/// A measured row (docs/rows.md) of a replay: `settings` are the strategy's keys as they were given, `config` the model's own
/// config.json, or empty for a shipped one.
std::string replay_row(const Replay& replay, const std::string& model, const std::string& config, const std::string& on,
                       const std::vector<std::pair<std::string, std::string>>& settings);

}  // namespace plimsoll
