"""`plimsoll explain`: the account of the peak adds up, the changes are real, and the files open in the programs they are written for."""
import json
import os
import pickle
import re
import tempfile

from driver import SOURCE, Checks, run
from readme import blocks, same

GPT2 = ["gpt2", "--on", "1xh100-sxm", "--micro-batch", "8", "--seq", "1024"]
BLOCK = 512  # the allocator rounds every tensor to it


def explained(checks, arguments, code=0):
    result = run("explain", *arguments, "--format", "json")
    checks.check(result.code == code, f"explain {arguments}: exit {result.code}: {result.err[:300]}")
    return json.loads(result.out) if result.code == code else None


def estimated(arguments):
    return json.loads(run("estimate", *arguments, "--json").out)


def account(checks):
    found = explained(checks, GPT2)
    memory, alive = found["memory"], found["alive"]
    checks.check(found["schema"] == "plimsoll/explain/1" and found["peak"]["played"], "the peak of gpt2 is played")
    checks.check(found["peak"]["phase"] in ("forward", "loss", "backward", "optimizer") and found["peak"]["label"], f"no instant: {found['peak']}")
    # Everything alive at the peak is what is allocated at the peak: nothing is freed later than it dies on one stream.
    checks.check(sum(group["bytes"] for group in alive) == memory["allocated_bytes"], "what is alive does not add up to what is allocated")
    device = memory["device_bytes"]
    checks.check(memory["requested_bytes"] <= memory["allocated_bytes"] <= memory["reserved_bytes"] < device["expected"], f"out of order: {memory}")
    tensors = sum(group["count"] for group in alive)
    checks.check(memory["allocated_bytes"] - memory["requested_bytes"] < BLOCK * tensors + 2**21 * tensors, "rounding takes more than it can")
    checks.check(device["low"] < device["expected"] < device["high"], f"no band: {device}")
    checks.check([group["bytes"] for group in alive] == sorted((group["bytes"] for group in alive), reverse=True), "the largest does not come first")
    # GPT-2 has 12 layers, whose c_fc weighs 768 · 3072 · 4 B = 9 MiB and its bias 12 KiB: 24 tensors in one group.
    weights = [group for group in alive if group["category"].startswith("parameter") and group["module"] == "transformer.h.0-11.mlp.c_fc"]
    checks.check([(group["count"], group["largest_bytes"], group["bytes"]) for group in weights] == [(24, 9 * 2**20, 12 * (9 * 2**20 + 12 * 2**10))],
                 f"the weights of c_fc: {weights}")


def changes(checks):
    found = explained(checks, GPT2)
    base = found["memory"]["device_bytes"]["expected"]
    flags = [change["flag"] for change in found["changes"]]
    checks.check("--recompute full" in flags and "--micro-batch 1 --global-batch 8" in flags, f"expected changes are missing: {flags}")
    saved = [change["saved_bytes"] for change in found["changes"]]
    checks.check(saved == sorted(saved, reverse=True) and min(saved) > 0, f"savings out of order: {saved}")
    # Each flag, given to estimate as it is printed, needs what explain says.
    for change in found["changes"]:
        device = estimated(GPT2 + change["flag"].split())["memory"]["device_bytes"]
        checks.check(device["expected"] == change["device_bytes"] == base - change["saved_bytes"], f"{change}: estimate says {device}")


def faster(checks):
    found = explained(checks, GPT2 + ["--recompute", "full"])
    flags = [change["flag"] for change in found["faster"]]
    # What is not computed twice takes less time, and its activations take memory.
    checks.check("--recompute none" in flags and "--compile blocks" in flags, f"expected changes are missing: {flags}")
    ratios = [change["step_time_ratio"] for change in found["faster"]]
    checks.check(ratios == sorted(ratios) and max(ratios) < 1, f"out of order: {ratios}")
    for change in found["faster"]:
        step = estimated(GPT2 + ["--recompute", "full"] + change["flag"].split())["time"]["step_seconds"]["expected"]
        checks.check(abs(step / found["step_seconds"] / change["step_time_ratio"] - 1) < 1e-9, f"{change}: estimate says {step}")
        if change["flag"] == "--recompute none":
            checks.check(change["saved_bytes"] < 0, f"kept activations take memory: {change}")


def stages(checks):
    arguments = ["llama-3.1-405b", "--on", "2048x8xh100-sxm", "--framework", "megatron", "--tp", "8", "--pp", "16", "--micro-batch", "1",
                 "--global-batch", "2048", "--seq", "8192"]
    report = estimated(arguments)
    for stage in (0, 15):
        found = run("explain", *arguments, "--rank", str(stage), "--format", "json")
        checks.check(found.code in (0, 1), f"stage {stage}: exit {found.code}: {found.err[:300]}")
        if found.code in (0, 1):
            found = json.loads(found.out)
            checks.check(found["stage"] == stage and found["memory"]["allocated_bytes"] == report["ranks"][stage]["memory"]["allocated_bytes"],
                         f"stage {stage} is not the one that estimate has")
            checks.check(bool(found["alive"]) == found["peak"]["played"], f"stage {stage}: {found['peak']}")


