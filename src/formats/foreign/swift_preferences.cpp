// ms-swift's training by preferences and rewards (swift/arguments/rlhf_args.py of 4.6): what `swift rlhf` has beside `swift sft`.
#include <algorithm>
#include <cstdlib>

#include "formats/foreign/keys.hpp"
#include "formats/foreign/swift.hpp"
#include "formats/foreign/trl_trainers.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

const Rows& rows() {
  static const Rows table = {
      {"rlhf_type", kCode, "", "dpo", "dpo, kto, orpo, cpo, grpo; gkd; simpo: task cpo; rm: task reward; ppo is refused"},
      {"ref_model", kCode, "", nullptr, "the model itself unless said; another is refused"},
      {"ref_adapters", kRefused, "null", nullptr, "a reference with adapters of its own"},
      {"ref_model_type", kNothing},
      {"ref_model_revision", kNothing},
      {"cpo_alpha", kCode, "", nullptr, "supervised_term"},
      {"loss_type", kCode, "", nullptr, "kl_batch, of kto"},
      {"use_logits_to_keep", kRefused, "true,null", nullptr, "logits of prompts"},
      {"precompute_ref_log_probs", kRefused, "false", nullptr, "numbers from before training"},
      {"beta", kNothing},
      {"label_smoothing", kNothing},
      {"rpo_alpha", kNothing, "", nullptr, "a term of numbers of the batch's size, which are computed either way"},
      {"ld_alpha", kNothing},
      {"discopop_tau", kNothing},
      {"loss_weights", kNothing},
      {"simpo_gamma", kNothing},
      {"desirable_weight", kNothing},
      {"undesirable_weight", kNothing},
      {"center_rewards_coefficient", kNothing},
      {"max_completion_length", kNothing, "", nullptr, "of trainers that write answers"},
      {"task_type", kNothing, "", nullptr, "of rm: seq_cls"},
      {"num_labels", kNothing, "", nullptr, "of rm: 1"},
      // Of trainers that are refused (ppo) or read more of them (gkd), and of models that are (of rewards, a teacher).
      {"num_ppo_epochs", kNothing},
      {"whiten_rewards", kNothing},
      {"kl_coef", kNothing},
      {"cliprange", kNothing},
      {"cliprange_value", kNothing},
      {"vf_coef", kNothing},
      {"gamma", kNothing},
      {"lam", kNothing},
      {"num_mini_batches", kNothing},
      {"local_rollout_forward_batch_size", kNothing},
      {"num_sample_generations", kNothing},
      {"response_length", kNothing},
      {"missing_eos_penalty", kNothing},
      {"lmbda", kNothing, "", nullptr, "of gkd"},
      {"seq_kd", kNothing},
      {"gkd_logits_topk", kNothing},
      {"reward_adapters", kNothing},
      {"reward_model_type", kNothing},
      {"reward_model_revision", kNothing},
      {"reward_template", kNothing},
      {"teacher_adapters", kNothing},
      {"teacher_model_type", kNothing},
      {"teacher_model_revision", kNothing},
      {"teacher_deepspeed", kNothing},
      {"offload_teacher_model", kNothing},
      {"teacher_model_server", kRefused, "null", nullptr, "a teacher"},
  };
  return table;
}

/// Of those, what `rlhf_type: gkd` reads.
const Rows& teacher_rows() {
  static const Rows table = {
      {"teacher_model", kCode, "", nullptr, "teacher, of gkd"},
      {"lmbda", kCode, "", nullptr, "of gkd: the share of steps that learn of the model's own texts: 0 is modelled"},
      {"beta", kCode, "", nullptr, "of gkd: divergence"},
      {"temperature", kNothing},
      {"seq_kd", kRefused, "false", nullptr, "texts that the teacher writes"},
      {"sft_alpha", kRefused, "0,0.0", nullptr, "the model's own loss beside the teacher's"},
      {"gkd_logits_topk", kRefused, "null", nullptr, "the likeliest words alone of a teacher"},
      {"teacher_adapters", kRefused, "null", nullptr, "a teacher with adapters"},
      {"teacher_deepspeed", kRefused, "null", nullptr, "a teacher whose engine is set up otherwise than the model's"},
      {"offload_teacher_model", kRefused, "false", nullptr, "a teacher that lies on the host while it is not asked"},
      {"use_vllm", kNothing, "", nullptr, "of gkd: of texts that the model writes itself"},
      {"log_completions", kNothing},
  };
  return table;
}

