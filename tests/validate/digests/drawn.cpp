#include "validate/digests/drawn.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "estimate/read_programs.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "plimsoll/hardware.hpp"
#include "plimsoll/model.hpp"
#include "strategy/names.hpp"

namespace plimsoll::digests {
namespace {

using Texts = std::vector<std::string>;

struct Weighted {
  std::string text;
  double weight = 1;
};

/// Chance of one strategy: every question is answered by hashes of the answers, each by itself.
class Chance {
 public:
  explicit Chance(int number) : number_(static_cast<std::uint64_t>(number)) {}

  /// In [0, 1).
  double of(const std::string& what) const {
    constexpr unsigned kDropped = 11;  // a double holds 53 bits
    return std::ldexp(static_cast<double>((Hash() << number_ << what).value() >> kDropped), -53);
  }
  bool is(const std::string& what, double probability) const { return of(what) < probability; }
  /// Weighted rendezvous hashing: the candidate of the least −ln(u) / weight.
  std::string pick(const std::string& what, const std::vector<Weighted>& candidates) const {
    const auto score = [&](const Weighted& one) { return -std::log(of(what + "=" + one.text) + 1e-300) / one.weight; };
    return std::min_element(candidates.begin(), candidates.end(), [&](const Weighted& a, const Weighted& b) { return score(a) < score(b); })
        ->text;
  }
  std::string pick(const std::string& what, const Texts& candidates) const {
    return pick(what, std::vector<Weighted>(candidates.begin(), candidates.end()));
  }

