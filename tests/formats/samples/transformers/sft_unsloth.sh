python train.py --model_name_or_path mistralai/Mistral-7B-v0.1 --max_length 2048 --bf16 True --per_device_train_batch_size 16 \
  --gradient_accumulation_steps 16 --gradient_checkpointing True --use_peft_lora True --lora_r 8 --use_4bit_quantization True --use_unsloth True
