#!/usr/bin/env bash
# submitted to a cluster of Ray's, the reference's KL in the reward, two epochs over each rollout
ray job submit --address=http://127.0.0.1:8265 -- \
    python3 -m verl.trainer.main_ppo --config-name=ppo_trainer algorithm.adv_estimator=remax algorithm.use_kl_in_reward=True algorithm.kl_ctrl.kl_coef=0.001 \
    data.train_batch_size=256 data.max_prompt_length=1024 data.max_response_length=1024 \
    actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.ppo_epochs=2 actor_rollout_ref.actor.ppo_mini_batch_size=128 \
    actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 \
    actor_rollout_ref.actor.fsdp_config.fsdp_size=8 actor_rollout_ref.rollout.name=vllm reward.reward_manager.name=dapo \
    trainer.n_gpus_per_node=8 trainer.nnodes=2
