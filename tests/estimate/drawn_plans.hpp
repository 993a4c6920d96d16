// Plans drawn at random, for properties that hold of all of them.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/estimate.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::drawn {

using Options = std::vector<std::pair<std::string, std::string>>;

/// Four layers, so that an estimate takes a millisecond: dense, and with four experts.
inline Model small_model(bool experts, int layers = 4) {
  const std::string of_experts =
      R"("architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2,)";
  const std::string dense = R"("architectures": ["LlamaForCausalLM"], "model_type": "llama",)";
  return parse_model(
      "{" + (experts ? of_experts : dense) +
          "\"num_hidden_layers\": " + std::to_string(layers) +
          R"(, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2,
                            "vocab_size": 1000, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
                            "hidden_act": "silu"})",
      "config.json", experts ? "small-mixtral" : "small-llama");
}

template <class T>
const T& one_of(std::mt19937& random, const std::vector<T>& values) {
  return values[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
}

/// A runner, and up to two more things.
inline Options drawn_strategy(std::mt19937& random) {
  static const std::vector<Options> kRunners{
      {{"framework", "transformers"}, {"data_parallel", "ddp"}},
      {{"framework", "transformers"}, {"data_parallel", "fsdp1"}},
      {{"framework", "transformers"}, {"data_parallel", "fsdp2"}},
      {{"framework", "accelerate"}, {"data_parallel", "fsdp2"}},
      {{"zero", "1"}},
      {{"zero", "2"}},
      {{"zero", "3"}},
      {{"zero", "3"}, {"offload", "params+optimizer"}},
      {{"zero", "3"}, {"deepspeed.zero_optimization.offload_optimizer.device", "nvme"}},
      {{"framework", "torchtitan"}},
      {{"framework", "torchtitan"}, {"tp", "2"}, {"sequence_parallel", "true"}, {"compile", "true"}},
      {{"framework", "torchtitan"}, {"pp", "2"}},
      {{"framework", "megatron-core"}, {"data_parallel", "megatron-distopt"}},
      {{"framework", "megatron-core"}, {"tp", "2"}, {"sequence_parallel", "true"}, {"data_parallel", "megatron-distopt"}},
      {{"framework", "megatron-core"}, {"pp", "2"}, {"vp", "2"}, {"data_parallel", "megatron-distopt"}, {"overlap_param_gather", "true"}},
      {{"framework", "megatron-core"}, {"attention", "unfused"}},
      {{"framework", "megatron-core"}, {"cp", "2"}},
      {{"framework", "megatron-core"}, {"ep", "2"}, {"sequence_parallel", "true"}, {"tp", "2"}},
      {{"framework", "megatron-core"}, {"data_parallel", "megatron-fsdp"}},
      {{"framework", "megatron-bridge"}, {"tp", "2"}, {"sequence_parallel", "true"}},
      {{"framework", "torchtune"}},
      {{"framework", "torchtune"}, {"dp", "1"}, {"gpus", "1"}},
      {{"framework", "nanotron"}, {"tp", "2"}},
      {{"framework", "llm-foundry"}}};
  static const std::vector<Options> kMore{{{"recompute", "full"}},
                                          {{"recompute", "selective"}},
                                          {{"grad_accum", "2"}},
                                          {{"lora.r", "8"}},
                                          {{"precision", "fp8"}},
                                          {{"precision", "mxfp8"}},
                                          {{"precision", "fp32"}},
                                          {{"offload", "activations"}},
                                          {{"compile", "true"}},
                                          {{"loss", "chunked-ce"}},
                                          {{"optimizer", "sgd"}},
                                          {{"task", "qlora"}, {"lora.r", "8"}},
                                          {},
                                          {{"task", "prompt_tuning"}, {"trainable_params", "2560"}}};
  Options all = one_of(random, kRunners);
  for (int i = 0; i < 2; ++i)
    for (const auto& option : one_of(random, kMore)) {
      const auto same = std::find_if(all.begin(), all.end(), [&](const auto& other) { return other.first == option.first; });
      if (same == all.end()) all.push_back(option);
    }
  all.emplace_back("seq_len", "64");
  return all;
}

/// What may be said of a key: the names that its table lists, or a number in its unit.
inline std::vector<std::string> values_of(const StrategyOption& option) {
  static const std::map<std::string, std::vector<std::string>> kOwn{
      {"framework", {"transformers", "accelerate", "torchtitan", "torchtune", "deepspeed", "megatron-core", "megatron-lm", "nemo", "nanotron", "llm-foundry", "maxtext"}},
      {"framework_version", {"2023-04", "0.1"}},
      {"torch", {"2.4", "2.8"}},
      {"transformers", {"4.48", "4.45"}},
      {"lora.peft", {"0.15"}},
      {"pp_schedule", {"GPipe", "1F1B"}},
      {"schedule", {"GPipe", "1F1B"}},
      {"pp_layers", {"[1,3]", "[1,1,1,1]"}},
      {"stage_layers", {"[[0,0]]"}},
      {"fsdp.units", {"LlamaAttention", "LlamaMLP"}},
      {"wrap", {"LlamaAttention", "LlamaMLP"}},
      {"recompute_modules", {"mlp", "layernorm"}},
      {"lora.target_modules", {"q_proj", "v_proj"}},
      {"lora.modules_to_save", {"lm_head"}},
      {"peft.target_modules", {"k_proj"}},
      {"peft.feedforward_modules", {"down_proj"}},
      {"make_vocab_size_divisible_by", {"96", "640"}},
      {"ddp_bucket_size", {"1000", "100000"}},
      {"rope_cache", {"complex64, one per layer", "fp32 cos and sin, one per layer"}},
      {"cuda_graph", {"true", "transformer_engine:attn"}},
      {"moe_imbalance", {"1.5"}},
      {"moe.moe_expert_capacity_factor", {"1.25"}},
      {"moe.moe_aux_loss_coeff", {"0.01"}},
      {"average_tokens_per_sample", {"40"}},
      {"bf16_tail_layers", {"1"}},
      {"clip_grad_norm", {"false", "true"}},
      {"compile", {"true", "model", "blocks"}},
      {"reshard_after_forward", {"never", "2"}},
      {"fsdp.reshard_after_forward", {"never", "2"}}};
  if (const auto own = kOwn.find(option.key); own != kOwn.end()) return own->second;
  if (option.values == "0 … 3") return {"1", "3"};
  if (option.values == "0 … 1") return {"0.3", "0.7"};
  if (option.values == "elements" || option.values == "parameters") return {"1000", "4000000"};
  if (option.values == "tokens") return {"32", "128"};
  if (option.values.find(", ") == std::string::npos) return {"2", "1"};
  std::vector<std::string> names;
  std::istringstream list(option.values);
  for (std::string name; std::getline(list, name, ',') && names.size() < 8;) {
    name.erase(0, name.find_first_not_of(' '));
    name.resize(std::min({name.size(), name.find(" …"), name.find(';')}));
    names.push_back(name == "ranks" || name == "list" || name == "norm" ? "2" : name);
  }
  return names;
}

/// Every number of a report.
inline std::string numbers(const Report& report) {
  std::ostringstream text;
  text.precision(12);
  for (const RankReport& rank : report.ranks) {
    text << rank.parameters << ' ' << rank.memory.allocated.count << ' ' << rank.memory.reserved.count << ' ' << rank.host.count << ' '
         << rank.memory.device.expected << ' ';
    for (const MemoryPart& part : rank.memory.parts) text << part.name << part.bytes.count << ' ';
  }
  text << report.gpus << ' ' << report.time.step_seconds.expected << ' ' << report.flops.hfu << ' ' << static_cast<int>(report.time.basis);
  for (const TimePart& part : report.time.breakdown) text << part.name << part.seconds.value << ' ';
  return text.str();
}

inline std::string text_of(const Options& options) {
  std::string text;
  for (const auto& [key, value] : options) text += " --" + key + " " + value;
  return text;
}

struct Planned {
  Options options;
  const Model& model;

  Report report() const {
    static const Cluster four = parse_cluster("4xh100-sxm"), one = parse_cluster("1xh100-sxm");
    const bool alone = std::find(options.begin(), options.end(), std::pair<std::string, std::string>("gpus", "1")) != options.end();
    Strategy said;
    set_options(said, options);
    return estimate(model, alone ? one : four, said);
  }
  Planned with(const std::string& key, const std::string& value) const {
    Planned more{{}, model};
    for (const auto& option : options)
      if (option.first != key) more.options.push_back(option);
    more.options.emplace_back(key, value);
    return more;
  }
};

}  // namespace plimsoll::drawn
