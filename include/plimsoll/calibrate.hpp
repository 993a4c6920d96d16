/// Measuring a machine, fitting its hardware file, and running a predicted step for real. Unlike the rest of the library this reads
/// clocks and devices. docs/calibrate.md and docs/replay.md describe method and files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/explain.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/play.hpp"

namespace plimsoll {

// ---- samples -------------------------------------------------------------------------------------------------------

enum class SampleKind : std::uint8_t {
  launch,         ///< empty kernels one after the other: time per launch
  round_trip,     ///< one empty kernel and the wait for it
  stream,         ///< a kernel bound by the bytes it moves
  cache_read,     ///< a buffer read again and again: `bytes` is its size
  pointer_chase,  ///< one dependent load: `bytes` is the size of the chain
  matrix_rate,    ///< matrix instructions on registers
  gemm,           ///< m × n × k, batch times
  attention,      ///< fused attention forward: m queries × n keys, head size k, batch · heads
  attention_backward,
  host_to_device,
  device_to_host,
  peer_copy,
  collective,      ///< `group` names it; `bytes` is the full buffer
  context_memory,  ///< device memory that the runtime's context takes: `bytes`
};
std::string_view name_of(SampleKind kind);

/// One quantity, measured several times.
struct Sample {
  SampleKind kind = SampleKind::stream;
  std::string kernel;  ///< what ran: "plm_triad_f32", "all_reduce", "Triad"
  std::string group;   ///< of streams the kind of kernels they stand for ("elementwise"); of collectives their kind ("all_reduce")
  std::string type;    ///< of the operands: "bf16"; empty where it does not matter
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  std::int64_t bytes = 0;  ///< moved; of collectives: full buffer
  double flops = 0;
  int ranks = 1, nodes = 1;
  double seconds = 0;  ///< median of the runs, at the clock that the device sustains
  double fastest = 0;  ///< of the fastest run: the burst clock
  double spread = 0;   ///< 1.4826 · median absolute deviation / median: a standard deviation where the noise is normal
  int runs = 1;
  double clock_hertz = 0, watts = 0;  ///< during the run; 0: unknown
  std::string tool;                   ///< "plimsoll", "rccl-tests", …
};

/// The device that was measured. Empty and 0: unknown.
struct DeviceFacts {
  std::string backend;  ///< "hip", "cuda", "cpu"
  std::string name, target, driver, library, date;
  int compute_units = 0, devices = 1;
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

}  // namespace plimsoll
