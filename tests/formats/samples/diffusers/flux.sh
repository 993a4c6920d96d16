#!/bin/bash
accelerate launch  train_dreambooth_flux.py \
  --pretrained_model_name_or_path black-forest-labs/FLUX.1-dev \
  --instance_data_dir pictures/kettle --instance_prompt "a copper kettle" \
  --output_dir out/flux \
  --mixed_precision bf16 --resolution 1024 --train_batch_size 1 --gradient_checkpointing --use_8bit_adam --max_train_steps 500
