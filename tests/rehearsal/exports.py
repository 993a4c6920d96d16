"""The closed loop: plans exported, the exported files run by their own framework under `plimsoll rehearse`, and the peaks of its allocator held
against the estimate's, allocated and reserved, within 0.1 %; the time of a step is printed beside, and held within 10 % where the device decides it.

    exports.py PLIMSOLL ENVIRONMENTS [PATTERN…]    groups whose name contains a pattern, of other groups the plans that do; all without one
    exports.py --list                              the groups' names

Plans of one launcher on one machine are a group: one `plimsoll rehearse --vary` forks them from a Python that has imported what they share.
"""

import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "..", "models")
ALLOWED = 0.001


EMPTY, SYNTHETIC = ("--empty-weights",), ("--synthetic-data",)


class Plan:
    """A model, devices and a strategy; `program`: what is added to the exported launch, `rehearse`: to the rehearsal of it; `stages`: ranks of a
    pipeline, each of which is rehearsed; `time`: the share by which the step's time may differ, where the device decides it and not the host."""

    def __init__(self, name, model, on, to, options, program=(), rehearse=(), stages=1, environment="cuda13", time=None):
        self.name, self.model, self.on, self.to, self.options = name, model, on, to, shlex.split(options)
        self.program, self.rehearse, self.stages, self.environment, self.time = list(program), list(rehearse), stages, environment, time

    def arguments(self):
        return [os.path.join(MODELS, self.model), "--on", self.on, *self.options]

    def group(self):
        """Plans that differ in their files alone; pipelines and compiled programs, whose caches are their own, are alone."""
        apart = self.stages > 1 or self.to not in ("torchrun", "deepspeed", "accelerate")
        return self.name if apart else f"{self.to} on {self.on}"

    def ranks(self):
        """The first rank of every stage: pipelines are the outermost dimension of the frameworks' meshes."""
        world = math.prod(int(count) for count in re.findall(r"(\d+)x", re.match(r"(\d+x)+", self.on).group(0)))
        return [stage * world // self.stages for stage in range(self.stages)]


LOOP = "--framework transformers"
TRANSFORMERS = [
    ("one device", "1xh100-sxm", f"{LOOP} --precision bf16"),
    ("one device, 16-bit weights", "1xh100-sxm", f"{LOOP} --precision pure-bf16"),
    ("one device, recomputed", "1xh100-sxm", f"{LOOP} --precision bf16 --recompute full"),
    ("one device, fused, accumulated", "1xh100-sxm", f"{LOOP} --precision bf16 --optimizer-impl fused --grad-accum 2"),
    ("ddp", "8xh100-sxm", f"{LOOP} --precision bf16 --data-parallel ddp"),
    ("ddp, no_sync", "8xh100-sxm", f"{LOOP} --precision bf16 --data-parallel ddp --grad-accum 2 --ddp.no-sync true"),
    ("fsdp2", "8xh100-sxm", f"{LOOP} --precision bf16 --data-parallel fsdp2 --fsdp.reshard-after-forward always"),
    ("fsdp2, recomputed", "8xh100-sxm", f"{LOOP} --precision bf16 --data-parallel fsdp2 --fsdp.reshard-after-forward always --recompute full"),
    ("fsdp2, not resharded", "8xh100-sxm", f"{LOOP} --precision bf16 --data-parallel fsdp2 --fsdp.reshard-after-forward never"),
    ("lora", "1xh100-sxm", f"{LOOP} --precision pure-bf16 --lora.r 16 --lora.target-modules q_proj,v_proj"),
]
ZERO = "--framework deepspeed --precision bf16"
DEEPSPEED = [
    ("zero 1", f"{ZERO} --zero 1"),
    ("zero 2", f"{ZERO} --zero 2"),
    ("zero 3", f"{ZERO} --zero 3"),
    ("zero 2, recomputed", f"{ZERO} --zero 2 --recompute full"),
]
OFFLOADED = [
    ("zero 1, offloaded", f"{ZERO} --zero 1 --offload optimizer"),
    ("zero 2, offloaded", f"{ZERO} --zero 2 --offload optimizer"),
    ("zero 3, offloaded", f"{ZERO} --zero 3 --offload optimizer"),
    ("zero 3, parameters offloaded", f"{ZERO} --zero 3 --offload params+optimizer"),
]
TRAINER = "--framework accelerate --precision bf16"
ACCELERATE = [
    ("trainer, one device", "1xh100-sxm", TRAINER),
    ("trainer, ddp", "8xh100-sxm", f"{TRAINER} --data-parallel ddp"),
    ("trainer, fsdp2", "8xh100-sxm", f"{TRAINER} --data-parallel fsdp2 --fsdp.reshard-after-forward always"),
    ("trainer, fsdp2, recomputed", "8xh100-sxm", f"{TRAINER} --data-parallel fsdp2 --fsdp.reshard-after-forward always --recompute full"),
    ("trainer, fsdp1", "8xh100-sxm", f"{TRAINER} --data-parallel fsdp1"),
    ("trainer, fsdp1, prefetched", "8xh100-sxm", f"{TRAINER} --data-parallel fsdp1 --fsdp.backward-prefetch BACKWARD_PRE"),
    ("trainer, fsdp1, one unit", "8xh100-sxm", f"{TRAINER} --data-parallel fsdp1 --fsdp.units none"),
    ("trainer, lora", "1xh100-sxm", "--framework accelerate --precision pure-bf16 --lora.r 16 --lora.target-modules q_proj,v_proj"),
]
CORE = "--framework megatron-core --precision bf16 --layer-spec local --optimizer-impl foreach --masked-softmax-fusion false --seq 1024"  # without Apex


def plans():
    found = []
    for model, batch in (("llama-3.2-1b", "--micro-batch 1 --seq 2048"), ("qwen2.5-0.5b", "--micro-batch 2 --seq 1024")):
        found += [Plan(f"{model} {name}", model, on, "torchrun", f"{options} {batch}", EMPTY) for name, on, options in TRANSFORMERS]
        found += [Plan(f"{model} {name}", model, "8xh100-sxm", "deepspeed", f"{options} {batch}", EMPTY) for name, options in DEEPSPEED]
    long = "--micro-batch 2 --seq 4096"  # large enough that the device decides the step's time
    one_rank = [each for each in TRANSFORMERS if "accumulated" not in each[0] and "sync" not in each[0] and "not resharded" not in each[0]]
    found += [
        Plan(f"llama-3.2-1b {name}, long", "llama-3.2-1b", on, "torchrun", f"{options} {long}", EMPTY, time=0.1)
        for name, on, options in one_rank
    ]
    found += [
        Plan(f"llama-3.2-1b {name}, long", "llama-3.2-1b", "8xh100-sxm", "deepspeed", f"{options} {long}", EMPTY, time=0.1)
        for name, options in DEEPSPEED[:2]  # what ZeRO-3 does on the host is not in a rehearsed step, and that is said
    ]
    small, batch = "qwen2.5-0.5b", "--micro-batch 2 --seq 1024"
    found += [Plan(f"{small} {name}", small, "8xh100-sxm", "deepspeed", f"{options} {batch}", EMPTY) for name, options in OFFLOADED]
    found += [Plan(f"{small} {name}", small, on, "accelerate", f"{options} {batch}") for name, on, options in ACCELERATE]
    first = f"{LOOP} --precision bf16 --data-parallel fsdp1 {batch}"
    found += [
        Plan(f"{small} fsdp1{name}", small, "8xh100-sxm", "torchrun", f"{first} {options}", EMPTY)
        for name, options in (
            ("", ""),
            (", prefetched after", "--fsdp.backward-prefetch BACKWARD_POST"),
            (", not prefetched", "--fsdp.backward-prefetch NO_PREFETCH"),
        )
    ]
    gpt2 = f"{LOOP} --precision bf16 --micro-batch 4 --seq 1024"
    found += [
        Plan("gpt2 one device", "gpt2", "1xh100-sxm", "torchrun", gpt2, EMPTY),
        Plan("gpt2 ddp", "gpt2", "8xh100-sxm", "torchrun", f"{gpt2} --data-parallel ddp", EMPTY),
        Plan("megatron-core, tensor parallel", small, "8xh100-sxm", "megatron", f"{CORE} --tp 2 --micro-batch 2"),
        Plan(
            "megatron-core, pipeline",
            small,
            "2x8xh100-sxm",
            "megatron",
            f"{CORE} --pp 2 --micro-batch 1 --grad-accum 8",
            stages=2,
        ),
        Plan("megatron-core, distributed optimizer", "gpt2", "8xh100-sxm", "megatron", f"{CORE} --data-parallel megatron-distopt --micro-batch 2"),
        Plan(
            "torchtitan",
            "llama-3.2-1b",
            "8xh100-sxm",
            "torchtitan",
            "--framework torchtitan --precision bf16 --micro-batch 1 --seq 2048",
            rehearse=SYNTHETIC,
        ),
        Plan(
            "torchtitan, tensor parallel",
            "llama-3.2-1b",
            "8xh100-sxm",
            "torchtitan",
            "--framework torchtitan --precision bf16 --tp 2 --micro-batch 1 --seq 2048",
            rehearse=SYNTHETIC,
        ),
        Plan(
            "pythia-410m fsdp1, units by size",
            "pythia-410m",
            "8xh100-sxm",
            "torchrun",
            f"{LOOP} --precision bf16 --data-parallel fsdp1 --fsdp.min-num-params 100000000 {batch}",
            EMPTY,
        ),
    ]
    tune = "--framework torchtune --precision pure-bf16"
    lora = "--lora.r 8 --lora.alpha 16 --lora.target-modules q_proj,v_proj,output_proj"
    found += [
        Plan(f"torchtune, {name}", model, on, "torchtune", f"{tune} {options}", rehearse=SYNTHETIC, environment="torchtune")
        for name, model, on, options in (
            ("one device", "llama-3.2-1b", "1xh100-sxm", "--micro-batch 1 --seq 2048"),
            ("recomputed, accumulated", small, "1xh100-sxm", "--recompute full --grad-accum 2 --micro-batch 2 --seq 1024"),
            ("fsdp2", "llama-3.2-1b", "8xh100-sxm", "--micro-batch 1 --seq 2048"),
            ("lora", "llama-3.2-1b", "1xh100-sxm", f"{lora} --micro-batch 1 --seq 2048"),
        )
    ]
    return found


def output_of(command, folder, limit, variables=None):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=limit, env={**os.environ, **(variables or {})})
    if not done.stdout.strip():
        raise RuntimeError(f"{' '.join(command[:4])}…: {done.stderr[-600:]}")
    return done.stdout


