"""The closed loop: plans exported, the exported files run by their own framework under `plimsoll rehearse`, and the peaks of its allocator held
against the estimate's, allocated and reserved, within 0.1 %.

    exports.py PLIMSOLL ENVIRONMENTS [PATTERN…]    plans whose name contains a pattern; all without one
    exports.py --list                              their names
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "..", "models")
ALLOWED = 0.001


class Plan:
    """A model, devices and a strategy; `loop`: the exported program takes --empty-weights, so that no weights are computed."""

    def __init__(self, name, model, on, to, options, rehearse=(), loop=True):
        self.name, self.model, self.on, self.to, self.options, self.rehearse, self.loop = name, model, on, to, shlex.split(options), list(rehearse), loop

    def arguments(self):
        return [os.path.join(MODELS, self.model), "--on", self.on, *self.options]


TRANSFORMERS = [
    ("one device", "1xh100-sxm", "--framework transformers --precision bf16"),
    ("one device, 16-bit weights", "1xh100-sxm", "--framework transformers --precision pure-bf16"),
    ("one device, recomputed", "1xh100-sxm", "--framework transformers --precision bf16 --recompute full"),
    ("one device, fused, accumulated", "1xh100-sxm", "--framework transformers --precision bf16 --optimizer-impl fused --grad-accum 2"),
    ("ddp", "8xh100-sxm", "--framework transformers --precision bf16 --data-parallel ddp"),
    ("ddp, no_sync", "8xh100-sxm", "--framework transformers --precision bf16 --data-parallel ddp --grad-accum 2 --ddp.no-sync true"),
    ("fsdp2", "8xh100-sxm", "--framework transformers --precision bf16 --data-parallel fsdp2 --fsdp.reshard-after-forward always"),
    ("fsdp2, recomputed", "8xh100-sxm", "--framework transformers --precision bf16 --data-parallel fsdp2 --fsdp.reshard-after-forward always --recompute full"),
    ("fsdp2, not resharded", "8xh100-sxm", "--framework transformers --precision bf16 --data-parallel fsdp2 --fsdp.reshard-after-forward never"),
    ("lora", "1xh100-sxm", "--framework transformers --precision pure-bf16 --lora.r 16 --lora.target-modules q_proj,v_proj"),
]
DEEPSPEED = [
    ("zero 1", "8xh100-sxm", "--framework deepspeed --precision bf16 --zero 1"),
    ("zero 2", "8xh100-sxm", "--framework deepspeed --precision bf16 --zero 2"),
    ("zero 3", "8xh100-sxm", "--framework deepspeed --precision bf16 --zero 3"),
    ("zero 2, recomputed", "8xh100-sxm", "--framework deepspeed --precision bf16 --zero 2 --recompute full"),
]


def plans():
    found = []
    for model, batch in (("llama-3.2-1b", "--micro-batch 1 --seq 2048"), ("qwen2.5-0.5b", "--micro-batch 2 --seq 1024")):
        found += [Plan(f"{model} {name}", model, on, "torchrun", f"{options} {batch}") for name, on, options in TRANSFORMERS]
        found += [Plan(f"{model} {name}", model, on, "deepspeed", f"{options} {batch}") for name, on, options in DEEPSPEED]
    found.append(Plan("gpt2 one device", "gpt2", "1xh100-sxm", "torchrun", "--framework transformers --precision bf16 --micro-batch 4 --seq 1024"))
    found.append(Plan("gpt2 ddp", "gpt2", "8xh100-sxm", "torchrun", "--framework transformers --precision bf16 --data-parallel ddp --micro-batch 4 --seq 1024"))
    return found


def output_of(command, folder, limit):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=limit)
    if not done.stdout.strip():
        raise RuntimeError(f"{' '.join(command[:4])}…: {done.stderr[-600:]}")
    return done.stdout


def peaks(text):
    report = json.loads(text)
    if "error" in report:
        raise RuntimeError(report["error"]["message"])
    return [(rank["memory"]["allocated_bytes"], rank["memory"]["reserved_bytes"]) for rank in report["ranks"]]


def launch_of(folder, environment):
    """The last command of run.sh, its launcher from the environment."""
    with open(os.path.join(folder, "run.sh"), encoding="utf-8") as file:
        words = shlex.split(file.read().strip().splitlines()[-1])
    return [os.path.join(environment, "bin", words[0]), *words[1:]]


def check(plimsoll, environments, plan):
    with tempfile.TemporaryDirectory() as folder:
        exported = subprocess.run([plimsoll, "export", *plan.arguments(), "--to", plan.to, "-o", folder], capture_output=True, text=True)
        if exported.returncode not in (0, 1):
            raise RuntimeError(exported.stderr)
        estimated = peaks(output_of([plimsoll, "estimate", *plan.arguments(), "--json"], folder, 120))
        command = launch_of(folder, os.path.join(environments, "cuda13")) + (["--empty-weights"] if plan.loop else [])
        rehearsed = peaks(output_of([plimsoll, "rehearse", "--on", plan.on, "--rank", "0", "--json", "--timeout", "400", *plan.rehearse, "--", *command], folder, 600))
    wrong = []
    for what, a, b in zip(("allocated", "reserved"), estimated[0], rehearsed[0]):
        error = a / b - 1
        wrong.append(f"{what} {a:,} estimated, {b:,} rehearsed ({error:+.3%})")
    good = all(abs(a / b - 1) <= ALLOWED for a, b in zip(estimated[0], rehearsed[0]))
    return good, "; ".join(wrong)


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(plan.name for plan in plans()))
        return
    plimsoll, environments, *patterns = sys.argv[1:]
    failed = 0
    for plan in plans():
        if patterns and not any(pattern in plan.name for pattern in patterns):
            continue
        try:
            good, text = check(plimsoll, environments, plan)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            good, text = False, str(error)[-600:]
        failed += not good
        print(("equal   " if good else "UNEQUAL ") + plan.name + ": " + text, flush=True)
    sys.exit(1 if failed else 0)


main()
