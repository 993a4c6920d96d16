"""Other programs' files where a command takes them: search opens what a search decides and keeps the rest, rehearse runs the line that a script
starts, hardware writes a file that --on takes."""

import json
import os
import subprocess
import sys
import tempfile

PLIMSOLL = sys.argv[1]
SAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "formats", "samples")

TOPOLOGY = """\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV12\tSYS\tSYS\tPXB\tSYS\t0-31\t0\tN/A
GPU1\tNV12\t X \tSYS\tSYS\tPXB\tSYS\t0-31\t0\tN/A
GPU2\tSYS\tSYS\t X \tNV12\tSYS\tPXB\t32-63\t1\tN/A
GPU3\tSYS\tSYS\tNV12\t X \tSYS\tPXB\t32-63\t1\tN/A
NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS
NIC1\tSYS\tSYS\tPXB\tPXB\tSYS\t X

Legend:
"""
NODES = """NODELIST GRES
a100-01 gpu:a100-80gb-sxm:4(S:0-1)
a100-02 gpu:a100-80gb-sxm:4(S:0-1)
"""
HOST = """Architecture:            x86_64
CPU(s):                  128
Socket(s):               2
"""
SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
head=$(scontrol show hostnames | head -n 1)
srun accelerate launch --num_processes 16 --num_machines 2 --main_process_ip $head nowhere.py --lr 1
"""


def run(*words, code=0):
    done = subprocess.run([PLIMSOLL, *words], capture_output=True, text=True)
    assert done.returncode == code, f"{words}: exit code {done.returncode}, {done.stdout[-800:]} {done.stderr[-800:]}"
    return done.stdout, done.stderr


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def search_opens_the_layout():
    """The best plan's command says what the file says, and estimates to what the search says."""
    file = os.path.join(SAMPLES, "axolotl", "fft-8b-liger-fsdp.yaml")
    found = json.loads(run("search", "--from", file, "--on", "8xh100-sxm", "--top", "1", "--max-estimates", "10", "--json")[0])
    best = found["best"]
    words = best["command"].split()
    assert words[:2] == ["plimsoll", "estimate"], words
    for said in ("--liger-kernel true", "--optimizer-impl fused", "--global-batch", "--micro-batch"):
        assert said in best["command"], best["command"]


def hardware_files():
    with tempfile.TemporaryDirectory() as folder:
        files = [write(folder, "topo.txt", TOPOLOGY), write(folder, "sinfo.txt", NODES), write(folder, "lscpu.txt", HOST)]
        written = os.path.join(folder, "seen.json")
        run("hardware", "--from", *files, "-o", written)
        with open(written, encoding="utf-8") as file:
            seen = json.load(file)
        assert (seen["nodes"], seen["node"]["gpus"], seen["node"]["nics"], seen["node"]["sockets"]) == (2, 4, 2, 2), seen["node"]
        assert seen["node"]["pairs"] == [[0, 1, 12], [2, 3, 12]], seen["node"]["pairs"]
        assert seen["node"]["gpu_link"]["bandwidth"]["provenance"] == "assumed"
        assert "2 of 6 pairs joined by NVLink" in seen["sources"]["seen"], seen["sources"]["seen"]
        report = json.loads(run("estimate", "gpt2", "--on", written, "--micro-batch", "1", "--seq", "128", "--json")[0])
        assert sum(rank["count"] for rank in report["ranks"]) == 8, report["ranks"]
        _, error = run("hardware", "--from", files[0], "--on", "a100-80gb-pcie", code=2)
        assert "its rate is not known" in error, error
        _, error = run("hardware", "--from", files[0], code=2)
        assert "--on" in error, error


def rehearse_reads_a_script():
    """The machines come from the script; what only Slurm knows is left out of the launcher's words; the program that is not there fails."""
    with tempfile.TemporaryDirectory() as folder:
        script = write(folder, "job.sh", SCRIPT)
        _, error = run("rehearse", "--from", script, "--on", "h100-sxm", "--rank", "15", code=2)
        assert "nowhere.py" in error or "accelerate" in error, error
        _, error = run("rehearse", "--from", script, "--on", "h100-sxm", "--rank", "16", code=2)
        assert "--rank" in error, error
        unknown = write(folder, "unknown.sh", "torchrun --nproc-per-node 2 train.py --lr $(compute)\n")
        _, error = run("rehearse", "--from", unknown, "--on", "h100-sxm", code=2)
        assert "never executed" in error, error


def the_stated_release_decides():
    """The defaults are those of the release that an option or pip's requirements state, and --show-resolved says so."""
    file = os.path.join(SAMPLES, "transformers", "trl_cli.yaml")
    line = ["explain", "--from", file, "--on", "1xh100-sxm", "--show-resolved"]
    assert "default of transformers 5.23 (optim: adamw_torch_fused, before 5.0 adamw_torch" in run(*line)[0]
    assert "default of transformers 4.46.3 (optim: adamw_torch)" in run(*line, "--release", "transformers=4.46.3")[0]
    with tempfile.TemporaryDirectory() as folder:
        pinned = write(folder, "requirements.txt", "transformers==4.46.3\n")
        shown = run("estimate", "--from", file, pinned, "--on", "1xh100-sxm", "--show-resolved")[0]
        assert "default of transformers 4.46.3 (optim: adamw_torch)" in shown, shown
        _, error = run("estimate", "--from", file, pinned, "--on", "1xh100-sxm", "--release", "transformers=5.0", code=2)
        assert "requirements.txt:1" in error and "disagrees" in error, error


def calibrate_and_replay_read_a_run():
    """What is wrong with the files is said before anything is measured or run."""
    with tempfile.TemporaryDirectory() as folder:
        file = write(folder, "args.yaml", "per_device_train_batch_size: 1\nblock_size: 128\noutput_dir: out\n")
        for command in (["calibrate", "--backend", "cpu"], ["replay", "--on", "1xh100-sxm", "--backend", "cpu"]):
            _, error = run(*command, "--from", file, code=2)
            assert "which model is trained" in error, error


search_opens_the_layout()
hardware_files()
the_stated_release_decides()
calibrate_and_replay_read_a_run()
rehearse_reads_a_script()
print("ok")
