"""What a person meets first: names as they are found elsewhere, a verdict that fits a terminal, the way out of a run that does not fit."""
import datetime
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
    of_code = set(os.listdir(os.path.join(SOURCE, "models", "code")))  # sizes alone: transformers' own code is their model
    checks.check(set(hub) <= shipped | of_code, f"hub names of what is not shipped: {set(hub) - shipped - of_code}")
    for name in sorted(of_code & set(hub)):
        sheet = run("models", hub[name][0])
        checks.check(sheet.code == 2 and hub[name][0] in sheet.err and "--code" in sheet.err, f"{hub[name][0]}: {sheet.err}")
    for name in sorted(set(hub) & shipped)[::12]:
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
    near = run("estimate", "google/gemma-4-27b-it", "--on", "8xh100")
    checks.check(near.code == 2 and "nothing is downloaded" in near.err and "'gemma-2-27b'" in near.err, f"an unknown hub name: {near.err}")
    path = run("estimate", "models/nope/config.json", "--on", "8xh100")
    checks.check(path.code == 2 and "there is no such file" in path.err, f"a missing file: {path.err}")


def meant(checks):
    """Names as people type them: what was meant is named, and the first name that comes to mind is not the wrong one."""
    for arguments, says in ((["estimate", "gpt2", "--on", "4xrtx409"], "'rtx4090'"), (["estimate", "gpt2", "--on", "a100x8"], "8xa100"),
                            (["hardware", "MI300"], "'mi300x'"), (["hardware", "a100-80gb-sx"], "'a100-80gb-sxm'"), (["models", "vit-l"], "'vit-l16'"),
                            (["models", "Qwen3-8"], "'qwen3-8b'"), (["help", "estimat"], "'estimate'"), (["version"], "'--version'"),
                            (["estimate", "gpt2", "--on", "8xh100", "--gradient-checkpointing"], "'--recompute'"),
                            (["estimate", "gpt2", "--on", "8xh100", "--per-device-train-batch-size", "4"], "'--micro-batch'"),
                            (["estimate", "gpt2", "--on", "8xh100", "--tensor-parallel", "2"], "'--tp'"),
                            (["estimate", "gpt2", "--on", "8xh100", "--bf16"], "'--precision bf16'"),
                            (["estimate", "gpt2", "--on", "8xh100", "--qlora"], "'--task qlora'"),
                            (["estimate", "gpt2", "--on", "8xh100", "--fsdp"], "full, grad-op, hybrid, none"),
                            (["estimate", "gpt2", "--on", "1xh100", "--seq", "128", "--lora.r", "8", "--lora.target-modules", "c_atn"], "'c_attn'"),
                            (["estimate", "flux.1-dev", "--on", "1xh100", "--lora.r", "8"], "to_q"),
                            (["estimate", "gpt-oss-20b", "--on", "1xh100", "--lora.r", "8"], "q_proj"),
                            (["estimate", "gpt2", "--on", "1xh100", "--precision", "fp4"], "mxfp8")):
        found = run(*arguments)
        checks.check(found.code == 2 and says in found.err and len(found.err.splitlines()) == 1, f"{arguments} does not name {says}: {found.err}")
    other = run("estimate", "llama-3.2-1b", "--on", "8xh100", "--framework", "nanotron", "--seq", "128", "--lora.r", "8")
    checks.check(other.code == 2 and "has no adapters" in other.err and "PEFT" not in other.err, f"PEFT is not asked here: {other.err}")


