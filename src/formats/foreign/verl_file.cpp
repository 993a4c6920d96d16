// verl's command line (python3 -m verl.trainer.main_ppo, verl/trainer/config/_generated_ppo_trainer.yaml of 0.9.1): Hydra's overrides of its
// hybrid engine with FSDP actors and algorithms without a critic.
#include <algorithm>
#include <cstdlib>

#include "formats/foreign/format.hpp"
#include "formats/foreign/schema.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRelease = "verl 0.9.1";

const Rows& rows() {
  static const Rows table = {
      {"algorithm.adv_estimator", kCode, "", "gae", "whether there is a critic: gae's is refused"},
      {"algorithm.use_kl_in_reward", kCode, "", "false", "reference"},
      {"algorithm.rollout_correction.bypass_mode", kRefused, "false", nullptr, "answers that the actor does not score again"},
      {"data.train_batch_size", kCode, "", "1024", "updates: of ppo_mini_batch_size prompts each"},
      {"data.max_prompt_length", "prompt_len", "", "512"},
      {"data.max_response_length", kCode, "", "512", "seq_len: a prompt and an answer"},
      {"actor_rollout_ref.model.path", "model"},
      {"actor_rollout_ref.model.override_config.attn_implementation", kRefused, "flash_attention_2", nullptr, "packed rows under this attention"},
      {"actor_rollout_ref.model.use_remove_padding", kRefused, "true", nullptr, "rows with padding"},
      {"actor_rollout_ref.actor.use_remove_padding", kRefused, "true", nullptr, "rows with padding"},
      {"actor_rollout_ref.model.enable_gradient_checkpointing", "recompute", "true=full,false=none", "true"},
      {"actor_rollout_ref.model.enable_activation_offload", kRefused, "false", nullptr, "verl's offload of activations"},
      {"actor_rollout_ref.model.lora_rank", kCode, "", "0", "lora.r"},
      {"actor_rollout_ref.model.lora_alpha", kCode, "", "16", "lora.alpha"},
      {"actor_rollout_ref.model.target_modules", kCode, "", "all-linear", "lora.target_modules"},
      {"actor_rollout_ref.model.use_liger", kRefused, "false", nullptr, "Liger's kernels under verl"},
      {"actor_rollout_ref.model.use_fused_kernels", kRefused, "false", nullptr, "verl's fused head"},
      {"actor_rollout_ref.actor.use_fused_kernels", kRefused, "false", nullptr, "verl's fused head"},
      {"actor_rollout_ref.model.tiled_mlp.enabled", kRefused, "false", nullptr, "tiled MLPs"},
      {"actor_rollout_ref.model.mtp.enable", kRefused, "false", nullptr, "prediction of several tokens"},
      {"actor_rollout_ref.model.lora.rank", kRefused, "0", nullptr, "adapters of Megatron's actors"},
      {"actor_rollout_ref.model.lora.merge", kRefused, "false", nullptr, "adapters that are merged for the engine"},
      {"actor_rollout_ref.actor.strategy", "data_parallel", "fsdp=fsdp1,fsdp2=fsdp2,*=!", "fsdp"},
      {"actor_rollout_ref.actor.ppo_mini_batch_size", kCode, "", "256", "answers, with rollout.n and the ranks"},
      {"actor_rollout_ref.actor.ppo_micro_batch_size", kRefused, "null", nullptr, "micro-batches of all ranks together, which verl has given up (ppo_micro_batch_size_per_gpu)"},
      {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", kCode, "", nullptr, "micro_batch"},
      {"actor_rollout_ref.actor.use_dynamic_bsz", kCode, "", "false", "micro-batches by tokens"},
      {"actor_rollout_ref.actor.ppo_max_token_len_per_gpu", kCode, "", "16384", "row_tokens"},
      {"actor_rollout_ref.actor.ppo_epochs", kCode, "", "1", "updates"},
      {"actor_rollout_ref.actor.entropy_coeff", kCode, "", "0", "learns_entropy"},
      {"actor_rollout_ref.actor.calculate_entropy", kCode, "", "false", "learns_entropy"},
      {"actor_rollout_ref.actor.use_kl_loss", kCode, "", "false", "reference"},
      {"actor_rollout_ref.actor.entropy_from_logits_with_chunking", kRefused, "false", nullptr, "entropies of pieces of logits"},
      {"actor_rollout_ref.actor.entropy_checkpointing", kRefused, "false", nullptr, "entropies that are computed again"},
      {"actor_rollout_ref.actor.ulysses_sequence_parallel_size", kRefused, "1", nullptr, "Ulysses' sequence parallelism"},
      {"actor_rollout_ref.actor.pad_to_length", kRefused, "false", nullptr, "rows padded to lengths"},
      {"actor_rollout_ref.actor.qat.enable", kRefused, "false", nullptr, "training that is aware of a quantization"},
      {"actor_rollout_ref.actor.router_replay.mode", kRefused, "disabled", nullptr, "routers that replay"},
      {"actor_rollout_ref.ref.router_replay.mode", kRefused, "disabled", nullptr, "routers that replay"},
      {"actor_rollout_ref.actor.optim.optimizer", "optimizer", "AdamW=adamw,*=!", "AdamW"},
      {"actor_rollout_ref.actor.optim.optimizer_impl", kRefused, "torch.optim", nullptr, "this library's optimizers"},
      {"actor_rollout_ref.actor.fsdp_config.param_offload", "params_rest", "", "false"},
      {"actor_rollout_ref.actor.fsdp_config.optimizer_offload", "states_rest", "", "false"},
      {"actor_rollout_ref.actor.fsdp_config.offload_policy", kRefused, "false", nullptr, "an actor under FSDP2's CPU offload"},
      {"actor_rollout_ref.actor.fsdp_config.reshard_after_forward", kRefused, "true", nullptr, "an actor that stays gathered behind forward"},
      {"actor_rollout_ref.actor.fsdp_config.fsdp_size", kCode, "", "-1", "dp_shard; smaller than the ranks: hybrid_shard"},
      {"actor_rollout_ref.actor.fsdp_config.forward_prefetch", "fsdp.forward_prefetch", "", "false"},
      {"actor_rollout_ref.actor.fsdp_config.model_dtype", "param_dtype", "fp32=fp32,float32=fp32,bf16=bf16,bfloat16=bf16,*=!", "fp32"},
      {"actor_rollout_ref.actor.fsdp_config.dtype", kRefused, "bfloat16", nullptr, "an actor that computes in this type"},
      {"actor_rollout_ref.actor.fsdp_config.mixed_precision.*", kRefused, "", nullptr, "other types than verl's mixed precision has by itself"},
      {"actor_rollout_ref.actor.fsdp_config.use_orig_params", kRefused, "false", nullptr, "original parameters under verl"},
      {"actor_rollout_ref.actor.fsdp_config.full_determinism", kRefused, "false", nullptr, "deterministic kernels"},
      {"actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size", kRefused, "1", nullptr, "Ulysses' sequence parallelism"},
      {"actor_rollout_ref.actor.fsdp_config.entropy_from_logits_with_chunking", kRefused, "false", nullptr, "entropies of pieces of logits"},
      {"actor_rollout_ref.actor.fsdp_config.use_torch_compile", kRefused, "true", nullptr, "entropies without torch.compile"},
      {"actor_rollout_ref.actor.fsdp_config.entropy_checkpointing", kRefused, "false", nullptr, "entropies that are computed again"},
      {"actor_rollout_ref.actor.fsdp_config.use_no_sync_for_gradient_accumulation", "fsdp.no_sync", "", "false"},
      {"actor_rollout_ref.actor.fsdp_config.pad_to_length", kRefused, "false", nullptr, "rows padded to lengths"},
      {"actor_rollout_ref.actor.fsdp_config.wrap_policy.min_num_params", kRefused, "0", nullptr, "units by size"},
      {"actor_rollout_ref.actor.fsdp_config.wrap_policy.transformer_layer_cls_to_wrap", kRefused, "null", nullptr, "units of other classes than the layers'"},
      {"actor_rollout_ref.actor.fsdp_config.qat.enable", kRefused, "false", nullptr, "training that is aware of a quantization"},
      {"actor_rollout_ref.ref.log_prob_micro_batch_size", kRefused, "null", nullptr, "micro-batches of all ranks together, which verl has given up (log_prob_micro_batch_size_per_gpu)"},
      {"actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu", kCode, "", nullptr, "reference_tokens"},
      {"actor_rollout_ref.ref.log_prob_use_dynamic_bsz", kCode, "", nullptr, "micro-batches by tokens; actor.use_dynamic_bsz"},
      {"actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", kCode, "", nullptr, "reference_tokens; actor.ppo_max_token_len_per_gpu"},
      {"actor_rollout_ref.ref.ulysses_sequence_parallel_size", kRefused, "1", nullptr, "Ulysses' sequence parallelism"},
      {"actor_rollout_ref.ref.pad_to_length", kRefused, "false", nullptr, "rows padded to lengths"},
      {"actor_rollout_ref.ref.fsdp_config.qat.enable", kRefused, "false", nullptr, "training that is aware of a quantization"},
      {"actor_rollout_ref.rollout.name", kRefused, "vllm", nullptr, "this engine beside verl's actor"},
      {"actor_rollout_ref.rollout.n", kCode, "", "1", "answers of a prompt"},
      {"actor_rollout_ref.rollout.nnodes", kRefused, "0", nullptr, "an engine on nodes of its own"},
      {"actor_rollout_ref.rollout.temperature", kCode, "", "1.0", "scales_logits"},
      {"actor_rollout_ref.rollout.gpu_memory_utilization", "engine_share", "", "0.5"},
      {"actor_rollout_ref.rollout.free_cache_engine", "engine_sleeps", "", "true"},
      {"actor_rollout_ref.rollout.tensor_model_parallel_size", "engine_tp", "", "2"},
      {"actor_rollout_ref.rollout.data_parallel_size", kRefused, "1", nullptr, "engines that are data parallel within"},
      {"actor_rollout_ref.rollout.pipeline_model_parallel_size", kRefused, "1", nullptr, "engines that are pipelines"},
      {"actor_rollout_ref.rollout.disaggregation.enabled", kRefused, "false", nullptr, "engines for prompts and answers apart"},
      {"actor_rollout_ref.rollout.checkpoint_engine.backend", kRefused, "naive", nullptr, "this way of weights to the engine"},
      {"actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes", kNothing, "", nullptr, "of the way of weights to the engine"},
      {"actor_rollout_ref.rollout.log_prob_micro_batch_size", kRefused, "null", nullptr, "micro-batches of all ranks together, which verl has given up (log_prob_micro_batch_size_per_gpu)"},
      {"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu", kCode, "", nullptr, "score_tokens"},
      {"actor_rollout_ref.rollout.log_prob_use_dynamic_bsz", kCode, "", nullptr, "as actor.use_dynamic_bsz, which verl demands"},
      {"actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu", kCode, "", nullptr, "score_tokens; actor.ppo_max_token_len_per_gpu"},
      {"critic.enable", kRefused, "false,null", nullptr, "a critic"},
      {"reward_model.enable", kRefused, "false,null", nullptr, "a model of rewards"},
      {"reward.reward_model.enable", kRefused, "false", nullptr, "a model of rewards"},
      {"distillation.enabled", kRefused, "false", nullptr, "a teacher"},
      {"trainer.n_gpus_per_node", "cluster.gpus_per_node", "", "8"},
      {"trainer.nnodes", "cluster.nodes", "", "1"},
      {"trainer.device", kRefused, "cuda", nullptr, "this device"},
      {"trainer.v1.trainer_mode", kRefused, "sync", nullptr, "engine and trainer that do not wait for each other"},
  };
  return table;
}

int recognises(const Node& tree) { return tree.find("actor_rollout_ref") ? 6 : 0; }

/// A whole number as the file has it, or as verl does.
std::int64_t number(const Node& tree, const char* key, const char* otherwise) {
  const Node* said = stated(tree, key);
  const std::string text = said ? said->word() : otherwise ? otherwise : std::string();
  if (text.empty()) return 0;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end != 0 || value != static_cast<double>(static_cast<std::int64_t>(value)) || value < -1)
    fail("expected a whole number, found " + std::string(key) + ": " + text.substr(0, 40), said ? said->where : tree.where);
  return static_cast<std::int64_t>(value);
}

