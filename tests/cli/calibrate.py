"""calibrate, doctor and replay from outside: a HIP device that is emulated, the processor, processes under mpirun, and what goes wrong."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from driver import PROGRAM, Checks, run

FAKE_HIP = sys.argv[2]
SMALL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
         "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "float32"}
RUN = ["--micro-batch", "1", "--seq", "64", "--precision", "fp32", "--attention", "eager"]
DEVICE = {"PLIMSOLL_HIP_LIBRARY": FAKE_HIP, "FAKE_HIP_TIME": "model", "FAKE_HIP_EXECUTE": "20000000", "FAKE_HIP_COMPUTE_UNITS": "304"}
NOTHING = {"PLIMSOLL_HIP_LIBRARY": "/nonexistent/libamdhip64.so", "PLIMSOLL_CUDA_LIBRARY": "/nonexistent/libcuda.so"}


class Environment:
    def __init__(self, values):
        self.values = values

    def __enter__(self):
        self.before = dict(os.environ)
        os.environ.update(self.values)

    def __exit__(self, *_):
        os.environ.clear()
        os.environ.update(self.before)


def hip(checks, folder):
    measure = ["calibrate", "--backend", "hip", "--seconds", "1", "--largest", "256 KiB", "-o", "hip.json"]
    with Environment(DEVICE):
        result = run(*measure, folder=folder, limit=120)
        checks.check(result.code == 0, f"calibrate on an emulated device: {result.code}: {result.err[:300]}")
        file = json.load(open(os.path.join(folder, "hip.json")))
        device = file["accelerator"]
        checks.check(device["target"] == "gfx942" and device["compute"]["units"] == 304, "the device is in the file")
        sources = device["sources"].get("calibration", "")
        checks.check("HIP 6.3" in sources and "samples" in sources, f"its provenance says how: {sources}")
        start = [curve["points"][0][1] for curve in device["streaming"] if curve["kernels"] == "elementwise"][0]
        checks.check(abs(start - 2) < 0.3, f"kernels of the modelled device start in 2 us, the fit says {start}")
        estimate = run("estimate", "llama-3.2-1b", "--on", "hip.json", "--micro-batch", "1", "--seq", "1024", folder=folder)
        checks.check(estimate.code in (0, 1), f"estimate on the file: {estimate.code}: {estimate.err[:200]}")
        doctor = run("doctor", "--json")
        seen = json.loads(doctor.out)
        checks.check(seen["schema"] == "plimsoll/doctor/1" and seen["devices"][0]["target"].startswith("gfx942"), "the doctor sees it")
        again = run("calibrate", "--fit", "plimsoll-samples.jsonl", "-o", "again.json", folder=folder)
        checks.check(again.code == 0 and open(os.path.join(folder, "again.json")).read() == open(os.path.join(folder, "hip.json")).read(),
                     "the samples alone give the same file")
    for values, said in [({"FAKE_HIP_DEVICES": "0"}, "hipErrorNoDevice"), ({"FAKE_HIP_INIT_ERROR": "100"}, "/dev/kfd"),
                         ({"FAKE_HIP_ARCH": "gfx1100"}, "no device code for gfx1100"), ({"FAKE_HIP_MEMORY": "16384"}, "memory is taken"),
                         ({"FAKE_HIP_DEVICE_ERROR": "46"}, "another process has the device"), ({"FAKE_HIP_WRONG": "triad"}, "triad gives a wrong answer"),
                         ({"FAKE_HIP_SYNCHRONIZE_ERROR": "214"}, "cannot correct"), ({"FAKE_HIP_LAUNCH_ERROR": "copy"}, "copy: ")]:
        with Environment({**DEVICE, **values}):
            result = run(*measure, folder=folder, limit=120)
            checks.check(result.code == 2 and said in result.err, f"{values}: exit {result.code}: {result.err[:300]}")


def no_device(checks, folder):
    with Environment(NOTHING):
        result = run("calibrate", "--backend", "hip", folder=folder)
        checks.check(result.code == 2 and "no HIP runtime" in result.err and "--backend cpu" in result.err, f"no device: {result.err[:300]}")
        result = run("calibrate", "--backend", "auto", "--seconds", "1", "--largest", "64 KiB", "-o", "auto.json", folder=folder, limit=120)
        checks.check(result.code == 0 and "hip: no HIP runtime" in result.err, f"auto takes the processor and says why: {result.err[:300]}")
        checks.check("backends" in run("doctor").out, "doctor")
    result = run("calibrate", "--backend", "hpi", folder=folder)
    checks.check(result.code == 2 and "'hip'" in result.err, f"a backend's nearest name: {result.err}")


def replay(checks, folder):
    with open(os.path.join(folder, "small.json"), "w", encoding="utf-8") as file:
        json.dump(SMALL, file)
    measure = ["calibrate", "--backend", "cpu", "--seconds", "3", "--largest", "256 KiB", "--model", "small.json", *RUN, "-o", "cpu.json"]
    result = run(*measure, folder=folder, limit=120)
    checks.check(result.code == 0, f"calibrate for a model: {result.code}: {result.err[:300]}")
    device = json.load(open(os.path.join(folder, "cpu.json")))["accelerator"]
    kept = {measurement["what"]: measurement["values"] for measurement in device["measurements"]}
    checks.check({"product", "stream"} <= set(kept.get("reference", {})) and "allocation" in kept["launch"], f"clock and host are kept: {kept.keys()}")
    reuse = [json.loads(line).get("reuse", -1) for line in open(os.path.join(folder, "plimsoll-samples.jsonl"))]
    checks.check(min(reuse) == -1 and max(reuse) > 4096, "the model's kernels were measured as cold as in its step")
    begun = time.monotonic()
    wrong = run("calibrate", "--backend", "cpu", "--seconds", "60", "--model", "small.json", *RUN, "--precision", "fp33", folder=folder, limit=120)
    checks.check(wrong.code == 2 and "fp33" in wrong.err and time.monotonic() - begun < 15, f"a wrong strategy is said before anything is measured: {wrong.err[:200]}")
    shapes = [point[:4] for table in device["gemm_times"] for point in table["points"]]
    checks.check([64, 128, 128, 1] in shapes or [128, 64, 128, 1] in shapes, "the model's own products were measured")
    result = run("replay", "small.json", "--on", "cpu.json", "--backend", "cpu", *RUN, "--row", "row.json", folder=folder, limit=120)
    checks.check(result.code == 0, f"replay: {result.code}: {result.err[:300]}")
    checks.check("predicted at the clock of this replay" in result.out and "calibrated clock" in result.out, f"both clocks: {result.out[:1500]}")
    other = run("replay", "small.json", "--on", "mi300x", "--backend", "cpu", *RUN, "--steps", "1", folder=folder, limit=120)
    checks.check(other.code == 0 and "predicted for" in other.out and "no reference clock" in other.out, f"another device's file: {other.out[-600:]}")
    allocated = [line for line in result.out.splitlines() if "allocated, peak" in line]
    checks.check(len(allocated) == 1 and allocated[0].endswith("equal"), f"the replayed peak is the predicted one: {allocated}")
    validated = run("validate", "row.json", "--json", folder=folder)
    rows = {row["quantity"]: row for row in json.loads(validated.out)["rows"]} if validated.code == 0 else {}
    checks.check(rows.get("allocated_bytes", {}).get("error") == 0, f"validate reads the row: {validated.err[:200]}{validated.out[:300]}")
    checks.check("step_seconds" in rows, "and predicts its step")


def interruption(checks, folder):
    """Ctrl-C keeps what was measured and fits it; where no product was timed yet, that is no file, and it says so."""
    process = subprocess.Popen([PROGRAM, "calibrate", "--backend", "cpu", "--seconds", "60", "-o", "cut.json", "--samples", "cut.jsonl"], cwd=folder,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path = os.path.join(folder, "cut.jsonl")
    while process.poll() is None and (not os.path.exists(path) or open(path).read().count("\n") < 5):
        time.sleep(0.2)
    process.send_signal(2)
    out, err = process.communicate(timeout=60)
    lines = open(os.path.join(folder, "cut.jsonl")).read().splitlines()
    computes = any('"sample":"gemm"' in line for line in lines)
    checks.check("interrupted" in err and len(lines) > 1, f"interrupted: {process.returncode}: {err[:300]}")
    checks.check(process.returncode == (0 if computes else 2) and os.path.exists(os.path.join(folder, "cut.json")) == computes,
                 f"interrupted: {process.returncode}, products {computes}: {(out + err)[-300:]}")
    checks.check(all(json.loads(line) for line in lines), "every line that was written is whole")


def files(checks, folder):
    data = os.path.join(os.environ["PLIMSOLL_SOURCE"], "tests", "calibrate", "data")
    imports = [f"{tool}:{os.path.join(data, name)}" for tool, name in
               [("rccl-tests", "all_reduce_perf.txt"), ("hipblaslt-bench", "hipblaslt_bench.csv"), ("babelstream", "babelstream.txt"),
                ("transferbench", "transferbench.txt"), ("rocm-bandwidth-test", "rocm_bandwidth_test.txt")]]
    words = [word for text in imports for word in ("--import", text)]
    result = run("calibrate", "--base", "mi300x", *words, "-o", "imported.json", folder=folder)
    checks.check(result.code == 0, f"imports: {result.code}: {result.err[:300]}")
    node = json.load(open(os.path.join(folder, "imported.json")))["node"]
    curve = node["collectives"]["measured"][0]
    checks.check((curve["kind"], curve["source"], node["gpus"]) == ("all_reduce", "calibration", 8), "the imported curve is in the file")
    cut = os.path.join(folder, "cut.txt")
    text = open(os.path.join(data, "all_reduce_perf.txt")).read()
    open(cut, "w").write(text[: len(text) // 2])
    for arguments, said in [(["--base", "mi300x", "--import", f"rccl-tests:{cut}"], "cut off"), (["--base", "mi300x", "--import", "rccltests:x"], "read"),
                            (["--import", "hello"], "names no tool"), (["--fit", "/nonexistent"], "/nonexistent"),
                            (["--base", "mi300", "--import", imports[0]], "mi300"), (["--seconds", "-1"], "--seconds"), (["--base", "banana"], "banana"),
                            (["--backend", "cpu", "--samples", "/proc/x"], "written")]:
        result = run("calibrate", *arguments, folder=folder)
        checks.check(result.code == 2 and said in result.err, f"calibrate {arguments}: exit {result.code}: {result.err[:300]}")
    samples = open(os.path.join(folder, "plimsoll-samples.jsonl")).read()
    open(cut, "w").write(samples[:-10])
    result = run("calibrate", "--fit", cut, folder=folder)
    checks.check(result.code == 2 and "cut off" in result.err, f"truncated samples: {result.err[:300]}")


def processes(checks, folder):
    result = run("calibrate", "--collectives", "--backend", "cpu", folder=folder)
    checks.check(result.code == 2 and ("--collectives" in result.err or "libopenmpi-dev" in result.err), f"alone: {result.code}: {result.err[:300]}")
    if "no MPI" in result.err or not shutil.which("mpirun"):
        print("no MPI here: collectives across processes are not measured")
        return
    done = among(3, ["calibrate", "--collectives", "--backend", "cpu", "--seconds", "2", "--largest", "256 KiB", "--samples", "collectives.jsonl",
                     "-o", "node.json"], folder)
    checks.check(done.returncode == 0, f"mpirun: {done.returncode}: {done.stderr[:500]}")
    node = json.load(open(os.path.join(folder, "node.json")))["node"]
    curve = node["collectives"]["all_reduce"][0]
    checks.check(node["collectives"]["library"] == "mpi" and curve["gpus"] == 3 and len(curve["points"]) == 5, "the curve of three processes is in the file")
    kinds = {json.loads(line).get("group") for line in open(os.path.join(folder, "collectives.jsonl"))}
    checks.check({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"} <= kinds, f"all collectives were measured: {kinds}")


    with Environment({**DEVICE, "FAKE_HIP_DEVICES": "2", "PLIMSOLL_RCCL_LIBRARY": FAKE_HIP}):
        done = among(2, ["calibrate", "--collectives", "--backend", "hip", "--seconds", "1", "--largest", "64 KiB", "--samples", "rccl.jsonl",
                         "-o", "rccl.json"], folder)
    checks.check(done.returncode == 0, f"RCCL's collectives, every one checked, on two emulated devices: {done.returncode}: {done.stderr[:500]}")
    samples = [json.loads(line) for line in open(os.path.join(folder, "rccl.jsonl"))] if done.returncode == 0 else []
    checks.check({sample.get("ranks") for sample in samples[1:]} == {2} and "rccl" in samples[0]["library"], "through RCCL, both ranks")
    replay_among_processes(checks, folder)


def replay_among_processes(checks, folder):
    """Two data-parallel ranks exchange their gradients; peaks, kernels and collectives are those of the program."""
    done = among(2, ["calibrate", "--collectives", "--backend", "cpu", "--seconds", "1", "--largest", "1 MiB", "--fit", "plimsoll-samples.jsonl",
                     "--samples", "pair.jsonl", "-o", "pair.json"], folder)
    checks.check(done.returncode == 0, f"a node of two processes: {done.returncode}: {done.stderr[:500]}")
    command = ["replay", "small.json", "--on", "pair.json", "--backend", "cpu", "--collectives", *RUN]
    done = among(2, command, folder)
    checks.check(done.returncode == 0, f"replay with peers: {done.returncode}: {done.stderr[:500]}")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    checks.check("2 processes" in done.stdout and "collectives" in lines and "left out" not in done.stdout, f"collectives ran: {done.stdout[:1500]}")
    checks.check(done.stdout.count("equal") == 2, f"peaks are the predicted ones: {done.stdout[-800:]}")
    replay_in_groups(checks, folder)
    for arguments, count, said in [(command, 1, "1 processes for 2 devices"), ([*command, "--tp", "2", "--framework", "nothing"], 1, "nothing")]:
        done = among(count, arguments, folder)
        checks.check(done.returncode == 2 and said in done.stderr, f"{arguments}: {done.returncode}: {done.stderr[:300]}")


def replay_in_groups(checks, folder):
    """Two tensor-parallel pairs, each rank with a data-parallel peer in the other pair: collectives of two kinds of groups in one step."""
    done = among(4, ["calibrate", "--collectives", "--backend", "cpu", "--seconds", "1", "--largest", "256 KiB", "--fit", "plimsoll-samples.jsonl",
                     "--samples", "quad.jsonl", "-o", "quad.json"], folder)
    checks.check(done.returncode == 0, f"a node of four processes: {done.returncode}: {done.stderr[:500]}")
    command = ["replay", "small.json", "--on", "quad.json", "--backend", "cpu", "--collectives", "--micro-batch", "1", "--seq", "64", "--precision",
               "bf16", "--framework", "torchtitan", "--tp", "2", "--steps", "1"]
    done = among(4, command, folder)
    checks.check(done.returncode == 0, f"tp x dp among processes: {done.returncode}: {done.stderr[:500]}")
    checks.check("4 processes" in done.stdout and "left out" not in done.stdout, f"collectives of both groups ran: {done.stdout[:1500]}")
    checks.check(done.stdout.count("equal") == 2, f"peaks are the predicted ones: {done.stdout[-800:]}")


def among(count, arguments, folder):
    """The program run by several processes of one mpirun."""
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(count), PROGRAM, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        hip(checks, folder)
        no_device(checks, folder)
        replay(checks, folder)
        interruption(checks, folder)
        files(checks, folder)
        processes(checks, folder)
    checks.finish()


if __name__ == "__main__":
    main()
