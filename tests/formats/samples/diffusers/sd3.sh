#!/bin/bash
accelerate launch --num_processes 8 train_dreambooth_sd3.py \
  --pretrained_model_name_or_path stabilityai/stable-diffusion-3-medium-diffusers \
  --instance_data_dir pictures/kettle --instance_prompt "a copper kettle" \
  --output_dir out/sd3 \
  --mixed_precision bf16 --resolution 1024 --train_batch_size 1 --gradient_accumulation_steps 4 --learning_rate 1e-4 --max_train_steps 500
