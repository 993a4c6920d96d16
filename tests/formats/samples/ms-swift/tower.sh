# A model of images and text of which the language model alone is trained: what reads images rests by itself.
NPROC_PER_NODE=4 \
swift sft \
    --model Qwen/Qwen2.5-VL-7B-Instruct \
    --tuner_type full \
    --torch_dtype bfloat16 \
    --freeze_vit true \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 2 \
    --max_length 4096 \
    --attn_impl flash_attn \
    --deepspeed zero2
