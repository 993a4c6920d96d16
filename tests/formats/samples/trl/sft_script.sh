#!/bin/bash
accelerate launch --num_processes 8 --mixed_precision bf16 trl/scripts/sft.py \
    --model_name_or_path Qwen/Qwen2.5-1.5B --dataset_name notes/dialogues --assistant_only_loss \
    --load_in_4bit --use_peft --lora_r 8 --per_device_train_batch_size 2 --output_dir out/qlora
