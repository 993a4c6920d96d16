// Keys of TRL's configurations of preferences and rewards (trl/trainer/dpo_config.py, grpo_config.py, reward_config.py, kto_config.py and
// rloo_config.py, trl/experimental/orpo, cpo and gkd; 0.12 to 1.16) beside TrainingArguments'.
#include "formats/foreign/trl_trainers.hpp"

namespace plimsoll::formats {
namespace {

Rows joined(Rows first, const Rows& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

/// A trainer's own rows behind those that all of them have.
Rows with_shared(const Rows& own) {
  static const Rows shared = {
      {"disable_dropout", "disable_dropout", "true=true,false=false"},
      {"dataset_num_proc", kNothing},
      {"trust_remote_code", kNothing},
      {"pad_token", kNothing},
      {"pad_to_multiple_of", kNothing},
      {"use_liger_loss", kRefused, "false", nullptr, "Liger's losses of preferences and rewards"},
  };
  return joined(shared, own);
}

/// The same with those of the trainers that compare with a reference.
Rows with_reference(const Rows& own) {
  static const Rows compared = {
      {"beta", kNothing, "", nullptr, "a factor (grpo, rloo: whether there is a reference)"},
      {"router_aux_loss_coef", kCode, "", nullptr, "router_loss: of a mixture, whether its routers' balance is learnt of"},
      {"ref_model_mixup_alpha", kNothing},
      {"ref_model_sync_steps", kNothing},
      {"sync_ref_model", kRefused, "false", nullptr, "a reference that follows the model"},
  };
  return with_shared(joined(compared, own));
}

const Rows& dpo_rows() {
  static const Rows table = with_reference({
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
  });
  return table;
}

const Rows& kto_rows() {
  static const Rows table = with_reference({
      {"precompute_ref_log_probs", "reference", "true=precomputed,false=-"},
      {"precompute_ref_batch_size", kNothing, "", nullptr, "of the pass before training"},
      {"loss_type", "kl_batch", "kto=true,apo_zero_unpaired=false", "kto", "whether answers behind others' prompts are scored as well"},
      {"desirable_weight", kNothing},
      {"undesirable_weight", kNothing},
      {"truncation_mode", kNothing},
      {"max_prompt_length", kNothing, "", nullptr, "a bound within max_length"},
      {"max_completion_length", kNothing, "", nullptr, "a bound within max_length"},
      {"label_pad_token_id", kNothing},
      {"padding_value", kNothing},
      {"base_model_attribute_name", kNothing, "", nullptr, "of Liger's loss alone"},
      {"train_sampling_strategy", kNothing},
      {"is_encoder_decoder", kRefused, "false,null", nullptr, "models of an encoder and a decoder"},
      {"ref_model_init_kwargs", kRefused, "null", nullptr, "a reference of another type"},
      {"model_adapter_name", kRefused, "null", nullptr, "a second adapter as reference"},
      {"ref_adapter_name", kRefused, "null", nullptr, "a second adapter as reference"},
      {"generate_during_eval", kRefused, "false", nullptr, "answers written in evaluation"},
  });
  return table;
}

/// ORPOConfig's, which are CPOConfig's as well.
const Rows& orpo_rows() {
  static const Rows table = with_shared({
      {"beta", kNothing},
      {"truncation_mode", kNothing},
      {"max_prompt_length", kNothing, "", nullptr, "a bound within max_length"},
      {"max_completion_length", kNothing, "", nullptr, "of models of an encoder and a decoder alone"},
      {"label_pad_token_id", kNothing},
      {"padding_value", kNothing},
      {"is_encoder_decoder", kRefused, "false,null", nullptr, "models of an encoder and a decoder"},
      {"generate_during_eval", kRefused, "false", nullptr, "answers written in evaluation"},
  });
  return table;
}

const Rows& cpo_rows() {
  static const Rows table = joined(orpo_rows(), {
      {"cpo_alpha", kCode, "", nullptr, "whether the better answer's next token is learnt as well"},
      {"loss_type", kNothing, "", nullptr, "numbers of the size of the batch"},
      {"label_smoothing", kNothing},
      {"simpo_gamma", kNothing},
      {"alpha", kNothing, "", nullptr, "AlphaPO's, numbers of the size of the batch"},
  });
  return table;
}

const Rows& reward_rows() {
  static const Rows table = with_shared({
      {"center_rewards_coefficient", kNothing, "", nullptr, "numbers of the size of the batch"},
      {"chat_template_path", kNothing},
      {"eos_token", kNothing},
  });
  return table;
}

/// GKDConfig's beside SFTConfig's (trl/experimental/gkd/gkd_config.py).
const Rows& gkd_rows() {
  static const Rows table = with_shared({
      {"teacher_model_name_or_path", "teacher"},
      {"teacher_model_init_kwargs", kRefused, "null", nullptr, "a teacher that is loaded otherwise than the model"},
      {"lmbda", kCode, "", nullptr, "the share of steps that learn of the model's own texts: 0 is modelled"},
      {"beta", kCode, "", nullptr, "divergence: 0 forward, 1 reverse, else from the mixture"},
      {"temperature", kNothing, "", nullptr, "a factor"},
      {"max_new_tokens", kNothing, "", nullptr, "of texts that the model writes itself"},
      {"seq_kd", kRefused, "false", nullptr, "texts that the teacher writes"},
  });
  return table;
}

/// What GRPOConfig and RLOOConfig have of writing answers.
const Rows& writing_rows() {
  static const Rows table = {
      {"max_prompt_length", kCode, "", nullptr, "the prompt of a sequence"},
      {"max_completion_length", kCode, "", nullptr, "the answer of a sequence"},
      {"use_vllm", kCode, "", nullptr, "who writes the answers"},
      {"vllm_mode", kCode, "", nullptr, "where the engine runs"},
      {"vllm_gpu_memory_utilization", "engine_share"},
      {"vllm_enable_sleep_mode", "engine_sleeps", "true=true,false=-"},
      {"vllm_tensor_parallel_size", kRefused, "1", nullptr, "an engine over several of the trainer's devices"},
      {"generation_batch_size", kRefused, "null", nullptr, "answers of another number than a step learns of"},
      {"steps_per_generation", kRefused, "null", nullptr, "answers of another number than a step learns of"},
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
      {"epsilon", kNothing},
      {"epsilon_high", kNothing},
      {"reward_weights", kNothing},
      {"reward_funcs", kNothing},
      {"mask_truncated_completions", kNothing},
      {"log_completions", kNothing},
      {"log_multimodal", kNothing},
      {"num_completions_to_print", kNothing},
      {"log_unique_prompts", kNothing},
      {"wandb_log_unique_prompts", kNothing},
      {"reward_model_name_or_path", kRefused, "null", nullptr, "a model of rewards beside the trainer"},
  };
  return table;
}

Rows with_writing(const Rows& own) {
  return with_reference(joined(writing_rows(), own));
}

const Rows& grpo_rows() {
  static const Rows table = with_writing({
      {"vllm_importance_sampling_correction", kCode, "", nullptr, "whether answers are scored once more"},
      {"num_iterations", kCode, "", nullptr, "whether answers are scored once more"},
      {"cast_lm_head_to_fp32", kRefused, "false", nullptr, "a head in fp32"},
      {"top_entropy_quantile", kRefused, "1.0", nullptr, "tokens chosen by their entropy"},
      {"entropy_coef", kRefused, "0.0", nullptr, "entropy in the loss"},
      {"use_adaptive_entropy", kRefused, "false", nullptr, "entropy in the loss"},
      {"off_policy_mask_threshold", kRefused, "null", nullptr, "masks of answers that are off policy"},
      {"vllm_importance_sampling_mode", kNothing},
      {"vllm_importance_sampling_cap", kNothing},
      {"vllm_importance_sampling_clip_max", kNothing},
      {"vllm_importance_sampling_clip_min", kNothing},
      {"delta", kNothing},
      {"sapo_temperature_neg", kNothing},
      {"sapo_temperature_pos", kNothing},
      {"importance_sampling_level", kNothing},
      {"multi_objective_aggregation", kNothing},
      {"scale_rewards", kNothing},
      {"loss_type", kNothing, "", nullptr, "numbers of the size of the answers"},
      {"use_bias_correction_kl", kNothing},
      {"log_completions_hub_repo", kNothing},
  });
  return table;
}

const Rows& rloo_rows() {
  static const Rows table = with_writing({
      {"num_iterations", kRefused, "1", nullptr, "steps that learn of the same answers again"},
      {"normalize_advantages", kNothing},
      {"reward_clip_range", kNothing},
  });
  return table;
}

}  // namespace

const Rows& rows_of(TrlTrainer trainer) {
  static const Rows none;
  switch (trainer) {
    case TrlTrainer::reward:
      return reward_rows();
    case TrlTrainer::dpo:
      return dpo_rows();
    case TrlTrainer::kto:
      return kto_rows();
    case TrlTrainer::orpo:
      return orpo_rows();
    case TrlTrainer::cpo:
      return cpo_rows();
    case TrlTrainer::gkd:
      return gkd_rows();
    case TrlTrainer::grpo:
      return grpo_rows();
    case TrlTrainer::rloo:
      return rloo_rows();
    default:
      return none;
  }
}

}  // namespace plimsoll::formats
