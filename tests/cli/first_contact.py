"""What a person meets first: names as they are found elsewhere, a verdict that fits a terminal, the way out of a run that does not fit."""
import json
import os
import shlex
import tempfile

from driver import SOURCE, Checks, run

GPT2 = ["gpt2", "--on", "1xh100-sxm", "--micro-batch", "1", "--seq", "128"]
WIDTH = 80


def names(checks):
    with open(os.path.join(SOURCE, "models", "hub.json"), encoding="utf-8") as file:
        hub = json.load(file)["names"]
    shipped = {model["name"] for model in json.loads(run("models", "--json").out)["models"]}
    checks.check(set(hub) <= shipped, f"hub names of what is not shipped: {set(hub) - shipped}")
    for name in sorted(hub)[::12]:
        sheet = run("models", hub[name][0])
        checks.check(sheet.code == 0 and sheet.out.startswith(name + " "), f"{hub[name][0]} is not {name}: {sheet.err}")
    checks.check("mistral-7b-v0.1" in run("models", "mistral-7b").err, "mistral-7b suggests no mistral")
    for cluster in ("8 x h100-sxm", "16,384 x h100-sxm"):
        estimate = run("estimate", "gpt2", "--on", cluster, "--seq", "128", "--json")
        checks.check(estimate.code == 0, f"{cluster}: {estimate.err}")


def widths(checks):
    for arguments in (["llama-3.1-8b", "--on", "8xmi300x", "--fsdp", "full", "--seq", "8192"], ["resnet-50", "--on", "1xa30", "--micro-batch", "32"],
                      ["llama-3.1-405b", "--on", "2048x8xh100-sxm", "--strategy", os.path.join(SOURCE, "examples", "llama-3.1-405b-megatron.json")],
                      ["llama-3.1-8b", "--on", "1xh100-sxm", "--seq", "1024"]):
        report = run("estimate", *arguments)
        wide = [line for line in report.out.splitlines() if len(line) > WIDTH and "plimsoll estimate" not in line]
        checks.check(report.code in (0, 1) and not wide, f"{arguments}: wider than {WIDTH}: {wide}")


def pace(checks):
    first = " ".join(run("estimate", *GPT2).out.splitlines()[:3])
    checks.check("a step" in first and "tokens/s" in first and "MFU" in first, f"the verdict has no pace: {first}")
    images = run("estimate", "vit-b16", "--on", "1xh100-sxm", "--micro-batch", "8")
    checks.check("images/s" in images.out and "tokens/s" not in images.out, "images are counted as tokens")


def unknown_hub_name(checks):
    near = run("estimate", "google/gemma-3-27b-it", "--on", "8xh100")
    checks.check(near.code == 2 and "nothing is downloaded" in near.err and "'gemma-3-27b-text'" in near.err, f"an unknown hub name: {near.err}")
    path = run("estimate", "models/nope/config.json", "--on", "8xh100")
    checks.check(path.code == 2 and "there is no such file" in path.err, f"a missing file: {path.err}")


def way_out(checks):
    report = run("estimate", "llama-3.1-8b", "--on", "8xh100-sxm", "--data-parallel", "ddp", "--seq", "1024")
    lines = report.out.rstrip().splitlines()
    checks.check(report.code == 1 and "would fit" in lines[-2] and lines[-1].strip().startswith("plimsoll estimate"), f"no way out: {lines[-3:]}")
    again = run(*shlex.split(lines[-1])[1:])
    checks.check(again.code == 0, f"what would fit does not: {lines[-1]}: {again.out[:200]} {again.err}")


def outputs(checks):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.json")
        written = run("estimate", *GPT2, "--json", "-o", path)
        with open(path, encoding="utf-8") as file:
            checks.check(written.code == 0 and not written.out and json.load(file)["verdict"] == "fits", "-o writes the report")
    for arguments in (["explain", *GPT2, "--json"], ["hardware", "--json"], ["hardware", "rtx5090", "--json"], ["graph", "gpt2", "--json"],
                      ["models", "gpt2", "--json"], ["formula", "zero", "--params", "7e9", "--gpus", "4", "--json"],
                      ["formula", "ring", "--bytes", "1 GB", "--on", "8xmi300x", "--json"], ["formula", "flops", "gpt2", "--seq", "128", "--json"],
                      ["formula", "bubble", "--stages", "4", "--micro-batches", "8", "--json"]):
        found = run(*arguments)
        try:
            json.loads(found.out)
        except ValueError:
            checks.check(False, f"{arguments} prints no JSON: {found.out[:80]} {found.err}")
    wrong = run("estimate", "gpt2", "--on", "8xh100-sxmm", "--json")
    checks.check(wrong.code == 2 and json.loads(wrong.out)["schema"] == "plimsoll/error/1" and wrong.err, "--json errors are JSON")
    checks.check(run("estimate", *GPT2, "--fail-on", "tigth").code == 2, "--fail-on takes verdicts")
    checks.check(run("estimate", *GPT2, "--fail-on", "tight").code == 0, "what fits passes --fail-on tight")


def help_texts(checks):
    short, full = run("estimate", "--help").out, run("estimate", "--help-all").out
    wide = [line for line in short.splitlines() if len(line) > WIDTH]
    checks.check(not wide, f"the help is wider than {WIDTH}: {wide}")
    checks.check(len(short.splitlines()) <= 50, f"the help takes {len(short.splitlines())} lines")
    checks.check("--deepspeed.zero-optimization.stage" in full and "--deepspeed.zero-optimization.stage" not in short, "--help-all shows every key")


def said_twice(checks):
    """The last value of an option counts, and that there was another is said; a command that is suggested says each option once."""
    found, only = run("estimate", *GPT2, "--seq", "256"), run("estimate", *GPT2[:-1], "256")
    checks.check(found.code == 0 and found.out == only.out, f"the last of two values does not count: {found.err}")
    checks.check("--seq is given more than once" in found.err and not only.err, f"two values are not told of: {found.err}")
    far = run("estimate", "llama-3.1-8b", "--on", "8xh100-sxm", "--seq", "1024", "--data-parallel", "ddp")
    (line,) = [each for each in far.out.splitlines() if each.strip().startswith("plimsoll estimate")]
    checks.check(line.count("--data-parallel") == 1, f"a suggestion contradicts itself: {line}")


def old_devices(checks):
    for device in ("t4", "v100-sxm2"):
        report = run("estimate", "gpt2", "--on", f"1x{device}", "--seq", "128")
        checks.check(report.code == 0 and "fp16, since" in report.out, f"{device} does not take fp16 by itself: {report.err}")


def adapters(checks):
    for targets in ([], ["--lora.target-modules", '["q_proj", "v_proj"]'], ["--lora.target-modules", "q_proj, v_proj"]):
        report = run("estimate", "llama-3.2-1b", "--on", "1xh100-sxm", "--seq", "128", "--lora.r", "8", *targets)
        checks.check(report.code == 0, f"{targets}: {report.err}")


checks = Checks()
for each in (names, widths, pace, unknown_hub_name, way_out, outputs, help_texts, said_twice, old_devices, adapters):
    each(checks)
checks.finish()
