#!/usr/bin/env bash
# long answers by tokens, all resting on the host, two nodes
PROMPT=2048
ANSWER=$((1024 * 8))
TOKENS=$(((PROMPT + ANSWER) * 2))
args=(
    algorithm.adv_estimator=grpo
    algorithm.use_kl_in_reward=False
    data.train_batch_size=512
    data.max_prompt_length=$PROMPT
    data.max_response_length=$ANSWER
    data.truncation=left
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B
    +actor_rollout_ref.actor.fsdp_config.param_offload=True
    +actor_rollout_ref.actor.fsdp_config.optimizer_offload=True
    actor_rollout_ref.actor.use_dynamic_bsz=True
    actor_rollout_ref.actor.ppo_mini_batch_size=32
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$TOKENS
    actor_rollout_ref.actor.clip_ratio_high=0.28
    actor_rollout_ref.actor.loss_agg_mode=token-mean
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n=16
    actor_rollout_ref.rollout.gpu_memory_utilization=0.8
    actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu=$((TOKENS * 2))
    trainer.n_gpus_per_node=8
    trainer.nnodes=2
)
python3 -m verl.trainer.main_ppo "${args[@]}"
