#!/bin/bash
accelerate launch  train_dreambooth_lora_flux.py \
  --pretrained_model_name_or_path black-forest-labs/FLUX.1-dev \
  --instance_data_dir pictures/kettle --instance_prompt "a copper kettle" \
  --output_dir out/flux_lora \
  --mixed_precision bf16 --resolution 512 --train_batch_size 1 --gradient_accumulation_steps 4 --optimizer prodigy --learning_rate 1. --max_train_steps 500
