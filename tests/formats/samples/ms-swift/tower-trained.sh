NPROC_PER_NODE=4 \
swift sft \
    --model Qwen/Qwen2.5-VL-7B-Instruct \
    --torch_dtype bfloat16 \
    --freeze_vit false \
    --max_length 4096 \
    --gradient_accumulation_steps 2