/// What `rlhf_type: grpo` has beside those (GRPOArgumentsMixin, RolloutTrainerArgumentsMixin).
const Rows& answer_rows() {
  static const Rows table = {
      {"use_vllm", kCode, "", "false", "of grpo: true; answers that transformers' own generate writes are refused"},
      {"vllm_mode", kCode, "", nullptr, "rollout"},
      {"vllm_gpu_memory_utilization", "engine_share", "", nullptr, "0.9 unless said"},
      {"sleep_level", kCode, "", "0", "engine_sleeps, where it is above 0"},
      {"vllm_max_model_len", kCode, "", nullptr, "a bound of prompt and answer together"},
      {"vllm_tensor_parallel_size", kCode, "", nullptr, "of an engine beside the trainer 1"},
      {"vllm_pipeline_parallel_size", kRefused, "1", nullptr, "an engine over several of the trainer's devices"},
      {"vllm_data_parallel_size", kRefused, "1", nullptr, "an engine over several of the trainer's devices"},
      {"vllm_quantization", kRefused, "null", nullptr, "an engine whose weights are quantised"},
      {"vllm_speculative_config", kRefused, "null", nullptr, "an engine beside a model that drafts"},
      {"vllm_engine_kwargs", kRefused, "null", nullptr, "arguments of the engine itself"},
      {"vllm_enable_expert_parallel", kNothing, "", nullptr, "of an engine on one device nothing"},
      {"vllm_disable_custom_all_reduce", kNothing},
      {"vllm_disable_cascade_attn", kNothing},
      {"vllm_max_lora_rank", kNothing},
      {"vllm_reasoning_parser", kNothing},
      {"vllm_mm_processor_cache_gb", kNothing, "", nullptr, "of the host"},
      {"enable_flattened_weight_sync", kRefused, "true", nullptr, "weights that go to the engine one by one"},
      {"vllm_max_num_seqs", kNothing},
      {"vllm_enable_prefix_caching", kNothing},
      {"vllm_enable_lora", kNothing},
      {"vllm_enforce_eager", kNothing},
      {"vllm_limit_mm_per_prompt", kNothing},
      {"vllm_use_async_engine", kNothing},
      {"vllm_server_base_url", kNothing},
      {"vllm_server_host", kNothing},
      {"vllm_server_port", kNothing},
      {"vllm_server_timeout", kNothing},
      {"vllm_server_group_port", kNothing},
      {"vllm_server_pass_dataset", kNothing},
      {"move_model_batches", kNothing, "", nullptr, "in how many pieces weights go to the engine"},
      {"offload_model", kRefused, "false", nullptr, "weights that lie on the host while answers are written"},
      {"offload_optimizer", kRefused, "false", nullptr, "an optimizer that lies on the host while answers are written"},
      {"async_generate", kRefused, "false", nullptr, "answers that are written while the step before is learnt of"},
      {"steps_per_generation", kCode, "", nullptr, "gradient_accumulation_steps; others are refused"},
      {"generation_batch_size", kRefused, "null", nullptr, "answers that are written for several steps at once"},
      {"num_iterations", kRefused, "1", nullptr, "steps that learn of the same answers again"},
      {"multi_turn_scheduler", kRefused, "null", nullptr, "answers of several turns"},
      {"use_gym_env", kRefused, "false,null", nullptr, "answers of several turns, in an environment"},
      {"gym_env", kNothing},
      {"max_turns", kNothing},
      {"completion_length_limit_scope", kNothing},
      {"log_entropy", kRefused, "false", nullptr, "entropies of whole logits"},
      {"top_entropy_quantile", kRefused, "1,1.0", nullptr, "tokens chosen by their entropy"},
      {"loss_type", kRefused, "grpo,bnpo,dr_grpo,dapo,cispo,sapo", nullptr, "this loss of whole groups"},
      {"reward_model", kRefused, "null", nullptr, "a model of rewards beside the trainer"},
      {"teacher_model", kRefused, "null", nullptr, "a teacher"},
      {"sync_ref_model", kRefused, "false", nullptr, "a reference that follows the model"},
      {"advantage_reweight", kRefused, "null", nullptr, "a teacher of one's own"},
      {"teacher_tag_key", kNothing},
      {"teacher_kl_coef", kNothing},
      {"rlsd_lambda", kNothing},
      {"rlsd_reweight_clip_range", kNothing},
      {"rlsd_lambda_warmup_steps", kNothing},
      {"rlsd_lambda_decay_steps", kNothing},
      {"rlsd_negative_only", kNothing},
      {"sdar_loss_coef", kNothing},
      {"sdar_gate_beta", kNothing},
      {"real_tau", kNothing},
      {"fipo_decay_rate", kNothing},
      {"fipo_clip_range", kNothing},
      {"fipo_clip_high_only", kNothing},
      {"fipo_safety_threshold", kNothing},
      {"external_plugins", kCode, "", nullptr, "told: code of one's own, which gives rewards"},
      {"reward_funcs", kNothing},
      {"reward_weights", kNothing},
      {"reward_model_plugin", kNothing},
      {"num_generations", kNothing, "", nullptr, "of the batch's answers, how many are of one prompt"},
      {"num_generations_eval", kNothing},
      {"dynamic_sample", kNothing, "", nullptr, "which answers are kept"},
      {"max_resample_times", kNothing},
      {"overlong_filter", kNothing},
      {"soft_max_length", kNothing},
      {"soft_cache_length", kNothing},
      {"epsilon", kNothing},
      {"epsilon_high", kNothing},
      {"delta", kNothing},
      {"tau_pos", kNothing},
      {"tau_neg", kNothing},
      {"scale_rewards", kNothing},
      {"advantage_estimator", kNothing},
      {"kl_in_reward", kNothing},
      {"importance_sampling_level", kNothing, "", nullptr, "numbers of the size of the answers"},
      {"rollout_importance_sampling_mode", kNothing, "", nullptr, "numbers of the size of the answers"},
      {"rollout_importance_sampling_threshold", kNothing},
      {"log_rollout_offpolicy_metrics", kNothing},
      {"off_policy_sequence_mask_delta", kNothing},
      {"log_completions", kNothing},
      {"cosine_min_len_value_wrong", kNothing},
      {"cosine_max_len_value_wrong", kNothing},
      {"cosine_min_len_value_correct", kNothing},
      {"cosine_max_len_value_correct", kNothing},
      {"cosine_max_len", kNothing},
      {"repetition_n_grams", kNothing},
      {"repetition_max_penalty", kNothing},
  };
  return table;
}