bool truth(const Node& tree, const char* key, bool otherwise) {
  const Node* said = stated(tree, key);
  return said ? is_on(said) : otherwise;
}

const std::string& place_of(const Node& tree, const char* key) {
  const Node* said = stated(tree, key);
  return said ? said->where : tree.where;
}

void refuse_critics(const Node& tree) {
  const Node* said = stated(tree, "algorithm.adv_estimator");
  if (said && said->word() != "gae") return;
  refuse(said ? "not modelled: a critic, which algorithm.adv_estimator: gae trains"
              : "not modelled: a critic, which algorithm.adv_estimator: gae trains, verl's default",
         said ? said->where : tree.where, "algorithm.adv_estimator=grpo, or another without one");
}

/// Whether something is not 0.
bool weighs(const Node& tree, const char* key) {
  const Node* said = stated(tree, key);
  return said && std::strtod(said->word().c_str(), nullptr) != 0;
}

void read_adapters(Reading& reading, const Node& tree) {
  constexpr const char* kRank = "actor_rollout_ref.model.lora_rank";
  const std::int64_t rank = number(tree, kRank, "0");
  if (rank <= 0) return;
  reading.say("lora.r", std::to_string(rank), kRank, place_of(tree, kRank));
  const Node *alpha = stated(tree, "actor_rollout_ref.model.lora_alpha"), *targets = stated(tree, "actor_rollout_ref.model.target_modules");
  if (alpha) reading.say("lora.alpha", alpha->word(), "actor_rollout_ref.model.lora_alpha", alpha->where);
  std::string names = targets ? targets->word() : "all-linear";
  std::erase_if(names, [](char c) { return c == '[' || c == ']' || c == ' ' || c == '"' || c == '\''; });
  if (targets) reading.say("lora.target_modules", names, "actor_rollout_ref.model.target_modules", targets->where);
  if (!targets) reading.assume("lora.target_modules", names, "actor_rollout_ref.model.target_modules: all-linear", kRelease);
}

