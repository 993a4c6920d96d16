"""A Trainer with plimsoll's callback: predicted at the first batch, compared after three steady steps. Ends with 1 where the two differ."""
import json
import sys
import tempfile

import torch
import transformers

from plimsoll.transformers import PlimsollCallback


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        row = torch.full((256,), index % 1000)
        return {"input_ids": row, "labels": row}


def main(on, row):
    config = transformers.LlamaConfig(hidden_size=512, intermediate_size=1376, num_attention_heads=8, num_key_value_heads=8, num_hidden_layers=4, vocab_size=1000)
    arguments = transformers.TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=6, bf16=True, report_to=[], save_strategy="no", logging_strategy="no",
                                               disable_tqdm=True, dataloader_pin_memory=False)
    callback = PlimsollCallback(on=on, steps=3, row=row)
    transformers.Trainer(model=transformers.LlamaForCausalLM(config), args=arguments, train_dataset=Tokens(), callbacks=[callback]).train()
    seen = callback.watch.comparison
    print(json.dumps({"predicted": int(seen.predicted.memory.allocated), "measured": int(seen.allocated)}), file=sys.stderr)
    return 0 if abs(seen.predicted.memory.allocated / seen.allocated - 1) < 0.01 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
