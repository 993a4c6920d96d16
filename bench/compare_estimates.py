"""compare_estimates.py BEFORE AFTER [COUNT [SEED]]: whether two builds of plimsoll estimate the same, to the last digit.

Draws COUNT (200) random strategies, two thirds of them pipelines (Megatron's 1F1B and interleaved schedule, TorchTitan's six), runs
`estimate --json` of both programs and tells every difference: for changes that should make estimates quicker and nothing else. Ends with 1
where there was one."""
import collections
import pathlib
import random
import subprocess
import sys

MT_NLG = str(pathlib.Path(__file__).with_name("mt-nlg-530b.json"))
LAYERS = {"llama-3.1-8b": 32, "llama-2-7b": 32, "llama-3.1-70b": 80, "gpt2-xl": 48, MT_NLG: 105, "llama-3.1-405b": 126, "mixtral-8x7b": 32}
OTHERS = ["llama-3.1-8b", "llama-2-7b", "llama-3.1-70b", "llama-3.1-405b"]
FRAMEWORKS = ["megatron"] * 3 + ["torchtitan"] * 3 + ["transformers", "nanotron", "megatron-deepspeed"]
TITAN_SCHEDULES = ["1f1b", "gpipe", "interleaved-1f1b", "interleaved-zero-bubble", "zbv", "dualpipev"]
ONE_CHUNK = ["1f1b", "gpipe"]


def pipeline(draw, framework, layers, stages):
    if framework == "torchtitan":
        schedule = draw.choice(TITAN_SCHEDULES)
        return {"pp_schedule": schedule} if schedule in ONE_CHUNK else {"pp_schedule": schedule, "vp": 2}
    if framework == "megatron":
        chunks = [n for n in range(1, 7) if layers % (stages * n) == 0 and (n == 1 or stages > 2)]
        several = [n for n in chunks if n > 1]
        if several and draw.random() < 0.6:
            return {"vp": draw.choice(several)}
    return {}


def plan(draw):
    framework = draw.choice(FRAMEWORKS)
    model = draw.choice(list(LAYERS) if framework.startswith("megatron") else OTHERS)
    alone = framework == "transformers"
    stages = 1 if alone else draw.choice([5, 7, 15, 21, 35] if model == MT_NLG else [1, 2, 4, 8, 16])
    tensor, data = 1 if alone else draw.choice([1, 2, 4, 8]), draw.choice([1, 2, 4])
    options = {"framework": framework, "tp": tensor, "pp": stages, "micro_batch": draw.choice([1, 1, 2])}
    options["seq"] = draw.choice([512, 1024] if model == "gpt2-xl" else [512, 1024, 2048])
    if alone:
        options["data_parallel"] = draw.choice(["ddp", "fsdp1", "fsdp2"])
    elif framework == "megatron" and draw.random() < 0.5:
        options["data_parallel"] = draw.choice(["megatron-distopt", "ddp"])
    if stages > 1:
        options.update(pipeline(draw, framework, LAYERS[model], stages))
    if tensor > 1 and framework in ("megatron", "torchtitan") and draw.random() < 0.7:
        options["sequence_parallel"] = "true"
    if draw.random() < 0.5:
        options["recompute"] = draw.choice(["full", "selective"]) if framework == "megatron" else "full"
    options["global_batch"] = options["micro_batch"] * data * stages * draw.choice([1, 2, 3, 4, 6, 8])
    gpus = tensor * stages * data
    per_node = 8 if gpus % 8 == 0 else gpus if gpus < 8 else 1
    return model, f"{gpus // per_node}x{per_node}x" + draw.choice(["h100-sxm", "a100-80gb-sxm", "mi300x"]), options


def answer(program, model, cluster, options):
    words = [program, "estimate", model, "--on", cluster, "--json"]
    for key, value in options.items():
        words += ["--" + key.replace("_", "-"), str(value)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def main(before, after, count=200, seed=1):
    draw, seen, different = random.Random(int(seed)), collections.Counter(), 0
    for _ in range(int(count)):
        asked = plan(draw)
        old, new = answer(before, *asked), answer(after, *asked)
        options = asked[2]
        kind = "refused" if not old[1] else "a pipeline" if options["pp"] > 1 else "no pipeline"
        seen[kind, options["framework"], options.get("pp_schedule", ""), "several chunks" if options.get("vp", 1) > 1 else ""] += 1
        if old != new:
            different += 1
            print("different:", *asked)
    for kind, times in sorted(seen.items()):
        print(f"{times:4}  {' '.join(kind)}")
    print(f"{different} of {count} are different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