def views(checks):
    """Another calculator's table goes where -o says, and is no JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "view.txt")
        written = run("estimate", "gpt2", "--view", "accelerate", "-o", path)
        checks.check(written.code == 0 and not written.out and os.path.getsize(path) > 0, f"-o of a view: {written.err}")
    wrong = run("estimate", "gpt2", "--view", "accelerate", "--json")
    checks.check(wrong.code == 2 and json.loads(wrong.out)["schema"] == "plimsoll/error/1", f"a view as JSON: {wrong.err}")
    wrong = run("estimate", "gpt2", "--on", "8xh100-sxmm", "--format=json")
    checks.check(wrong.code == 2 and json.loads(wrong.out)["schema"] == "plimsoll/error/1", "--format=json errors are JSON")


def short_runs(checks):
    """A fine-tuning run is told in minutes and kilowatt-hours, and a ViT is no language model."""
    tuned = run("campaign", "gpt2", "--on", "1xh100-sxm", "--seq", "1024", "--tokens", "20M").out
    checks.check("0.0 days" not in tuned and "minutes" in tuned and "kWh" in tuned and "1 GPU (" in tuned, f"a short run: {tuned}")
    checks.check("Chinchilla" not in run("campaign", "vit-b16", "--on", "1xh100-sxm", "--micro-batch", "8", "--tokens", "20M").out, "a ViT's Chinchilla")
    checks.check("cuDNN off" in run("estimate", "resnet-18", "--on", "1xh100-sxm", "--micro-batch", "8").out, "how a ResNet's convolutions run is not said")
    # The uncompiled step in the place of a compiled one: the answer itself says so first.
    instead = run("estimate", "bert-base-uncased", "--on", "1xh100-sxm", "--compile", "true", "--seq", "128", "--quiet").out
    checks.check(instead.startswith("closed form: "), f"a closed form is not told: {instead}")
    checks.check("closed form" not in run("estimate", *GPT2, "--quiet").out, "what is played is no closed form")
    refused = run("estimate", "llama-3.1-8b", "--on", "8xh100-sxm", "--framework", "megatron-core", "--precision", "pure-bf16", "--seq", "128")
    checks.check(refused.code == 2 and "played: the same with --precision " in refused.err, f"the nearest that is played: {refused.err}")
    compared = run("compare", "gpt2", "--on", "1xh100-sxm", "--seq", "128", "--then", "--micro-batch 4").out
    checks.check(compared.count("tokens/s per GPU") == 2, f"a longer step of more tokens has a rate: {compared}")


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


def first_screen(checks):
    """Without a command nothing was asked, so nothing fits; what is shown is a sentence, lines to try, and commands in groups."""
    alone, asked = run(), run("help")
    checks.check(alone.code == 2 and asked.code == 0 and alone.out == asked.out and not alone.err, f"the first screen: {alone.err}")
    headings = [line for line in alone.out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    for heading in ("Plan a step:", "See why:", "A whole run:", "Measure a machine:", "Try:"):
        checks.check(heading in headings, f"the first screen has no {heading}")
    for line in [each.strip() for each in alone.out.splitlines() if each.startswith("  plimsoll ") and "rehearse" not in each and "search" not in each]:
        checks.check(run(*line.split()[1:]).code == 0, f"a line to try fails: {line}")
    checks.check(run("help", "formula", "zero").out == run("formula", "zero", "--help").out != "", "help takes a command of two words")


def lengths(checks):
    short, long = run("estimate", *GPT2[:-1], "1k"), run("estimate", *GPT2[:-1], "1024")
    checks.check(short.code == 0 and short.out == long.out, f"1k is no 1024 tokens: {short.err}")
    checks.check(run("estimate", *GPT2[:-1], "1kk").code == 2, "1kk is a length")
    swept = run("sweep", *GPT2[:-1], "1k,2k", "--format", "csv").out
    checks.check(swept != "" and swept == run("sweep", *GPT2[:-1], "1k..2k", "--format", "csv").out, "a sweep takes no lengths")


def heads_of_options(checks):
    """The first word of dotted options is no option: its usual ones are told."""
    checks.check(run("estimate", *GPT2, "--lora", "8").err.rstrip().endswith("(say '--lora.r')"), "--lora")
    many = run("estimate", *GPT2, "--deepspeed", "ds.json").err
    checks.check(many.count("'--deepspeed.") == 3 and "--help-all" in many, f"--deepspeed: {many}")


def machines(checks):
    """Several machines behind --on: a table with what a token costs; exit 0 where one of them holds the job."""
    found = run("estimate", "llama-3.1-8b", "--on", "8xh200,8xmi300x,1xl4", "--fsdp", "full", "--seq", "8k")
    checks.check(found.code == 0 and found.out.startswith("fastest: 8x") and "1xl4" in found.out and "provider" not in found.out, f"machines: {found.err}")
    answer = json.loads(run("estimate", "gpt2", "--on", "any", "--seq", "128", "--json").out)
    checks.check(answer["schema"] == "plimsoll/offers/1" and answer["cheapest"] and len(answer["machines"]) >= 8, "any machine")
    checks.check(run("estimate", "llama-3.1-405b", "--on", "1xl4,1xt4", "--seq", "128").code != 0, "what fits nowhere fails")
    checks.check(run("estimate", "gpt2", "--on", "8xh100,,8xh200").code == 2, "an empty name")
    wrong = run("estimate", "gpt2", "--on", "8xh100,8xmi30x", "--seq", "128")
    checks.check("mi300x" in wrong.out + wrong.err, f"a wrong name in a list: {wrong.err}")


def prices(checks):
    """A user's own prices: reckoned with, told with their age in texts alone, and wrong ones told by file and pointer."""
    row = {"device": "h100-sxm", "dollars_per_gpu_hour": 1.95, "kind": "reserved", "provider": "our contract", "date": "2024-12", "source": "order 4711"}
    with tempfile.TemporaryDirectory() as folder:
        def listed(name, **changes):
            path = os.path.join(folder, name)
            with open(path, "w") as file:
                json.dump({"schema": "plimsoll/prices/1", "prices": [{**row, **changes}]}, file)
            return path
        own = listed("own.json")
        campaign = ["campaign", "gpt2", "--on", "8xh100-sxm", "--micro-batch", "8", "--seq", "1024", "--tokens", "1B"]
        for day, age in (("2026-11-28", "price of 2024-12, 23 months old"), ("2025-01-31", None)):
            os.environ["SOURCE_DATE_EPOCH"] = str(int(datetime.datetime.fromisoformat(day + "T12:00:00+00:00").timestamp()))
            machines = ["--on", "8xh100-sxm,8xmi300x", "--prices", own]
            texts = [run(*campaign, "--prices", own).out, run("estimate", *GPT2, *machines).out, run(*campaign[:2], *campaign[4:], *machines).out]
            checks.check(all("our contract" in text and ((age or "months old") in text) == bool(age) for text in texts), f"on {day}: {texts}")
            answer = run(*campaign, "--prices", own, "--json").out
            checks.check(json.loads(answer)["price"]["date"] == "2024-12" and "months old" not in answer, f"JSON on {day}: {answer}")
        del os.environ["SOURCE_DATE_EPOCH"]
        wrong = run(*campaign, "--prices", listed("wrong.json", kind="on demand"))
        checks.check(wrong.code == 2 and "wrong.json#/prices/0/kind" in wrong.err and "'on-demand'" in wrong.err, f"a wrong kind: {wrong.err}")
        checks.check(run(*campaign, "--prices", own, "--price-per-gpu-hour", "2").code == 2, "a price is said twice")
        checks.check(run("estimate", *GPT2, "--on", "8xh100-sxm", "--prices", own).code == 2, "one machine has prices")


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
for each in (names, meant, views, short_runs, widths, pace, unknown_hub_name, way_out, outputs, help_texts, first_screen, lengths, heads_of_options, machines, prices, said_twice, old_devices, adapters):
    each(checks)
checks.finish()
