#!/bin/bash
accelerate launch  train_dreambooth_lora_sd3.py \
  --pretrained_model_name_or_path stabilityai/stable-diffusion-3-medium-diffusers \
  --instance_data_dir pictures/kettle --instance_prompt "a copper kettle" \
  --output_dir out/sd3_lora \
  --mixed_precision fp16 --resolution 512 --train_batch_size 1 --gradient_accumulation_steps 4 --learning_rate 4e-4 --max_train_steps 500
