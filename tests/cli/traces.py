"""Traces of real runs on the command line: `compare-trace` and `calibrate --import` of PyTorch's, Nsight's and ROCm's profilers."""
import gzip
import json
import os
import sqlite3
import tempfile

from driver import SOURCE, Checks, run

TRACE = os.path.join(SOURCE, "tests", "trace", "data", "h100-gpt2-amp-b8-s1024.json.gz")
RUN = ["--on", "1xh100-sxm", "--micro-batch", "8", "--seq", "1024", "--precision", "amp-bf16", "--torch", "2.11", "--clip-grad-norm", "false"]


def compared(checks):
    text = run("compare-trace", "gpt2", TRACE, *RUN)
    checks.check(text.code == 0 and "device at work" in text.out and "by class" in text.out, f"exit {text.code}: {text.err[:300]}")
    found = run("compare-trace", "gpt2", TRACE, *RUN, "--json")
    checks.check(found.code == 0, f"--json: exit {found.code}: {found.err[:300]}")
    found = json.loads(found.out)
    checks.check(found["schema"] == "plimsoll/compare-trace/1", found["schema"])
    # The trace is of the very run that is predicted: nearly everything stands on both sides, and the device's time is right.
    launches = sum(line["launches"]["measured"] for line in found["classes"])
    checks.check(found["matched"] > 0.97 * launches, f"{found['matched']} of {launches} are found")
    busy = found["busy_seconds"]
    checks.check(abs(busy["predicted"] / busy["measured"] - 1) < 0.05, f"busy {busy}")
    gemm = [line for line in found["classes"] if line["what"] == "gemm"][0]
    checks.check(gemm["launches"] == {"predicted": 147, "measured": 147}, f"products: {gemm}")
    checks.check(abs(sum(line["seconds"]["measured"] for line in found["classes"]) / busy["measured"] - 1) < 0.01, "the classes do not add up")


def calibrated(checks, folder):
    path = os.path.join(folder, "machine.json")
    result = run("calibrate", "--import", "torch-trace:" + TRACE, "-o", path)
    checks.check(result.code == 0 and "132 compute units" in result.out, f"exit {result.code}: {result.err[:300]}")
    used = run("estimate", "gpt2", "--on", path, "--micro-batch", "8", "--seq", "1024", "--json")
    checks.check(used.code == 0 and json.loads(used.out)["time"]["step_seconds"]["expected"] > 0, f"the file is no cluster: {used.err[:300]}")


def other_profilers(checks, folder):
    """A product of 2 us and a reduction of 1 us in each of two steps, as each profiler writes them."""
    gemm, other = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp<float>)"
    path = os.path.join(folder, "run.sqlite")
    with sqlite3.connect(path) as database:
        database.executescript("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT); CREATE TABLE NVTX_EVENTS (start INT, end INT, text TEXT, textId INT);"
                               "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, demangledName INT, shortName INT, gridX INT,"
                               " gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT);")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(1, gemm), (2, other)])
        for step in range(2):
            at = 1_000_000 * step
            database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, NULL)", (at, at + 900_000, f"step {step}"))
            for start, seconds, name in ((at + 100, 2000, 1), (at + 5000, 1000, 2)):
                database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7, ?, ?, 64, 1, 1, 256, 1, 1)", (start, start + seconds, name, name))
    database.close()
    found = run("compare-trace", "gpt2", path, *RUN, "--json")
    checks.check(found.code == 0, f"nsys: exit {found.code}: {found.err[:300]}")
    if found.code == 0:
        checks.check(abs(json.loads(found.out)["busy_seconds"]["measured"] - 3e-6) < 1e-12, f"nsys: {json.loads(found.out)['busy_seconds']}")
    path = os.path.join(folder, "1_kernel_trace.csv")
    with open(path, "w", encoding="utf-8") as file:
        file.write('"Kind","Agent_Id","Queue_Id","Kernel_Name","Start_Timestamp","End_Timestamp"\n')
        file.write('"KERNEL_DISPATCH","Agent 4",1,"Cijk_Alik_Bljk_BBS_BH_MT256x256x64",100,2100\n')
    found = run("compare-trace", "gpt2", path, "--on", "1xmi300x", "--micro-batch", "8", "--seq", "1024", "--json")
    checks.check(found.code == 0, f"rocprofv3: exit {found.code}: {found.err[:300]}")
    if found.code == 0:
        checks.check(abs(json.loads(found.out)["busy_seconds"]["measured"] - 2e-6) < 1e-12, "rocprofv3: not its two microseconds")


def refused(checks, folder):
    cut = os.path.join(folder, "cut.json.gz")
    with open(TRACE, "rb") as file, open(cut, "wb") as out:
        out.write(file.read()[:20000])
    foreign = os.path.join(folder, "foreign.json")
    with open(foreign, "w", encoding="utf-8") as file:
        file.write('{"model_type": "llama"}')
    empty = os.path.join(folder, "empty.json.gz")
    with gzip.open(empty, "wt") as file:
        file.write('{"traceEvents": []}')
    report = os.path.join(folder, "run.nsys-rep")
    with open(report, "wb") as file:
        file.write(b"\0" * 64)
    for path, words in ((cut, "cut off"), (foreign, "traceEvents"), (empty, "no kernel"), (report, "nsys export"), (os.path.join(folder, "none.json"), "cannot be read"), (folder, "folder")):
        for command in (["compare-trace", "gpt2", path, *RUN], ["calibrate", "--import", "torch-trace:" + path, "-o", os.path.join(folder, "never.json")]):
            result = run(*command)
            checks.check(result.code == 2 and words in result.err and os.path.basename(path) in result.err, f"{command[:3]}: exit {result.code}: {result.err[:300]}")
    other = run("compare-trace", "gpt2", TRACE, "--on", "1xmi300x", "--micro-batch", "8", "--seq", "1024")
    checks.check(other.code == 2 and "NVIDIA H100" in other.err and "MI300X" in other.err, f"another device's trace: exit {other.code}: {other.err[:300]}")


def main():
    checks = Checks()
    compared(checks)
    with tempfile.TemporaryDirectory() as folder:
        calibrated(checks, folder)
        other_profilers(checks, folder)
        refused(checks, folder)
    checks.finish()


main()
