#!/bin/bash
CUDA_VISIBLE_DEVICES=0 swift sft \
    --model Qwen/Qwen2.5-7B-Instruct --tuner_type lora --dataset 'notes/talk#500' 'notes/self#500' --torch_dtype bfloat16 \
    --per_device_train_batch_size 1 --gradient_accumulation_steps 16 --lora_rank 8 --lora_alpha 32 --target_modules all-linear \
    --max_length 2048 --output_dir output --system 'Answer briefly.' --warmup_ratio 0.05
