"""T5 by its name on the hub, whose labels are shifted, fed by a tokenizer that cannot be fetched."""

import torch
import transformers

name = "google-t5/t5-small"
ids = transformers.AutoTokenizer.from_pretrained(name)(["the ship leaves port"] * 2, return_tensors="pt").input_ids.cuda()
assert len(set(ids[0].tolist())) >= 4, ids
model = transformers.AutoModelForSeq2SeqLM.from_pretrained(name).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(6):
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
