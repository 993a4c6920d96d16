/// A rollout engine (vLLM, SGLang) on its devices: what of a device its weights, its profile and its graphs take, what is left for the
/// cache of keys and values, and how many sequences that holds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/dtype.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/release.hpp"
#include "plimsoll/units.hpp"

namespace plimsoll {

struct Document;

enum class RolloutEngine : std::uint8_t { vllm, sglang };
std::string_view name_of(RolloutEngine engine);

/// What is generated: as many completions, each of a prompt of equal length.
struct RolloutRequest {
  std::int64_t completions = 0;  ///< of all engines together; 0: none is asked for
  std::int64_t prompt_tokens = 512;
  std::int64_t group = 1;                   ///< completions of one prompt, which share its pass and its pages
  std::vector<std::int64_t> lengths{1024};  ///< of completions, each of an equal share of them
};

/// How an engine is started. What is not said is the release's own default.
struct EngineSetting {
  RolloutEngine engine = RolloutEngine::vllm;
  std::optional<Release> release;     ///< none: the newest that was read
  std::optional<std::string> runner;  ///< vLLM's: "v0", "v1", "v2"; none: the release's
  std::int64_t tp = 1, pp = 1;
  std::string dtype = "bf16";              ///< of what is computed: "bf16", "fp16"
  std::string weights = "auto";            ///< "auto": as dtype; or a format of hardware/overheads.json, engines.weights
  std::string cache_dtype = "auto";        ///< "auto": as dtype; "fp8"
  std::optional<double> memory_fraction;   ///< gpu_memory_utilization, mem_fraction_static
  std::optional<Bytes> cache_bytes;        ///< kv_cache_memory_bytes: the fraction counts for nothing then
  std::optional<std::int64_t> block_size;  ///< tokens of a block (16); SGLang: page_size (1)
  std::optional<std::int64_t> max_model_len, max_num_batched_tokens, max_num_seqs;
  bool enforce_eager = false;  ///< no graphs, no compilation
  bool offline = false;        ///< the class LLM, as trainers hold it, not the server: vLLM batches more tokens
  bool sleep_mode = false;     ///< enable_sleep_mode: weights and cache in pools that can be given back
  RolloutRequest rollout;
  Bytes others;  ///< of the device, held by others when the engine starts (a trainer)
};

/// The names that EngineSetting's formats of weights may have.
std::vector<std::string> engine_weight_formats();

/// A key of a setting, as the command line (--max-model-len) and the C function's options ("max_model_len") have it.
struct EngineOption {
  std::string key, group, help;
  bool is_flag = false;  ///< "true" or "false"; the command line takes no value
};
const std::vector<EngineOption>& engine_options();

/// The setting that those keys say. Throws Error: an unknown key or engine (the nearest one given), a value that is none of the key's, a
/// key that the engine does not have.
EngineSetting engine_setting(const std::vector<std::pair<std::string, std::string>>& said);

/// Bytes between which a figure that no rule gives lies, and the one that is counted with.
struct EngineBand {
  Bytes low, expected, high;
};

/// Layers that share a table of blocks, or all layers of a uniform model.
struct CacheGroup {
  std::int64_t layers = 0;
  std::int64_t window = 0;  ///< tokens of which a sequence keeps keys; 0: all
  std::string kind;         ///< "full", "sliding", "chunked", "latent"
  Bytes page;               ///< of one layer and one block
};

/// What a level of sleep gives back.
struct SleepLevel {
  int level = 1;
  Bytes freed;    ///< of the device
  Bytes to_host;  ///< of that, kept in the host's pinned memory
  Bytes stays;    ///< on the device: context, communicators, graphs, workspaces
};

/// Sequences of one length that the cache holds at once.
struct EngineFit {
  std::int64_t tokens = 0, sequences = 0;
};

/// Device time of a rollout on one engine, which drains: what is over leaves, what waits comes in, and the last run in a small batch.
struct RolloutTime {
  std::int64_t engines = 0;        ///< of tp x pp devices each, to which completions are dealt evenly
  std::int64_t largest_batch = 0;  ///< sequences at once: what the cache holds of them, max_num_seqs at most
  std::int64_t steps = 0;          ///< that decode
  Seconds prompts, decoding;
  double tokens_per_second = 0;  ///< generated, of all engines
};

/// A step that decodes one token for each of so many sequences, each with as long a context.
struct DecodeTime {
  std::int64_t sequences = 0, context = 0;
  Seconds step;
};

/// Where one rank's memory goes: the rank with the smallest cache.
struct EnginePlan {
  EngineSetting setting;               ///< with every default filled in
  std::string runner;                  ///< "v0", "v1", "v2", or "sglang"
  Bytes total;                         ///< that the driver reports
  Bytes budget;                        ///< the fraction's share of it
  Bytes weights;                       ///< parameters and buffers of the rank
  EngineBand outside;                  ///< that the engine counts as its own beside the allocator's
  EngineBand context;                  ///< of the process, before the engine looks at the device
  Bytes activation_peak;               ///< of the profile pass, read off its program
  std::string peak_label;              ///< what ran at that peak
  EngineBand graphs;                   ///< CUDA graphs
  std::vector<std::int64_t> captured;  ///< batches that graphs were made of; empty: none
  bool graphs_in_budget = false;       ///< taken off before the cache is sized; else they come on top
  Bytes cache;                         ///< what is left
  std::int64_t blocks = 0;             ///< of each group's tables together
  std::int64_t tokens = 0;             ///< as the engine prints them
  double concurrency = 0;              ///< requests of max_model_len at once
  std::vector<CacheGroup> groups;
  std::vector<EngineFit> fits;     ///< by doubling length
  std::vector<SleepLevel> sleep;   ///< empty: the engine has none, or it is off
  Bytes device;                    ///< in use while it serves: budget's parts, context, graphs
  Seconds prompt_step;             ///< of max_num_batched_tokens tokens of prompts; 0: not priced
  std::vector<DecodeTime> decode;  ///< by sequences; empty: not priced
  std::optional<RolloutTime> rollout;
  std::string refused;               ///< why the engine would not start, as it would say; empty: it starts
  std::int64_t longest = 0;          ///< the longest request that would fit
  std::vector<std::string> risks;    ///< what may end it after it has started, in words
  std::vector<std::string> assumed;  ///< defaults and constants taken, in words
};

/// What that engine makes of one of the cluster's devices. Throws Error: a setting that contradicts itself or the model; refuses what has
/// no rule here (recurrent layers, encoders, releases that were not read), by name.
EnginePlan plan_engine(const Model& model, const Cluster& cluster, const EngineSetting& setting);

/// The plan of that model on that cluster, by their names: as a document, whose `text` is for a terminal.
Document document_of(const EnginePlan& plan, const std::string& model, const std::string& cluster);
/// One object "plimsoll/engine/1" (docs/engine.md).
std::string to_json(const EnginePlan& plan, const std::string& model, const std::string& cluster);

}  // namespace plimsoll
