#!/bin/bash
NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-1.5B --tuner_type full --dataset notes/talk --torch_dtype bfloat16 --max_length 2048 --fsdp fsdp2
