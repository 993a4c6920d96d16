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
import shlex
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = os.path.join(HERE, "..", "..", "bench", "corpus")
MODELS = os.path.join(HERE, "..", "..", "models")
PROGRAMS = os.path.join(HERE, "programs")
SOURCE = os.path.abspath(os.path.join(HERE, "..", ".."))
sys.path.append(os.path.join(SOURCE, "tests", "cli"))
import readme  # noqa: E402


def rows_of(name):
    path = os.path.join(HERE, "rows-cuda12.json") if name == "cuda12" else os.path.join(CORPUS, f"allocator-{name}.json")
    with open(path) as file:
        return {row["id"]: row for row in json.load(file)}


class Scenario:
    """One program, where it runs, and the rows it must give back."""

    def __init__(
        self, name, program, file, row, on="8xh100-sxm", rank=0, options=(), launches=None, extra=(), reserved=True, toolkit="cuda13",
        within=0.0,
    ):
        """`within`: the share of the row's bytes by which the program may differ. What a first compiled step leaves behind is not the same
        where its kernels are found compiled."""
        self.name, self.program, self.on, self.rank, self.options, self.extra = name, program, on, rank, options, extra
        self.toolkit = toolkit
        self.row = rows_of(file)[row]
        self.launches = rows_of(file if toolkit == "cuda12" else "launches")[launches]["measured"] if launches else None
        self.reserved, self.within = reserved, within

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
        "transformers compiled whole",
        "train_transformers.py",
        "compiled-model",
        "compiled-model-llama-tied-bf16",
        "1xh100-sxm",
        reserved=False,
        within=0.005,
    ),
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
    Scenario("deepspeed zero 2 lora", "train_deepspeed.py", "deepspeed-lora", "ds-lora-5-qwen2-z2-fp16-w2-r0"),
    Scenario("deepspeed zero 3 lora", "train_deepspeed.py", "deepspeed-lora", "ds-lora-20-llama-z3-bf16-w5-r2-init-ckpt", rank=2),
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
        "mixture of experts",
        "train_transformers.py",
        "transformers",
        "hf-mixtral-4l-bf16-sdpa-b1-s2048-adamw",
        "1xh200-sxm",
    ),
    Scenario("megatron experts", "train_megatron.py", "megatron", "mg-moe-8x1b-tp1-pp1-dp8-b1-s2048-m1-do"),
    Scenario(
        "torchtitan experts",
        "train_torchtitan.py",
        "torchtitan",
        "tt-qwen3-debugmodel-moe-g8-ep4-s2048-b2-ac-none-chunked",
        options=("--synthetic-data",),
        extra=("--family", "qwen3", "--flavor", "debugmodel_moe"),
    ),
    Scenario(
        "compiled blocks",
        "train_transformers.py",
        "transformers",
        "hf-gpt2-bf16-sdpa-b2-s1024-adamw-compile-blocks",
        "1xh100-sxm",
        extra=("--wrap", "GPT2Block"),
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

    def __init__(self, name, line, code, out=(), err=(), never=(), on="8xh100-sxm", options=(), toolkit="cuda13"):
        self.name, self.line, self.code, self.out, self.err, self.on, self.options = name, line, code, out, err, on, options
        self.toolkit, self.never = toolkit, never

    def command(self, plimsoll, python, record):
        folder = os.path.dirname(python)
        words = [word.replace("PROGRAMS", PROGRAMS).replace("BIN", folder).replace("MODELS", MODELS) for word in self.line.split()]
        return [plimsoll, "rehearse", "--on", self.on, "--record", record, *self.options, "--", *words]

    def failures(self, run):
        failures = [] if run.returncode == self.code else [f"exit code {run.returncode}, not {self.code}: {run.stderr[-2000:]}"]
        for text, wanted in ((run.stdout, self.out), (run.stderr, self.err)):
            failures += [f"nothing says '{each}': {text[-2000:]}" for each in wanted if not re.search(each, text)]
        return failures + [f"it says '{each}': {run.stdout[-2000:]}" for each in self.never if re.search(each, run.stdout)]


class Within(Outcome):
    """A program whose figures, the numbers in parentheses of expressions, stay below limits; the last that is printed counts."""

    def __init__(self, name, line, limits, **options):
        super().__init__(name, line, 0, **options)
        self.limits = limits

    def failures(self, run):
        failures = super().failures(run)
        for expression, limit in self.limits.items():
            found = re.findall(expression, run.stderr + run.stdout)
            if not found or float(found[-1]) >= limit:
                failures.append(f"{expression}: {found[-1] if found else 'nothing'}, not below {limit}: {run.stderr[-1500:]}")
        return failures


class Varied(Outcome):
    """A program that is rehearsed more than once: no record is kept of it."""

    def command(self, plimsoll, python, record):
        command = super().command(plimsoll, python, record)
        at = command.index("--record")
        return command[:at] + command[at + 2 :]


class Shown(Varied):
    """The command and its report that the README shows: run in the source's folder, with the environment's Python for its own."""

    def __init__(self, name):
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
            self.block = next(block for block in readme.blocks(file.read(), "text") if block.startswith("$ plimsoll rehearse"))
        super().__init__(name, "", 0)

    def command(self, plimsoll, python, record):
        words = shlex.split(self.block.partition("\n")[0])[2:]
        words[words.index("--") + 1] = python
        return ["env", "-C", SOURCE, plimsoll, *words]

    def failures(self, run):
        wanted = self.block.partition("\n")[2].split("…\n")[0].splitlines()
        printed = re.sub(r"(?m)(-- )\S+/python ", r"\1python ", run.stdout).splitlines()[: len(wanted)]
        alike = len(printed) == len(wanted) and all(map(readme.same, wanted, printed))
        return super().failures(run) + ([] if alike else ["it prints\n" + run.stdout])


class Asked(Outcome):
    """A program that says what FLOPs its own arguments ask for: those of the kernels that carry the work are as many, of any release."""

    # kernels of each class of work, and how many times the FLOPs of a forward pass they have
    CLASSES = {
        "CUDNN_ATTENTION": {"cudnn.attention_forward": 1, "cudnn.attention_backward": 2.5},
        "FLASH_ATTENTION": {"pytorch_flash::flash_fwd_kernel": 1, "pytorch_flash::flash_bwd_dq_dk_dv": 2.5},
        "EFFICIENT_ATTENTION": {"fmha_cutlassF": 1, "fmha_cutlassB": 2.5},
        "CONVOLUTION": {"cudnn.convolution_forward": 1, "cudnn.convolution_data": 1, "cudnn.convolution_filter": 1},
        "FLEX_ATTENTION": {r"triton_tem_fused_flex_attention_\d": 1, "triton_tem_fused_flex_attention_backward": 2.5},
    }

    def __init__(self, name, line, works=("CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CONVOLUTION"), **options):
        super().__init__(name, line, 0, options=("--format", "csv"), **options)
        self.works = works

    def failures(self, run):
        failures = super().failures(run)
        asked = dict(re.findall(r"^(\w+) asks for (\d+)$", run.stderr, re.MULTILINE))
        recorded = re.findall(r"^([^,\n]+),\d+,[^,\n]+,(\d+)$", run.stdout, re.MULTILINE)
        for work in self.works:
            for kernel, times in self.CLASSES[work].items():
                got, want = sum(int(flops) for name, flops in recorded if re.match(kernel, name)), times * int(asked.get(work, 0))
                if got != want or want == 0:
                    failures.append(f"{kernel}: {got} FLOPs, and the program's arguments ask for {want:.0f}")
        return failures


class Pipeline(Outcome):
    """Equal stages under GPipe or 1F1B idle for all but one of themselves: the bubble is to the passes as stages less one to micro-batches."""

    WITHIN = 0.05  # of the ratio: transfers take time too, and the last stage computes the loss

    def __init__(self, name, line, stages, micro_batches, **options):
        super().__init__(name, line, 0, **options)
        self.ratio = (stages - 1) / micro_batches

    def failures(self, run):
        failures = super().failures(run)
        if failures:
            return failures
        parts = json.loads(run.stdout)["time"]["breakdown"]
        got = parts["bubble"] / parts["compute"]
        return [] if abs(got / self.ratio - 1) < self.WITHIN else [f"bubble over compute is {got:.4f}, and not {self.ratio:.4f}"]


PACKAGE = os.path.join(HERE, "..", "..", "python")


class Watched(Outcome):
    """A program that predicts itself by the Python package and ends with 1 where its peak is another."""

    def command(self, plimsoll, python, record):
        beside = [f"PLIMSOLL_PREFIX={os.path.dirname(plimsoll)}", f"PYTHONPATH={PACKAGE}"]
        return ["env", *beside, *super().command(plimsoll, python, record)]


HOST_MEMORY = r"([0-9.]+) MB of host memory"
OUTCOMES = (
    Watched(
        "watched trainer",
        "BIN/python PROGRAMS/watched_trainer.py 1xh100-sxm /dev/null",
        0,
        err=("before the first step: fits", "after 4 steps"),
        on="1xh100-sxm",
        options=("--steps", "6"),
    ),
    Watched(
        "watched loop",
        "BIN/python PROGRAMS/watched_loop.py",
        0,
        err=("before the first step: fits", "after 4 steps"),
        on="1xh100-sxm",
        options=("--steps", "5"),
    ),
    Watched(
        "watched torchtitan",
        "BIN/torchrun --nproc-per-node 8 PROGRAMS/watched_torchtitan.py",
        0,
        err=("before the first step: fits", "after 3 steps"),
        options=("--steps", "4", "--synthetic-data"),
    ),
    Within(
        "speed of a step",  # in lengths of a loop of plain Python, 2.4 to 3.1 whether other work runs beside or not
        "BIN/python PROGRAMS/train_large.py MODELS/llama-3.1-8b",
        {r"steps take ([0-9.]+) loops": 3.5, HOST_MEMORY: 2000, r"record, ([0-9.]+) an event": 100},
        on="1xb300",
        options=("--steps", "10"),
    ),
    Within(  # what a step of a whole model takes the host is not that of each of 40 optimizers, and what runs again begins no step
        "steps in backward",
        "BIN/python PROGRAMS/steps_in_backward.py",
        {r"([0-9.]+) ms a step": 40},
        out=("79 matrix products",),
        err=("rank 0: 4 steps",),
        on="1xh100-sxm",
    ),
    Within(
        "70b on 64 devices",
        "BIN/torchrun --nnodes 8 --nproc-per-node 8 PROGRAMS/train_large.py MODELS/llama-3.1-70b",
        {HOST_MEMORY: 4000},
        on="8x8xh100-sxm",
        options=("--rank", "63", "--steps", "2"),
    ),
    Outcome(
        "out of memory",
        "BIN/python PROGRAMS/out_of_memory.py",
        1,
        out=("out of memory: 2.00 GiB", r"out_of_memory\.py:\d+ <module>"),
        options=("--steps", "100"),
    ),
    Outcome(
        "no step",
        "BIN/python PROGRAMS/no_step.py",
        2,
        err=("without a whole step of an optimizer; until then it had launched .* kernels", "--until-exit"),
    ),
    Outcome("values", "BIN/python PROGRAMS/values.py", 0, out=(r"taken as 0\.75", r"more\s+than\s+256\s+times\s+in\s+a\s+step"), on="1xh100-sxm"),
    Outcome("values of cuda 12", "BIN/python PROGRAMS/values.py", 0, on="1xh100-sxm", toolkit="cuda12"),
    Asked("work that was asked for", "BIN/python PROGRAMS/asked_work.py", on="1xh100-sxm"),
    Asked("work that flex was asked for", "BIN/python PROGRAMS/flex.py", works=("FLEX_ATTENTION",), never=("block mask",), on="1xh100-sxm"),
    Asked("work that cuda 12 was asked for", "BIN/python PROGRAMS/asked_work.py", on="1xh100-sxm", toolkit="cuda12"),
    Outcome("unknown loss", "BIN/python PROGRAMS/given_value.py", 0, out=(r"given_value\.py:9: taken as 0\.75",), on="1xh100-sxm"),
    Outcome(
        "given loss",
        "BIN/python PROGRAMS/given_value.py",
        2,
        err=(r"ValueError: 2\.5 bits", "--value NAME=NUMBER"),
        on="1xh100-sxm",
        options=("--value", "loss=1.5", "--value", "bits=2.5"),
    ),
    Outcome("on the processor", "BIN/python PROGRAMS/on_processor.py", 2, err=("trained for 4 steps and never used the device",)),
    Outcome(
        "two optimizers",
        "BIN/python PROGRAMS/two_optimizers.py",
        0,
        out=(r"9 matrix products",),
        err=("turn 3 is over", "rank 0: 4 steps"),
        on="1xh100-sxm",
    ),
    Outcome("steps by a function", "BIN/python PROGRAMS/own_steps.py", 0, err=("rank 0: 4 steps",), options=("--mark", "train_step"), on="1xh100-sxm"),
    Outcome("steps said", "BIN/python PROGRAMS/own_steps.py say", 0, out=("5 matrix products",), err=("rank 0: 4 steps",), on="1xh100-sxm"),
    Outcome(  # two products of a step, forward and of the weight's gradient
        "own optimizer", "BIN/python PROGRAMS/own_optimizer/train.py", 0, out=("2 matrix products",), err=("rank 0: 4 steps",), on="1xh100-sxm"
    ),
    Outcome("whole run", "BIN/python PROGRAMS/own_steps.py", 0, out=("40 matrix products",), options=("--until-exit",), on="1xh100-sxm"),
    Outcome("replays", "BIN/python PROGRAMS/replays.py", 0, out=("2 matrix products",), err=("replay 2", "rank 0: 4 steps"), on="1xh100-sxm"),
    Outcome(
        "launcher in a script",
        "bash PROGRAMS/launch_inside.sh BIN",
        0,
        out=("all_reduce over 8", "world of 8"),
        err=("rank 0: 4 steps", "rank 4: 4 steps", "rank 7: 4 steps", "the script goes on"),
    ),
    Outcome(
        "worker that fails",
        "env SOME=THING PROGRAMS/launch_inside.sh BIN 4",
        2,
        out=("not to the end: the program failed after 4 steps: ValueError: rank 4 is ill",),
        err=(r"data_parallel\.py:\d+",),
    ),
    Outcome("spawned ranks", "BIN/python PROGRAMS/spawned.py", 0, out=("all_reduce over 8",), err=("rank 5: 4 steps",), options=("--rank", "5")),
    Outcome(
        "workers of a driver",
        "BIN/python PROGRAMS/driven/driver.py",
        0,
        out=("all_reduce over 2", "the end of Ray's driver"),
        err=("rank 0: 4 steps", "rank 1: 4 steps"),
    ),
    Outcome(
        "ranks that need each other",
        "BIN/torchrun --nproc-per-node 2 PROGRAMS/told_shapes.py",
        0,
        out=("rank 0 .*allocated", "rank 1 .*allocated", "run together"),
        err=("again, with all of them together",),
    ),
    Outcome("recomputed segments", "BIN/python PROGRAMS/recomputed.py", 0, err=("rank 0: 4 steps",), on="1xh100-sxm"),
    Outcome(  # a dot product is of a library: "called, without behaviour here" would name it
        "line search",
        "BIN/python PROGRAMS/line_search.py",
        0,
        out=("the end of L-BFGS' search",),
        err=("rank 0: 4 steps",),
        never=("without behaviour",),
        on="1xh100-sxm",
    ),
    Outcome("generated text", "BIN/python PROGRAMS/generates.py", 0, out=("multinomial|read",), err=("rank 0: 4 steps",), on="1xh100-sxm"),
    Outcome(  # a weight of 65536 x 188416 in bf16 is 23 GiB, and its gradient; what PyTorch says of each device is what the report says
        "devices by hand",
        "BIN/python PROGRAMS/two_devices.py hand",
        0,
        out=(r"fits: 46\.7 of 79\.2 GiB", r"rank 0 device 0 +46\.04 GiB", r"rank 0 device 1 +46\.04 GiB"),
        never=("PyTorch's own statistics",),
    ),
    Outcome(
        "devices of DataParallel",
        "BIN/python PROGRAMS/two_devices.py replicated",
        0,
        out=(r"device 0 of its 2", r"rank 0 device 0 +1\.53 GiB", r"rank 0 device 1 +608"),
        never=("PyTorch's own statistics",),
        on="2xh100-sxm",
    ),
    Outcome(  # 65536 rows of 1024 numbers in fp32 are 256 MiB: the batch, a product and its GELU, with 4 MiB of weights, as much of gradients or less
        "peaks beside training",
        "BIN/python PROGRAMS/validates.py",
        0,
        out=(r"set-up: 4,29\d,\d+,\d+ B", r"passes without gradients: 8[01]\d,\d+,\d+ B", r"saving: [1-9]\d*,\d+,\d+ B", "set-up reached 4"),
        on="1xh100-sxm",
    ),
    Outcome("pictures", "BIN/python PROGRAMS/sees.py", 0, err=("rank 0: 4 steps",), on="1xh100-sxm"),
    Varied(  # 4 GiB for every unit of rows: one fits on both, 64 nowhere
        "settings side by side",
        "BIN/python PROGRAMS/varied.py {rows} {recompute}",
        0,
        out=(r"fastest that fits: rows=1 recompute=false on 1xh100-sxm", r"1xh100-sxm +64 +false .* does not fit", r"1xl40s +1 +false .* fits"),
        err=(r"rows=64 recompute=false on 1xl40s: does not fit: it ran out of memory",),
        on="1xh100-sxm,1xl40s",
        options=("--vary", "rows=1,64", "--vary", "recompute=false"),
    ),
    Varied(
        "largest that fits",
        "BIN/python PROGRAMS/varied.py {rows} {recompute}",
        0,
        out=(r"rows=6 on 1xh100-sxm", r"72\.7\s+of\s+79\.2 GiB"),
        err=(r"rows=7 on 1xh100-sxm: does not fit",),
        on="1xh100-sxm",
        options=("--largest", "rows", "--vary", "recompute=false"),
    ),
    Shown("readme picture"),
    Outcome(  # its program says what the backward pass needs beside the gradients; its peaks, counted anew, are no others than the record's
        "packed attention",
        "BIN/python PROGRAMS/packed_attention.py",
        0,
        out=(r"flash_attn_2_cuda, the compiled part of flash-attn", r"flash_attn\.attention_forward +1 ", r"flash_attn\.attention_backward +3 "),
        err=("workspace True", "rank 0: 4 steps"),
        never=("workspace False", "packed sequences end is not known", "PyTorch's own statistics"),
        on="1xh100-sxm",
    ),
    Outcome(
        "packed attention of unknown ends",
        "BIN/python PROGRAMS/packed_attention.py unknown",
        0,
        out=(r"packed\s+sequences\s+end\s+is\s+not\s+known",),
        err=("workspace True", "rank 0: 4 steps"),
        on="1xh100-sxm",
    ),
    Outcome("expanded masks", "BIN/python PROGRAMS/masked_scatter.py", 0, err=("rank 0: 4 steps",), on="1xh100-sxm"),
    Outcome(
        "distributed checkpoint",
        "BIN/torchrun --nproc-per-node 8 PROGRAMS/saves_checkpoint.py",
        0,
        out=("check of a checkpoint's plan",),
        err=("rank 0: 4 steps",),
        options=("--rank", "0"),
    ),
    Outcome(
        "checkpoint split by zero 3",
        "BIN/deepspeed --num_gpus 8 PROGRAMS/split_checkpoint.py",
        0,
        out=("the weights of nobody/no-weights", "all_gather over 8"),
        err=("rank 3: 4 steps",),
        options=("--rank", "3"),
    ),
    Outcome("half built module", "BIN/python PROGRAMS/half_built.py", 2, err=(r"half_built\.py:\d+ __init__.*FileNotFoundError",), on="1xh100-sxm"),
    Outcome(
        "tokenizer without words",
        "BIN/python PROGRAMS/sequences.py",
        0,
        out=("the tokenizer google-t5/t5-small: a handful of words", "the snapshot of google-t5/t5-small"),
        err=("rank 0: 4 steps",),
        on="1xh100-sxm",
        options=("--synthetic-data",),
    ),
    Outcome(  # of 24 configurations one is compiled; the program says how many it has an answer for
        "autotuned kernels",
        "BIN/python PROGRAMS/autotuned.py",
        0,
        out=("configuration of a kernel: the\\s+first that compiles", r"max-autotune\):\s+the vendor's", r"gemm 4096 x 4096 x 2048 bf16"),
        err=("rank 0: 4 steps", "tried 1 of 24 configurations"),
        on="1xh100-sxm",
    ),
    Outcome("compiled steps", "BIN/python PROGRAMS/compiled_steps.py", 0, err=("rank 0: 4 steps",), on="1xh100-sxm"),
    Outcome(
        "timeout",
        "BIN/python PROGRAMS/waits.py",
        2,
        err=(r"waits\.py., line \d+ in wait_for_convergence", "reached the end of no step within 60 s"),
        options=("--timeout", "60"),
    ),
    Outcome(
        "thread left behind",
        "BIN/torchrun --nproc-per-node 8 PROGRAMS/lingers.py",
        0,
        out=("its main thread ended and 'logger' only waited",),
        options=("--timeout", "60", "--rank", "0"),
    ),
    Outcome(
        "failure",
        "BIN/python PROGRAMS/fails.py",
        2,
        err=("ValueError: the loss vanished", r"fails\.py:\d+", "read values that no device computed"),
    ),
    Outcome(
        "arguments not understood",
        "BIN/torchrun --nproc-per-node 8 PROGRAMS/leaves.py --rate much",
        2,
        err=(r"leaves\.py:\d+ <module>: .* exit code 2: leaves\.py: error: argument --rate: invalid float value: 'much'",),
    ),
    Outcome(
        "another world",
        "BIN/python PROGRAMS/other_world.py",
        2,
        err=(r"asks for a world of 4 at .*other_world.py:\d+, but --world is 8",),
        options=("--world", "8", "--rank", "0"),
    ),
    Outcome(
        "unknown symbol",
        "BIN/python PROGRAMS/unknown_symbol.py",
        2,
        err=(r"unknown_symbol\.py:\d+.*undefined symbol: cudaNotYetInvented.*newer than this plimsoll",),
    ),
    Outcome("no python", "BIN/python PROGRAMS/no_python.py.txt", 2, err=(r"no_python\.py\.txt:3.*SyntaxError",)),
    Outcome("no flash attn", "BIN/python PROGRAMS/no_flash_attn.py", 2, err=("no_flash_attn.py:4.*its Python is enough: FLASH_ATTENTION_SKIP_CUDA_BUILD",)),
    Outcome("no module", "BIN/python PROGRAMS/no_module.py", 2, err=("no_module.py:3.*ModuleNotFoundError.*install it",)),
    Outcome(
        "until peak and mpirun",
        "mpirun -np 16 -x FROM_MPIRUN=yes BIN/python PROGRAMS/train_mpi.py",
        0,
        out=("all_reduce over 16", "rank 15|world of 16"),
        err=("rank 0: 3 steps", "rank 8: 3 steps", "rank 15: 3 steps"),
        on="2x8xh100-sxm",
        options=("--until-peak", "--timeout", "300"),
    ),
    Outcome("balanced experts", "BIN/torchrun --nproc-per-node gpu PROGRAMS/experts.py", 0, out=("round robin",), options=("--rank", "2")),
    Outcome("libraries", "BIN/python PROGRAMS/libraries.py", 0, out=("of cuSOLVER", "of cuFFT", "recurrent networks"), on="1xh100-sxm"),
    Outcome(
        "cuda 12 libraries",
        "BIN/python PROGRAMS/libraries.py",
        0,
        out=("of cuSOLVER", "of cuFFT"),
        on="1xa100-80gb-sxm",
        toolkit="cuda12",
    ),
    Outcome(
        "deepspeed launch",
        "BIN/deepspeed --num_gpus 8 PROGRAMS/train_offloaded.py --deepspeed --deepspeed_config PROGRAMS/offload.json",
        0,
        out=("all_gather over 8", "deepspeed", "copy to the host", "host optimizer +[0-9.]+ ms"),
        never=("without the optimizer on the host",),
        options=("--rank", "7"),
    ),
    Outcome(
        "accelerate file",
        "BIN/accelerate launch --config_file PROGRAMS/fsdp.yaml PROGRAMS/train_accelerate.py",
        0,
        out=("reduce_scatter over 8", "all_gather over 8"),
        options=("--rank", "7"),
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
        out=("rank 0 .*allocated", "rank 1 .*allocated", r"played\s+together"),
    ),
    Pipeline("torchrun gpipe", "BIN/torchrun --nproc-per-node 4 PROGRAMS/pipeline_stages.py GPipe 8", 4, 8, on="4xh100-sxm", options=("--together", "--json")),
    Pipeline("torchrun 1f1b", "BIN/torchrun --nproc-per-node 4 PROGRAMS/pipeline_stages.py 1F1B 8", 4, 8, on="4xh100-sxm", options=("--together", "--json")),
    Outcome(
        "stages that are not all there",
        "BIN/torchrun --nproc-per-node 4 PROGRAMS/pipeline_stages.py GPipe 8 given",
        0,
        out=(r"bubble\s+is\s+not\s+in\s+the\s+step", "--together"),
        on="4xh100-sxm",
    ),
    Outcome(
        "trainer without weights",
        "BIN/python PROGRAMS/train_trainer.py meta-llama/Llama-3.2-1B",
        0,
        out=(
            "the config of meta-llama/Llama-3.2-1B",
            "the weights of meta-llama/Llama-3.2-1B",
            "the tokenizer nobody/no-tokenizer",
            "the dataset nobody/no-dataset",
        ),
        options=("--synthetic-data",),
    ),
)


def failures_of(scenario, report):
    """What differs from the row, to the byte unless the scenario says otherwise."""
    measured = scenario.row["measured"]
    rank = report["ranks"][0]
    failures = []
    kinds = {each["quantity"]: each["kind"] for each in report["provenance"]}
    if kinds.get("memory.allocated_bytes") != "rehearsed":
        failures.append(f"the provenance of allocated bytes is {kinds.get('memory.allocated_bytes')}, not rehearsed")
    wanted = [("allocated_bytes", rank["memory"]["allocated_bytes"], measured["peak_allocated_bytes"])]
    if scenario.reserved:
        wanted.append(("reserved_bytes", rank["memory"]["reserved_bytes"], measured["peak_reserved_bytes"]))
    if scenario.launches:
        wanted += [(key, rank["work"][key], scenario.launches[key]) for key in ("launches", "gemms", "gemm_flops")]
    for name, got, want in wanted:
        if abs(got - want) > scenario.within * want:
            failures.append(f"{name} {got}, not {want} ({got - want:+})")
    return failures


def rehearse(scenario, plimsoll, environments):
    start = time.time()
    python = os.path.join(environments, scenario.toolkit, "bin", "python")
    if not os.path.exists(python):
        return 0, [python + " is not there: ./dev setup --rehearsal installs it"], ""
    with tempfile.TemporaryDirectory() as folder:
        # The first step of a compiled program leaves other blocks behind where its kernels are found compiled: measured without.
        caches = {f"{owner}_CACHE_DIR": os.path.join(folder, owner) for owner in ("TORCHINDUCTOR", "TRITON")}
        # The rows were measured on a runtime whose addresses rise; PyTorch before 2.12 takes the lowest of equal free blocks.
        addresses = {} if isinstance(scenario, Outcome) else {"PLIMSOLL_REHEARSE_ADDRESSES": "rising"}
        command = scenario.command(plimsoll, python, os.path.join(folder, "record"))
        run = subprocess.run(command, capture_output=True, text=True, timeout=900, env={**os.environ, **caches, **addresses})
    if isinstance(scenario, Outcome):
        return time.time() - start, scenario.failures(run), run.stderr
    if run.returncode not in (0, 1) or not run.stdout.strip():
        return time.time() - start, ["exit code %d: %s" % (run.returncode, run.stderr[-3000:])], run.stderr
    return time.time() - start, failures_of(scenario, json.loads(run.stdout)), run.stderr


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(each.name.replace(" ", "-") for each in SCENARIOS + OUTCOMES))
        return
    plimsoll, environments, patterns = *map(os.path.abspath, sys.argv[1:3]), [pattern.replace("-", " ") for pattern in sys.argv[3:]]
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
