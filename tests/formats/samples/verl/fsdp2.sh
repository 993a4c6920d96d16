#!/usr/bin/env bash
# FSDP2, a term of entropy, another temperature
torch_job=(python3 -u -m verl.trainer.main_ppo)
"${torch_job[@]}" algorithm.adv_estimator=reinforce_plus_plus data.train_batch_size=128 \
    actor_rollout_ref.model.path=meta-llama/Llama-3.2-1B-Instruct actor_rollout_ref.actor.strategy=fsdp2 \
    actor_rollout_ref.actor.ppo_mini_batch_size=128 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 \
    actor_rollout_ref.actor.entropy_coeff=0.001 actor_rollout_ref.rollout.temperature=0.9 actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16 \
    trainer.n_gpus_per_node=8 trainer.nnodes=1
