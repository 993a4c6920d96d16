#!/bin/bash
NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B --dataset notes/talk --expert_model_parallel_size 8 --moe_permute_fusion true \
    --moe_grouped_gemm true --moe_aux_loss_coeff 1e-3 --max_length 4096 --recompute_granularity selective --attention_backend flash --overlap_grad_reduce true
