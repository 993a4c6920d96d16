#!/bin/bash
GPUS_PER_NODE=8
NUM_NODES=1
DISTRIBUTED_ARGS=(--nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES)
MODEL=(--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 --max-position-embeddings 512)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_bert.py ${MODEL[@]} --micro-batch-size 4 --global-batch-size 32 --fp16 --tensor-model-parallel-size 8
