#!/bin/bash
DISTRIBUTED_ARGS="--nproc_per_node 1 --nnodes 1"
torchrun $DISTRIBUTED_ARGS tools/run_text_generation_server.py --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 \
  --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --max-position-embeddings 1024 --tokenizer-type GPT2BPETokenizer --fp16 \
  --micro-batch-size 1 --seq-length 1024
