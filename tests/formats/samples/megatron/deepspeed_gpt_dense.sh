#!/bin/bash
SEQ_LEN=2048; NUM_LAYERS=24; BATCH_SIZE=2; MP_SIZE=1; EP_SIZE=1
ACTIVATION_CHECKPOINT="true"
megatron_options=" --tensor-model-parallel-size ${MP_SIZE} --num-experts ${EP_SIZE} --micro-batch-size ${BATCH_SIZE} --global-batch-size 512 \
  --num-layers ${NUM_LAYERS} --hidden-size 2048 --num-attention-heads 16 --seq-length ${SEQ_LEN} --max-position-embeddings ${SEQ_LEN} \
  --merge-file gpt2-merges.txt --clip-grad 1.0 --fp16 --attention-dropout 0 --hidden-dropout 0"
if [ "${ACTIVATION_CHECKPOINT}" = "true" ]; then
megatron_options="${megatron_options} --checkpoint-activations"
fi
cat > ds_config_made.json <<EOT
{"train_micro_batch_size_per_gpu": ${BATCH_SIZE}, "zero_optimization": {"stage": 1}, "gradient_clipping": 1.0, "fp16": {"enabled": true}}
EOT
deepspeed_options=" --deepspeed --deepspeed_config ds_config_made.json --zero-stage 1 --no-pipeline-parallel"
deepspeed --num_nodes 1 --num_gpus 8 pretrain_gpt.py ${megatron_options} ${deepspeed_options}
