NPROC_PER_NODE=8 \
swift rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen2.5-7B-Instruct \
    --reward_funcs accuracy format \
    --use_vllm true \
    --vllm_mode colocate \
    --torch_dtype bfloat16 \
    --max_completion_length 1024 \
    --num_generations 8 \
    --deepspeed zero2
