"""A checkpoint that is not there, loaded by transformers under ZeRO-3: its tensors are whole, and each rank keeps its part of them."""

import deepspeed
import torch
import transformers
from transformers.integrations import HfDeepSpeedConfig

settings = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "zero_optimization": {"stage": 3},
}
kept = HfDeepSpeedConfig(settings)  # transformers asks for it as long as it lives
config = transformers.LlamaConfig(vocab_size=1024, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4)
model = transformers.AutoModelForCausalLM.from_pretrained("nobody/no-weights", config=config, dtype="bfloat16")
table = model.get_input_embeddings().weight
assert table.ds_shape == (1024, 256) and table.ds_tensor.numel() == 1024 * 256 // 8, (table.ds_shape, table.ds_tensor.shape)
engine = deepspeed.initialize(model=model, config=settings, model_parameters=model.parameters())[0]
for _ in range(4):
    ids = torch.randint(0, 1024, (1, 128), device="cuda")
    engine.backward(engine(input_ids=ids, labels=ids).loss)
    engine.step()