 private:
  std::uint64_t number_;
};

/// Small models of many kinds, as the framework takes them: what is drawn is rules, not sizes.
Texts models_of(ModelCode code) {
  switch (code) {
    case ModelCode::diffusers:
      return {"dit-xl-2-256", "pixart-alpha-xl-2-512", "sd3-medium", "resnet-18", "vit-b16"};
    case ModelCode::torchtitan:
      return {"llama-3.2-1b", "llama-3.1-8b", "qwen3-0.6b", "qwen3-1.7b", "deepseek-v2-lite", "qwen3-30b-a3b"};
    case ModelCode::torchtune:
      return {"llama-3.2-1b", "llama-3.2-3b", "qwen2.5-0.5b", "qwen2-1.5b", "gemma-2b", "llama-2-7b", "phi-3-mini"};
    case ModelCode::megatron_local:
    case ModelCode::megatron_te:
    case ModelCode::megatron_legacy:
      return {"gpt2", "gpt2-xl", "bloom-560m", "llama-3.2-1b", "llama-3.1-8b", "mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v2-lite"};
    case ModelCode::nanotron:
      return {"llama-3.2-1b", "llama-3.2-3b", "smollm2-135m", "smollm2-1.7b", "tinyllama-1.1b"};
    case ModelCode::mpt:
      return {"mpt-7b", "mpt-30b"};
    case ModelCode::maxtext:
      return {"llama-2-7b", "llama-3.1-8b", "llama-3.2-1b"};
    case ModelCode::transformers:
      return {
          "gpt2",        "llama-3.2-1b",  "qwen2.5-0.5b", "qwen3-0.6b",     "gemma-2-2b",        "gemma-3-270m",  "opt-125m",
          "pythia-160m", "bloom-560m",    "t5-small",     "t5-base",        "bert-base-uncased", "vit-b16",       "resnet-18",
          "phi-1.5",     "olmo-2-1b",     "smollm2-135m", "stablelm-3b",    "falcon-7b",         "mixtral-8x7b",  "granite-3.0-1b-a400m",
          "olmoe-1b-7b", "starcoder2-3b", "gpt-neo-125m", "tinyllama-1.1b", "deepseek-v2-lite",  "qwen3-30b-a3b", "mistral-7b-v0.1"};
  }
  return {};
}

/// Releases of the framework itself, by its name.
Texts releases_of(const std::string& framework) {
  static const std::map<std::string, Texts> releases = {
      {"transformers", {"4.36.0", "4.44.0", "4.51.3", "5.2.0", "5.17.0", "5.23.0"}},
      {"accelerate", {"0.34.0", "1.2.0", "1.14.0"}},
      {"torchtitan", {"0.1.0", "0.2.0", "0.3.0"}},
      {"torchtune", {"0.3.1", "0.4.0", "0.5.0", "0.6.1"}},
      {"deepspeed", {"0.9.5", "0.12.6", "0.14.4", "0.16.9", "0.19.8"}},
      {"megatron-core", {"0.8.0", "0.12.0", "0.16.1"}},
      {"megatron-lm", {"2021-04", "v2.4", "v3.0.2", "core_r0.8.0"}},
      {"nemo", {"NeMo 24.03", "NeMo 24.07", "NeMo 25.04"}},
      {"megatron-bridge", {"0.2.0", "0.3.0"}},
      {"nanotron", {"2024-12-18", "2024-12-27"}},
      {"llm-foundry", {"v0.3", "v0.7"}},
  };
  const auto found = releases.find(framework);
  return found == releases.end() ? Texts{} : found->second;
}

/// Keys whose values the table tells in no list, and the values that are drawn.
const std::map<std::string, Texts>& told_values() {
  static const std::map<std::string, Texts> told = {
      {"torch", {"1.13", "2.0", "2.1", "2.3", "2.5.1", "2.6", "2.7", "2.8", "2.10", "2.12", "2.15"}},
      {"transformers", {"4.36.0", "4.44.0", "4.51.3", "5.2.0", "5.17.0"}},
      {"pp_schedule", {"1F1B", "GPipe", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"}},
      {"schedule", {"1f1b", "gpipe", "interleaved"}},
      {"wrap", {"LlamaDecoderLayer", "GPT2Block"}},
      {"fsdp.units", {"LlamaDecoderLayer", "GPT2Block"}},
      {"lora.alpha", {"16"}},
      {"lora.target_modules", {"all-linear", "q_proj,v_proj", "c_attn", "query_key_value"}},
      {"lora.modules_to_save", {"lm_head", "embed_tokens"}},
      {"trained_modules", {"lm_head", "embed_tokens,mlp"}},
      {"peft.target_modules", {"k_proj,v_proj", "c_attn"}},
      {"peft.feedforward_modules", {"down_proj"}},
      {"module_precision", {"*.linear_fc1=bf16"}},
      {"moe.moe_aux_loss_coeff", {"0.01"}},
      {"allocator.roundup_power2_divisions", {"4", "8"}},
      {"precision", {"bf16", "fp16", "fp32", "amp-bf16", "pure-bf16", "mixed-bf16", "fsdp-mixed-bf16", "fp8", "mxfp8", "nvfp4"}},
      {"recompute", {"none", "full", "selective", "selective:mlp", "selective-ac-op", "selective-layer", "every-2-layers"}},
      {"offload", {"none", "params", "optimizer", "activations", "params+optimizer"}},
      {"reshard_after_forward", {"default", "always", "never", "2"}},
      {"fsdp.reshard_after_forward", {"default", "always", "never", "2"}},
      {"bnb_4bit_quant_storage", {"fp32", "bf16"}},
      {"deepspeed.optimizer.type", {"AdamW", "Adam", "OneBitAdam", "Lamb"}},
      {"cuda_graph", {"false", "true"}},
      {"rope_cache", {"complex64, one per layer", "fp32 cos and sin, one per layer"}},
      {"clip_grad_norm", {"true", "false", "1.0"}},
      {"data_parallel", {"none", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "fsdp1", "fsdp2", "megatron-fsdp", "megatron-distopt"}},
  };
  return told;
}

/// Sizes of what a key counts.
const std::map<std::string, Texts>& sizes() {
  static const std::map<std::string, Texts> all = {
      {"ranks", {"1", "2", "4"}},
      {"rank", {"0", "1", "8"}},
      {"chunks", {"2", "4"}},
      {"copies", {"1", "2"}},
      {"sequences", {"1", "2", "4", "8"}},
      {"passes", {"1", "2", "4"}},
      {"micro-batches", {"1", "4", "8"}},
      {"tokens", {"64", "256", "500"}},
      {"classes", {"2", "5"}},
      {"parameters", {"1000000"}},
      {"MiB", {"20", "25", "128"}},
      {"elements", {"1000000", "50000000"}},
      {"rows", {"64", "128"}},
      {"modules", {"0", "1"}},
      {"layers", {"1", "2"}},
      {"size", {"128"}},
      {"buffers", {"4", "5"}},
      {"factor", {"1", "1.25", "2"}},
      {"threads", {"1", "2"}},
      {"norm", {"1.0"}},
      {"bytes", {"1048576"}},
      {"0 … 1", {"0", "0.1", "0.8"}},
      {"0 … 3", {"0", "1", "2", "3"}},
  };
  return all;
}

bool is_word(const std::string& text) { return !text.empty() && text.find_first_of(" …{}<>'") == std::string::npos; }

Texts words_of(const std::string& list) {
  Texts words;
  std::istringstream text(list);
  for (std::string word; std::getline(text, word, ',');) {
    if (!word.empty() && word.front() == ' ') word.erase(0, 1);
    if (is_word(word)) words.push_back(word);
  }
  return words;
}

/// What a strategy says of itself before further keys are drawn.
class Saying {
 public:
  Saying(const Chance& chance, const FrameworkProfile& framework, Drawn& drawn) : chance_(chance), framework_(framework), drawn_(drawn) {}

  /// Whose code runs, in which release, on how many sequences, in which arithmetic.
  void usual(const Accelerator& device) {
    say("framework", framework_.name);
    if (const Texts releases = releases_of(framework_.name); !releases.empty()) maybe("framework_version", 0.3, releases);
    maybe("torch", 0.3, told_values().at("torch"));
    say("micro_batch", chance_.pick("micro_batch", Texts{"1", "2", "4"}));
    if (const Texts lengths = lengths_of(drawn_.model); !lengths.empty()) say("seq_len", chance_.pick("seq_len", lengths));
    maybe("grad_accum", 0.25, {"2", "4"});
    say("precision", chance_.pick("precision", precisions_of(device)));
    Texts recomputes, optimizers;
    for (const Recompute::Kind kind : framework_.recomputes) recomputes.emplace_back(strategy::name_in(strategy::recompute_names(), kind));
    for (const auto& named : strategy::optimizer_names()) optimizers.emplace_back(named.name);
    if (!recomputes.empty()) maybe("recompute", 0.4, recomputes);
    maybe("optimizer", 0.2, optimizers);
    if (framework_.adapters && chance_.is("lora?", 0.25)) adapters();
  }

  /// How `gpus` ranks share the work.
  void parallelism(int gpus) {
    int left = gpus;
    const auto degree = [&](const char* key, bool can, double probability) {
      if (!can || left == 1 || !chance_.is(std::string(key) + "?", probability)) return;
      const std::string ranks = chance_.pick(key, left >= 4 ? Texts{"2", "4"} : Texts{"2"});
      say(key, ranks);
      left /= std::stoi(ranks);
    };
    degree("tp", framework_.tensor, 0.5);
    if (said("tp") && framework_.sequence_parallel) maybe("sequence_parallel", 0.7, {"true"});
    degree("pp", !framework_.schedules.empty(), 0.4);
    degree("cp", framework_.context, 0.15);
    Texts kinds;
    for (const DataParallel kind : framework_.kinds)
      if (kind != DataParallel::none) kinds.emplace_back(strategy::name_in(strategy::data_parallel_names(), kind));
    const bool alone = std::find(framework_.kinds.begin(), framework_.kinds.end(), DataParallel::none) != framework_.kinds.end();
    if (!kinds.empty() && (left > 1 || !alone)) maybe("data_parallel", alone ? 0.7 : 1, kinds);
  }

  /// Keys of the table beside those, one or two a strategy, where what they belong to was said.
  void more() {
    constexpr double kEach = 0.01, kOfAGroup = 0.06;
    for (const StrategyOption& option : strategy_options()) {
      const bool grouped = in_group(option.key, "deepspeed.") || in_group(option.key, "lora.") || in_group(option.key, "fp8");
      if (said(option.key) || !belongs(option.key) || !chance_.is(option.key + "?", grouped ? kOfAGroup : kEach)) continue;
      if (const Texts values = drawn_values(option); !values.empty()) say(option.key, chance_.pick(option.key, values));
    }
  }

 private:
  static bool in_group(const std::string& key, const std::string& prefix) { return key.rfind(prefix, 0) == 0; }

  void say(const std::string& key, const std::string& value) { drawn_.options.emplace_back(key, value); }
  void maybe(const std::string& key, double probability, const Texts& values) {
    if (chance_.is(key + "?", probability)) say(key, chance_.pick(key, values));
  }
  bool said(const std::string& key) const {
    return std::any_of(drawn_.options.begin(), drawn_.options.end(), [&](const auto& option) { return option.first == key; });
  }
  bool said(const std::string& key, const std::string& value) const {
    return std::any_of(drawn_.options.begin(), drawn_.options.end(),
                       [&](const auto& option) { return option.first == key && option.second == value; });
  }

  bool says_one_of(const std::string& key, std::initializer_list<const char*> values) const {
    return std::any_of(values.begin(), values.end(), [&](const char* value) { return said(key, value); });
  }

  void adapters() {
    say("lora.r", "8");
    const bool peft = framework_.code == ModelCode::transformers || framework_.code == ModelCode::diffusers;
    const bool megatron = !framework_.layer_spec.empty();
    maybe("lora.target_modules", peft ? 0.4 : 1,
          megatron ? Texts{"linear_qkv", "linear_qkv,linear_proj"} : Texts{"all-linear", "q_proj,v_proj"});
    if (peft) maybe("base_weights", 0.3, {"nf4", "nf4-double-quant", "int8"});
  }

  /// Whether what the key belongs to was said: without it the key would be a contradiction.
  bool belongs(const std::string& key) const {
    if (in_group(key, "deepspeed.")) return framework_.name == "deepspeed";
    if (key == "fsdp_double_buffer" || key == "data_parallel_sharding_strategy" || key == "suggested_communication_unit_size")
      return said("data_parallel", "megatron-fsdp");
    if (in_group(key, "lora.") || key == "base_weights") return said("lora.r");
    if (key == "bnb_4bit_quant_storage") return said("base_weights");
    if (in_group(key, "fp8")) return said("precision", "fp8");
    if (key == "num_labels") return said("task", "cls");
    if (key == "reference") return says_one_of("task", {"dpo", "kto", "grpo", "rloo"});
    if (key == "prompt_len") return says_one_of("task", {"dpo", "kto", "orpo", "cpo", "grpo", "rloo", "gkd"});
    if (key == "teacher" || key == "divergence") return said("task", "gkd");
    if (key == "trainer") return says_one_of("task", {"reward", "dpo", "kto", "orpo", "cpo"});
    if (key == "supervised_term") return said("task", "cpo");
    if (key == "kl_batch") return said("task", "kto");
    for (const char* one : {"engine_tp", "answers", "updates", "row_tokens", "score_tokens", "reference_tokens", "params_rest", "states_rest", "scales_logits",
                            "learns_entropy"})
      if (key == one) return said("trainer", "verl");
    if (key == "rollout" || key == "old_log_probs" || in_group(key, "engine_")) return says_one_of("task", {"grpo", "rloo"});
    if (key == "text_encoders" || key == "vae") return framework_.code == ModelCode::diffusers;
    if (in_group(key, "recompute_")) return said("recompute") && !said("recompute", "none");
    return true;
  }

  std::vector<Weighted> precisions_of(const Accelerator& device) const {
    const auto has = [&](DType type) {
      return std::any_of(device.rates.begin(), device.rates.end(), [&](const ComputeRate& rate) { return rate.type == math_of(type); });
    };
    if (!has(DType::bf16)) return {{"fp16"}, {"fp32"}};
    constexpr double kSeldom = 0.3;
    const bool any = framework_.code == ModelCode::transformers || framework_.code == ModelCode::diffusers;
    const double other = any ? 1 : kSeldom;  // trainers of their own have one recipe
    std::vector<Weighted> precisions{{"bf16", 5}, {"fp16"}, {"fp32", other}, {"amp-bf16", other}, {"pure-bf16", other}};
    if (!framework_.low_precisions.empty() && has(DType::fp8)) precisions.push_back({"fp8", 2});
    return precisions;
  }

  /// Images have the length that their model reads; tables of positions end.
  static Texts lengths_of(const std::string& model) {
    static const std::map<std::string, Texts> lengths = {{"vit-b16", {}},
                                                         {"resnet-18", {}},
                                                         {"bert-base-uncased", {"128", "512"}},
                                                         {"gpt2", {"128", "1000"}},
                                                         {"gpt2-xl", {"128", "1000"}},
                                                         {"dit-xl-2-256", {"256"}},
                                                         {"pixart-alpha-xl-2-512", {"1024"}},
                                                         {"sd3-medium", {"1024", "4096"}}};
    const auto found = lengths.find(model);
    return found == lengths.end() ? Texts{"128", "512", "1000", "2048"} : found->second;
  }

  const Chance& chance_;
  const FrameworkProfile& framework_;
  Drawn& drawn_;
};

struct Parsed {
  Model model;
  Cluster cluster;
  Strategy strategy;
};

Parsed parse(const Drawn& drawn) {
  Parsed parsed{load_model(drawn.model), parse_cluster(drawn.cluster), {}};
  set_options(parsed.strategy, drawn.options);
  return parsed;
}

}  // namespace

Texts drawn_values(const StrategyOption& option) {
  const auto& undrawn = undrawn_keys();
  if (std::any_of(undrawn.begin(), undrawn.end(), [&](const auto& key) { return key.first == option.key; })) return {};
  if (const auto told = told_values().find(option.key); told != told_values().end()) return told->second;
  const auto size = sizes().find(option.values);
  return size != sizes().end() ? size->second : words_of(option.values);
}

const std::vector<std::pair<std::string, std::string>>& undrawn_keys() {
  static const std::vector<std::pair<std::string, std::string>> keys = {
      {"framework", "every strategy says it"},
      {"framework_version", "drawn with the framework"},
      {"gpus", "the cluster says it"},
      {"dp", "follows from the other degrees"},
      {"dp_shard", "the same"},
      {"dp_replicate", "the same"},
      {"fsdp_degree", "the same"},
      {"global_batch", "follows from the micro-batches"},
      {"micro_batches_per_step", "the same"},
      {"deepspeed.train_batch_size", "the same"},
      {"deepspeed.train_micro_batch_size_per_gpu", "says micro_batch"},
      {"deepspeed.gradient_accumulation_steps", "says grad_accum"},
      {"deepspeed.zero_optimization.stage", "says data_parallel"},
      {"deepspeed.bf16.enabled", "says precision"},
      {"deepspeed.fp16.enabled", "says precision"},
      {"seq", "says seq_len"},
      {"zero", "says data_parallel"},
      {"zero_stage", "says data_parallel"},
      {"fsdp", "says data_parallel"},
      {"schedule", "says pp_schedule"},
      {"autocast", "says precision"},
      {"mixed_precision", "says precision"},
      {"fp8_backend", "says precision"},
      {"fp8_opt_level", "says precision"},
      {"fp8_config.backend", "says precision"},
      {"fp8_config.optimization_level", "says precision"},
      {"rank", "what a measured row says of one rank"},
      {"pp_rank", "the same"},
      {"has_embedding", "the same"},
      {"has_head", "the same"},
      {"stage_layers", "the same"},
      {"pp_layers", "as long as the pipeline"},
      {"trainable_params", "what a run printed"},
      {"deepspeed.msamp", "an object"},
      {"deepspeed.torch_autocast", "an object"},
      {"deepspeed.expert_parallel", "an object, refused unless it is off"},
      {"deepspeed.hybrid_engine", "the same"},
      {"deepspeed.amp", "the same"},
      {"deepspeed.data_efficiency", "the same"},
      {"deepspeed.curriculum_learning", "the same"},
      {"deepspeed.progressive_layer_drop", "the same"},
      {"deepspeed.eigenvalue", "the same"},
      {"deepspeed.elasticity", "the same"},
  };
  return keys;
}

/// Named, so that a device that is added changes no strategy that was drawn before.
const Texts& drawn_devices() {
  static const Texts devices = {
      "a10", "a100-40gb", "a100-80gb-pcie", "a100-80gb-sxm", "a30", "b200", "b300", "gb200", "gb300", "h100-nvl", "h100-pcie", "h100-sxm",
      "h100-sxm-96gb-hbm2e-500w", "h20", "h200", "h200-nvl", "l4", "l40", "l40s", "mi250", "mi250x", "mi300a", "mi300x", "mi308x",
      "mi325x", "mi350x", "mi355x", "rtx3090", "rtx4090", "rtx5090", "rtx6000-ada", "rtxa6000", "t4", "v100-sxm2", "v100-sxm2-16gb",
      "w7900"};
  return devices;
}

Drawn drawn(int number) {
  const Chance chance(number);
  Texts names;
  for (const FrameworkProfile& framework : frameworks())
    if (framework.refused.empty()) names.push_back(framework.name);
  const FrameworkProfile& framework = find_framework(chance.pick("framework", names));
  Drawn drawn{number, chance.pick("model", models_of(framework.code)), chance.pick("device", drawn_devices()), {}};
  const Accelerator device = load_accelerator(drawn.cluster);
  const std::string gpus = chance.pick("gpus", std::vector<Weighted>{{"1", 5}, {"2", 2}, {"4", 2}, {"8", 4}});
  if (gpus != "1") drawn.cluster = gpus + "x" + drawn.cluster;
  if (gpus == "8" && chance.is("nodes?", 0.3)) drawn.cluster = chance.pick("nodes", Texts{"2", "8"}) + "x" + drawn.cluster;
  Saying saying(chance, framework, drawn);
  saying.usual(device);
  saying.parallelism(std::stoi(gpus));
  saying.more();
  return drawn;
}

std::string line_of(const Drawn& drawn) {
  std::string line = fmt::format("plimsoll estimate {} --on {}", drawn.model, drawn.cluster);
  for (const auto& [key, value] : drawn.options) {
    std::string flag = key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    const char* quote = value.find(' ') == std::string::npos ? "" : "'";
    line += fmt::format(" --{} {}{}{}", flag, quote, value, quote);
  }
  return line;
}

Held predicted(const Drawn& drawn) {
  Held now{fmt::format("{:04}", drawn.number), Outcome::played, {}, {}};
  ProgramDigest digest;
  try {
    const Parsed parsed = parse(drawn);
    const Report report = estimation::estimate_and_read(parsed.model, parsed.cluster, parsed.strategy, digest.reader());
    const RankMemory& memory = report.worst_rank().memory;
    now.outcome = outcome_of(report);
    now.figures = {{"allocated_bytes", memory.allocated.count}, {"reserved_bytes", memory.reserved.count}};
  } catch (const Error& error) {
    now.outcome = outcome_of(error);
    return now;
  }
  if (digest.left() != 0) now.figures["tensors_left"] = digest.left();
  now.parts = digest.parts();
  return now;
}

std::string unplayed(const Drawn& drawn) {
  try {
    const Parsed parsed = parse(drawn);
    for (const RankReport& rank : estimate(parsed.model, parsed.cluster, parsed.strategy).ranks)
      if (rank.memory.basis != Basis::played) return "closed form: " + rank.memory.closed_form_because;
    return {};
  } catch (const Error& error) {
    return (error.code() == ErrorCode::refused ? "refused: " : "impossible: ") + error.message();
  }
}

std::string dump_of(const Drawn& drawn) {
  const Parsed parsed = parse(drawn);
  std::string text;
  estimation::estimate_and_read(parsed.model, parsed.cluster, parsed.strategy, [&](const StepProgram& program) { text += dump(program); });
  return text;
}

}  // namespace plimsoll::digests
