"""Trains a causal language model with transformers' Trainer on tokens: of a dataset of the hub (--dataset), or the same token throughout.

    accelerate launch --config_file accelerate.yaml train.py training_arguments.json
"""

import dataclasses
import os
import sys

import torch
import transformers


@dataclasses.dataclass
class ModelArguments:
    model_name_or_path: str = ""
    dtype: str = "auto"
    attn_implementation: str = "sdpa"
    block_size: int = 1024
    dataset: str = ""
    use_peft: bool = False
    lora_r: int = 16
    lora_alpha: float = 32
    lora_dropout: float = 0.0
    lora_target_modules: list[str] = dataclasses.field(default_factory=list)
    lora_modules_to_save: list[str] = dataclasses.field(default_factory=list)
    use_dora: bool = False
    load_in_4bit: bool = False
    load_in_8bit: bool = False


class SameToken(torch.utils.data.Dataset):
    """Every sequence is full: the shapes of training without its data."""

    def __init__(self, length, count=4096):
        self.length, self.count = length, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        ids = torch.zeros(self.length, dtype=torch.long)
        return {"input_ids": ids, "labels": ids}


def model_of(options):
    path = options.model_name_or_path
    if os.path.isdir(path) and not any(name.endswith((".safetensors", ".bin")) for name in os.listdir(path)):
        config = transformers.AutoConfig.from_pretrained(path)  # no weights: from scratch
        dtype = torch.float32 if options.dtype == "auto" else getattr(torch, options.dtype)
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=options.attn_implementation)
    dtype = options.dtype if options.dtype == "auto" else getattr(torch, options.dtype)
    quantized = None
    if options.load_in_4bit or options.load_in_8bit:
        quantized = transformers.BitsAndBytesConfig(load_in_4bit=options.load_in_4bit, load_in_8bit=options.load_in_8bit, bnb_4bit_quant_type="nf4")
    return transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, attn_implementation=options.attn_implementation, quantization_config=quantized
    )


def adapted(model, options):
    import peft

    targets = options.lora_target_modules
    return peft.get_peft_model(
        model,
        peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=options.lora_r,
            lora_alpha=options.lora_alpha,
            lora_dropout=options.lora_dropout,
            target_modules=targets[0] if targets == ["all-linear"] else targets,
            modules_to_save=options.lora_modules_to_save or None,
            use_dora=options.use_dora,
        ),
    )


def tokens_of(options):
    if not options.dataset:
        return SameToken(options.block_size)
    import datasets

    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model_name_or_path)
    texts = datasets.load_dataset(options.dataset, split="train")
    ids = sum((tokenizer(text)["input_ids"] for text in texts["text"]), [])
    length = options.block_size
    blocks = [torch.tensor(ids[at : at + length]) for at in range(0, len(ids) - length, length)]
    return [{"input_ids": block, "labels": block} for block in blocks]


def main():
    parser = transformers.HfArgumentParser((ModelArguments, transformers.TrainingArguments))
    file = next((word for word in sys.argv[1:] if word.endswith(".json")), None)
    options, training = parser.parse_json_file(os.path.abspath(file)) if file else parser.parse_args_into_dataclasses()
    model = model_of(options)
    model.config.use_cache = False
    if options.use_peft:
        model = adapted(model, options)
    transformers.Trainer(model=model, args=training, train_dataset=tokens_of(options)).train()


main()