/// The loss's terms: a reference where KL counts, entropy where it does.
void read_terms(Reading& reading, const Node& tree) {
  constexpr const char *kLoss = "actor_rollout_ref.actor.use_kl_loss", *kReward = "algorithm.use_kl_in_reward";
  const bool in_loss = truth(tree, kLoss, false), compares = in_loss || truth(tree, kReward, false);
  const char* key = in_loss ? kLoss : kReward;
  const std::string reference = !compares ? "none" : reading.has("lora.r") ? "adapter-off" : "model";
  if (compares) reading.say("reference", reference, key, place_of(tree, key));
  if (!compares) reading.assume("reference", reference, "actor_rollout_ref.actor.use_kl_loss: false", kRelease);
  if (weighs(tree, "actor_rollout_ref.actor.entropy_coeff") || truth(tree, "actor_rollout_ref.actor.calculate_entropy", false))
    reading.say("learns_entropy", "true", "actor_rollout_ref.actor.entropy_coeff", place_of(tree, "actor_rollout_ref.actor.entropy_coeff"));
  const Node* temperature = stated(tree, "actor_rollout_ref.rollout.temperature");
  if (temperature && std::strtod(temperature->word().c_str(), nullptr) != 1)
    reading.say("scales_logits", "true", "actor_rollout_ref.rollout.temperature", temperature->where);
}

