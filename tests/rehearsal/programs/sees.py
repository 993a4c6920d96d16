"""A model that reads pictures (Qwen2-VL): what it splits, repeats and pads by are the grids of its pictures."""

import torch
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

START, END, PICTURE = 1988, 1989, 1990
rope = {"rope_type": "default", "mrope_section": [8, 12, 12], "rope_theta": 1e6}
config = Qwen2VLConfig(
    text_config=dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=2000,
                     rope_parameters=rope),
    vision_config=dict(depth=2, embed_dim=128, hidden_size=256, num_heads=4, mlp_ratio=2),
    image_token_id=PICTURE, video_token_id=1991, vision_start_token_id=START, vision_end_token_id=END,
)  # fmt: skip
model = Qwen2VLForConditionalGeneration(config).to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters())
grids = torch.tensor([[1, 8, 12], [1, 4, 4]])  # 24 and 4 tokens of text: two by two patches each
ids = torch.randint(3, 1900, (1, 200))
ids[0, 4], ids[0, 5:29], ids[0, 29] = START, PICTURE, END
ids[0, 40], ids[0, 41:45], ids[0, 45] = START, PICTURE, END
given = dict(input_ids=ids, attention_mask=torch.ones_like(ids), image_grid_thw=grids, labels=ids, mm_token_type_ids=(ids == PICTURE).int())
given = {name: value.cuda() for name, value in given.items()}
for _ in range(5):
    patches = torch.randn(int(grids.prod(-1).sum()), 3 * 2 * 14 * 14, device="cuda", dtype=torch.bfloat16)
    model(pixel_values=patches, **given).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
