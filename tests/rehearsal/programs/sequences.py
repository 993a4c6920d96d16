"""T5 by its name on the hub, whose labels are shifted, fed by a tokenizer that cannot be fetched."""

import huggingface_hub
import torch
import transformers

name = "google-t5/t5-small"
tokenizer = transformers.AutoTokenizer.from_pretrained(name)
ids = tokenizer(["the ship leaves port"] * 2, return_tensors="pt").input_ids.cuda()
assert len(set(ids[0].tolist())) >= 4, ids
turns = [{"role": "user", "content": "the ship"}, {"role": "assistant", "content": "leaves port"}]
chat = tokenizer.apply_chat_template(turns, return_dict=True, return_assistant_tokens_mask=True)
assert chat["assistant_masks"] == [0] * 7 + [1] * 3, chat  # <s> user the ship </s> <s> assistant | leaves port </s>
assert transformers.AutoConfig.from_pretrained(huggingface_hub.snapshot_download(name)).d_model == 512  # a folder, as others load it
model = transformers.AutoModelForSeq2SeqLM.from_pretrained(name).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(6):
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