bool writes_answers(const Node& tree) {
  const Node* type = stated(tree, "rlhf_type");
  return type && type->word() == "grpo";
}

bool has_teacher(const Node& tree) {
  const Node* type = stated(tree, "rlhf_type");
  return type && type->word() == "gkd";
}

/// What `rlhf_type` has beside what all of them have.
const Rows& rows_of_type(const Node& tree) {
  static const Rows none;
  return writes_answers(tree) ? answer_rows() : has_teacher(tree) ? teacher_rows() : none;
}

/// The teacher of `rlhf_type: gkd`.
void read_teacher(Reading& reading, const Node& own) {
  read_distillation(reading, own);
  if (const Node* teacher = stated(own, "teacher_model")) reading.say("teacher", teacher->word(), "teacher_model", teacher->where);
  if (reading.is("liger_kernel", "true")) refuse("not modelled: Liger's loss of GKD", own.where, "use_liger_kernel: false");
}

/// The engine, the reference and the lengths of `rlhf_type: grpo`. A prompt is cut to max_length (truncation_strategy left), and the engine
/// takes no more than vllm_max_model_len.
void read_answers(Reading& reading, const Node& own) {
  const Node *uses = own.find("use_vllm"), *mode = stated(own, "vllm_mode"), *sleeps = stated(own, "sleep_level"),
             *beta = stated(own, "beta");
  if (!is_on(uses))
    refuse("not modelled: answers that transformers' own generate writes", uses ? uses->where : own.where,
           "use_vllm: true, in either vllm_mode");
  if (mode && mode->word() != "server" && mode->word() != "colocate")
    fail("expected server or colocate, found '" + mode->word().substr(0, 40) + "'", mode->where);
  const bool beside = !mode || mode->word() == "colocate";
  if (mode)
    reading.say("rollout", beside ? "colocated" : "elsewhere", "vllm_mode", mode->where);
  else
    reading.assume("rollout", "colocated", "vllm_mode: colocate", kSwiftRelease);
  if (beside && sleeps && sleeps->word() != "0") reading.say("engine_sleeps", "true", "sleep_level", sleeps->where);
  if (!beside) reading.forget("engine_share");
  if (const Node* devices = stated(own, "vllm_tensor_parallel_size"); beside && devices && devices->word() != "1")
    refuse(
        "not modelled: an engine over several of the trainer's devices, found vllm_tensor_parallel_size: " + devices->word().substr(0, 20),
        devices->where, "1");
  const bool compares = !beta || beta->word().find_first_not_of("0.") != std::string::npos;
  if (!compares) reading.say("reference", "none", "beta", beta->where);
  if (compares)
    reading.derive("reference", reading.has("lora.r") ? "adapter-off" : "model",
                   "ms-swift's beta, 0.04 unless said: a KL term against what the model was");
  if (const Node* steps = stated(own, "steps_per_generation"); steps && steps->word() != reading.value("grad_accum"))
    refuse("not modelled: answers that are written for several steps at once, found steps_per_generation: " + steps->word().substr(0, 20),
           steps->where, "gradient_accumulation_steps' number");
  if (reading.is("liger_kernel", "true")) refuse("not modelled: Liger's loss of GRPO", own.where, "use_liger_kernel: false");
  if (const Node* code = stated(own, "external_plugins"))
    reading.leave_unknown("external_plugins: " + code->word().substr(0, 80) + " (code of one's own, of rewards, not modelled)",
                          code->where);
}

