#!/bin/bash
NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-7B --tuner_type lora --lora_rank 8 --dataset notes/talk --max_length 2048
