"""A bare loop under plimsoll.watch: predicted at the first batch, compared after three steady steps. Ends with 1 where the peaks differ."""
import json
import os
import sys
import tempfile

import torch
import transformers

import plimsoll


def main():
    row = os.path.join(tempfile.mkdtemp(), "row.json")
    config = transformers.LlamaConfig(hidden_size=512, intermediate_size=1376, num_attention_heads=8, num_key_value_heads=8, num_hidden_layers=4, vocab_size=1000)
    model = transformers.LlamaForCausalLM(config).to("cuda", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    with plimsoll.watch(model, steps=3, row=row, framework="transformers", precision="pure-bf16", clip_grad_norm=False) as watched:
        for step in range(5):
            rows = torch.full((4, 256), step, device="cuda")
            model(input_ids=rows, labels=rows).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    seen = watched.comparison
    print(json.dumps({"predicted": int(seen.predicted.memory.allocated), "measured": int(seen.allocated)}), file=sys.stderr)
    with open(row, encoding="utf-8") as file:
        assert json.load(file)[0]["training"]["micro_batch"] == 4
    return 0 if abs(seen.predicted.memory.allocated / seen.allocated - 1) < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
