// DPOConfig and GRPOConfig (trl/trainer/dpo_config.py, grpo_config.py; 0.12 to 1.16) beside TrainingArguments.
#include "formats/foreign/trl_trainers.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr const char* kRead = "TRL 1.16";

/// Both trainers'.
#define PLIMSOLL_TRL_SHARED                                                                                                            \
  {"beta", kNothing, "", nullptr, "a factor (grpo: whether there is a reference)"}, {"disable_dropout", kNothing},                    \
      {"dataset_num_proc", kNothing}, {"trust_remote_code", kNothing}, {"pad_token", kNothing}, {"pad_to_multiple_of", kNothing},      \
      {"router_aux_loss_coef", kNothing}, {"ref_model_mixup_alpha", kNothing}, {"ref_model_sync_steps", kNothing},                    \
      {"sync_ref_model", kRefused, "false", nullptr, "a reference that follows the model"},                                            \
      {"use_liger_loss", kRefused, "false", nullptr, "Liger's losses of preferences and rewards"}

const Rows& dpo_rows() {
  static const Rows table = {
      PLIMSOLL_TRL_SHARED,
      {"precompute_ref_log_probs", "reference", "true=precomputed,false=-"},
      {"precompute_ref_batch_size", kNothing, "", nullptr, "of the pass before training"},
      {"loss_type", kNothing, "", nullptr, "numbers of the size of the batch"},
      {"loss_weights", kNothing},
      {"label_smoothing", kNothing},
      {"ld_alpha", kNothing},
      {"f_divergence_type", kNothing},
      {"f_alpha_divergence_coef", kNothing},
      {"discopop_tau", kNothing},
      {"truncation_mode", kNothing},
      {"max_prompt_length", kNothing, "", nullptr, "a bound within max_length"},
      {"max_completion_length", kNothing, "", nullptr, "a bound within max_length"},
      {"label_pad_token_id", kNothing},
      {"padding_value", kNothing},
      {"tools", kNothing},
      {"reference_free", kRefused, "false", nullptr, "DPO without a reference"},
      {"padding_free", kRefused, "false", nullptr, "pairs without padding"},
      {"use_weighting", kRefused, "false", nullptr, "weights of pairs (WPO)"},
      {"rpo_alpha", kRefused, "null", nullptr, "a supervised loss beside DPO's (RPO)"},
      {"force_use_ref_model", kRefused, "false", nullptr, "a model of reference beside adapters"},
      {"model_adapter_name", kRefused, "null", nullptr, "a second adapter as reference"},
      {"ref_adapter_name", kRefused, "null", nullptr, "a second adapter as reference"},
      {"ref_model_init_kwargs", kRefused, "null", nullptr, "a reference of another type"},
      {"use_logits_to_keep", kRefused, "false", nullptr, "logits of the answers alone"},
      {"generate_during_eval", kRefused, "false", nullptr, "answers written in evaluation"},
  };
  return table;
}

