"""Plans whose two prices of a step step_pairs.py compares beside those of the closed loop: kinds that the suite does not run, for their time."""

import os
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "rehearsal"))
import exports  # noqa: E402
from exports import CORE, EMPTY, LOOP, SYNTHETIC, TRAINER, ZERO, Plan  # noqa: E402

TITAN = "--framework torchtitan --precision bf16"
LONG = "--micro-batch 1 --seq 8192"
SHARDED = f"{LOOP} --precision bf16 --data-parallel fsdp2 --fsdp.reshard-after-forward always"
# name, model, devices, format, options
FURTHER = (
    ("llama-3.1-8b fsdp2, recomputed, 64 devices", "llama-3.1-8b", "8x8xh100-sxm", "torchrun", f"{SHARDED} --recompute full {LONG}"),
    ("qwen3-4b fsdp2, 16 devices", "qwen3-4b", "2x8xh100-sxm", "torchrun", f"{SHARDED} --micro-batch 1 --seq 4096"),
    ("gemma-3-1b one device", "gemma-3-1b", "1xh100-sxm", "torchrun", f"{LOOP} --precision bf16 --micro-batch 1 --seq 4096"),
    ("gemma-3-1b fsdp2", "gemma-3-1b", "8xh100-sxm", "torchrun", f"{SHARDED} --micro-batch 1 --seq 4096"),
    ("smollm2-1.7b ddp, 64 devices", "smollm2-1.7b", "8x8xh100-sxm", "torchrun", f"{LOOP} --precision bf16 --data-parallel ddp --micro-batch 1 --seq 2048"),
    ("gpt2-xl ddp, 16 devices", "gpt2-xl", "2x8xh100-sxm", "torchrun", f"{LOOP} --precision bf16 --data-parallel ddp --micro-batch 4 --seq 1024"),
    ("llama-3.1-8b zero 3, recomputed, 64 devices", "llama-3.1-8b", "8x8xh100-sxm", "deepspeed", f"{ZERO} --zero 3 --recompute full {LONG}"),
    ("llama-3.2-3b zero 3", "llama-3.2-3b", "8xh100-sxm", "deepspeed", f"{ZERO} --zero 3 --micro-batch 1 --seq 4096"),
    ("llama-3.2-3b zero 2, recomputed", "llama-3.2-3b", "8xh100-sxm", "deepspeed", f"{ZERO} --zero 2 --recompute full --micro-batch 2 --seq 4096"),
    ("llama-3.2-1b one device, 32k tokens", "llama-3.2-1b", "1xh100-sxm", "torchrun",
     f"{LOOP} --precision pure-bf16 --recompute full --micro-batch 1 --seq 32768"),
    ("granite-3.0-1b-a400m one device", "granite-3.0-1b-a400m", "1xh100-sxm", "torchrun", f"{LOOP} --precision bf16 --micro-batch 2 --seq 2048"),
    ("olmoe-1b-7b fsdp2", "olmoe-1b-7b", "8xh100-sxm", "torchrun", f"{SHARDED} --micro-batch 1 --seq 4096"),
    ("qwen3-30b-a3b fsdp2, recomputed, 64 devices", "qwen3-30b-a3b", "8x8xh100-sxm", "torchrun", f"{SHARDED} --recompute full --micro-batch 1 --seq 4096"),
    ("gpt-oss-20b fsdp2, recomputed", "gpt-oss-20b", "8xh200-sxm", "torchrun", f"{SHARDED} --recompute full --micro-batch 1 --seq 2048"),
    ("llama-3.1-8b lora, every linear", "llama-3.1-8b", "1xh100-sxm", "torchrun",
     f"{LOOP} --precision pure-bf16 --lora.r 16 --lora.target-modules all-linear --micro-batch 1 --seq 4096 --recompute full"),
    ("qwen3-8b fsdp2 lora", "qwen3-8b", "8xh100-sxm", "torchrun", f"{SHARDED} --lora.r 16 --lora.target-modules all-linear --micro-batch 1 --seq 4096"),
    ("llama-3.2-1b trainer, adafactor", "llama-3.2-1b", "1xh100-sxm", "accelerate", f"{TRAINER} --optimizer adafactor --micro-batch 2 --seq 2048"),
    ("llama-3.2-1b trainer, compiled", "llama-3.2-1b", "1xh100-sxm", "accelerate", f"{TRAINER} --compile model --micro-batch 2 --seq 4096"),
    ("megatron-core, data parallel", "gpt2-medium", "8xh100-sxm", "megatron", f"{CORE} --micro-batch 4"),
    ("torchtitan, eager", "llama-3.2-1b", "8xh100-sxm", "torchtitan", f"{TITAN} --compile false --micro-batch 2 --seq 4096"),
    ("torchtitan, experts", "qwen3-30b-a3b", "8xh200-sxm", "torchtitan", f"{TITAN} --ep 8 --micro-batch 1 --seq 4096"),
    ("torchtitan, qwen3", "qwen3-1.7b", "8xh100-sxm", "torchtitan", f"{TITAN} --micro-batch 1 --seq 4096"),
)
# worlds that are all stages, which are rehearsed together
PIPELINES = (
    ("megatron-core, pipeline of 4", "qwen2.5-0.5b", "4xh100-sxm", "megatron", f"{CORE} --pp 4 --micro-batch 1 --grad-accum 8"),
    ("megatron-core, interleaved pipeline", "qwen2.5-0.5b", "4xh100-sxm", "megatron", f"{CORE} --pp 4 --vp 2 --micro-batch 1 --grad-accum 8"),
    ("torchtitan, 1F1B", "llama-3.1-8b", "4xh100-sxm", "torchtitan", f"{TITAN} --pp 4 --schedule 1f1b --micro-batch 1 --grad-accum 8 --seq 4096"),
    ("torchtitan, GPipe", "llama-3.1-8b", "4xh100-sxm", "torchtitan", f"{TITAN} --pp 4 --schedule gpipe --micro-batch 1 --grad-accum 8 --seq 4096"),
)


def plans():
    """Those of the closed loop and these, each with what its kind of program needs beside its files."""
    beside = {"torchrun": {"program": EMPTY}, "deepspeed": {"program": EMPTY}, "torchtitan": {"rehearse": SYNTHETIC}}
    found = exports.plans()
    found += [Plan(name, model, on, to, options, **beside.get(to, {})) for name, model, on, to, options in FURTHER]
    found += [Plan(name, model, on, to, options, stages=4, **beside.get(to, {})) for name, model, on, to, options in PIPELINES]
    return found
