#include "estimate/nearest_played.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "estimate/rank_memory.hpp"
#include "plimsoll/framework.hpp"
#include "strategy/listed_words.hpp"

namespace plimsoll::estimation {
namespace {

/// A change: a key and what it is set to.
struct Variation {
  std::string key, value;
};

/// "none, full, selective" as its words; of a unit ("ranks") the least number.
std::vector<std::string> values_of(const StrategyOption& option) {
  std::vector<std::string> values = strategy::listed_words(option.values);
  return values.empty() ? std::vector<std::string>{"1"} : values;
}

/// Those of the key that the refusal names.
void add_named(const std::string& where, std::vector<Variation>& variations) {
  const std::string key = where.substr(where.find_last_of("/ ") + 1);  // npos + 1 is 0
  for (const StrategyOption& option : strategy_options())
    if (option.key == key)
      for (const std::string& value : values_of(option)) variations.push_back({key, value});
}

/// Ways of data parallelism, those that shard as what was said does before those that do not.
std::vector<DataParallel> kinds_of(const FrameworkProfile& profile, DataParallel said) {
  std::vector<DataParallel> kinds = profile.kinds;
  const auto shards = [](DataParallel kind) { return kind != DataParallel::none && kind != DataParallel::ddp; };
  if (shards(said)) std::stable_partition(kinds.begin(), kinds.end(), shards);
  return kinds;
}

std::vector<Variation> variations_of(const Error& refusal, const Strategy& said, const Model& model) {
  std::vector<Variation> variations;
  add_named(refusal.where(), variations);
  const auto add = [&](const char* key, std::initializer_list<const char*> values) {
    for (const char* value : values) variations.push_back({key, value});
  };
  const FrameworkProfile* profile = said.framework.empty() ? nullptr : &find_framework(said.framework);
  if (profile != nullptr) {
    for (const AttentionKernel kernel : profile->attentions) variations.push_back({"attention", std::string(name_of(kernel))});
    for (const LossKernel kernel : profile->losses) variations.push_back({"loss", std::string(name_of(kernel))});
  } else {
    add("attention", {"sdpa", "eager"});
  }
  add("precision", {"bf16", "fp16"});
  add("recompute", {"none", "full"});
  add("offload", {"none"});
  add("optimizer", {"adamw"});
  add("compile", {"false"});
  add("sequence_parallel", {"true", "false"});
  if (profile != nullptr)
    for (const DataParallel kind : kinds_of(*profile, said.data_parallel)) variations.push_back({"data_parallel", std::string(name_of(kind))});
  add("cp", {"1"});
  add("vp", {"1"});
  add("pp", {"1"});
  add("ep", {"1"});
  add("tp", {"1"});
  add("task", {"lm"});
  if (profile == nullptr && model.task == Model::Task::causal_lm) add("framework", {"transformers", "torchtitan", "megatron-bridge"});
  return variations;
}

/// Throws Error where what was said cannot be changed so.
Strategy changed(const Strategy& said, const Variation& variation) {
  Strategy strategy = said;
  set_option(strategy, variation.key, variation.value);
  return strategy;
}

/// Throws Error where its first or last rank has no program.
void play_ends(const Model& model, const Cluster& cluster, const Strategy& strategy) {
  const Strategy resolved = resolve(strategy, model, cluster);
  RankPrograms programs(model, resolved, cluster);
  programs.give_back(programs.of_stage(0));
  if (resolved.pp > 1) (void)programs.of_stage(resolved.pp - 1);
}

}  // namespace

std::string nearest_played(const Error& refusal, const Model& model, const Cluster& cluster, const Strategy& said) {
  constexpr std::size_t kMostTries = 40;  // each is a resolution, and where that succeeds a program or two
  std::vector<Variation> variations = variations_of(refusal, said, model);
  if (variations.size() > kMostTries) variations.resize(kMostTries);
  for (const Variation& variation : variations) {
    try {
      play_ends(model, cluster, changed(said, variation));
      std::string flag = variation.key;
      std::replace(flag.begin(), flag.end(), '_', '-');
      const char* quote = variation.value.find(' ') == std::string::npos ? "" : "'";
      return fmt::format("--{} {}{}{}", flag, quote, variation.value, quote);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::internal) throw;
    }
  }
  return {};
}

}  // namespace plimsoll::estimation
