"""`Trainer(…, callbacks=[plimsoll.transformers.PlimsollCallback()])`: the prediction beside the run, by the Trainer's own arguments."""
from __future__ import annotations

import json
import os
from typing import Any, Optional

import transformers

from ._calls import model_of
from ._watch import Watch, torch_version, watch_first_batch

#: TrainingArguments.optim as the planner's optimizer and implementation; other names go as they are, and the planner says what it thinks of them.
_OPTIMIZERS = {
    "adamw_torch": ("adamw", "foreach"), "adamw_torch_fused": ("adamw", "fused"), "sgd": ("sgd", "foreach"), "adafactor": ("adafactor", None),
    "adamw_bnb_8bit": ("adamw-8bit", None), "adamw_8bit": ("adamw-8bit", None), "paged_adamw_8bit": ("paged-adamw-8bit", None), "lion_8bit": ("lion-8bit", None),
}
_ATTENTIONS = {"flash_attention_2": "flash", "flash_attention_3": "flash", "flex_attention": "flex"}


def _precision(args: transformers.TrainingArguments, model: Any) -> dict[str, Any]:
    stored = str(next(model.parameters()).dtype).replace("torch.", "")
    types = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    if args.bf16 or args.fp16:
        return {"precision": "amp-bf16" if args.bf16 else "amp-fp16", "param_dtype": types.get(stored, stored)}
    return {"precision": {"float32": "fp32", "bfloat16": "pure-bf16", "float16": "pure-fp16"}.get(stored, stored)}


def _sharding(args: transformers.TrainingArguments) -> dict[str, Any]:
    if args.deepspeed:
        config = args.deepspeed
        if isinstance(config, (str, os.PathLike)):
            with open(config, encoding="utf-8") as file:
                config = json.load(file)
        return {"framework": "deepspeed", "zero_stage": config.get("zero_optimization", {}).get("stage", 0)}
    if args.fsdp:
        version = int((args.fsdp_config or {}).get("version", 1))
        return {"data_parallel": f"fsdp{version}"}
    return {"data_parallel": "ddp" if args.world_size > 1 else "none"}


def _adapters(model: Any) -> dict[str, Any]:
    adapters = getattr(model, "peft_config", None)
    if not adapters:
        return {}
    config = next(iter(adapters.values()))
    if getattr(config, "r", None) is None:
        return {"task": str(getattr(config, "peft_type", "")).split(".")[-1].lower()}
    targets = config.target_modules
    return {"lora": {"r": config.r, "alpha": config.lora_alpha, "dropout": config.lora_dropout, "target_modules": sorted(targets) if isinstance(targets, (set, list)) else targets}}


def strategy_of(args: transformers.TrainingArguments, model: Any) -> dict[str, Any]:
    """What a Trainer with these arguments does, as keys of a strategy (docs/rows.md)."""
    optimizer, implementation = _OPTIMIZERS.get(str(getattr(args.optim, "value", args.optim)), (str(getattr(args.optim, "value", args.optim)), None))
    attention = getattr(model.config, "_attn_implementation", None) or "sdpa"
    strategy: dict[str, Any] = {
        "framework": "transformers", "framework_version": transformers.__version__, "torch": torch_version(), "micro_batch": args.per_device_train_batch_size,
        "grad_accum": args.gradient_accumulation_steps, "optimizer": optimizer, "optimizer_impl": implementation, "clip_grad_norm": args.max_grad_norm > 0,
        "recompute": "full" if args.gradient_checkpointing else "none", "attention": _ATTENTIONS.get(attention, attention),
        "liger_kernel": True if getattr(args, "use_liger_kernel", False) else None, "compile": True if args.torch_compile else None,
    }
    if args.gradient_checkpointing:
        strategy["recompute_reentrant"] = bool((args.gradient_checkpointing_kwargs or {}).get("use_reentrant", False))
    strategy.update(_precision(args, model), **_adapters(model))
    strategy.update(_sharding(args))
    return {key: value for key, value in strategy.items() if value is not None}


class PlimsollCallback(transformers.TrainerCallback):
    """Predicts at the first batch, compares after `steps` steady steps, and writes `row` (a file for `plimsoll validate`) where it is named.
    `strategy` says what the Trainer's arguments cannot. What was found is in `.watch`."""

    def __init__(self, on: Optional[str] = None, steps: int = 5, row: Optional[str] = None, **strategy: Any) -> None:
        self._on, self._steps, self._row, self._strategy = on, steps, row, strategy
        self.watch: Optional[Watch] = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.watch = Watch(model_of(model), self._on, {**strategy_of(args, model), **self._strategy}, self._steps, self._row)
        self._let_go = watch_first_batch(model, self.watch.seen_batch)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        assert self.watch is not None
        self.watch.step_end()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._let_go()