/// `all` in equal parts of `part`. Throws Error where it has none.
std::int64_t parts(std::int64_t all, std::int64_t part, const std::string& told, const std::string& where, const std::string& remedy) {
  if (part < 1 || all % part != 0 || all < part) fail(told + ": " + std::to_string(all) + " is no multiple of " + std::to_string(part), where, remedy);
  return all / part;
}

/// Answers of a device and an update, and how they make micro-batches.
void read_batches(Reading& reading, const Node& tree) {
  constexpr const char *kMini = "actor_rollout_ref.actor.ppo_mini_batch_size", *kMicro = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu";
  constexpr const char *kScored = "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu";
  constexpr const char* kReference = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu";
  const std::int64_t ranks = reading.count("cluster.nodes") * reading.count("cluster.gpus_per_node");
  const std::int64_t prompts = number(tree, kMini, "256"), all = number(tree, "data.train_batch_size", "1024");
  const std::int64_t copies = number(tree, "actor_rollout_ref.rollout.n", "1"), epochs = number(tree, "actor_rollout_ref.actor.ppo_epochs", "1");
  const std::int64_t updates = parts(all, prompts, "data.train_batch_size and ppo_mini_batch_size", place_of(tree, kMini), "a mini-batch that divides it");
  const std::int64_t answers = parts(prompts * copies, ranks, "ppo_mini_batch_size · rollout.n and the ranks", place_of(tree, kMini), "answers for every rank");
  reading.derive("updates", std::to_string(updates * epochs), "data.train_batch_size / ppo_mini_batch_size");
  reading.derive("answers", std::to_string(answers), "ppo_mini_batch_size · rollout.n / ranks");
  const std::int64_t prompt = number(tree, "data.max_prompt_length", "512"), answer = number(tree, "data.max_response_length", "512");
  if (prompt < 1 || answer < 1) fail("expected lengths of at least 1 token", place_of(tree, prompt < 1 ? "data.max_prompt_length" : "data.max_response_length"));
  reading.derive("seq_len", std::to_string(prompt + answer), "data.max_prompt_length and data.max_response_length");
  const bool compares = !reading.is("reference", "none");
  if (truth(tree, "actor_rollout_ref.actor.use_dynamic_bsz", false)) {
    if (!truth(tree, "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz", true))
      fail("verl demands that both be the same: rollout.log_prob_use_dynamic_bsz and actor.use_dynamic_bsz",
           place_of(tree, "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz"), "leave the first out");
    if (compares && !truth(tree, "actor_rollout_ref.ref.log_prob_use_dynamic_bsz", true))
      refuse("not modelled: a reference with other micro-batches than by tokens", place_of(tree, "actor_rollout_ref.ref.log_prob_use_dynamic_bsz"), "leave it out");
    const std::int64_t bound = number(tree, "actor_rollout_ref.actor.ppo_max_token_len_per_gpu", "16384");
    const auto bound_of = [&](const char* key) { return stated(tree, key) ? number(tree, key, nullptr) : bound; };
    reading.derive("row_tokens", std::to_string(bound), "ppo_max_token_len_per_gpu");
    reading.derive("score_tokens", std::to_string(bound_of("actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu")), "rollout.log_prob_max_token_len_per_gpu");
    if (compares)
      reading.derive("reference_tokens", std::to_string(bound_of("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu")), "ref.log_prob_max_token_len_per_gpu");
    return;
  }
  const auto sequences = [&](const char* key) {
    const std::int64_t each = number(tree, key, nullptr);
    if (each < 1) fail("how many sequences a micro-batch has is not said: verl asks for " + std::string(key), tree.where, std::string(key) + "=1, or use_dynamic_bsz=True");
    return each;
  };
  const std::int64_t micro = sequences(kMicro), scored = sequences(kScored);
  reading.say("micro_batch", std::to_string(micro), kMicro, place_of(tree, kMicro));
  reading.derive("grad_accum", std::to_string(parts(answers, micro, "answers of a rank and ppo_micro_batch_size_per_gpu", place_of(tree, kMicro), "micro-batches that divide them")),
                 "ppo_mini_batch_size · rollout.n / ranks / ppo_micro_batch_size_per_gpu");
  reading.derive("score_tokens", std::to_string(scored * (prompt + answer)), "rollout.log_prob_micro_batch_size_per_gpu");
  if (compares && !reading.has("lora.r"))
    reading.derive("reference_tokens", std::to_string(sequences(kReference) * (prompt + answer)), "ref.log_prob_micro_batch_size_per_gpu");
}

