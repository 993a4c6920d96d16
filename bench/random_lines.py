"""Lines of `estimate` drawn over tasks, frameworks, devices and shipped models: none may crash, none may take more than a few seconds of a processor.

python3 bench/random_lines.py build/default/plimsoll [LINES [SEED]]     (400 lines of seed 7)

Printed is each line that ended otherwise than by 0, 1 or 2, said more than one line of refusal, or took more than MOST_SECONDS; then how many ended how.
The exit code is 1 where any was printed.
"""
import collections
import pathlib
import random
import resource
import subprocess
import sys

MOST_SECONDS = 5.0
DEVICES = ["1xh100-sxm", "8xh100-sxm", "2x8xh100-sxm", "8xmi300x", "4xa100-80gb", "1xrtx4090", "2xrtx4090", "8xh200", "64x8xh100-sxm"]
FRAMEWORKS = ["transformers", "accelerate", "deepspeed", "megatron-core", "megatron-lm", "torchtitan", "torchtune", "axolotl", "nanotron"]
TEACHERS = ["llama-3.2-1b", "qwen2.5-1.5b", "qwen3-30b-a3b", "gpt2", "gpt-oss-20b", "deepseek-v3"]
TASKS = ["full", "lora", "qlora", "dpo", "kto", "orpo", "cpo", "reward", "grpo", "rloo", "gkd", "trl-sft", "cls"]
# How often an option stands in a line, and with which values.
OPTIONS = [
    ("--framework", 0.6, FRAMEWORKS),
    ("--micro-batch", 0.5, ["1", "2", "4"]),
    ("--grad-accum", 0.4, ["2", "4"]),
    ("--recompute", 0.4, ["full", "none", "selective"]),
    ("--optimizer", 0.25, ["adamw", "adafactor", "adamw-8bit", "sgd", "lion", "muon"]),
    ("--precision", 0.25, ["bf16", "fp16", "fp32", "amp-bf16", "pure-bf16", "fp8"]),
    ("--attention", 0.15, ["eager", "sdpa", "flash", "flex"]),
    ("--compile", 0.15, ["blocks", "model", "true"]),
    ("--offload", 0.1, ["optimizer", "params", "activations"]),
    ("--liger-kernel", 0.1, ["true"]),
    ("--packed", 0.1, ["true"]),
]
LAYOUTS = [(0.25, "--data-parallel", ["ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3", "none"]), (0.15, "--fsdp", ["full"]), (0.1, "--tp", ["2", "4", "8"]),
           (0.05, "--pp", ["2"])]


def drawn_task(draw):
    task = draw.choice(TASKS)
    words = ["--task", task]
    if task == "cls":
        words += ["--num-labels", "3"]
    if task in ("grpo", "rloo"):
        words += ["--prompt-len", "128", "--seq", "640"] + draw.choice([[], ["--engine-share", "0.3"]])
    if task == "gkd":
        words += ["--teacher", draw.choice(TEACHERS), "--divergence", draw.choice(["mixture", "forward", "reverse"])]
    return words


def drawn_layout(draw):
    at = draw.random()
    for share, option, values in LAYOUTS:
        if at < share:
            return [option, draw.choice(values)]
        at -= share
    return []


def drawn_line(draw, models):
    words = [draw.choice(models), "--on", draw.choice(DEVICES)]
    if draw.random() < 0.5:
        words += drawn_task(draw)
    if "--seq" not in words and draw.random() < 0.6:
        words += ["--seq", draw.choice(["512", "2k", "8192", "32k"])]
    for option, often, values in OPTIONS:
        if draw.random() < often:
            words += [option, draw.choice(values)]
    return words + drawn_layout(draw)


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(program, lines=400, seed=7):
    draw = random.Random(seed)
    models = sorted(path.parent.name for path in pathlib.Path(__file__).parent.parent.joinpath("models").glob("*/config.json"))
    ended, bad = collections.Counter(), 0
    for _ in range(lines):
        words, before = drawn_line(draw, models), processor_seconds()
        run = subprocess.run([program, "estimate", *words], capture_output=True, text=True)
        seconds = processor_seconds() - before
        ended[run.returncode] += 1
        if run.returncode not in (0, 1, 2) or seconds > MOST_SECONDS or (run.returncode == 2 and run.stderr.strip().count("\n")):
            bad += 1
            print(f"{run.returncode}  {seconds:.1f} s  {' '.join(words)}  {run.stderr.strip()[:200]}")
    print(dict(ended))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