void read_lengths(Reading& reading, const Node& own, const Node& rest) {
  const Node *prompt = stated(rest, "max_length"), *answer = stated(own, "max_completion_length"),
             *bound = stated(own, "vllm_max_model_len");
  const std::string tokens = answer ? answer->word() : "512";
  if (!prompt && !bound && reading.is_answered("prompt_len") && reading.is_answered("seq_len")) return;
  if (!prompt && !bound)
    fail("how long prompts are is not said, and an answer stands behind one", own.where,
         "say max_length, or give --prompt-len and --seq, the prompt and " + tokens + " tokens of its answer");
  const auto whole = [](const Node& node) { return std::atoll(node.word().c_str()); };
  const std::int64_t second = std::atoll(tokens.c_str());
  std::int64_t all = prompt ? whole(*prompt) + second : whole(*bound);
  if (bound && whole(*bound) > 0) all = std::min<std::int64_t>(all, whole(*bound));
  if (bound && second > 0 && all > 0 && all <= second) {  // the engine cuts an answer to what its prompt leaves of them
    if (!reading.is_answered("prompt_len"))
      fail("how long prompts are is not said, and an answer has what they leave of vllm_max_model_len: " + std::to_string(all) + " tokens",
           bound->where, "give --prompt-len");
    return reading.say("seq_len", std::to_string(all), "vllm_max_model_len", bound->where);
  }
  if (second < 1 || all <= second)
    fail("a prompt leaves no room for an answer of " + tokens + " tokens", (bound ? bound : prompt)->where,
         "a longer max_length, or vllm_max_model_len");
  const std::string where = (prompt ? prompt : bound)->where;
  reading.say("prompt_len", std::to_string(all - second), prompt ? "max_length" : "vllm_max_model_len", where);
  reading.say("seq_len", std::to_string(all), "max_length and max_completion_length", where);
}

