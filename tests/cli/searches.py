"""Searches that are stopped and go on, that several processes share, sweeps and comparisons, from outside."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from driver import PROGRAM, Checks, complaints, run

FAKE_MPI = os.path.abspath(sys.argv[2])
SEARCH = ["search", "gpt2-xl", "--on", "1x8xa100-40gb", "--global-batch", "64", "--seq", "1024", "--framework", "megatron-core", "--tp", "1,5",
          "--sequence-parallel", "false", "--pp", "1,2,4", "--vp", "1", "--data-parallel", "ddp,megatron-distopt", "--micro-batch", "1..8", "--recompute", "none,full"]
LONG = ["search", "llama-3.1-8b", "--on", "4x8xh100-sxm", "--global-batch", "256", "--seq", "8192", "--framework", "megatron-core"]


def indices(text):
    return [plan["index"] for plan in json.loads(text)["top"]]


def side_by_side(ranks, arguments, library=FAKE_MPI):
    """The same line in several processes, as mpirun starts them: (exit code, stdout, stderr) of each."""
    with tempfile.TemporaryDirectory() as folder:
        world = {**os.environ, "PLIMSOLL_MPI_LIBRARY": library, "FAKE_MPI_FOLDER": folder, "OMPI_COMM_WORLD_SIZE": str(ranks)}
        started = [subprocess.Popen([PROGRAM, *arguments], env={**world, "OMPI_COMM_WORLD_RANK": str(rank)}, stdin=subprocess.DEVNULL, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(ranks)]
        told = [process.communicate() for process in started]
        return [(process.returncode, out, err) for process, (out, err) in zip(started, told)]


def processes(checks):
    whole = run(*SEARCH, "--json")
    checks.check(whole.code == 0, f"a search: exit {whole.code}: {whole.err[:300]}")
    for ranks in (2, 3):
        told = side_by_side(ranks, [*SEARCH, "--json"])
        checks.check([code for code, _, _ in told] == [0] * ranks, f"{ranks} processes: {told[0][2][:300]}")
        checks.check(all(out == "" for _, out, _ in told[1:]), "processes behind the first print nothing")
        checks.check(indices(told[0][1]) == indices(whole.out), f"{ranks} processes answer as one does")
        checks.check(json.loads(told[0][1])["complete"], "together they are complete")
    text = side_by_side(2, SEARCH)[0][1]
    checks.check("fastest: " in text, f"the best in words:\n{text[:600]}")
    command = next(line for line in text.splitlines() if line.startswith("  plimsoll estimate"))
    checks.check(command in run(*SEARCH).out, "the same best plan in words")
    for wrong, named in ((["--shard", "0/2"], "--shard"), (["--format", "csv"], "--format csv"), (["--resume", "x"], "--resume")):
        code, _, err = side_by_side(2, [*SEARCH, *wrong])[0]
        checks.check(code == 2 and named in err, f"{named} among processes: exit {code}: {err[:200]}")
    code, _, err = side_by_side(2, SEARCH, library="/nowhere/libplimsoll_mpi.so")[0]
    checks.check(code == 2 and "no MPI" in err and "--shard" in err, f"without an MPI: exit {code}: {err[:200]}")


def shards(checks):
    with tempfile.TemporaryDirectory() as folder:
        for shard in range(3):
            checks.check(run(*SEARCH, "--shard", f"{shard}/3", "--json", "-o", f"{folder}/{shard}.json").code == 0, f"shard {shard}")
        merged = run("merge", *(f"{folder}/{shard}.json" for shard in range(3)))
        checks.check(indices(merged.out) == indices(run(*SEARCH, "--json").out), "shards put together answer as the whole does")


def interrupted(folder, arguments, after):
    """The line, ended by Ctrl-C after so many seconds."""
    process = subprocess.Popen([PROGRAM, *arguments], cwd=folder, stdin=subprocess.DEVNULL, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(after)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    return process.returncode, out, err


def resumes(checks):
    with tempfile.TemporaryDirectory() as folder:
        code, out, err = interrupted(folder, [*LONG, "--json"], 1.0)
        answer = json.loads(out)
        left = [name for name in os.listdir(folder) if name.startswith("plimsoll-search-")]
        checks.check(code in (0, 1) and not complaints(err) and not answer["complete"], f"Ctrl-C: exit {code}: {err[:200]}")
        checks.check(len(left) == 1 and any("--resume " + left[0] in note for note in answer["notes"]), f"what is left is named: {left} {answer['notes']}")
        again = run(*SEARCH, "--resume", left[0], folder=folder)
        checks.check(again.code == 2 and "another search" in again.err, f"another search's state: exit {again.code}: {again.err[:200]}")
    with tempfile.TemporaryDirectory() as folder:
        code, out, err = interrupted(folder, [*SEARCH, "--json", "--resume", "state.json", "--threads", "1"], 0.2)
        first = json.loads(out)
        resumed = json.loads(run(*SEARCH, "--json", "--resume", "state.json", folder=folder).out)
        checks.check(resumed["complete"] and [plan["index"] for plan in resumed["top"]] == indices(run(*SEARCH, "--json").out), "a search that goes on answers as one")
        checks.check(any("was not there" in note for note in first["notes"]), "a file that is not there is said")
        with open(os.path.join(folder, "damaged.json"), "w", encoding="utf-8") as file:
            file.write('{"schema": "plimsoll/search-state/1", "fingerprint": 3')
        damaged = run(*SEARCH, "--resume", "damaged.json", folder=folder)
        checks.check(damaged.code == 2 and damaged.out == "", f"a damaged state: exit {damaged.code}: {damaged.err[:200]}")


def sweeps(checks):
    sweep = ["sweep", "gpt2", "--on", "1xrtx4090", "--seq", "1024", "--micro-batch", "1..4", "--recompute", "none,full"]
    checks.check(len(json.loads(run(*sweep, "--json").out)["points"]) == 6, "six points")
    checks.check(run(*sweep, "--format", "csv").out.startswith("micro_batch,recompute,verdict,"), "the head of the CSV")
    compare = ["compare", "gpt2", "--on", "1xrtx4090", "--seq", "1024", "--micro-batch", "4", "--then", "--recompute full", "--then", "--micro-batch 8"]
    checks.check(len(json.loads(run(*compare, "--json").out)["steps"]) == 3, "a beginning and two techniques")
    wrong = run(*compare, "--then", "--no-such-key 1")
    checks.check(wrong.code == 2 and wrong.out == "", f"a wrong technique: exit {wrong.code}")
    alone = run("search", "gpt2", "--on", "1xrtx4090", "--seq", "1024", "--global-batch", "8")
    checks.check(alone.out.startswith("fastest: gpt2 on 1 x rtx4090") and "fsdp" not in alone.out and "ddp" not in alone.out, f"one GPU is searched as many: {alone.out[:300]}")
    largest = run("search", "gpt2", "--on", "1xrtx4090", "--seq", "1024", "--largest", "micro-batch", "--json")
    checks.check(largest.code == 0 and int(json.loads(largest.out)["value"]) > 1, f"the largest micro-batch: {largest.err[:200]}")


def machines(checks):
    """The best plan of each machine, and what it costs there; a machine without a price has none, one on which nothing fits is a refusal."""
    own = {"schema": "plimsoll/prices/1", "prices": [
        {"device": device, "dollars_per_gpu_hour": dollars, "kind": "reserved", "provider": "ours", "date": "2026-11", "source": "a contract"}
        for device, dollars in (("a100-40gb", 9), ("l4", 0.01))]}
    search = ["search", "gpt2", "--on", "1xa100-40gb,1xl4", "--seq", "1024", "--micro-batch", "1,2", "--recompute", "none", "--minimize", "dollars"]
    with tempfile.TemporaryDirectory() as folder:
        prices = os.path.join(folder, "prices.json")
        with open(prices, "w", encoding="utf-8") as file:
            json.dump(own, file)
        found = run(*search, "--prices", prices, "--json")
        checks.check(found.code == 0, f"two machines: exit {found.code}: {found.err[:300]}")
        told = json.loads(found.out)
        checks.check((told["fastest"], told["cheapest"]) == ("1xa100-40gb", "1xl4"), f"the fast one is dear: {told['fastest']} {told['cheapest']}")
        for each in told["machines"]:
            alone = json.loads(run(*each["command"].split()[1:], "--json").out)
            same = alone["time"]["step_seconds"]["expected"] == each["report"]["time"]["step_seconds"]["expected"]
            checks.check(same, f"its command estimates it: {each['command']}")
    for wrong in (["--largest", "seq"], ["--shard", "0/2"], ["--resume", "x"]):
        refused = run(*search, *wrong)
        checks.check(refused.code == 2 and wrong[0] in refused.err, f"{wrong[0]} on two machines: exit {refused.code}: {refused.err[:200]}")
    one = run("search", "gpt2", "--on", "1xl4", "--seq", "1024", "--prices", "x")
    checks.check(one.code == 2 and "--prices" in one.err, f"prices of one machine: {one.err[:200]}")


def main():
    checks = Checks()
    machines(checks)
    processes(checks)
    shards(checks)
    resumes(checks)
    sweeps(checks)
    checks.finish()


main()
