// Lines and files of programs that extend TrainingArguments: TRL, ms-swift, LLaMA-Factory. Each value is the program's own by the source that is
// named above its cases.
#include "wild.hpp"

namespace plimsoll {
namespace {

class TrainerLines : public testing::TestWithParam<Wild> {};

TEST_P(TrainerLines, AreReadTrulyOrRefused) { expect_read_truly(GetParam()); }

// ---- TRL: sft_config.py, base_config.py and model_config.py of 1.16, scripts/utils.py (TrlParser), cli/commands/training.py ------------------
const std::string kModel = "--model_name_or_path meta-llama/Llama-3.2-1B ";

Wild trl(const std::string& what, const std::string& flags, Keys keys, const std::string& refusal = {}) {
  return {"trl, " + what, "t.sh", "trl sft " + kModel + flags + "\n", "", std::move(keys), refusal};
}

Wild script(const std::string& what, const std::string& text, Keys keys, const std::string& refusal = {}) {
  return {"line, " + what, "t.sh", text + "\n", "", std::move(keys), refusal};
}

// ---- ms-swift: sft_args.py, trainers/arguments.py and tuner_args.py of 4.6, cli/main.py -----------------------------------------------------
Wild swift(const std::string& what, const std::string& flags, Keys keys, const std::string& refusal = {}) {
  return {"ms-swift, " + what, "s.sh", "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-1.5B --dataset a --max_length 1024 " + flags + "\n", "",
          std::move(keys), refusal};
}

// ---- ms-swift over Megatron: megatron/arguments/megatron_args.py of 4.6, mcore_bridge 1.6 ---------------------------------------------------
Wild over_megatron(const std::string& what, const std::string& flags, Keys keys, const std::string& refusal = {}) {
  return {"megatron-swift, " + what, "m.sh", "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-7B --dataset a --max_length 2048 " + flags + "\n", "",
          std::move(keys), refusal};
}

// ---- nanotron: config/config.py, parallelism_config.py and models_config.py of 2026-04 -------------------------------------------------------
Wild nanotron(const std::string& what, const std::string& parallelism, const std::string& more, Keys keys, const std::string& refusal = {}) {
  return {"nanotron, " + what, "n.yaml",
          "parallelism: {" + parallelism + "}\ntokens: {sequence_length: 2048, micro_batch_size: 2, batch_accumulation_per_replica: 4, train_steps: 10}\n"
          "model:\n  model_config: {is_llama_config: true, hidden_size: 1024, intermediate_size: 4096, num_attention_heads: 16, num_hidden_layers: 8, "
          "vocab_size: 32000}\n" + more,
          "", std::move(keys), refusal};
}

// ---- verl: trainer/config/_generated_ppo_trainer.yaml of 0.9.1, workers/config and trainer/ppo/v1/trainer_base.py ------------------------------
const std::string kVerl =
    "#!/bin/bash\nset -x\nGPUS=${GPUS:-8}\npython3 -m verl.trainer.main_ppo \\\n  algorithm.adv_estimator=grpo \\\n  data.train_files=$HOME/d.parquet "
    "data.train_batch_size=256 data.max_prompt_length=512 data.max_response_length=$((1024 + 512)) \\\n  "
    "actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.rollout.name=vllm \\\n  "
    "actor_rollout_ref.rollout.n=5 trainer.logger='[\"console\",\"wandb\"]' trainer.n_gpus_per_node=$GPUS trainer.nnodes=1 ";
const std::string kBySequences = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 ";

Wild verl(const std::string& what, const std::string& more, Keys keys, const std::string& refusal = {}) {
  return {"verl, " + what, "v.sh", kVerl + more + " \"$@\"\n", "", std::move(keys), refusal};
}

const Wild kLines[] = {
    nanotron("a world that follows from its degrees", "dp: 16, tp: 2, pp: 1", "", {}, "and 32 run (dp · tp · pp) (--on 32xh100-sxm"),
    // 64 prompts of 5 answers each over 8 ranks are 40 answers of a rank, 5 micro-batches of 8; 4 such updates a rollout.
    verl("by sequences", kBySequences,
         {{"trainer", "verl"}, {"task", "grpo"}, {"seq_len", "2048"}, {"prompt_len", "512"}, {"answers", "40"}, {"updates", "4"}, {"micro_batch", "8"},
          {"grad_accum", "5"}, {"score_tokens", "32768"}, {"reference", "none"}, {"data_parallel", "fsdp1"}, {"recompute", "full"}, {"param_dtype", "fp32"},
          {"engine_share", "0.5"}, {"engine_sleeps", "true"}, {"engine_tp", "2"}, {"params_rest", "false"}, {"cluster.gpus_per_node", "8"}, {"row_tokens", "(nothing)"}}),
    verl("by tokens, with a KL term", "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24000 "
         "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.ref.log_prob_max_token_len_per_gpu=32000 actor_rollout_ref.actor.strategy=fsdp2",
         {{"row_tokens", "24000"}, {"score_tokens", "24000"}, {"reference_tokens", "32000"}, {"reference", "model"}, {"data_parallel", "fsdp2"},
          {"answers", "40"}, {"micro_batch", "(nothing)"}}),
    verl("what rests, a term of entropy, a temperature", kBySequences +
         "+actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.optimizer_offload=True "
         "actor_rollout_ref.actor.entropy_coeff=0.001 actor_rollout_ref.rollout.temperature=0.7 actor_rollout_ref.actor.ppo_epochs=2",
         {{"params_rest", "true"}, {"states_rest", "true"}, {"learns_entropy", "true"}, {"scales_logits", "true"}, {"updates", "8"}}),
    verl("adapters against themselves", kBySequences + "actor_rollout_ref.model.lora_rank=32 actor_rollout_ref.model.lora_alpha=64 "
         "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.model.target_modules=[q_proj,v_proj]",
         {{"lora.r", "32"}, {"lora.alpha", "64"}, {"lora.target_modules", "q_proj,v_proj"}, {"reference", "adapter-off"}}),
    verl("shards within 4 ranks", kBySequences + "actor_rollout_ref.actor.fsdp_config.fsdp_size=4", {{"dp_shard", "4"}, {"dp_replicate", "2"}}),
    verl("a critic", kBySequences + "algorithm.adv_estimator=gae", {}, "a critic"),
    verl("a model of rewards", kBySequences + "reward_model.enable=True", {}, "a model of rewards"),
    verl("Megatron's actors", kBySequences + "actor_rollout_ref.actor.strategy=megatron", {}, "actor.strategy"),
    verl("Ulysses", kBySequences + "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2", {}, "Ulysses' sequence parallelism"),
    verl("SGLang", kBySequences + "actor_rollout_ref.rollout.name=sglang", {}, "this engine beside verl's actor"),
    verl("micro-batches of no size", "", {}, "verl asks for actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"),
    verl("answers that no rank has whole", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=7 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8", {},
         "40 is no multiple of 7"),
    verl("a misspelt key", kBySequences + "actor_rollout_ref.actor.use_dynamic_bzs=True", {}, "did you mean 'actor_rollout_ref.actor.use_dynamic_bsz'?"),
    verl("workers before 0.8", kBySequences + "trainer.use_legacy_worker_impl=enable", {}, "the workers of verl before 0.8"),
    script("a release before its workers", "pip install verl==0.5.0\n" + kVerl + kBySequences, {}, "verl 0.5.0 is not modelled"),
    script("verl's own default, a critic", "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B", {}, "verl's default"),
    nanotron("its own defaults", "dp: 4, tp: 2, pp: 1", "",
             {{"framework", "nanotron"}, {"dp", "4"}, {"tp", "2"}, {"gpus", "8"}, {"sequence_parallel", "false"}, {"recompute", "none"}, {"precision", "bf16"},
              {"data_parallel", "ddp"}, {"grad_accum", "4"}, {"micro_batch", "2"}, {"seq_len", "2048"}, {"clip_grad_norm", "false"}}),
    nanotron("sequences cut", "dp: 4, tp: 2, pp: 1, tp_mode: REDUCE_SCATTER, recompute_layer: true", "optimizer: {zero_stage: 1, clip_grad: 0.5}\n",
             {{"sequence_parallel", "true"}, {"recompute", "full"}, {"data_parallel", "zero1"}, {"clip_grad_norm", "0.5"}}),
    nanotron("all forwards first", "dp: 4, tp: 1, pp: 2", "", {{"pp_schedule", "gpipe"}, {"pp", "2"}}),
    nanotron("one forward, one backward", "dp: 4, tp: 1, pp: 2, pp_engine: 1f1b", "", {{"pp_schedule", "1f1b"}}),
    nanotron("another engine", "dp: 4, tp: 1, pp: 2, pp_engine: zb", "", {}, "'zb' is no value of parallelism.pp_engine"),
    nanotron("more ranks than devices", "dp: 8, tp: 2, pp: 1", "", {}, "16"),
    nanotron("experts", "dp: 8, tp: 1, pp: 1, expert_parallel_size: 8", "", {}, "nanotron's expert parallelism"),
    nanotron("a misspelt degree", "dp: 8, tp: 1, pp: 1, recompute_layers: true", "", {}, "did you mean 'parallelism.recompute_layer'?"),
    nanotron("no degree", "dp: 8, tp: 1", "", {}, "does not say pp"),
    nanotron("a stage of its own length", "dp: 8, tp: 1, pp: 1", "data_stages: [{name: a, start_training_step: 1, sequence_length: 4096}]\n", {},
             "sequences of its own length"),
    nanotron("gradients in bf16", "dp: 8, tp: 1, pp: 1", "optimizer: {zero_stage: 0, accumulate_grad_in_fp32: false}\n", {}, "not accumulated in fp32"),
    {"nanotron, its Qwen2", "n.yaml", "parallelism: {dp: 8, tp: 1, pp: 1}\ntokens: {sequence_length: 512, micro_batch_size: 1}\nmodel: {model_config: "
     "{is_qwen2_config: true, hidden_size: 64}}\n", "", {}, "nanotron's other models (is_qwen2_config)"},
    {"nanotron, sizes that are none", "n.yaml", "parallelism: {dp: 8, tp: 1, pp: 1}\ntokens: {sequence_length: 512, micro_batch_size: 1}\nmodel: "
     "{model_config: {is_llama_config: true, hidden_size: wide}}\n", "", {}, "'wide' is no size of a model"},
    over_megatron("its own defaults", "",
                  {{"framework", "megatron-core"}, {"data_parallel", "megatron-distopt"}, {"recompute", "selective"}, {"cross_entropy_fusion", "native"},
                   {"attention", "flash"}, {"micro_batch", "1"}, {"global_batch", "16"}, {"precision", "bf16"}, {"make_vocab_size_divisible_by", "1"},
                   {"seq_len", "2048"}, {"tp", "1"}, {"model.positions", "(nothing)"}}),
    over_megatron("degrees", "--tensor_model_parallel_size 2 --sequence_parallel true --pipeline_model_parallel_size 2 --global_batch_size 32",
                  {{"tp", "2"}, {"pp", "2"}, {"sequence_parallel", "true"}, {"global_batch", "32"}}),
    over_megatron("sequences are whole with one rank", "--sequence_parallel true", {{"sequence_parallel", "(nothing)"}}),
    over_megatron("no recomputation", "--recompute_granularity none --use_distributed_optimizer false", {{"recompute", "none"}, {"data_parallel", "ddp"}}),
    over_megatron("half precision", "--torch_dtype float16", {{"precision", "fp16"}}),
    over_megatron("adapters", "--tuner_type lora --lora_rank 8", {}, "adapters over Megatron's layers"),
    over_megatron("several tokens", "--mtp_num_layers 1", {}, "predictions of several tokens"),
    over_megatron("uneven stages", "--pipeline_model_parallel_size 2 --decoder_last_pipeline_num_layers 13", {}, "stages of different sizes"),
    over_megatron("a misspelt degree", "--tensor_model_parallel_sise 2", {}, "did you mean 'tensor_model_parallel_size'?"),
    over_megatron("sizes of a model are none of its keys", "--num_layers 2", {}, "unknown key 'num_layers'"),
    over_megatron("weighted tokens", "--loss_scale hermes", {}, "weighted token by token"),
    over_megatron("what a binary weight leaves out", "--loss_scale ignore_empty_think", {{"micro_batch", "1"}}),
    script("megatron-swift, experts", "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B --dataset a --max_length 2048 --expert_model_parallel_size 8",
           {{"ep", "8"}, {"etp", "1"}, {"moe_dispatcher", "alltoall"}, {"moe_grouped_gemm", "true"}}),
    script("megatron-swift, preferences", "megatron rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B", {}, "which 'megatron rlhf' does"),

    trl("its own defaults", "--output_dir o",
        {{"seq_len", "1024"}, {"recompute", "full"}, {"recompute_reentrant", "false"}, {"precision", "bf16"}, {"param_dtype", "fp32"}, {"micro_batch", "8"},
         {"task", "trl-sft"}}),
    trl("half precision by word", "--fp16", {{"precision", "fp16"}}),
    trl("neither", "--bf16 false", {{"precision", "(nothing)"}, {"mixed_precision", "no"}}),
    trl("no checkpoints", "--gradient_checkpointing False --max_length 4096 --dtype bfloat16", {{"recompute", "none"}, {"seq_len", "4096"},
        {"param_dtype", "bf16"}}),
    trl("adapters", "--use_peft --lora_r 8 --lora_target_modules q_proj v_proj", {{"lora.r", "8"}, {"lora.alpha", "32"}, {"lora.dropout", "0.05"},
        {"lora.target_modules", "q_proj,v_proj"}}),
    trl("sizes of adapters alone train all weights", "--lora_r 8", {}, "lora_r without use_peft"),
    trl("Accelerate's flags", "--num_processes 8 --use_deepspeed --zero_stage 2", {{"gpus", "8"}, {"zero_stage", "2"}, {"param_dtype", "(nothing)"}}),
    trl("a configuration of its own", "--accelerate_config zero3 --use_peft", {{"zero_stage", "3"}, {"gpus", "8"}, {"zero_init", "true"},
        {"recompute_reentrant", "true"}}),
    trl("FSDP2 by name", "--accelerate_config fsdp2", {{"data_parallel", "fsdp2"}, {"fsdp.reshard_after_forward", "always"}}),
    trl("a misspelt configuration", "--accelerate_config zero4", {}, "no configuration 'zero4' of TRL"),
    trl("another program's key", "--model_max_length 2048", {}, "did you mean 'max_length'?"),
    trl("a misspelt key", "--per_device_train_batch_sise 2", {}, "did you mean 'per_device_train_batch_size'?"),
    trl("a key of no program", "--zzzz 1", {}, "unknown key 'zzzz'"),
    trl("an old name of the fused head's loss", "--loss_type chunked_nll", {{"task", "trl-sft"}}),
    trl("a factor of each token's loss", "--loss_type dft", {{"task", "trl-sft"}}),
    trl("a loss of no name", "--loss_type nlll", {}, "expected nll, dft or chunked_nll"),
    trl("routers whose balance is weighted with nothing", "--router_aux_loss_coef 0.0", {{"router_loss", "false"}}),
    trl("a file that is nowhere", "--config nowhere.yaml", {}, "nowhere.yaml"),
    trl("sequences without padding", "--padding_free", {}, "sequences without padding"),
    trl("an expression of adapters", "--use_peft --lora_r 8 --lora_target_modules '.*\\.(q|v)_proj'", {{"lora.target_modules", "self_attn.q_proj,self_attn.v_proj"}}),
    trl("a single name, which is an expression to PEFT", "--use_peft --lora_r 8 --lora_target_modules q_proj", {}, "no linear's whole path matches"),
    trl("all linears by PEFT's own word", "--use_peft --lora_r 8 --lora_target_modules all-linear", {{"lora.target_modules", "all-linear"}}),
    trl("adapters under DDP, which looks for what gets no gradient", "--use_peft", {{"recompute", "full"}, {"ddp.find_unused_parameters", "true"}}),
    swift("adapters of a type of one's own", "--torch_dtype bfloat16 --lora_dtype bfloat16", {}, "adapters of bfloat16 over weights"),
    swift("adapters of a type of one's own over 4 bits", "--torch_dtype bfloat16 --lora_dtype bfloat16 --quant_method bnb --quant_bits 4", {{"lora.adapter_dtype", "bf16"}}),
    swift("sequences without padding", "--torch_dtype bfloat16 --padding_free true --attn_impl flash_attn", {{"attention", "flash"}, {"micro_batch", "1"}}),
    script("ms-swift's pairs without padding", "NPROC_PER_NODE=8 swift rlhf --rlhf_type kto --model Qwen/Qwen2.5-7B --torch_dtype bfloat16 --padding_free true", {},
           "preferences packed into rows"),
    trl("offloaded activations", "--activation_offloading", {}, "offload of activations"),
    trl("its file", "--config c.yaml --per_device_train_batch_size 4", {}, "c.yaml"),
    script("TRL's file under flags", "cat > c.yaml <<E\nmodel_name_or_path: meta-llama/Llama-3.2-1B\nmax_length: 512\nper_device_train_batch_size: 2\nE\n"
           "trl sft --config c.yaml --per_device_train_batch_size 4", {{"seq_len", "512"}, {"micro_batch", "4"}}),
    script("TRL's file is a list", "cat > c.yaml <<E\n- a\n- b\nE\ntrl sft --config c.yaml", {}, "expected a table of keys"),
    script("a release before its defaults", "pip install trl==0.18.0 transformers==4.52.0\ntrl sft " + kModel + "--per_device_train_batch_size 2",
           {{"recompute", "none"}, {"mixed_precision", "no"}, {"param_dtype", "(nothing)"}, {"seq_len", "1024"}}),
    script("a release after bf16 and before checkpoints", "pip install trl==0.20.0 transformers==4.52.0\ntrl sft " + kModel,
           {{"recompute", "none"}, {"precision", "bf16"}, {"param_dtype", "fp32"}}),
    script("a release whose loss goes by chunks", "pip install trl==1.12.0\ntrl sft " + kModel, {}, "the default of TRL 1.7 to 1.14"),
    script("a loss by chunks", "pip install trl==1.12.0\ntrl sft " + kModel + "--loss_type chunked_nll", {}, "over chunks of tokens"),
    script("DFT of whole logits", "pip install trl==1.8.0\ntrl sft " + kModel + "--loss_type dft", {}, "DFT before 1.15"),
    script("dropout that stays", "trl dpo " + kModel + "--disable_dropout false", {{"task", "dpo"}, {"disable_dropout", "false"}}),
    script("a whole loss by word", "pip install trl==1.8.0\ntrl sft " + kModel + "--loss_type nll", {{"seq_len", "1024"}}),
    script("a fused head, whatever is said", "pip install trl==1.15.0\ntrl sft " + kModel + "--loss_type nll", {{"task", "trl-sft"}}),
    script("DPO", "trl dpo " + kModel + "--per_device_train_batch_size 2 --beta 0.05 --loss_type ipo --precompute_ref_log_probs",
           {{"task", "dpo"}, {"seq_len", "1024"}, {"micro_batch", "2"}, {"reference", "precomputed"}, {"recompute", "full"}, {"precision", "bf16"}}),
    script("DPO's script", "accelerate launch --num_processes 8 trl/scripts/dpo.py " + kModel + "--max_length 2048 --use_peft --lora_r 16",
           {{"task", "dpo"}, {"seq_len", "2048"}, {"lora.r", "16"}, {"gpus", "8"}, {"reference", "(nothing)"}}),
    script("DPO of weighted pairs", "trl dpo " + kModel + "--use_weighting", {}, "weights of pairs (WPO)"),
    script("DPO with a supervised loss", "trl dpo " + kModel + "--rpo_alpha 1.0", {}, "a supervised loss beside DPO's"),
    script("a key of SFT under DPO", "trl dpo " + kModel + "--packing", {}, "packing"),
    script("GRPO", "trl grpo " + kModel + "--use_vllm --vllm_mode colocate --vllm_gpu_memory_utilization 0.4 --max_prompt_length 256 --max_completion_length 768",
           {{"task", "grpo"}, {"seq_len", "1024"}, {"prompt_len", "256"}, {"rollout", "colocated"}, {"engine_share", "0.4"}}),
    script("GRPO with a KL term", "trl grpo " + kModel + "--use_vllm --vllm_mode server --max_prompt_length 256 --beta 0.04",
           {{"seq_len", "768"}, {"rollout", "elsewhere"}, {"reference", "model"}}),
    script("GRPO without an engine", "trl grpo " + kModel + "--max_prompt_length 256", {}, "transformers' own generate"),
    script("GRPO of prompts of no length", "trl grpo " + kModel + "--use_vllm", {}, "how long prompts are is not said"),
    script("GRPO's engine over several devices", "trl grpo " + kModel + "--use_vllm --vllm_tensor_parallel_size 2", {}, "over several of the trainer's devices"),
    script("TRL's script", "accelerate launch --num_processes 8 trl/scripts/sft.py " + kModel + "--dataset_name a", {{"recompute", "full"}, {"gpus", "8"}}),
    script("TRL's module", "torchrun --nproc_per_node 8 -m trl.scripts.sft " + kModel, {{"recompute", "full"}, {"precision", "bf16"}}),
    script("a script with TRL's keys", "torchrun --nproc_per_node 8 my_sft.py " + kModel + "--packing --dataset_text_field text --output_dir o",
           {{"recompute", "full"}, {"packed", "true"}}),
    script("a script of the Trainer's", "torchrun --nproc_per_node 8 run_clm.py " + kModel + "--output_dir o --block_size 512 --bf16", {{"recompute", "none"}}),
    script("preferences", "accelerate launch scripts/run_dpo.py " + kModel, {}, "which scripts/run_dpo.py does"),
    script("a reward model", "trl reward " + kModel + "--center_rewards_coefficient 0.01 --max_length 2048", {{"task", "reward"}, {"seq_len", "2048"}, {"recompute", "full"}}),
    script("a reward model's tokens are whole", "trl reward " + kModel + "--max_completion_length 64", {}, "max_completion_length"),
    script("KTO", "trl kto " + kModel + "--desirable_weight 1.5", {{"task", "kto"}, {"kl_batch", "(nothing)"}, {"seq_len", "1024"}}),
    script("KTO without a KL term", "trl kto " + kModel + "--loss_type apo_zero_unpaired", {{"task", "kto"}, {"kl_batch", "false"}}),
    script("ORPO's script", "python examples/scripts/orpo.py " + kModel + "--max_length 1024 --beta 0.1", {{"task", "orpo"}, {"seq_len", "1024"}}),
    script("SimPO by CPO's script", "python examples/scripts/cpo.py " + kModel + "--loss_type simpo --cpo_alpha 0.0", {{"task", "cpo"}, {"supervised_term", "false"}}),
    script("ORPO is no verb of TRL's", "trl orpo " + kModel, {}, "which 'trl orpo' does"),
    script("GKD of given texts", "python examples/scripts/gkd.py " + kModel + "--teacher_model_name_or_path meta-llama/Llama-3.1-70B --lmbda 0.0 --beta 1.0 --max_length 1024",
           {{"task", "gkd"}, {"teacher", "meta-llama/Llama-3.1-70B"}, {"divergence", "reverse"}, {"seq_len", "1024"}}),
    script("GKD of the model's own texts", "python examples/scripts/gkd.py " + kModel + "--teacher_model_name_or_path Qwen/Qwen2.5-7B", {},
           "texts that the model writes itself before it learns of them (lmbda, 0.5 by itself)"),
    script("RLOO", "trl rloo " + kModel + "--use_vllm --vllm_mode colocate --max_prompt_length 256 --max_completion_length 256 --beta 0.0",
           {{"task", "rloo"}, {"seq_len", "512"}, {"reference", "none"}, {"old_log_probs", "(nothing)"}}),
    script("RLOO of answers of no length", "trl rloo " + kModel + "--use_vllm --max_prompt_length 256", {}, "how long answers are is not said"),
    script("RLOO again of the same answers", "trl rloo " + kModel + "--use_vllm --max_prompt_length 256 --max_completion_length 256 --num_iterations 2", {},
           "learn of the same answers again"),
    script("ms-swift's DPO", "NPROC_PER_NODE=8 swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B --max_length 2048 --torch_dtype bfloat16 --rpo_alpha 0.1 --gradient_accumulation_steps 8",
           {{"task", "dpo"}, {"trainer", "ms-swift"}, {"lora.r", "8"}, {"seq_len", "2048"}, {"grad_accum", "8"}}),
    // Trainer fills "auto" in when it trains: 0.9 · 3584². The reference's engine stands by then, and DeepSpeed drops "auto" for its defaults.
    script("a reference's engine under ZeRO-3", "NPROC_PER_NODE=8 swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B --max_length 2048 --tuner_type full "
           "--torch_dtype bfloat16 --deepspeed zero3 --gradient_accumulation_steps 8",
           {{"deepspeed.zero_optimization.stage3_prefetch_bucket_size", "11560550"}, {"reference_prefetch_bucket_size", "50000000"},
            {"reference_param_persistence_threshold", "100000"}}),
    script("ms-swift's reward model", "NPROC_PER_NODE=8 swift rlhf --rlhf_type rm --model Qwen/Qwen2.5-7B --max_length 2048 --torch_dtype bfloat16 --gradient_accumulation_steps 8",
           {{"task", "reward"}, {"trainer", "ms-swift"}}),
    script("ms-swift's SimPO", "NPROC_PER_NODE=8 swift rlhf --rlhf_type simpo --cpo_alpha 0 --model Qwen/Qwen2.5-7B --max_length 2048 --torch_dtype bfloat16 --gradient_accumulation_steps 8",
           {{"task", "cpo"}, {"supervised_term", "false"}}),
    script("ms-swift's environments", "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B --max_length 2048 --use_vllm true --use_gym_env true", {},
           "answers of several turns, in an environment"),
    script("ms-swift's teacher", "NPROC_PER_NODE=8 swift rlhf --rlhf_type gkd --model Qwen/Qwen2.5-7B --teacher_model Qwen/Qwen2.5-14B --teacher_deepspeed zero3 --lmbda 0", {},
           "a teacher whose engine is set up otherwise than the model's"),
    // set_default_max_tokens cuts an answer to what its prompt leaves of vllm_max_model_len, so that prompts' length decides.
    script("ms-swift's answers that fill the engine's length",
           "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B --max_length 2048 --max_completion_length 2048 --vllm_max_model_len 2048 --use_vllm true --torch_dtype bfloat16", {},
           "what they leave of vllm_max_model_len: 2048 tokens (give --prompt-len)"),
    script("ms-swift's GRPO without an engine", "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B --max_length 2048 --torch_dtype bfloat16 --gradient_accumulation_steps 8", {},
           "transformers' own generate"),
    // A prompt is cut to max_length, and vllm_max_model_len bounds both: 3,072 of 2,048 + 2,048, of which 1,024 are the prompt's. beta is 0.04
    // unless said, so that the model without its adapters is asked.
    script("ms-swift's GRPO", "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B --max_length 2048 --max_completion_length 2048 --vllm_max_model_len 3072 --use_vllm true "
           "--vllm_mode colocate --vllm_gpu_memory_utilization 0.4 --sleep_level 1 --num_generations 8 --torch_dtype bfloat16 --gradient_accumulation_steps 8",
           {{"task", "grpo"}, {"trainer", "ms-swift"}, {"seq_len", "3072"}, {"prompt_len", "1024"}, {"rollout", "colocated"}, {"engine_share", "0.4"}, {"engine_sleeps", "true"},
            {"reference", "adapter-off"}, {"grad_accum", "8"}}),
    script("ms-swift's GRPO of all weights without a KL term", "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --tuner_type full --beta 0.0 --model Qwen/Qwen2.5-7B --max_length 1024 --use_vllm true "
           "--vllm_mode server --torch_dtype bfloat16 --gradient_accumulation_steps 4",
           {{"task", "grpo"}, {"seq_len", "1536"}, {"prompt_len", "1024"}, {"rollout", "elsewhere"}, {"reference", "none"}}),
    script("ms-swift's GRPO with weights on the host", "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --offload_model true --model Qwen/Qwen2.5-7B --max_length 1024 --use_vllm true --vllm_mode colocate "
           "--torch_dtype bfloat16 --gradient_accumulation_steps 4", {}, "weights that lie on the host while answers are written"),
    script("ms-swift's GRPO of entropies", "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --log_entropy true --model Qwen/Qwen2.5-7B --max_length 1024 --use_vllm true --vllm_mode colocate "
           "--torch_dtype bfloat16 --gradient_accumulation_steps 4", {}, "entropies of whole logits"),
    script("ms-swift's GKD", "NPROC_PER_NODE=8 swift rlhf --rlhf_type gkd --model Qwen/Qwen2.5-7B --max_length 1024 --torch_dtype bfloat16 --gradient_accumulation_steps 4", {},
           "texts that the model writes itself before it learns of them (lmbda, 0.5 by itself)"),
    script("ms-swift's GKD of given texts", "NPROC_PER_NODE=8 swift rlhf --rlhf_type gkd --model Qwen/Qwen2.5-7B --teacher_model Qwen/Qwen2.5-14B-Instruct --lmbda 0 --max_length 1024 "
           "--torch_dtype bfloat16 --per_device_train_batch_size 4 --gradient_accumulation_steps 4",
           {{"task", "gkd"}, {"trainer", "ms-swift"}, {"teacher", "Qwen/Qwen2.5-14B-Instruct"}, {"lora.r", "8"}}),
    script("ms-swift's other reference", "swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B --ref_model Qwen/Qwen2.5-1.5B --max_length 2048 --torch_dtype bfloat16 "
           "--gradient_accumulation_steps 8", {}, "a reference that is another model"),
    script("a verb that it has not", "trl sfft " + kModel, {}, "starts no training program that is known here"),

    script("DeepSpeed's launcher, and a configuration that is nowhere",
           "deepspeed --num_gpus 8 train.py --deepspeed ds.json --model_name_or_path gpt2 --per_device_train_batch_size 1 --block_size 512", {},
           "the file 'ds.json' that is named here is not there"),
    script("DeepSpeed's launcher without its engine",
           "deepspeed --num_gpus 8 train.py --model_name_or_path gpt2 --per_device_train_batch_size 1 --block_size 512 --bf16",
           {{"framework", "accelerate"}, {"zero_stage", "(nothing)"}, {"cluster.gpus_per_node", "8"}}),
    script("a program whose folder is not known", "deepspeed $WORK/train.py --deepspeed $WORK/ds.json --model_name_or_path gpt2 --per_device_train_batch_size 1 "
           "--block_size 512", {}, "comes from the variable WORK"),
    script("a program whose folder is not known, behind options", "torchrun --nnodes $N --nproc_per_node 8 $WORK/train.py --model_name_or_path gpt2 "
           "--per_device_train_batch_size 3 --block_size 512", {{"micro_batch", "3"}, {"model", "gpt2"}, {"cluster.gpus_per_node", "8"}}),
    script("a program behind a launcher's module", "python -u -m torch.distributed.run --nproc_per_node 8 --nnodes $1 $WORK/train.py --model_name_or_path gpt2 "
           "--per_device_train_batch_size 3 --block_size 512", {{"micro_batch", "3"}, {"model", "gpt2"}, {"cluster.gpus_per_node", "8"}}),
    script("a program behind a switch", "torchrun --standalone $WORK/train.py --model_name_or_path gpt2 --per_device_train_batch_size 3 --block_size 512", {},
           "--on 8xh100-sxm has 8 devices, and 1 run"),
    script("a configuration that is written where the script went", "cd $WORK\nCONFIG=./ds.$SLURM_JOBID.json\ncat > $CONFIG <<EOF\n"
           "{\"zero_optimization\": {\"stage\": 2}, \"train_micro_batch_size_per_gpu\": \"auto\"}\nEOF\n"
           "deepspeed --num_gpus 8 train.py --deepspeed $CONFIG --model_name_or_path gpt2 --per_device_train_batch_size 1 --block_size 512 --bf16",
           {{"zero_stage", "2"}, {"framework", "deepspeed"}}),
    // 8 devices of --on on one node, 64 sequences a step: 64 / (8 · 1 · 2) micro-batches.
    script("devices that tools of the machine count", "gpus=$(nvidia-smi -L | wc -l)\nnodes=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | wc -l)\n"
           "torchrun --nnodes $nodes --nproc_per_node $gpus train.py --model_name_or_path gpt2 --per_device_train_batch_size 2 "
           "--gradient_accumulation_steps $((64 / (gpus * nodes * 2))) --block_size 512", {{"grad_accum", "4"}, {"cluster.gpus_per_node", "8"}}),
    script("devices that PyTorch counts", "torchrun --nproc_per_node $(python -c 'import torch; print(torch.cuda.device_count())') train.py --model_name_or_path gpt2 "
           "--per_device_train_batch_size 2 --block_size 512", {{"cluster.gpus_per_node", "8"}}),
    script("what is left out", "torchrun --nproc_per_node 8 train.py --model_name_or_path gpt2 --per_device_train_batch_size 2 ... other args ...", {},
           "'...' stands for what is left out"),
    // model_name of a script's own names the model, and so does what argparse takes for the beginning of model_name_or_path.
    script("a model by the beginning of its key", "torchrun --nproc_per_node 8 train/sft.py --model_name gpt2 --per_device_train_batch_size 2 --block_size 512",
           {{"model", "gpt2"}}),
    // accelerate 1.15, commands/launch.py: launch_command goes by args.cpu, which --cpu alone sets; use_cpu reaches simple_launcher's environment.
    {"accelerate, use_cpu under DeepSpeed", "a.yaml",
     "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3, gradient_accumulation_steps: 1}\nnum_processes: 8\nnum_machines: 1\nuse_cpu: true\n", "gpt2",
     {{"zero_stage", "3"}}, {}},
    {"accelerate, use_cpu of one process", "a.yaml", "distributed_type: 'NO'\nnum_processes: 1\nmixed_precision: bf16\nuse_cpu: true\n", "gpt2", {},
     "training on the processor"},
    script("an older name of Liger's kernels", "torchrun --nproc_per_node 8 train.py --model_name_or_path gpt2 --use_liger True --per_device_train_batch_size 2 --block_size 512",
           {{"liger_kernel", "true"}}),
    // deepspeed 0.19, runtime/engine.py: stages 1 and 2 are not handed offload_param.
    {"deepspeed, parameters on the host under stage 2", "ds.json",
     R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}})",
     "gpt2", {{"zero_stage", "2"}, {"deepspeed.zero_optimization.offload_optimizer.device", "cpu"}, {"deepspeed.zero_optimization.offload_param.device", "(nothing)"}}, {}},
    // alignment-handbook, src/alignment/configs.py, H4ArgumentParser.parse_yaml_and_args: what stands behind the file goes before what it says.
    script("a file that flags override", "cat > c.yaml <<EOF\nmodel_name_or_path: gpt2\nper_device_train_batch_size: 4\ngradient_accumulation_steps: 2\nbf16: true\n"
           "block_size: 512\nEOF\naccelerate launch --num_processes 8 scripts/run_it.py c.yaml --gradient_accumulation_steps=4 --per_device_train_batch_size=1",
           {{"model", "gpt2"}, {"micro_batch", "1"}, {"grad_accum", "4"}, {"precision", "bf16"}}),
    // trl 1.16, scripts/utils.py, TrlParser.parse_args_and_config: the same of --config in a script of one's own.
    script("a configuration that flags override", "cat > c.yaml <<EOF\nmodel_name_or_path: gpt2\nper_device_train_batch_size: 4\nbf16: true\nblock_size: 512\nEOF\n"
           "accelerate launch --num_processes 8 scripts/run_it.py --config c.yaml --gradient_accumulation_steps 4",
           {{"model", "gpt2"}, {"micro_batch", "4"}, {"grad_accum", "4"}}),
    script("flags behind a configuration that hang on what is not known", "cat > c.yaml <<EOF\nmodel_name_or_path: gpt2\nper_device_train_batch_size: 4\nbf16: true\n"
           "block_size: 512\nEOF\nX=''\nif [ -f there.txt ]; then X=\"$X --gradient_accumulation_steps 2\"; fi\n"
           "accelerate launch --num_processes 8 scripts/run_it.py --config c.yaml $X", {}, "what stands behind --config comes from"),
    script("a file of preferences that flags override", "cat > c.yaml <<EOF\nmodel_name_or_path: gpt2\nper_device_train_batch_size: 4\nbeta: 0.1\nbf16: true\n"
           "block_size: 512\nEOF\naccelerate launch --num_processes 8 scripts/run_it.py c.yaml --per_device_train_batch_size=1", {}, "training by preferences or rewards"),
    script("a variable that a loop over the script's arguments sets", "while [[ $# -gt 0 ]]; do case $1 in --bs) B=\"$2\"; shift 2;; *) exit 1;; esac; done\n"
           "torchrun --nproc_per_node 8 train.py --model_name_or_path gpt2 --block_size 512 --bf16 --per_device_train_batch_size $B", {}, "--set B=VALUE"),
    script("a word of the line that only a table elsewhere has", "torchrun --nproc_per_node 8 train.py --model_name_or_path gpt2 --block_size 512 --version v1 "
           "--device cuda --per_device_train_batch_size 2", {{"micro_batch", "2"}}),
    script("axolotl's file that is nowhere", "accelerate launch -m axolotl.cli.train a.yml --micro_batch_size 2", {}, "t.sh:1: the file 'a.yml' that is named here is not there"),
    script("axolotl's other verbs", "axolotl preprocess a.yml", {}, "starts no training program"),
    {"trl, a loss of preferences", "c.yaml", "model_name_or_path: gpt2\nper_device_train_batch_size: 2\nloss_type: apo_zero\npacking: false\nmax_length: 512\n", "", {},
     "give the line of its trainer"},
    {"NeMo-RL", "g.yaml", "grpo: {num_prompts_per_step: 8}\npolicy: {model_name: a, train_global_batch_size: 64, precision: bfloat16}\n", "", {}, "a file of NeMo-RL"},
    script("accelerate launch --cpu", "accelerate launch --cpu train.py --model_name_or_path gpt2 --per_device_train_batch_size 2 --block_size 512", {},
           "training on the processor"),
    script("another program's switch is no value of ours", "python answer.py --use_flash_attn True --batch_size 2", {}, "plimsoll estimate MODEL --on … --micro-batch 2, or"),
    script("a line that evaluates", "python run_eval.py --model_name_or_path gpt2 --per_device_eval_batch_size 8 --max_length 2048 --dtype float16", {},
           "say nothing of a training"),
    script("a line that writes answers for a data set", "python gen.py --model_name_or_path gpt2 --dataset_splits train --num_completions 3 --push_to_hub", {},
           "say nothing of a training"),
    script("a line that evaluates, by its switch", "python run_clm.py --model_name_or_path gpt2 --do_eval --per_device_train_batch_size 8 --block_size 512", {},
           "--do_eval without --do_train does not train"),
    swift("sizes that ZeRO-3 leaves to the Trainer", "--deepspeed zero3", {{"zero_stage", "3"}, {"deepspeed.zero_optimization.reduce_bucket_size", "2359296"}}),
    script("ms-swift's script under accelerate", "accelerate launch --num_processes 8 swift/cli/sft.py --model Qwen/Qwen2.5-1.5B --dataset a --max_length 1024 "
           "--gradient_accumulation_steps 1", {{"gpus", "8"}, {"cluster.gpus_per_node", "(nothing)"}, {"task", "lora"}}),
    // mixin.py, _fix_gradient_checkpointing: whether there is DeepSpeed the accelerator says, not --deepspeed alone.
    script("ms-swift's script under accelerate's DeepSpeed", "accelerate launch --use_deepspeed --zero_stage 2 --num_processes 8 swift/cli/sft.py --model Qwen/Qwen2.5-1.5B --dataset a "
           "--max_length 1024 --gradient_accumulation_steps 1", {{"zero_stage", "2"}, {"recompute_reentrant", "true"}}),
    script("ms-swift's script under deepspeed", "deepspeed --num_gpus 8 swift/cli/sft.py --model Qwen/Qwen2.5-1.5B --dataset a --max_length 1024",
           {{"cluster.gpus_per_node", "8"}, {"grad_accum", "2"}}),
    // bash ends a command there as well, and trains with what stands before.
    script("a line whose backslash is missing", "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-1.5B\n--dataset a --max_length 512", {},
           "'--dataset' begins a command of its own"),
    script("a comment between lines that go on", "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-1.5B \\\n# --tuner_type full \\\n--dataset a --max_length 512", {},
           "'--dataset' begins a command of its own"),
    script("a blank behind a backslash", "NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-1.5B \\ \n--dataset a --max_length 512", {},
           "a blank stands behind the backslash that should end this line"),
    script("ms-swift's script of preferences", "torchrun --nproc_per_node 8 swift/cli/rlhf.py --rlhf_type dpo --model Qwen/Qwen2.5-1.5B --dataset a --max_length 1024 "
           "--gradient_accumulation_steps 1", {{"task", "dpo"}, {"trainer", "ms-swift"}, {"cluster.gpus_per_node", "8"}}),
    script("ms-swift's script of preferences, over Megatron", "torchrun --nproc_per_node 8 swift/cli/_megatron/rlhf.py --rlhf_type dpo --model Qwen/Qwen2.5-1.5B", {},
           "training by preferences, rewards or a teacher, which swift/cli/_megatron/rlhf.py does"),
    script("ms-swift's script alone", "CUDA_VISIBLE_DEVICES=0,1 python swift/cli/sft.py --model Qwen/Qwen2.5-1.5B --dataset a --max_length 1024", {},
           "a single process whose weights are dealt over 2 devices"),
    script("a sum of several signs", "nnodes=1; per=8; NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-1.5B --dataset a --max_length 1024 "
           "--gradient_accumulation_steps $(expr 32 / $per / $nnodes - 1)", {{"grad_accum", "3"}}),
    script("a value that is to be written", "CHECKPOINT=<path of the model>\ntorchrun --nproc_per_node 8 pretrain_gpt.py --load $CHECKPOINT", {},
           "'<path of the model>' stands for what is to be written there"),
    script("a command that does not train", "swift infer --model Qwen/Qwen2.5-1.5B", {}, "it starts 'swift infer'"),
    swift("activations offloaded by a callback", "--fsdp '{\"fsdp\": \"full_shard auto_wrap\", \"fsdp_config\": {\"fsdp_version\": 2, "
          "\"activation_cpu_offload\": true}}'", {}, "offload of activations under FSDP"),
    swift("no callback", "--fsdp '{\"fsdp\": \"full_shard auto_wrap\", \"fsdp_config\": {\"fsdp_version\": 2, \"activation_cpu_offload\": false}}'",
          {{"data_parallel", "fsdp2"}}),
    swift("its own defaults", "",
          {{"task", "lora"}, {"lora.r", "8"}, {"lora.alpha", "32"}, {"lora.dropout", "0.05"}, {"lora.target_modules", "all-linear"}, {"micro_batch", "1"},
           {"grad_accum", "2"}, {"recompute", "full"}, {"recompute_reentrant", "false"}, {"precision", "bf16"}, {"param_dtype", "bf16"}, {"seq_len", "1024"}}),
    swift("a batch that is enough", "--per_device_train_batch_size 4", {{"grad_accum", "1"}}),
    swift("all weights", "--tuner_type full --gradient_checkpointing false", {{"task", "full"}, {"recompute", "none"}, {"param_dtype", "bf16"}}),
    swift("its name before 4", "--train_type full", {{"task", "full"}}),
    swift("fp32 weights train in fp16", "--torch_dtype float32 --tuner_type full", {{"precision", "fp16"}, {"param_dtype", "fp32"}}),
    swift("DeepSpeed by name", "--tuner_type full --deepspeed zero2", {{"zero_stage", "2"}, {"recompute_reentrant", "true"}}),
    swift("offload by name", "--tuner_type full --deepspeed zero3_offload", {{"zero_stage", "3"},
          {"deepspeed.zero_optimization.offload_param.device", "cpu"}}),
    swift("FSDP2 by name", "--tuner_type full --fsdp fsdp2", {{"data_parallel", "fsdp2"}, {"recompute", "full"}}),
    swift("4 bits", "--quant_method bnb --quant_bits 4", {{"base_weights", "nf4-double-quant"}}),
    swift("4 bits, quantized once", "--quant_method bnb --quant_bits 4 --bnb_4bit_use_double_quant false", {{"base_weights", "nf4"}}),
    swift("8 bits", "--quant_method bnb --quant_bits 8", {{"base_weights", "int8"}}),
    swift("another quantization", "--quant_method hqq --quant_bits 4", {}, "quant_method: hqq is not modelled"),
    swift("packed to its own length", "--packing true --packing_length 4096 --attn_impl flash_attn", {{"seq_len", "4096"}, {"packed", "true"},
          {"attention", "flash"}}),
    swift("kwargs as JSON", "--gradient_checkpointing_kwargs '{\"use_reentrant\": true}'", {{"recompute_reentrant", "true"}}),
    swift("another tuner", "--tuner_type longlora", {}, "tuner_type: longlora is not modelled"),
    swift("a misspelt rank", "--lora_rnak 16", {}, "did you mean 'lora_rank'?"),
    swift("a misspelt batch", "--per_device_train_batch_sise 2", {}, "did you mean 'per_device_train_batch_size'?"),
    swift("weighted tokens", "--loss_scale react", {}, "weighted token by token"),
    swift("some parameters", "--tuner_type full --freeze_parameters_ratio 0.5", {}, "training of some parameters alone"),
    swift("sequence parallelism", "--sequence_parallel_size 4", {}, "ms-swift's sequence parallelism"),
    swift("Unsloth", "--tuner_backend unsloth", {}, "Unsloth"),
    swift("an optimizer of its own", "--optimizer muon", {}, "an optimizer of its own"),
    script("ms-swift, one process", "CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-1.5B --dataset a --max_length 512", {}, "1 run (swift)"),
    script("ms-swift, one process of several devices", "CUDA_VISIBLE_DEVICES=0,1 swift sft --model Qwen/Qwen2.5-1.5B --dataset a", {}, "device_map: auto"),
    // utils/env.py, is_mp: a share of devices for each process; Megatron's take one each.
    script("ms-swift, processes of two devices each", "CUDA_VISIBLE_DEVICES=0,1,2,3 NPROC_PER_NODE=2 swift sft --model Qwen/Qwen2.5-1.5B --dataset a", {},
           "weights that each process deals over 2 devices (device_map: auto), of 2 processes and 4 devices that they see"),
    script("ms-swift, processes of two devices each under ZeRO", "CUDA_VISIBLE_DEVICES=0,1,2,3 NPROC_PER_NODE=2 swift sft --deepspeed zero2 --model Qwen/Qwen2.5-1.5B --dataset a", {},
           "DeepSpeed is not compatible with device_map"),
    script("ms-swift, processes that do not divide their devices", "CUDA_VISIBLE_DEVICES=0,1,2 NPROC_PER_NODE=2 swift sft --model Qwen/Qwen2.5-1.5B --dataset a", {},
           "asserts that a node's processes divide its devices"),
    script("ms-swift, pretraining", "NPROC_PER_NODE=8 swift pt --model meta-llama/Llama-3.2-1B --tuner_type full --dataset a --deepspeed zero1",
           {{"seq_len", "131072"}, {"zero_stage", "1"}}),
    script("ms-swift, a file", "cat > c.yaml <<E\nmodel: Qwen/Qwen2.5-1.5B\ntuner_type: full\nmax_length: 256\nENV: {NPROC_PER_NODE: 8}\nE\nswift sft c.yaml "
           "--max_length 512", {{"seq_len", "512"}, {"task", "full"}}),
    script("ms-swift, its script", "torchrun --nproc_per_node 8 swift/cli/sft.py --model Qwen/Qwen2.5-1.5B --dataset a --max_length 512",
           {{"seq_len", "512"}, {"recompute_reentrant", "false"}}),
    script("ms-swift, a broken file", "cat > c.json <<E\n{\"model\":\nE\nswift sft c.json", {}, "c.json"),

    // ---- LLaMA-Factory: hparams/parser.py of 0.9.5, read_args -----------------------------------------------------------------------------------
    script("llama-factory's flags", "llamafactory-cli train --stage sft " + kModel + "--finetuning_type lora --lora_rank 32 --cutoff_len 1024 --bf16 True",
           {{"lora.r", "32"}, {"lora.alpha", "64"}, {"seq_len", "1024"}, {"precision", "bf16"}, {"recompute", "full"}}),
    script("llama-factory's overrides",
           "cat > f.yaml <<E\nmodel_name_or_path: meta-llama/Llama-3.2-1B\nstage: sft\nfinetuning_type: full\ncutoff_len: 512\nbf16: true\nE\n"
           "llamafactory-cli train f.yaml cutoff_len=2048 per_device_train_batch_size=2", {{"seq_len", "2048"}, {"micro_batch", "2"}, {"task", "full"}}),
    script("llama-factory's script", "torchrun --nproc_per_node 8 src/train.py --stage sft " + kModel + "--finetuning_type full --bf16 True --output_dir o "
           "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --learning_rate 1e-5 --num_train_epochs 3", {{"seq_len", "2048"},
           {"recompute", "full"}, {"param_dtype", "fp32"}}),
    script("a program that is not known", "torchrun --nproc_per_node 8 train_ddp.py --batch_size 32 --seq_len 2048", {},
           "train_ddp.py is not known, and nothing of its words can be used"),
    script("alpaca-lora's script, which is none of LLaMA-Factory's", "python3 finetune.py --base_model a/b --data_path d --micro_batch_size 4 --num_epochs 3 --cutoff_len 512 "
           "--lora_r 8", {}, "finetune.py is not known, and nothing of its words can be used"),
    script("a program that is not known, offered", "torchrun --nproc_per_node 8 train_ddp.py --batch_size 32", {}, "to be checked: plimsoll estimate"),
    script("diffusers", "accelerate launch train_text_to_image_lora.py --pretrained_model_name_or_path a/b --dataset_name d --train_batch_size 1", {},
           "those of DreamBooth for FLUX and Stable Diffusion 3 are read"),
    // run_glue.py's own defaults: sequences of 128 tokens; the classes are GLUE's.
    script("a sequence classifier", "torchrun --nproc_per_node 8 run_glue.py --model_name_or_path bert-base-cased --task_name mnli --do_train "
           "--per_device_train_batch_size 32 --learning_rate 2e-5 --num_train_epochs 3 --output_dir o",
           {{"task", "cls"}, {"num_labels", "3"}, {"seq_len", "128"}, {"micro_batch", "32"}}),
    script("a regression", "python run_glue.py --model_name_or_path bert-base-uncased --task_name stsb --do_train --max_seq_length 256 --output_dir o",
           {{"task", "cls"}, {"num_labels", "1"}, {"seq_len", "256"}}),
    script("a classifier of three languages' pairs", "python run_xnli.py " + kModel + "--language de --train_language en --do_train --bf16 --output_dir o",
           {{"task", "cls"}, {"num_labels", "3"}, {"precision", "bf16"}}),
    script("a task that GLUE has not", "python run_glue.py --model_name_or_path bert-base-cased --task_name mrcp --do_train --output_dir o", {}, "did you mean 'mrpc'?"),
    script("classes that the data has", "python run_classification.py " + kModel + "--do_train --bf16 --output_dir o", {},
           "how many classes there are stands in the data of run_classification.py alone (give --num-labels)"),
    // examples/pytorch of transformers 5.8: DataTrainingArguments' defaults of each script, and the Auto class that it calls.
    script("answers to questions", "python run_qa.py --model_name_or_path bert-base-uncased --dataset_name squad --do_train --doc_stride 128 --version_2_with_negative --output_dir o",
           {{"task", "qa"}, {"seq_len", "384"}, {"micro_batch", "8"}}),
    script("answers by a decoder's head", "python run_qa.py " + kModel + "--dataset_name squad --do_train --bf16 --max_seq_length 512 --output_dir o",
           {{"task", "qa"}, {"seq_len", "512"}, {"precision", "bf16"}}),
    script("entities without a length", "python run_ner.py --model_name_or_path bert-base-cased --do_train --output_dir o", {},
           "how many classes there are stands in the data of run_ner.py alone"),
    script("summaries by their own defaults", "torchrun --nproc_per_node 8 run_summarization.py --model_name_or_path google-t5/t5-small --dataset_name cnn_dailymail "
           "--source_prefix 'summarize: ' --do_train --predict_with_generate --per_device_train_batch_size 4 --output_dir o",
           {{"task", "seq2seq"}, {"seq_len", "1024"}, {"tgt_len", "128"}, {"micro_batch", "4"}}),
    script("translations", "python run_translation.py --model_name_or_path google-t5/t5-small --source_lang en --target_lang ro --do_train --max_source_length 256 "
           "--max_target_length 200 --bf16 --output_dir o", {{"seq_len", "256"}, {"tgt_len", "200"}}),
    script("answers that are written", "python run_seq2seq_qa.py --model_name_or_path google-t5/t5-small --do_train --output_dir o", {{"seq_len", "384"}, {"tgt_len", "30"}}),
    script("masked words", "python run_mlm.py --model_name_or_path bert-base-uncased --do_train --mlm_probability 0.3 --line_by_line --output_dir o", {{"task", "mlm"}}),
    script("masked words of a decoder", "python run_mlm.py --model_name_or_path gpt2 --do_train --output_dir o", {}, "a masked language model of GPT2LMHeadModel is not modelled"),
    script("a config that the line changes", "python run_clm.py --config_name gpt2 --config_overrides n_layer=24 --do_train --output_dir o", {}, "config_overrides"),
    // from_pretrained's dtype is auto since transformers 5: without a half to compute in, all is in the checkpoint's type.
    script("a checkpoint in bf16, and no half", "python run_clm.py " + kModel + "--do_train --block_size 1024 --output_dir o",
           {{"checkpoint.dtype", "bf16"}, {"param_dtype", "bf16"}, {"precision", "pure-bf16"}}),
    script("the same in fp32, as it is said", "python run_clm.py " + kModel + "--do_train --block_size 1024 --dtype float32 --output_dir o",
           {{"param_dtype", "fp32"}, {"precision", "fp32"}}),
    // HfArgumentParser: a field that is on by default has --no_FIELD.
    script("recomputation off by its negation", "python trl/scripts/sft.py " + kModel + "--max_length 512 --no_gradient_checkpointing", {{"recompute", "none"}}),
    // orpo.py hands from_pretrained the model's name alone.
    script("a type that the script does not pass on", "python examples/scripts/orpo.py " + kModel + "--max_length 512 --dtype float32 --load_in_4bit",
           {{"param_dtype", "bf16"}, {"base_weights", "(nothing)"}}),
    script("TRL's adapters in bf16 under a scaler", "python trl/scripts/sft.py " + kModel + "--max_length 512 --use_peft --load_in_4bit --fp16", {},
           "torch's GradScaler fails at gradients of bf16 parameters"),
    script("a mixture's adapters without targets", "python trl/scripts/sft.py --model_name_or_path mistralai/Mixtral-8x7B-v0.1 --max_length 512 --use_peft", {},
           "lora.target_modules is missing"),
    {"a Python launcher", "run.py", "import subprocess\nsubprocess.run(['torchrun', 'train.py'])\n", "", {}, "a Python program is not read"},
    {"Accelerate's bare no", "a.yaml", "distributed_type: MULTI_GPU\nmixed_precision: no\nnum_machines: 1\nnum_processes: 8\n", "llama-3.2-1b", {},
     "'bool' object has no attribute 'lower'"},
    script("TRL's example of a reward model", "python examples/scripts/reward_modeling.py --model_name_or_path Qwen/Qwen2-0.5B-Instruct "
           "--per_device_train_batch_size 8 --max_length 2048 --use_peft --lora_task_type SEQ_CLS --lora_r 32",
           {{"task", "reward"}, {"lora.r", "32"}, {"seq_len", "2048"}}),
    script("a script that converts", "python scripts/pissa_init.py " + kModel + "--output_dir o", {}, "say nothing of a training"),
    {"llama-factory, a file that merges", "m.yaml",
     "model_name_or_path: meta-llama/Llama-3.2-1B\nadapter_name_or_path: a\nfinetuning_type: lora\ntemplate: llama3\nexport_dir: o\n", "", {},
     "a file with export_dir"},
    {"llama-factory, a file that answers", "m.yaml", "model_name_or_path: meta-llama/Llama-3.2-1B\ntemplate: llama3\ninfer_backend: vllm\n", "", {},
     "a file with infer_backend"},
    {"torchtune, parts of a model of several modes", "r.yaml",
     "model: {_component_: torchtune.models.llama3_2.llama3_2_1b, encoder_trainable: lora}\ntokenizer: {max_seq_len: 512}\nbatch_size: 2\n"
     "optimizer: {_component_: torch.optim.AdamW}\ncheckpointer: {_component_: x}\n", "", {}, "this argument of the model's builder, found model.encoder_trainable"},
    {"alignment-handbook", "sft.yaml", "model_name_or_path: meta-llama/Llama-3.2-1B\ndtype: bfloat16\ndataset_mixture:\n  datasets: [{id: a, split: b}]\n"
     "per_device_train_batch_size: 4\nmax_length: 2048\nattn_implementation: flash_attention_2\nchat_template: \"{% for m in messages %}{% endfor %}\"\n", "",
     {{"recompute", "full"}, {"precision", "bf16"}, {"param_dtype", "bf16"}, {"seq_len", "2048"}}, ""},
    script("llama-factory without words", "llamafactory-cli train", {}, "names no file and no argument"),
    script("llama-factory's misspelt key", "llamafactory-cli train --stage sft " + kModel + "--finetuning_type full --cutof_len 512", {},
           "did you mean 'cutoff_len'?"),
    script("llama-factory's preferences", "llamafactory-cli train --stage dpo " + kModel + "--finetuning_type full --bf16", {{"task", "dpo"}, {"trainer", "llama-factory"},
           {"param_dtype", "fp32"}}),
    script("llama-factory's ORPO under adapters", "llamafactory-cli train --stage dpo --pref_loss orpo --pref_beta 0.1 " + kModel + "--lora_rank 16 --bf16",
           {{"task", "orpo"}, {"lora.r", "16"}, {"param_dtype", "bf16"}}),
    script("llama-factory's SimPO", "llamafactory-cli train --stage dpo --pref_loss simpo --bf16 true " + kModel, {{"task", "cpo"}}),
    script("llama-factory's KTO", "llamafactory-cli train --stage kto --bf16 true " + kModel, {{"task", "kto"}, {"trainer", "llama-factory"}}),
    script("llama-factory's reward model", "llamafactory-cli train --stage rm " + kModel, {}, "LLaMA-Factory's reward model"),
    script("llama-factory's other reference", "llamafactory-cli train --stage dpo --ref_model a/b " + kModel, {}, "a reference that is another model"),
    script("llama-factory's misspelt loss", "llamafactory-cli train --stage dpo --pref_loss sigmoyd " + kModel, {}, "expected sigmoid, hinge, ipo"),
};
INSTANTIATE_TEST_SUITE_P(Formats, TrainerLines, testing::ValuesIn(kLines));

}  // namespace
}  // namespace plimsoll
