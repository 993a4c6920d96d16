#!/bin/bash
export NPROC_PER_NODE=8
megatron sft --model Qwen/Qwen3-4B --dataset notes/talk --max_length 2048 --output_dir out --torch_dtype bfloat16
