#!/bin/bash
accelerate launch --num_processes 2 train_dreambooth_lora_flux.py \
  --pretrained_model_name_or_path black-forest-labs/FLUX.1-dev \
  --instance_data_dir pictures/kettle --instance_prompt "a copper kettle" \
  --output_dir out/flux_lora_adamw \
  --mixed_precision bf16 --resolution 1024 --train_batch_size 1 --rank 32 --gradient_checkpointing --cache_latents --max_train_steps 800
