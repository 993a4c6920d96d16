// The keys of an engine's setting, one row each.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "plimsoll/engine.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/suggestion.hpp"
#include "units/real.hpp"

namespace plimsoll {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMostRanks = 1024;
constexpr std::int64_t kMostCompletions = 1'000'000;

std::int64_t integer(const std::string& key, const std::string& value, std::int64_t most) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 1 || number > most)
    fail("'" + value + "' is no whole number from 1 to " + std::to_string(most), key);
  return number;
}

double share(const std::string& key, const std::string& value) {
  double number = 0;
  const auto [end, error] = real_from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !(number > 0 && number <= 1))
    fail("'" + value + "' is no share of a device", key, "above 0, at most 1");
  return number;
}

bool yes(const std::string& key, const std::string& value) {
  if (value != "true" && value != "false") fail("'" + value + "' is neither true nor false", key);
  return value == "true";
}

Release release_of(const std::string& name, const std::string& text) {
  const std::optional<Release> release = Release::parse(text);
  if (!release || release->is_dated())
    fail("'" + text + "' is no release of " + name, "engine", "for example " + name + (name == "vllm" ? "@0.11" : "@0.5.6"));
  return *release;
}

/// "vllm", "vllm@0.11", "sglang==0.5.6".
void set_engine(EngineSetting& setting, const std::string&, const std::string& value) {
  const std::size_t name_end = value.find_first_of("@=");
  const std::string name = value.substr(0, name_end);
  if (name != "vllm" && name != "sglang") fail("there is no engine '" + name + "'", "engine", suggest(name, {"vllm", "sglang"}));
  setting.engine = name == "vllm" ? RolloutEngine::vllm : RolloutEngine::sglang;
  if (name_end == std::string::npos) return;
  const std::size_t begin = value.find_first_not_of("@=", name_end);
  setting.release = release_of(name, begin == std::string::npos ? std::string() : value.substr(begin));
}

/// "256,512,2048".
void set_lengths(EngineSetting& setting, const std::string& key, const std::string& value) {
  constexpr std::size_t kMostLengths = 1000;
  setting.rollout.lengths.clear();
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    setting.rollout.lengths.push_back(integer(key, value.substr(begin, end - begin), kMostTokens));
    if (setting.rollout.lengths.size() > kMostLengths) fail("there are too many lengths", key, "1,000 at most");
    begin = end + 1;
  }
}

struct Row {
  EngineOption option;
  void (*set)(EngineSetting& setting, const std::string& key, const std::string& value);
};

using Setting = EngineSetting;
using Text = const std::string&;