const Rows& grpo_rows() {
  static const Rows table = {
      PLIMSOLL_TRL_SHARED,
      {"max_prompt_length", kCode, "", nullptr, "the prompt of a sequence"},
      {"max_completion_length", kCode, "", nullptr, "the answer of a sequence"},
      {"use_vllm", kCode, "", nullptr, "who writes the answers"},
      {"vllm_mode", kCode, "", nullptr, "where the engine runs"},
      {"vllm_gpu_memory_utilization", "engine_share"},
      {"vllm_enable_sleep_mode", "engine_sleeps", "true=true,false=-"},
      {"vllm_importance_sampling_correction", kCode, "", nullptr, "whether answers are scored once more"},
      {"num_iterations", kCode, "", nullptr, "whether answers are scored once more"},
      {"vllm_tensor_parallel_size", kRefused, "1", nullptr, "an engine over several of the trainer's devices"},
      {"generation_batch_size", kRefused, "null", nullptr, "answers of another number than a step learns of"},
      {"steps_per_generation", kRefused, "null", nullptr, "answers of another number than a step learns of"},
      {"cast_lm_head_to_fp32", kRefused, "false", nullptr, "a head in fp32"},
      {"top_entropy_quantile", kRefused, "1.0", nullptr, "tokens chosen by their entropy"},
      {"entropy_coef", kRefused, "0.0", nullptr, "entropy in the loss"},
      {"use_adaptive_entropy", kRefused, "false", nullptr, "entropy in the loss"},
      {"off_policy_mask_threshold", kRefused, "null", nullptr, "masks of answers that are off policy"},
      {"num_generations", kNothing, "", nullptr, "how many answers share a prompt"},
      {"num_generations_eval", kNothing},
      {"ds3_gather_for_generation", kNothing, "", nullptr, "of transformers' generate alone"},
      {"shuffle_dataset", kNothing},
      {"temperature", kNothing},
      {"top_p", kNothing},
      {"top_k", kNothing},
      {"min_p", kNothing},
      {"repetition_penalty", kNothing},
      {"generation_kwargs", kNothing},
      {"chat_template_kwargs", kNothing},
      {"cache_implementation", kNothing, "", nullptr, "of transformers' generate alone"},
      {"vllm_model_impl", kNothing},
      {"vllm_structured_outputs_regex", kNothing},
      {"vllm_guided_decoding_regex", kNothing},
      {"vllm_server_base_url", kNothing},
      {"vllm_server_host", kNothing},
      {"vllm_server_port", kNothing},
      {"vllm_server_timeout", kNothing},
      {"vllm_group_port", kNothing},
      {"vllm_max_model_length", kNothing, "", nullptr, "how the engine deals its share"},
      {"vllm_importance_sampling_mode", kNothing},
      {"vllm_importance_sampling_cap", kNothing},
      {"vllm_importance_sampling_clip_max", kNothing},
      {"vllm_importance_sampling_clip_min", kNothing},
      {"epsilon", kNothing},
      {"epsilon_high", kNothing},
      {"delta", kNothing},
      {"sapo_temperature_neg", kNothing},
      {"sapo_temperature_pos", kNothing},
      {"importance_sampling_level", kNothing},
      {"reward_weights", kNothing},
      {"reward_funcs", kNothing},
      {"multi_objective_aggregation", kNothing},
      {"scale_rewards", kNothing},
      {"loss_type", kNothing, "", nullptr, "numbers of the size of the answers"},
      {"mask_truncated_completions", kNothing},
      {"use_bias_correction_kl", kNothing},
      {"log_completions", kNothing},
      {"log_multimodal", kNothing},
      {"num_completions_to_print", kNothing},
      {"log_unique_prompts", kNothing},
      {"log_completions_hub_repo", kNothing},
      {"wandb_log_unique_prompts", kNothing},
      {"reward_model_name_or_path", kRefused, "null", nullptr, "a model of rewards beside the trainer"},
  };
  return table;
}
#undef PLIMSOLL_TRL_SHARED

bool is_true(const Node* value) { return value && (value->word() == "true" || value->word() == "True"); }

/// beta 0 has no reference (GRPOConfig's default since 0.18).
void read_divergence(Reading& reading, const Node& own) {
  const Node* beta = own.find("beta");
  if (!beta || beta->is_null()) return;
  const bool none = beta->word().find_first_not_of("0.") == std::string::npos;
  if (none) reading.say("reference", "none", "beta", beta->where);
  if (!none && reading.has("lora.r")) reading.derive("reference", "adapter-off", "beta: a KL term against the model with its adapters off");
  if (!none && !reading.has("lora.r"))
    reading.when_model_is_known([where = beta->where](Reading& said, const Model&) {
      said.derive("reference", said.has("lora.r") ? "adapter-off" : "model", "beta: a KL term against what the model was");
    });
}

/// The engine: vLLM's server or vLLM beside the trainer.
void read_engine(Reading& reading, const Node& own) {
  const Node *uses = own.find("use_vllm"), *mode = own.find("vllm_mode");
  if (!is_true(uses))
    refuse("not modelled: answers that transformers' own generate writes", uses ? uses->where : own.where, "use_vllm: true, in either vllm_mode");
  if (mode && mode->word() != "server" && mode->word() != "colocate")
    fail("expected server or colocate, found '" + mode->word().substr(0, 40) + "'", mode->where);
  if (mode) reading.say("rollout", mode->word() == "server" ? "elsewhere" : "colocated", "vllm_mode", mode->where);
}