std::string task_of(const Node& own) {
  static const std::pair<const char*, const char*> tasks[] = {{"dpo", "dpo"},   {"kto", "kto"},   {"orpo", "orpo"}, {"cpo", "cpo"},
                                                              {"simpo", "cpo"}, {"rm", "reward"}, {"grpo", "grpo"}, {"gkd", "gkd"}};
  const Node* type = stated(own, "rlhf_type");
  const std::string word = type ? type->word() : "dpo", where = type ? type->where : own.where;
  for (const auto& [theirs, ours] : tasks)
    if (word == theirs) return ours;
  if (word == "ppo") refuse("not modelled: ms-swift's training by rewards (rlhf_type: ppo)", where, "dpo, kto, orpo, cpo, simpo, rm, grpo or gkd");
  fail("expected dpo, kto, orpo, cpo, simpo, rm, grpo, ppo or gkd, found '" + word.substr(0, 40) + "'", where);
}

}  // namespace

SwiftPreferences split_swift_preferences(const Node& tree) {
  SwiftPreferences split{Node::table(tree.where), Node::table(tree.where)};
  const bool answers = writes_answers(tree);
  const auto is_own = [&](const std::string& name) { return find_row(rows(), name) || find_row(rows_of_type(tree), name); };
  for (const auto& member : tree.members) (is_own(member.first) ? split.own : split.rest).members.push_back(member);
  (void)task_of(split.own);  // a trainer that is not modelled is named before keys that it alone has
  for (const char* key : {"packing", "padding_free"})  // a row holds both answers of all its pairs (PackingDataset)
    if (const Node* value = tree.find(key); is_on(value))
      refuse(std::string("not modelled: ") + (answers ? "answers" : "preferences") + " packed into rows, found " + key + ": true",
             value->where, "set it to false");
  return split;
}

bool read_answer_lengths(Reading& reading, const SwiftPreferences& split) {
  const bool answers = writes_answers(split.own);
  if (answers) read_lengths(reading, split.own, split.rest);
  return answers;
}

void read_swift_preferences(Reading& reading, const Node& own, const Node* model) {
  const bool answers = writes_answers(own);
  Rows known = rows();
  const Rows& further = rows_of_type(own);
  std::erase_if(known, [&](const Row& row) { return find_row(further, row.foreign) != nullptr; });
  known.insert(known.end(), further.begin(), further.end());
  read_rows(reading, known, own);
  const Node *type = own.find("rlhf_type"), *reference = stated(own, "ref_model"), *loss = stated(own, "loss_type");
  if (reference && (!model || reference->word() != model->word()))
    refuse("not modelled: a reference that is another model, found ref_model: " + reference->word().substr(0, 60), reference->where, "leave it out: it is the model itself");
  const std::string task = task_of(own);
  reading.forget("task");
  reading.say("task", task, "rlhf_type", type ? type->where : own.where);
  if (answers) read_answers(reading, own);
  if (has_teacher(own)) read_teacher(reading, own);
  if (task == "cpo") read_supervised_term(reading, own);
  if (task == "kto" && loss) reading.say("kl_batch", loss->word() == "apo_zero_unpaired" ? "false" : "true", "loss_type", loss->where);
  reading.derive("trainer", "ms-swift", "ms-swift's own forward (rlhf_trainers)");
}

}  // namespace plimsoll::formats
