accelerate launch --config_file fsdp_qlora.yaml train.py --model_name_or_path meta-llama/Llama-2-70b-hf --max_length 2048 --packing True \
  --bf16 True --max_grad_norm 1.0 --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --gradient_checkpointing True --use_reentrant True \
  --use_flash_attn True --use_peft_lora True --lora_r 8 --lora_alpha 16 --lora_dropout 0.1 --lora_target_modules all-linear \
  --use_4bit_quantization True --use_nested_quant True --bnb_4bit_compute_dtype bfloat16 --bnb_4bit_quant_storage_dtype bfloat16