def report_of(text):
    report = json.loads(text)
    if "error" in report:
        raise RuntimeError(report["error"]["message"])
    return report


def peaks(rank):
    return rank["memory"]["allocated_bytes"], rank["memory"]["reserved_bytes"]


def launch_of(folder, environment):
    """The last command of run.sh, its launcher from the environment, and the variables that the script exports."""
    with open(os.path.join(folder, "run.sh"), encoding="utf-8") as file:
        lines = file.read().replace("\\\n", " ").strip().splitlines()
    exported = [shlex.split(line, comments=True)[1].split("=", 1) for line in lines if line.startswith("export ")]
    words = shlex.split(lines[-1])
    return [os.path.join(environment, "bin", words[0]), *words[1:]], {name: value.replace("$PWD", folder) for name, value in exported}


def compare(what, estimated, rehearsed):
    """Whether both peaks are equal, and a line about them."""
    pairs = list(zip(("allocated", "reserved"), estimated, rehearsed))
    text = "; ".join(f"{what}{name} {a:,} estimated, {b:,} rehearsed ({a / b - 1:+.3%})" for name, a, b in pairs)
    return all(abs(a / b - 1) <= ALLOWED for _, a, b in pairs), text


def seconds(report):
    """A band, or what is exact."""
    step = report["time"]["step_seconds"]
    return step["expected"] if isinstance(step, dict) else step


