#!/bin/bash
export NPROC_PER_NODE=8
swift sft --model Qwen/Qwen2.5-7B --tuner_type full --dataset notes/talk --torch_dtype bfloat16 --max_length 4096 --packing true \
    --attn_impl flash_attn --per_device_train_batch_size 1 --deepspeed zero3 --use_liger_kernel true --save_only_model true
