torchrun --nproc_per_node 8 --nnodes 1 train.py --model_name_or_path mistralai/Mistral-7B-v0.1 --max_length 2048 --bf16 True --packing True \
  --per_device_train_batch_size 8 --gradient_accumulation_steps 8 --gradient_checkpointing True --use_reentrant False \
  --use_peft_lora True --lora_r 8 --lora_alpha 16 --lora_dropout 0.1 --lora_target_modules all-linear --max_grad_norm 1.0
