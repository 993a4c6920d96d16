#!/bin/bash
trl sft \
    --model_name_or_path meta-llama/Llama-3.2-3B \
    --dataset_name notes/dialogues \
    --accelerate_config zero2 \
    --num_processes 8 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 4 \
    --max_length 4096 \
    --output_dir out/zero2
