// The defaults of an engine, and settings that it would refuse.
#include <fmt/format.h>

#include <algorithm>

#include "engine/parts.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::engine {
namespace {

constexpr const char* kNewestVllm = "0.31";
constexpr const char* kNewestSglang = "0.5.6";
constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

void check_model(const Model& model) {
  if (model.task != Model::Task::causal_lm)
    refuse(model.name + " generates no text: an engine's cache is for causal language models", model.name);
  for (const Block& block : model.blocks)
    if (block.cross_attention) refuse("the cache of layers that attend to an encoder (" + block.name + ") is not modelled", block.name);
}

void check_ranks(const Model& model, const Cluster& cluster, const EngineSetting& setting) {
  if (setting.tp < 1 || setting.pp < 1) fail("a degree is at least 1", "--tp, --pp");
  if (setting.tp * setting.pp > cluster.gpus())
    fail(fmt::format("{} ranks do not stand on the {} devices of {}", setting.tp * setting.pp, cluster.gpus(), cluster.name), "--tp, --pp");
  if (model.heads % setting.tp != 0)
    fail(fmt::format("{} attention heads are not divisible by {} ranks", model.heads, setting.tp), "--tp", "a divisor of the heads");
  if (64 % setting.tp != 0)
    fail(fmt::format("a vocabulary padded to 64 rows is not divisible by {} ranks", setting.tp), "--tp", "1, 2, 4, 8, 16, 32 or 64");
  if (setting.pp > model.layers) fail(fmt::format("{} stages share {} layers", setting.pp, model.layers), "--pp");
}

void check_name(const char* flag, const std::string& name, const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), name) == names.end()) fail("there is no '" + name + "'", flag, suggest(name, names));
}

void check_count(const char* flag, std::optional<std::int64_t> count) {
  if (count && (*count < 1 || *count > kMostTokens))
    fail(fmt::format("{} is out of range", *count), flag, fmt::format("1 to {}", kMostTokens));
}

void check_values(const EngineSetting& setting) {
  if (setting.memory_fraction && !(*setting.memory_fraction > 0 && *setting.memory_fraction <= 1))
    fail(fmt::format("{} is no share of a device", *setting.memory_fraction),
         setting.engine == RolloutEngine::vllm ? "--gpu-memory-utilization" : "--mem-fraction-static", "above 0, at most 1");
  check_name("--dtype", setting.dtype, {"bf16", "fp16"});
  check_name("--kv-cache-dtype", setting.cache_dtype, {"auto", "bf16", "fp16", "fp8"});
  check_count("--max-model-len", setting.max_model_len);
  check_count("--max-num-batched-tokens", setting.max_num_batched_tokens);
  check_count("--max-num-seqs", setting.max_num_seqs);
  check_count("--block-size", setting.block_size);
  if (setting.cache_bytes && setting.cache_bytes->count <= 0) fail("a cache has some bytes", "--kv-cache-memory");
  if (setting.cache_bytes && setting.engine == RolloutEngine::sglang)
    fail("SGLang has no such setting", "--kv-cache-memory", "--mem-fraction-static");
  if (setting.runner && setting.engine == RolloutEngine::sglang) fail("SGLang has one runner", "--runner");
}

void settle_length(const Model& model, EngineSetting& setting) {
  if (setting.max_model_len) {
    if (model.max_positions > 0 && *setting.max_model_len > model.max_positions)
      fail(fmt::format("{} tokens are more than the {} positions of {}", *setting.max_model_len, model.max_positions, model.name),
           "--max-model-len");
    return;
  }
  if (model.max_positions <= 0) fail("missing: " + model.name + " does not say how long its sequences are", "--max-model-len");
  setting.max_model_len = model.max_positions;
}

