"""Fine-tunes with transformers' Trainer, from names: neither weights nor tokenizer nor dataset need be there."""

import sys

import datasets
import transformers


def main():
    folder = sys.argv[1]  # of a config.json
    tokenizer = transformers.AutoTokenizer.from_pretrained("nobody/no-tokenizer")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="bfloat16", use_cache=False)
    assert model.name_or_path == model.config.name_or_path == folder  # by which others load it once more
    assert model.config.use_cache is False  # a key of the config among from_pretrained's
    rows = datasets.load_dataset("nobody/no-dataset", split="train").select(range(64))
    rows = rows.map(
        lambda row: tokenizer(row["text"], truncation=True, max_length=512, padding="max_length"), remove_columns=rows.column_names
    )
    settings = transformers.TrainingArguments(
        output_dir="/nonexistent",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=6,
        bf16=True,
        save_strategy="no",
        report_to=[],
        logging_steps=1,
    )
    collator = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    transformers.Trainer(model=model, args=settings, train_dataset=rows, data_collator=collator).train()


main()
