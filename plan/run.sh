#!/bin/bash
# plimsoll export: llama-3.1-8b on 8 x h100-sxm
# fsdp2 × 8, micro-batch 1 × 4096 tokens, fsdp-mixed-bf16, full recompute (transformers)
# predicted: 20.6 GiB allocated, 29.2 GiB reserved, 30.3 of 79.2 GiB per GPU (fits); 0.615 s a step, 6655 tokens/s per GPU
set -euo pipefail
cd "$(dirname "$0")"
accelerate launch --config_file accelerate.yaml train.py training_arguments.json
