/// From a model, a cluster and a strategy to a verdict: does it fit, how fast does it go, why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plimsoll/memory.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/release.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

struct Cluster;
struct Strategy;
enum class Provenance : std::uint8_t;

/// A prediction with what is known of its uncertainty: between `low` and `high` lay nine in ten of the measured runs of this kind
/// (hardware/residuals.json). Without a known band all three are equal.
struct Band {
  double low = 0, expected = 0, high = 0;

  static Band exactly(double value) { return {value, value, value}; }
  bool known() const { return low != high; }
};

/// How a part of the answer was reached.
enum class Basis : std::uint8_t {
  played,        ///< read off the rank's program: the allocator's trace of it, or its streams' timeline
  closed_form,   ///< of a compiled program that no rule lowers yet: the same step without torch.compile, played
  profile,       ///< a constant of the framework or device, with its own provenance
};
std::string_view name_of(Basis basis);

/// One bar of the memory report. All parts of a rank add up to its expected device bytes.
struct MemoryPart {
  std::string name;    ///< "parameters", "activations", "allocator_cache", "communicators", …
  Bytes bytes;
  Basis basis = Basis::closed_form;
};

/// One phase of a step that is more than forward, backward and update: what stands on the device at its peak.
struct PhaseMemory {
  Phase phase = Phase::forward;
  Bytes allocated, reserved;  ///< of the trainer's allocator, at most
  Bytes engine;               ///< of a rollout engine on the same device
  Bytes device;               ///< reserved, the engine, and what is outside of both
};

/// Peak memory of one rank in steady state (step 2 and later).
struct RankMemory {
  Bytes allocated;                  ///< torch.cuda.max_memory_allocated
  Bytes reserved;                   ///< torch.cuda.max_memory_reserved
  Bytes optimizer_reserved;         ///< the same of a trainer that resets its peaks before the optimizer's step, where it was played
  Band device;                      ///< what nvidia-smi or rocm-smi shows, bytes
  Bytes capacity;                   ///< usable bytes of the device
  std::vector<MemoryPart> parts;    ///< largest first
  Basis basis = Basis::closed_form; ///< of allocated and reserved
  Bytes backward_peak;              ///< running maximum of allocated at the end of backward
  Bytes first_step_allocated;       ///< peak of step 1, before optimizer states exist
  Bytes persistent;                 ///< alive between steps
  Phase peak_phase = Phase::backward;
  std::string peak_label;           ///< operator at the peak, where it was played
  int peak_step = 0;                ///< step of the peak, 0 = the first, where it was played
  Bytes host;                       ///< of the host's memory that the step's program asks for, where it was played
  Bytes requested;                  ///< tensor bytes alive at the peak before rounding to blocks, where it was played
  bool out_of_memory = false;       ///< the allocator gave up before the steps were done
  std::string closed_form_because;  ///< why there was nothing to play; empty when it was played
  std::string out_of_memory_at;     ///< "forward, step 1, layers.7.mlp.down_proj"
  std::vector<PhaseMemory> phases;  ///< in order, where the step has more than training's own

  Bytes margin() const { return Bytes(capacity.count - static_cast<std::int64_t>(device.expected)); }
};

/// What one steady step asks of a rank's device, read off its played program.
struct StepWork {
  std::int64_t launches = 0;   ///< kernels and matrix products; copies and memory sets are none
  std::int64_t gemms = 0;
  double gemm_flops = 0;
  double flops = 0;            ///< of matrix products, attention and convolutions
};

/// Ranks that hold the same program: one pipeline stage.
struct RankReport {
  std::int64_t stage = 0;       ///< pipeline stage
  std::int64_t count = 1;       ///< ranks alike
  std::int64_t parameters = 0;  ///< after tensor, pipeline and expert parallelism, before data-parallel sharding
  Bytes host;                   ///< of the host's memory that the rank's offloaded tensors take; 0 without offload
  RankMemory memory;
  std::optional<StepWork> work; ///< where the rank's step was played
};

struct TimePart {
  std::string name;             ///< "compute", "exposed_communication", "bubble", "optimizer", …
  Seconds seconds;
};

