#!/bin/bash
NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type full --dataset 'notes/talk#500' --save_safetensors true \
    --tensor_model_parallel_size 2 --sequence_parallel true --micro_batch_size 1 --global_batch_size 32 --packing true --max_length 8192 \
    --recompute_granularity full --recompute_method uniform --recompute_num_layers 1 --finetune true --lr 1e-5 --min_lr 1e-6 --no_save_optim true
