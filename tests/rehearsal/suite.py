"""The rehearsal suite: ordinary training programs rehearsed with the PyTorch that ./dev setup --rehearsal installed, and what comes out held
against figures read from the frameworks' own allocators (bench/corpus/allocator-*.json), to the byte.

    suite.py PLIMSOLL ENVIRONMENTS [PATTERN…]    scenarios whose name contains a pattern; all without one
    suite.py --list                              their names

ENVIRONMENTS is a folder of Python environments named cuda13 and cuda12 (or symbolic links to them).
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = os.path.join(HERE, "..", "..", "bench", "corpus")
MODELS = os.path.join(HERE, "..", "..", "models")
PROGRAMS = os.path.join(HERE, "programs")


def rows_of(name):
    path = os.path.join(HERE, "rows-cuda12.json") if name == "cuda12" else os.path.join(CORPUS, f"allocator-{name}.json")
    with open(path) as file:
        return {row["id"]: row for row in json.load(file)}


class Scenario:
    """One program, where it runs, and the rows it must give back."""

    def __init__(
        self, name, program, file, row, on="8xh100-sxm", rank=0, options=(), launches=None, extra=(), reserved=True, toolkit="cuda13"
    ):
        self.name, self.program, self.on, self.rank, self.options, self.extra = name, program, on, rank, options, extra
        self.toolkit = toolkit
        self.row = rows_of(file)[row]
        self.launches = rows_of(file if toolkit == "cuda12" else "launches")[launches]["measured"] if launches else None
        self.reserved = reserved

    def command(self, plimsoll, python, record):
        world = self.row["hardware"]["gpus"]
        given = json.dumps({key: self.row[key] for key in ("model", "training")})
        program = [python, os.path.join(PROGRAMS, self.program), "--row", given, *self.extra]
        return [
            plimsoll,
            "rehearse",
            "--on",
            self.on,
            "--world",
            str(world),
            "--rank",
            str(self.rank),
            "--json",
            "--timeout",
            "400",
            "--record",
            record,
            *self.options,
            "--",
            *program,
        ]


SCENARIOS = (
    Scenario(
        "transformers one device",
        "train_transformers.py",
        "transformers",
        "hf-llama-3.2-1b-bf16-sdpa-b1-s2048-adamw",
        "1xh100-sxm",
        launches="launches-hf-llama-3.2-1b-bf16-sdpa-b1-s2048-adamw",
    ),
    Scenario(
        "transformers autocast",
        "train_transformers.py",
        "transformers",
        "hf-llama-3.2-1b-fp32-amp-bf16-sdpa-b1-s2048-adamw",
        "1xh100-sxm",
        launches="launches-hf-llama-3.2-1b-fp32-amp-bf16-sdpa-b1-s2048-adamw",
    ),
    Scenario(
        "transformers fused optimizer",
        "train_transformers.py",
        "transformers",
        "hf-llama-3.2-1b-bf16-sdpa-b1-s2048-adamw-fused",
        "1xh100-sxm",
        launches="launches-hf-llama-3.2-1b-bf16-sdpa-b1-s2048-adamw-fused",
    ),
    Scenario(
        "ddp",
        "train_transformers.py",
        "transformers",
        "hf-gpt2-fp32-amp-bf16-sdpa-b1-s1024-adamw-ddp-n8",
        launches="launches-hf-gpt2-fp32-amp-bf16-sdpa-b1-s1024-adamw-ddp-n8",
        rank=3,
    ),
    Scenario(
        "fsdp2",
        "train_transformers.py",
        "transformers",
        "hf-llama-3.2-1b-fp32-sdpa-b2-s2048-ac-adamw-fsdp2-n8",
        launches="launches-hf-llama-3.2-1b-fp32-sdpa-b2-s2048-ac-adamw-fsdp2-n8",
        rank=5,
    ),
    Scenario(
        "lora",
        "train_transformers.py",
        "transformers",
        "hf-llama-3.1-8b-bf16-sdpa-b1-s2048-adamw-lora-r16-2t",
        "1xh100-sxm",
        launches="launches-hf-llama-3.1-8b-bf16-sdpa-b1-s2048-adamw-lora-r16-2t",
    ),
    Scenario("deepspeed zero 1", "train_deepspeed.py", "deepspeed", "ds-llama-3.2-1b-z1-bf16-w8-b1-s2048"),
    Scenario("deepspeed zero 2", "train_deepspeed.py", "deepspeed", "ds-qwen2.5-0.5b-z2-bf16-w8-b2-s1024"),
    Scenario("deepspeed zero 3", "train_deepspeed.py", "deepspeed", "ds-qwen2.5-0.5b-z3-bf16-w8-b2-s1024-ckpt", reserved=False),
    Scenario("megatron tensor parallel", "train_megatron.py", "megatron", "mg-gpt-1.3b-tp2-pp1-dp8-b4-s2048-m1-do-local", "2x8xh100-sxm"),
    Scenario("megatron first stage", "train_megatron.py", "megatron", "mg-gpt-1.3b-tp1-pp2-dp8-r0-b1-s2048-m8-do-local", "2x8xh100-sxm"),
    Scenario(
        "megatron last stage", "train_megatron.py", "megatron", "mg-gpt-1.3b-tp1-pp2-dp8-r1-b1-s2048-m8-do-local", "2x8xh100-sxm", rank=8
    ),
    Scenario(
        "torchtitan",
        "train_torchtitan.py",
        "torchtitan",
        "tt-llama3-debugmodel-g8-s2048-b4-ac-selective-chunked",
        options=("--synthetic-data",),
        extra=("--flavor", "debugmodel"),
    ),
    Scenario(
        "cuda 12 one device",
        "train_transformers.py",
        "cuda12",
        "cuda12-hf-llama-3.2-1b-bf16-sdpa-b1-s2048-adamw",
        "1xh100-sxm",
        launches="cuda12-hf-llama-3.2-1b-bf16-sdpa-b1-s2048-adamw",
        toolkit="cuda12",
    ),
    Scenario(
        "cuda 12 fsdp2",
        "train_transformers.py",
        "cuda12",
        "cuda12-hf-llama-3.2-1b-fp32-sdpa-b2-s2048-ac-adamw-fsdp2-n8",
        toolkit="cuda12",
        launches="cuda12-hf-llama-3.2-1b-fp32-sdpa-b2-s2048-ac-adamw-fsdp2-n8",
    ),
)


class Outcome:
    """A program that ends in another way, and what is said about it."""

    toolkit = "cuda13"

    def __init__(self, name, line, code, out=(), err=(), on="8xh100-sxm", options=()):
        self.name, self.line, self.code, self.out, self.err, self.on, self.options = name, line, code, out, err, on, options

    def command(self, plimsoll, python, record):
        folder = os.path.dirname(python)
        words = [word.replace("PROGRAMS", PROGRAMS).replace("BIN", folder).replace("MODELS", MODELS) for word in self.line.split()]
        return [plimsoll, "rehearse", "--on", self.on, "--record", record, *self.options, "--", *words]

    def failures(self, run):
        failures = [] if run.returncode == self.code else [f"exit code {run.returncode}, not {self.code}: {run.stderr[-2000:]}"]
        for text, wanted in ((run.stdout, self.out), (run.stderr, self.err)):
            failures += [f"nothing says '{each}': {text[-2000:]}" for each in wanted if not re.search(each, text)]
        return failures


OUTCOMES = (
    Outcome(
        "out of memory",
        "BIN/python PROGRAMS/out_of_memory.py",
        1,
        out=("out of memory: 2.00 GiB", r"out_of_memory\.py:\d+ <module>"),
        options=("--steps", "100"),
    ),
    Outcome("no step", "BIN/python PROGRAMS/no_step.py", 2, err=("without a whole step of an optimizer",)),
    Outcome(
        "timeout",
        "BIN/python PROGRAMS/waits.py",
        2,
        err=(r"waits\.py., line \d+ in wait_for_convergence", "reached the end of no step within 60 s"),
        options=("--timeout", "60"),
    ),
    Outcome(
        "failure",
        "BIN/python PROGRAMS/fails.py",
        2,
        err=("ValueError: the loss vanished", r"fails\.py:\d+", "read values that no device computed"),
    ),
    Outcome(
        "another world",
        "BIN/python PROGRAMS/other_world.py",
        2,
        err=(r"asks for a world of 4 at .*other_world.py:\d+, but --world is 8",),
        options=("--world", "8", "--rank", "0"),
    ),
    Outcome("no such program", "BIN/python PROGRAMS/nowhere.py", 2, err=("exit code 2 before the end of its first step",)),
    Outcome(
        "accelerate launch",
        "BIN/accelerate launch --num_processes 8 --multi_gpu --mixed_precision bf16 PROGRAMS/train_accelerate.py",
        0,
        out=("all_reduce over 8", "accelerate"),
        options=("--rank", "3"),
    ),
    Outcome(
        "torchrun pipeline",
        "BIN/torchrun --nproc-per-node 2 PROGRAMS/train_pipeline.py",
        0,
        out=("rank 0 .*allocated", "rank 1 .*allocated", "pipeline"),
    ),
    Outcome(
        "trainer without weights",
        "BIN/python PROGRAMS/train_trainer.py MODELS/gpt2",
        0,
        out=("the weights of .*gpt2", "the tokenizer nobody/no-tokenizer", "the dataset nobody/no-dataset"),
        options=("--synthetic-data",),
    ),
)


def failures_of(scenario, report):
    """What differs from the row, to the byte."""
    measured = scenario.row["measured"]
    rank = report["ranks"][0]
    failures = []
    wanted = [("allocated_bytes", rank["memory"]["allocated_bytes"], measured["peak_allocated_bytes"])]
    if scenario.reserved:
        wanted.append(("reserved_bytes", rank["memory"]["reserved_bytes"], measured["peak_reserved_bytes"]))
    if scenario.launches:
        wanted += [(key, rank["work"][key], scenario.launches[key]) for key in ("launches", "gemms", "gemm_flops")]
    for name, got, want in wanted:
        if got != want:
            failures.append(f"{name} {got}, not {want} ({got - want:+})")
    return failures


def rehearse(scenario, plimsoll, environments):
    start = time.time()
    python = os.path.join(environments, scenario.toolkit, "bin", "python")
    if not os.path.exists(python):
        return 0, [python + " is not there: ./dev setup --rehearsal installs it"], ""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            scenario.command(plimsoll, python, os.path.join(folder, "record")), capture_output=True, text=True, timeout=900
        )
    if isinstance(scenario, Outcome):
        return time.time() - start, scenario.failures(run), run.stderr
    if run.returncode not in (0, 1) or not run.stdout.strip():
        return time.time() - start, ["exit code %d: %s" % (run.returncode, run.stderr[-3000:])], run.stderr
    return time.time() - start, failures_of(scenario, json.loads(run.stdout)), run.stderr


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(each.name.replace(" ", "-") for each in SCENARIOS + OUTCOMES))
        return
    plimsoll, environments, patterns = sys.argv[1], sys.argv[2], [pattern.replace("-", " ") for pattern in sys.argv[3:]]
    named = [each for each in SCENARIOS + OUTCOMES if each.name in patterns]
    chosen = named or [each for each in SCENARIOS + OUTCOMES if not patterns or any(pattern in each.name for pattern in patterns)]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
        for scenario, (seconds, failures, log) in zip(chosen, pool.map(lambda each: rehearse(each, plimsoll, environments), chosen)):
            failed += bool(failures)
            facts = re.search(r"plimsoll: rank .*", log)
            print(
                f"{'FAILED' if failures else 'ok':7}{seconds:6.1f} s  {scenario.name}" + (f"  ({facts.group(0)[16:]})" if facts else ""),
                flush=True,
            )
            for failure in failures:
                print("        " + failure, flush=True)
    print(f"{len(chosen) - failed} of {len(chosen)} scenarios as measured")
    sys.exit(1 if failed or not chosen else 0)


if __name__ == "__main__":
    main()