/// Launches of a step that are the same kernel, and what keeps them from being faster.
struct DearKernel {
  std::string what;    ///< "bf16 product 4096 x 8192 x 2048, T N"
  std::string label;   ///< who launches it first: "layers.0.mlp.down_proj: linear"
  std::int64_t launches = 0;
  Seconds seconds;     ///< of all of them
  std::string limit;   ///< "arithmetic", "bandwidth", "issue", "latency", "alignment"
};

struct TimeReport {
  Band step_seconds;
  Basis basis = Basis::closed_form;     ///< of all of it
  std::string closed_form_because;      ///< why there was nothing to play; empty when it was played
  double tokens_per_second_per_gpu = 0;
  double images_per_second_per_gpu = 0; ///< of models whose samples are images; else 0
  double board_power = 1;               ///< that a device draws on average, of what its board may draw; 1: not known, where it was not played
  std::vector<TimePart> breakdown;      ///< adds up to the expected step
  std::vector<DearKernel> dearest;      ///< the kernels that take longest, where the step was played
  std::vector<std::string> advice;      ///< what would make it faster, as sentences
};

struct FlopsConvention {
  std::string name;                     ///< as in formats.md: "megatron", "torchtitan", "palm", …
  double model_flops_per_token = 0;     ///< forward and backward, no recomputation, no gradients of weights that adapters leave frozen
  double mfu = 0;                       ///< of the device's dense peak for the compute type
};

struct FlopsReport {
  std::vector<FlopsConvention> conventions;
  double hardware_flops_per_token = 0;  ///< what the kernels of all ranks do, with recomputation and causal masks
  Basis hardware_basis = Basis::closed_form;  ///< played: read off the ranks' programs
  double hfu = 0;
  double peak_flops_per_second = 0;     ///< the denominator
};

/// Where a number comes from.
struct Origin {
  std::string quantity;   ///< "memory.allocated_bytes", "accelerator.peak_bf16"
  Provenance kind;
  std::string source;     ///< in words
};

/// Of a run: the worse of its devices' and its hosts'.
enum class Verdict : std::uint8_t { fits, tight, does_not_fit };
std::string_view name_of(Verdict verdict);

/// What the ranks of one host keep in its memory together. A page of it that is not there is no error of an allocator: the kernel kills the
/// largest process.
struct HostMemory {
  std::int64_t ranks = 1;          ///< of the run, on one host
  Bytes kept;                      ///< while they train: offloaded states, weights, gradients and activations, with their buffers
  Bytes loading;                   ///< before: copies of the weights on their way to the devices; 0: not known
  std::optional<Bytes> capacity;   ///< as the cluster's file says
  Verdict verdict = Verdict::fits; ///< of the host alone; fits where the file does not say

  /// The most of them at any time.
  Bytes most() const { return kept < loading ? loading : kept; }
};

struct Report {
  Verdict verdict = Verdict::fits;
  std::string model_name, cluster_name;
  std::string framework;                ///< whose code the ranks run: "torchtitan", "megatron-te", …
  std::string strategy;                 ///< one line: "fsdp full x 8, micro-batch 2, 8192 tokens, bf16"
  std::int64_t parameters = 0, active_parameters = 0, gpus = 0, gpus_per_node = 0;
  std::vector<RankReport> ranks;        ///< one per distinct program, in order of stage
  HostMemory host;
  std::size_t worst = 0;                ///< index in `ranks` of the least margin
  TimeReport time;
  FlopsReport flops;
  std::vector<Origin> provenance;
  std::vector<Releases::Entry> releases;  ///< which packages the answer stands on: those that were said, held by them, or taken
  std::vector<std::string> assumptions, unread_keys, notes;

  const RankReport& worst_rank() const { return ranks[worst]; }
};

/// Predicts one training step. A pure function of its arguments: no clock, device, environment or global state.
/// Throws Error where the three contradict each other (with what would resolve it) or where a mechanism is not modelled (refused by name).
/// "Does not fit" is a result.
Report estimate(const Model& model, const Cluster& cluster, const Strategy& strategy);
/// The same, whose refusal names the nearest variation of what was said that is played ("--attention sdpa"), found by trying single
/// changes: as long as it takes to lower a few programs. `resolved` gets the strategy as it was settled, for who shows it too.
Report estimate_or_nearest(const Model& model, const Cluster& cluster, const Strategy& strategy, Strategy* resolved = nullptr);

}  // namespace plimsoll