void read_sharding(Reading& reading, const Node& tree) {
  constexpr const char* kSize = "actor_rollout_ref.actor.fsdp_config.fsdp_size";
  const std::int64_t ranks = reading.count("cluster.nodes") * reading.count("cluster.gpus_per_node"), size = number(tree, kSize, "-1");
  if (size < 0 || size >= ranks) return;
  const std::int64_t replicas = parts(ranks, size, "the ranks and fsdp_size", place_of(tree, kSize), "a group that divides them");
  reading.say("dp_shard", std::to_string(size), kSize, place_of(tree, kSize));
  reading.derive("dp_replicate", std::to_string(replicas), "ranks / fsdp_size");
}

void read(Reading& reading, const Node& tree) {
  refuse_critics(tree);
  reading.derive("trainer", "verl", "verl.trainer.main_ppo");
  reading.derive("task", "grpo", "an algorithm without a critic");
  read_rows(reading, rows(), *Schema::of("verl"), tree, Unknown::refused);
  take_defaults(reading, rows(), kRelease);
  read_adapters(reading, tree);
  read_terms(reading, tree);
  read_batches(reading, tree);
  read_sharding(reading, tree);
  require_language_model(reading, "verl");
}

}  // namespace

void read_verl_command(Reading& reading, std::vector<Node> words) {
  for (Node& word : words) {  // Hydra: + adds a key that the configuration has not, ++ one that it may have
    if (word.text.rfind("--config-name", 0) == 0 && word.text.find("ppo_trainer") == std::string::npos)
      refuse("not modelled: another configuration of verl's than ppo_trainer, found " + word.text.substr(0, 60), word.where, "FSDP's, which is ppo_trainer");
    while (!word.text.empty() && word.text.front() == '+') word.text.erase(0, 1);
  }
  std::erase_if(words, [](const Node& word) { return word.text.rfind("--config-name=", 0) == 0 || word.text.rfind("--config-path=", 0) == 0; });
  std::vector<Node> positional;
  const Node tree = table_of_flags(words, positional);
  if (!positional.empty()) fail("'" + positional.front().text.substr(0, 60) + "' is no override of Hydra's (key=value)", positional.front().where);
  reading.note_format("verl");
  read(reading, tree);
}

Format verl_format() { return {"verl", "verl's command line: FSDP actors, algorithms without a critic", kRelease, rows, recognises, read}; }

}  // namespace plimsoll::formats