/// A sequence is a prompt and an answer. Releases from 0.28 on bound the prompt no more: its length is a matter of the data.
void read_lengths(Reading& reading, const Node& own) {
  const Node *prompt = own.find("max_prompt_length"), *answer = own.find("max_completion_length");
  const ProgramDefault usual = program_default(reading, "max_completion_length", "512", kRead);
  const std::string tokens = answer && !answer->is_null() ? answer->word() : usual.word.value_or("512");
  if (!prompt || prompt->is_null())
    fail("how long prompts are is not said, and an answer stands behind one", own.where, "give --prompt-len and --seq, the prompt and " + tokens + " tokens of its answer");
  const auto whole = [](const Node& node) { return std::atoll(node.word().c_str()); };
  const std::int64_t first = whole(*prompt), second = answer && !answer->is_null() ? whole(*answer) : std::atoll(tokens.c_str());
  if (first < 1 || second < 1) fail("expected lengths of at least 1 token", first < 1 ? prompt->where : answer->where);
  reading.say("prompt_len", std::to_string(first), "max_prompt_length", prompt->where);
  reading.derive("seq_len", std::to_string(first + second), "max_prompt_length and max_completion_length");
}

/// Answers are scored once more where steps learn of them twice, or where vLLM's numbers are corrected for.
void read_scoring(Reading& reading, const Node& own) {
  const Node *corrects = own.find("vllm_importance_sampling_correction"), *iterations = own.find("num_iterations");
  const bool again = iterations && !iterations->is_null() && iterations->word() != "1";
  if (again) refuse("not modelled: steps that learn of the same answers again (num_iterations)", iterations->where, "num_iterations: 1");
  if (corrects && !corrects->is_null())
    reading.say("old_log_probs", is_true(corrects) ? "true" : "false", "vllm_importance_sampling_correction", corrects->where);
}

/// SFTConfig's own keys, which the others' parsers do not know; GRPO's sequences have no length of their own either.
void refuse_keys_of_sft(TrlTrainer trainer, const Node& tree) {
  static constexpr std::string_view kOfSft[] = {"packing",     "packing_strategy",     "eval_packing",         "dataset_text_field",
                                                "eos_token",   "assistant_only_loss",  "completion_only_loss", "chat_template_path",
                                                "dataset_kwargs"};
  const char* const config = trainer == TrlTrainer::dpo ? "DPOConfig" : "GRPOConfig";
  for (const auto& [name, value] : tree.members) {
    const bool of_sft = std::find(std::begin(kOfSft), std::end(kOfSft), name) != std::end(kOfSft);
    if (of_sft || (trainer == TrlTrainer::grpo && name == "max_length"))
      fail("unknown key '" + name + "': " + config + " has none", value.where, trainer == TrlTrainer::grpo && !of_sft ? "max_completion_length" : "leave it out: it is SFTConfig's");
  }
}

}  // namespace

TrlTrainer trl_trainer_of_verb(const std::string& verb) {
  return verb == "sft" ? TrlTrainer::sft : verb == "dpo" ? TrlTrainer::dpo : verb == "grpo" ? TrlTrainer::grpo : TrlTrainer::none;
}

TrlTrainer trl_trainer_of_script(const std::string& program) {
  constexpr std::string_view kModule = "trl.scripts.", kFolder = "trl/scripts/", kExamples = "examples/scripts/";
  if (program.rfind(kModule, 0) == 0) return trl_trainer_of_verb(program.substr(kModule.size()));
  for (const std::string_view folder : {kFolder, kExamples}) {
    const std::size_t at = program.find(folder);
    const bool ours = at != std::string::npos && (folder == kFolder || at == 0) && program.ends_with(".py");
    if (ours) return trl_trainer_of_verb(program.substr(at + folder.size(), program.size() - at - folder.size() - 3));
  }
  return TrlTrainer::none;
}

bool is_key_of(TrlTrainer trainer, const std::string& key) {
  return (trainer == TrlTrainer::dpo && find_row(dpo_rows(), key)) || (trainer == TrlTrainer::grpo && find_row(grpo_rows(), key));
}

Node read_trl_trainer(Reading& reading, TrlTrainer trainer, const Node& tree) {
  const Rows& rows = trainer == TrlTrainer::dpo ? dpo_rows() : grpo_rows();
  refuse_keys_of_sft(trainer, tree);
  Node own = Node::table(tree.where), rest = own;
  for (const auto& member : tree.members) (find_row(rows, member.first) ? own : rest).members.push_back(member);
  reading.say("task", trainer == TrlTrainer::dpo ? "dpo" : "grpo", trainer == TrlTrainer::dpo ? "trl dpo" : "trl grpo", tree.where);
  read_rows(reading, rows, own);
  if (trainer == TrlTrainer::dpo) return rest;
  read_engine(reading, own);
  read_divergence(reading, own);
  read_lengths(reading, own);
  read_scoring(reading, own);
  return rest;
}

}  // namespace plimsoll::formats