void settle_vllm(const Cluster& cluster, EngineSetting& setting, std::vector<std::string>& notes) {
  if (!setting.release) {
    setting.release = Release::parse(kNewestVllm);
    notes.push_back(fmt::format("vLLM {}, the newest that was read", kNewestVllm));
  }
  const VllmRelease release(*setting.release, setting.runner.value_or(""));
  setting.runner = release.runner();
  if (!setting.block_size) setting.block_size = 16;
  if (!setting.memory_fraction) setting.memory_fraction = release.utilization();
  const bool said = setting.max_num_batched_tokens.has_value();
  if (!said) setting.max_num_batched_tokens = release.default_tokens(cluster.accelerator, *setting.max_model_len, setting.offline);
  if (!setting.max_num_seqs)
    setting.max_num_seqs = std::min(release.default_sequences(cluster.accelerator), *setting.max_num_batched_tokens);
  if (*setting.max_num_batched_tokens < *setting.max_num_seqs)
    fail(fmt::format("a step of {} tokens is smaller than {} sequences", *setting.max_num_batched_tokens, *setting.max_num_seqs),
         "--max-num-batched-tokens");
  if (said && !release.cuts_prompts(*setting.max_model_len) && *setting.max_num_batched_tokens < *setting.max_model_len)
    fail(fmt::format("a prompt of {} tokens fits no step of {}, and this release cuts none", *setting.max_model_len,
                     *setting.max_num_batched_tokens),
         "--max-num-batched-tokens");
}

/// server_args.py of 0.5: by the memory of a device, and of it less than 90 GiB by the ranks.
void settle_sglang(const Cluster& cluster, EngineSetting& setting, std::vector<std::string>& notes) {
  if (!setting.release) {
    setting.release = Release::parse(kNewestSglang);
    notes.push_back(fmt::format("SGLang {}, the newest that was read", kNewestSglang));
  }
  if (!setting.block_size) setting.block_size = 1;
  const double mib = static_cast<double>(cluster.accelerator.memory_usable.value.count) / (1 << 20);
  const bool small = mib < 35 * 1024, large = mib >= 160 * 1024;
  if (!setting.max_num_batched_tokens) setting.max_num_batched_tokens = small ? 2048 : mib < 60 * 1024 ? 4096 : large ? 16384 : 8192;
  if (setting.memory_fraction) return;
  if (!setting.release->since(0, 5))
    refuse("the default of SGLang " + setting.release->text() + " was not read", "--mem-fraction-static", "say it");
  const double graphs = setting.tp < 4 ? (mib < 20 * 1024   ? 8
                                          : small           ? 24
                                          : mib < 60 * 1024 ? 32
                                          : large           ? 512
                                                            : 256)
                                       : (mib < 20 * 1024   ? 8
                                          : small           ? 80
                                          : mib < 60 * 1024 ? 160
                                                            : 512);
  double reserved = 512 + 1.5 * static_cast<double>(std::max<std::int64_t>(*setting.max_num_batched_tokens, 2048)) + 2 * graphs +
                    static_cast<double>(setting.tp * setting.pp) / 8 * 1024;
  if (mib > 60 * 1024) reserved = std::max(reserved, 10.0 * 1024);
  setting.memory_fraction = std::round((mib - reserved) / mib * 1000) / 1000;
}

}  // namespace

DType compute_type(const EngineSetting& setting) { return setting.dtype == "fp16" ? DType::fp16 : DType::bf16; }
DType cache_type(const EngineSetting& setting) { return setting.cache_dtype == "fp8" ? DType::fp8 : compute_type(setting); }

std::vector<Stage> stages_of(const Model& model, const EngineSetting& setting) {
  const std::int64_t pp = setting.pp, left = model.layers % pp;
  const bool on_last = setting.engine == RolloutEngine::vllm && setting.release && !setting.release->since(0, 8);
  std::vector<std::int64_t> shares(static_cast<std::size_t>(pp), model.layers / pp);
  if (on_last) shares.back() += left;
  for (std::int64_t i = 0; i < left && !on_last; ++i) ++shares[static_cast<std::size_t>(pp - 2 - i)];
  std::vector<Stage> stages;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < pp; ++i) {
    stages.push_back({i, begin, shares[static_cast<std::size_t>(i)], i == 0, i == pp - 1});
    begin += shares[static_cast<std::size_t>(i)];
  }
  return stages;
}

EngineSetting settled(const Model& model, const Cluster& cluster, EngineSetting setting, std::vector<std::string>& notes) {
  check_model(model);
  check_ranks(model, cluster, setting);
  check_values(setting);
  if (setting.others >= cluster.accelerator.memory_usable.value)
    fail(fmt::format("others hold {:.2f} GiB of a device of {:.2f} GiB", setting.others.gib(),
                     cluster.accelerator.memory_usable.value.gib()),
         "--held-by-others", "less than the device has");
  settle_length(model, setting);
  if (setting.engine == RolloutEngine::vllm)
    settle_vllm(cluster, setting, notes);
  else
    settle_sglang(cluster, setting, notes);
  return setting;
}

}  // namespace plimsoll::engine