const std::vector<Row>& rows() {
  static const std::vector<Row> kRows{
      {{"engine", "", "vllm or sglang, with its release: vllm@0.11"}, set_engine},
      {{"runner", "", "vLLM's: v0, v1, v2; the release's own without"}, [](Setting& s, Text, Text v) { s.runner = v; }},
      {{"tp", "Model and ranks", "tensor-parallel ranks"}, [](Setting& s, Text k, Text v) { s.tp = integer(k, v, kMostRanks); }},
      {{"pp", "Model and ranks", "pipeline stages"}, [](Setting& s, Text k, Text v) { s.pp = integer(k, v, kMostRanks); }},
      {{"dtype", "Model and ranks", "bf16 or fp16"}, [](Setting& s, Text, Text v) { s.dtype = v; }},
      {{"weights", "Model and ranks", "auto, fp8, fp8-block, int8, int4, nf4, mxfp4"}, [](Setting& s, Text, Text v) { s.weights = v; }},
      {{"gpu_memory_utilization", "Memory", "vLLM: share of the whole device"},
       [](Setting& s, Text k, Text v) { s.memory_fraction = share(k, v); }},
      {{"mem_fraction_static", "Memory", "SGLang: share of what is free, for weights and cache"},
       [](Setting& s, Text k, Text v) { s.memory_fraction = share(k, v); }},
      {{"kv_cache_memory", "Memory", "vLLM: the cache's bytes, in the place of the share"},
       [](Setting& s, Text, Text v) { s.cache_bytes = parse_bytes(v); }},
      {{"kv_cache_dtype", "Memory", "auto or fp8"}, [](Setting& s, Text, Text v) { s.cache_dtype = v; }},
      {{"block_size", "Memory", "tokens of a block"}, [](Setting& s, Text k, Text v) { s.block_size = integer(k, v, kMostTokens); }},
      {{"held_by_others", "Memory", "of the device, by a trainer beside the engine: '40 GiB'"},
       [](Setting& s, Text, Text v) { s.others = parse_bytes(v); }},
      {{"enable_sleep_mode", "Memory", "weights and cache can be given back", true},
       [](Setting& s, Text k, Text v) { s.sleep_mode = yes(k, v); }},
      {{"max_model_len", "Batches", "tokens of the longest request"},
       [](Setting& s, Text k, Text v) { s.max_model_len = integer(k, v, kMostTokens); }},
      {{"max_num_batched_tokens", "Batches", "tokens of a step; SGLang: chunked_prefill_size"},
       [](Setting& s, Text k, Text v) { s.max_num_batched_tokens = integer(k, v, kMostTokens); }},
      {{"max_num_seqs", "Batches", "requests at once"}, [](Setting& s, Text k, Text v) { s.max_num_seqs = integer(k, v, kMostTokens); }},
      {{"completions", "Rollout", "to generate on all engines of the cluster: how long it takes"},
       [](Setting& s, Text k, Text v) { s.rollout.completions = integer(k, v, kMostCompletions); }},
      {{"prompt_tokens", "Rollout", "of each prompt (512)"},
       [](Setting& s, Text k, Text v) { s.rollout.prompt_tokens = integer(k, v, kMostTokens); }},
      {{"group", "Rollout", "completions of one prompt (1)"},
       [](Setting& s, Text k, Text v) { s.rollout.group = integer(k, v, kMostCompletions); }},
      {{"lengths", "Rollout", "of completions, each of an equal share: 256,512,2048"}, set_lengths},
      {{"enforce_eager", "Batches", "no graphs, no compilation", true}, [](Setting& s, Text k, Text v) { s.enforce_eager = yes(k, v); }},
      {{"offline", "Batches", "the class LLM, whose steps have more tokens than the server's", true},
       [](Setting& s, Text k, Text v) { s.offline = yes(k, v); }},
  };
  return kRows;
}

const Row& row_of(const std::string& key) {
  const auto found = std::find_if(rows().begin(), rows().end(), [&](const Row& row) { return row.option.key == key; });
  if (found != rows().end()) return *found;
  std::vector<std::string> keys;
  for (const Row& row : rows()) keys.push_back(row.option.key);
  fail("an engine has no key '" + key + "'", key, suggest(key, keys));
}

}  // namespace

std::string_view name_of(RolloutEngine engine) { return engine == RolloutEngine::vllm ? "vllm" : "sglang"; }

const std::vector<EngineOption>& engine_options() {
  static const std::vector<EngineOption> kOptions = [] {
    std::vector<EngineOption> options;
    for (const Row& row : rows()) options.push_back(row.option);
    return options;
  }();
  return kOptions;
}

EngineSetting engine_setting(const std::vector<std::pair<std::string, std::string>>& said) {
  EngineSetting setting;
  for (const auto& [key, value] : said) row_of(key).set(setting, key, value);
  const bool vllm = setting.engine == RolloutEngine::vllm;
  const std::string own = vllm ? "gpu_memory_utilization" : "mem_fraction_static",
                    other = vllm ? "mem_fraction_static" : "gpu_memory_utilization";
  for (const auto& [key, value] : said)
    if (key == other) fail(std::string(name_of(setting.engine)) + " has no such setting", key, "its share is " + own);
  return setting;
}

}  // namespace plimsoll
