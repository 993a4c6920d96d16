"""Trains a network of a config.json from nothing on made-up rows with transformers' Trainer, whose own flags it takes.

python examples/trainer.py models/llama-3.2-1b --output_dir out --per_device_train_batch_size 2 --bf16 true
"""

import sys

import torch
import transformers

LENGTH = 2048


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        ids = torch.full((LENGTH,), index)
        return {"input_ids": ids, "labels": ids}


def main():
    folder = sys.argv.pop(1)
    (settings,) = transformers.HfArgumentParser(transformers.TrainingArguments).parse_args_into_dataclasses()
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    transformers.Trainer(model=model, args=settings, train_dataset=Rows()).train()


if __name__ == "__main__":
    main()
