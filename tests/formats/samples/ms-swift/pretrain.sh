#!/bin/bash
NNODES=2 NPROC_PER_NODE=8 swift pt --model meta-llama/Llama-3.2-1B --train_type full --dataset notes/texts --max_length 8192 \
    --gradient_checkpointing false --per_device_train_batch_size 2 --streaming true --max_steps 1000