def compare_time(plan, estimated, rehearsed):
    text = f"step {1e3 * estimated:.1f} ms estimated, {1e3 * rehearsed:.1f} ms rehearsed ({estimated / rehearsed - 1:+.1%})"
    return plan.time is None or abs(estimated / rehearsed - 1) <= plan.time, text


def exported(plimsoll, plan, folder):
    """Writes the plan's files; what the estimate says of it."""
    done = subprocess.run([plimsoll, "export", *plan.arguments(), "--to", plan.to, "-o", folder], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    return report_of(output_of([plimsoll, "estimate", *plan.arguments(), "--json"], folder, 120))


def rehearsal_of(plimsoll, plan, options, command):
    return [plimsoll, "rehearse", "--on", plan.on, "--json", "--timeout", "800", *options, *plan.rehearse, "--", *command, *plan.program]


def rehearsed(plimsoll, environments, plan, folder, options):
    """What a rehearsal reports of the plan whose files lie in a folder."""
    command, variables = launch_of(folder, os.path.join(environments, plan.environment))
    # The first step of a compiled program leaves other blocks behind where its kernels are found compiled.
    variables |= {f"{owner}_CACHE_DIR": os.path.join(folder, owner) for owner in ("TORCHINDUCTOR", "TRITON")}
    return report_of(output_of(rehearsal_of(plimsoll, plan, options, command), folder, 880, variables))


def check(plimsoll, environments, plan):
    compared = []
    with tempfile.TemporaryDirectory() as folder:
        estimate = exported(plimsoll, plan, folder)
        for stage, rank in enumerate(plan.ranks()):
            wanted = next(each for each in estimate["ranks"] if each["stage"] == stage)
            report = rehearsed(plimsoll, environments, plan, folder, ["--rank", str(rank)])
            compared.append(compare(f"rank {rank} " if plan.stages > 1 else "", peaks(wanted), peaks(report["ranks"][0])))
            if plan.stages == 1:
                compared.append(compare_time(plan, seconds(estimate), seconds(report)))
    return all(good for good, _ in compared), "; ".join(text for _, text in compared)


def in_folder(command, folder):
    """The command as it is run from outside, {plan} for the folder of its files."""
    files = set(os.listdir(folder))
    return [os.path.join("{plan}", word) if word in files else word for word in command]


def check_together(plimsoll, environments, plans):
    """(plan, whether it is good, a line about it) of each."""
    with tempfile.TemporaryDirectory() as folder:
        places = [os.path.join(folder, str(number)) for number in range(len(plans))]
        estimates = [exported(plimsoll, plan, place) for plan, place in zip(plans, places)]
        launches = []
        for plan, place in zip(plans, places):
            command, variables = launch_of(place, os.path.join(environments, plan.environment))
            launches.append((in_folder(command, place), variables, plan.program, plan.rehearse))
        if any(each != launches[0] for each in launches):
            raise RuntimeError(f"not launched alike: {launches}")
        command, variables, *_ = launches[0]
        line = rehearsal_of(plimsoll, plans[0], ["--rank", "0", "--vary", f"plan={','.join(places)}"], command)
        variants = report_of(output_of(line, folder, 880, variables))["variants"]
        for plan, estimate, variant in zip(plans, estimates, variants):
            if "failure" in variant:
                yield plan, False, variant["failure"]
                continue
            same, text = compare("", peaks(estimate["ranks"][0]), (variant["allocated_bytes"], variant["reserved_bytes"]))
            near, times = compare_time(plan, seconds(estimate), variant["step_seconds"])
            yield plan, same and near, f"{text}; {times}"


def outcomes(plimsoll, environments, plans):
    try:
        if len(plans) > 1:
            yield from check_together(plimsoll, environments, plans)
        else:
            yield plans[0], *check(plimsoll, environments, plans[0])
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        yield plans[0], False, str(error)[-600:]


def main():
    groups = {}
    for plan in plans():
        groups.setdefault(plan.group(), []).append(plan)
    if sys.argv[1:] == ["--list"]:
        print("\n".join(groups))
        return
    plimsoll, environments, *patterns = *map(os.path.abspath, sys.argv[1:3]), *sys.argv[3:]
    failed = 0
    for name, members in groups.items():
        if patterns and name not in patterns:
            named = [plan for plan in members if plan.name in patterns]
            members = named or [plan for plan in members if any(pattern in text for pattern in patterns for text in (plan.name, name))]
        for plan, good, text in outcomes(plimsoll, environments, members) if members else ():
            failed += not good
            print(("equal   " if good else "UNEQUAL ") + plan.name + ": " + text, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