def out_of_memory(checks):
    arguments = ["llama-3.1-8b", "--on", "1xh100-sxm", "--micro-batch", "1", "--seq", "2048"]
    found = explained(checks, arguments, code=1)
    checks.check("out_of_memory_at" in found["memory"] and found["memory"]["allocated_bytes"] > found["memory"]["capacity_bytes"],
                 "the peak of a run that does not fit is the one that it would have")


def snapshot(checks, folder):
    path = os.path.join(folder, "gpt2.pickle")
    result = run("explain", *GPT2, "--format", "memory_viz", "-o", path)
    checks.check(result.code == 0 and result.out == "", f"memory_viz: exit {result.code}: {result.err[:300]}")
    with open(path, "rb") as file:
        found = pickle.load(file)
    live, total, most = {}, 0, 0
    for event in found["device_traces"][0]:
        if event["action"] == "alloc":
            live[event["addr"]] = event["size"]
            total += event["size"]
            most = max(most, total)
        elif event["action"] == "free_completed":
            total -= live.pop(event["addr"])
    reserved = sum(segment["total_size"] for segment in found["segments"])
    memory = explained(checks, GPT2)["memory"]
    checks.check(0 < reserved <= memory["reserved_bytes"], f"segments of {reserved} B at the end")
    checks.check(memory["requested_bytes"] <= most, f"the events reach {most} B of {memory['requested_bytes']}")
    checks.check(total == sum(block["requested_size"] for segment in found["segments"] for block in segment["blocks"]), "what is left is not in the segments")
    names = {frame["name"] for event in found["device_traces"][0] for frame in event["frames"]}
    checks.check(any("transformer.h.11.mlp" in name for name in names), "no block has a stack")


def trace(checks, folder):
    path = os.path.join(folder, "trace.json")
    result = run("explain", *GPT2, "--format", "trace", "-o", path)
    checks.check(result.code == 0, f"trace: exit {result.code}: {result.err[:300]}")
    with open(path, encoding="utf-8") as file:
        found = json.load(file)
    memory = explained(checks, GPT2)["memory"]
    counters = [event for event in found["traceEvents"] if event["ph"] == "C"]
    checks.check(max(event["args"]["allocated"] for event in counters) == memory["allocated_bytes"], "the counter misses the peak of allocated bytes")
    checks.check(max(event["args"]["reserved"] for event in counters) == memory["reserved_bytes"], "the counter misses the peak of reserved bytes")
    times = [event["ts"] for event in counters]
    checks.check(times == sorted(times), "the trace goes back in time")
    spans = [event for event in found["traceEvents"] if event["ph"] == "X"]
    checks.check({"forward", "backward", "optimizer"} <= {event["name"] for event in spans}, "no phases")
    work = [event for event in spans if "args" in event]
    step = estimated(GPT2)["time"]["step_seconds"]["expected"] * 1e6
    checks.check(abs(max(event["ts"] + event["dur"] for event in work) / step - 1) < 0.01, "the last kernel does not end the step")
    names = [event["name"] for event in found["traceEvents"] if event["ph"] == "M"]
    checks.check("process_name" in names and "thread_name" in names and found["displayTimeUnit"] == "ms", f"no names: {names}")
    printed = run("explain", *GPT2, "--format", "trace").out
    with open(path, encoding="utf-8") as file:
        checks.check(file.read() == printed, "-o writes something else than is printed without it")


def page(checks):
    """docs/explain.md shows what the program prints."""
    with open(os.path.join(SOURCE, "docs", "explain.md"), encoding="utf-8") as file:
        shown = blocks(file.read(), "text")
    checks.check(len(shown) == 1, "docs/explain.md shows no output")
    for block in shown:
        command, _, report = block.partition("\n")
        lines = run(*re.sub(r"^\$ plimsoll ", "", command).split()).out.splitlines()
        wanted = report.splitlines()
        differ = [pair for pair in zip(wanted, lines) if not same(*pair)]
        checks.check(len(lines) == len(wanted) and not differ, f"docs/explain.md and the program differ in {differ[:3]}")


def main():
    checks = Checks()
    for part in (account, changes, faster, stages, out_of_memory, page):
        part(checks)
    with tempfile.TemporaryDirectory() as folder:
        snapshot(checks, folder)
        trace(checks, folder)
    checks.finish()


main()
