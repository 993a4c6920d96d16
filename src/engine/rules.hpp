// What of an engine depends on its release, and what nobody can read off its source.
#pragma once

#include <string>
#include <vector>

#include "plimsoll/engine.hpp"
#include "program/modules/vllm/profile.hpp"

namespace plimsoll::engine {

/// How vLLM sizes its cache: which code measures.
enum class Budget : std::uint8_t {
  device_in_use,  ///< all that is in use on the device, other processes' too, beside the allocator's peak (0.6.4; V1 of 0.7)
  increase,       ///< weights, the peak's and the outside's increase since the engine began
};

class VllmRelease {
 public:
  /// `runner`: "v0", "v1", "v2", or empty for the release's own. Throws Error: a release that was not read, a runner that it does not have.
  VllmRelease(const Release& release, const std::string& runner);

  const std::string& runner() const { return runner_; }
  bool is_v0() const { return runner_ == "v0"; }
  Budget budget() const;
  /// Default of gpu_memory_utilization.
  double utilization() const { return since(0, 20) ? 0.92 : 0.9; }
  /// Layers run as a compiled graph unless eager is asked for.
  bool compiles() const { return !is_v0(); }
  /// The graphs' memory is estimated and taken off the cache (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS).
  bool counts_graphs() const { return since(0, 20) && (runner_ == "v1" || since(0, 31)); }
  /// Full graphs of decoding beside those of pieces (cudagraph_mode FULL_AND_PIECEWISE).
  bool captures_twice() const { return since(0, 11); }
  /// One table of blocks for every kind of attention; before, sliding layers keep all tokens.
  bool has_hybrid_cache() const { return !is_v0() && since(0, 9); }
  bool reduces_in_place() const { return !since(0, 7); }
  program::Sampling sampling() const;
  /// Prompts are cut over steps by default: always, or where models are longer than 32K.
  bool cuts_prompts(std::int64_t max_model_len) const { return !is_v0() || max_model_len > 32 * 1024; }
  /// PyTorch as its wheels are built for.
  program::TorchRelease torch() const;
  std::int64_t default_tokens(const Accelerator& device, std::int64_t max_model_len, bool offline) const;
  std::int64_t default_sequences(const Accelerator& device) const;
  /// Batches of which graphs are captured, largest first.
  std::vector<std::int64_t> captured(std::int64_t max_num_seqs, std::int64_t max_num_batched_tokens) const;

 private:
  bool since(int major, int minor, int patch = 0) const { return release_.since(major, minor, patch); }
  Release release_;
  std::string runner_;
};

/// A format of frozen weights: what a parameter of the layers takes.
struct WeightFormat {
  std::string name;
  double bits = 16;
  bool experts_only = false;                            ///< linears beside the experts stay in dtype
  bool quantizes_inputs = false;                        ///< products read 8-bit inputs, cast for each
  std::int64_t width_multiple = 1, inner_multiple = 1;  ///< to which an expert's dimensions on a rank are padded
};
/// Throws Error: a name that hardware/overheads.json does not have.
WeightFormat weight_format(const std::string& name);

/// What a process holds beside its allocator that the engine counts as its own: loaded kernels and handles, communicators. SGLang looks
/// before these have made all their buffers.
EngineBand outside_of(const Cluster& cluster, const EngineSetting& setting);
/// One captured graph, per layer.
EngineBand graph_of_layer();

}  // namespace plimsoll::engine
