"""plimsoll rehearse where it goes wrong before any training program runs: needs no PyTorch."""

import os
import signal
import subprocess
import sys
import tempfile
import time

from driver import PROGRAM, Checks, run

PYTHON = sys.executable


def has_torch():
    return subprocess.run([PYTHON, "-c", "import importlib.util,sys;sys.exit(importlib.util.find_spec('torch') is None)"]).returncode == 0


def refused(checks, said, *arguments):
    """Bad input: exit code 2, and a message that says what is wrong."""
    result = run("rehearse", *arguments)
    checks.check(result.code == 2 and said in result.err, f"rehearse {' '.join(arguments)}: {result.code} {result.err!r} lacks {said!r}")


def records(checks):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "cut.record")
        for bytes_, said in (
            (b"", "a header has 32 bytes"),
            (b"x" * 64, "no record of"),
            (b"PLIMREC\n" + bytes([9, 0, 0, 0]) + b"\4\3\2\1" + bytes(48), "version 9"),
        ):
            with open(path, "wb") as file:
                file.write(bytes_)
            result = run("estimate", "gpt2", "--on", "1xh100-sxm", "--against", path)
            checks.check(
                result.code == 2 and said in result.err and "cut.record" in result.err,
                f"--against {bytes_[:12]}: {result.code} {result.err!r}",
            )
    result = run("estimate", "gpt2", "--on", "1xh100-sxm", "--against", "/nowhere/at.all")
    checks.check(result.code == 2 and "/nowhere/at.all" in result.err, f"--against a missing file: {result.err!r}")


def processes(checks):
    """Programs of which nothing is left, and lines that start them."""
    without = "the program ended without using the device"
    refused(checks, without, "--on", "8xmi300x", PYTHON, "-c", "print(1)")  # without --
    refused(checks, "ended with exit code 3", "--on", "8xmi300x", "--", "bash", "-c", "exit 3")
    refused(checks, "Segmentation fault", "--on", "8xmi300x", "--", "bash", "-c", "kill -SEGV $$")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "train.py"), "w") as file:
            file.write("print('it ran')")
        result = run("rehearse", "--on", "8xmi300x", "train.py", folder=folder)
        checks.check(result.code == 2 and without in result.err and "it ran" in result.err, f"a script by its name: {result.err!r}")
    mark = f"{os.getpid()}.25"  # seconds that no other sleep takes
    refused(checks, without, "--on", "8xmi300x", "--", "bash", "-c", f"setsid sleep 3{mark} & setsid -f sleep 4{mark}")
    refused(checks, "reached the end of no step", "--on", "8xmi300x", "--timeout", "0.5", "--", "setsid", "--wait", "sleep", f"5{mark}")
    left = subprocess.run(["pgrep", "-f", f"sleep [345]{mark}"], capture_output=True, text=True).stdout
    checks.check(not left, f"processes were left running: {left}")
    asked = "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader"
    listed = run("rehearse", "--on", "4xh100-sxm", "--", "bash", "-c", asked).err
    checks.check(listed.count("H100") == 4 and listed.count("MiB") == 4, f"nvidia-smi: {listed!r}")
    asked = "nvidia-smi --query-gpu=power.draw,clocks.sm,mig.mode.current --format=csv,noheader -i 0"
    listed = run("rehearse", "--on", "4xh100-sxm", "--", "bash", "-c", asked).err
    checks.check("0.00 W, [N/A], [N/A]" in listed, f"nvidia-smi of what it cannot know: {listed!r}")


def interrupted(checks):
    """Ctrl-C and TERM: the program's processes are gone, those in sessions of their own too."""
    mark = f"{os.getpid()}.75"
    for asked in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen([PROGRAM, "rehearse", "--on", "8xmi300x", "--", "bash", "-c", f"setsid sleep 6{mark} & echo up; sleep 7{mark}"],
                                   stderr=subprocess.PIPE, text=True)
        process.stderr.readline()
        process.send_signal(asked)
        _, errors = process.communicate(timeout=60)
        left = subprocess.run(["pgrep", "-f", f"sleep [67]{mark}"], capture_output=True, text=True).stdout
        checks.check(process.returncode == 2 and "interrupted" in errors and not left, f"{asked}: {process.returncode} {errors!r}, left {left!r}")


def settings_interrupted(checks):
    """A TERM to the one that runs several: those end, and what they started."""
    mark = f"{os.getpid()}.5"
    process = subprocess.Popen([PROGRAM, "rehearse", "--on", "8xmi300x", "--vary", "n=8,9", "--", "bash", "-c", "setsid --wait sleep {n}" + mark],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def running():
        return subprocess.run(["pgrep", "-f", f"^sleep [89]{mark}"], capture_output=True, text=True).stdout

    def within(seconds, done):
        until = time.monotonic() + seconds
        while not done() and time.monotonic() < until:
            time.sleep(0.05)

    within(60, running)
    checks.check(bool(running()), "no setting was started")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    within(60, lambda: not running())
    checks.check(not running(), f"settings were left running: {running()}")


def main():
    checks = Checks()
    refused(checks, "--on is missing", "--", "python", "train.py")
    refused(checks, "there is no program to rehearse", "--on", "8xmi300x")
    refused(checks, "unknown accelerator", "--on", "8xmi300y", "--", "python", "train.py")
    refused(checks, "there is no option '--ranks'", "--on", "8xmi300x", "--ranks", "1", "--", "python", "train.py")
    refused(checks, "does not fit on the 8 GPUs", "--on", "8xmi300x", "--world", "16", "--", "python", "train.py")
    refused(checks, "no number from 0 to 7", "--on", "8xmi300x", "--world", "8", "--rank", "8", "--", "python", "train.py")
    refused(checks, "starts 4 processes", "--on", "8xmi300x", "--world", "8", "--", "torchrun", "--nproc-per-node", "4", "train.py")
    refused(checks, "names no program", "--on", "8xmi300x", "--", "torchrun", "--nproc-per-node", "4")
    refused(checks, "is no count of processes", "--on", "8xmi300x", "--", "torchrun", "--nproc-per-node", "many", "train.py")
    refused(checks, "there is no such program", "--on", "8xmi300x", "--", "/nowhere/python", "train.py")
    refused(checks, "this is a folder", "--on", "8xmi300x", "--", "/usr", "train.py")
    for own, told in (((), ("--json",)), (("--json",), ())):  # what the program is told is not plimsoll's, with or without "--"
        result = run("rehearse", *own, "--on", "1xh100-sxm", "/bin/echo", *told)
        answer = result.out.replace("--json\n", "")
        checks.check(result.code == 2 and bool(answer.strip("\n")) == bool(own), f"echo {told}: {result.code} {result.out!r}")
    refused(checks, "there is no such program on PATH", "--on", "8xmi300x", "--", "no-such-trainer", "train.py")
    if not has_torch():
        refused(checks, "install it for the Python of the command", "--on", "8xmi300x", "--", PYTHON, "-c", "import torch")
    refused(checks, "is no value", "--on", "8xmi300x", "--value", "loss", "--", PYTHON, "train.py")
    refused(checks, "all ranks run together", "--on", "8xmi300x", "--together", "--rank", "1", "--", PYTHON, "train.py")
    refused(checks, "too large to run together", "--on", "4x8xmi300x", "--together", "--world", "32", "--", PYTHON, "train.py")
    refused(checks, "the whole run is one step, or each call is", "--on", "8xmi300x", "--until-exit", "--mark", "f", "--", PYTHON, "train.py")
    refused(checks, "no word of the command has {bs}", "--on", "8xmi300x", "--vary", "bs=1,2", "--", PYTHON, "train.py")
    refused(checks, "has the value '1' twice", "--on", "8xmi300x", "--vary", "bs=1,1", "--", PYTHON, "train.py", "{bs}")
    refused(checks, "is no whole number", "--on", "8xmi300x", "--largest", "bs", "--vary", "bs=1,all", "--", PYTHON, "train.py", "{bs}")
    refused(checks, "a file of one rehearsal", "--on", "8xmi300x,8xh100-sxm", "--record", "x", "--", PYTHON, "train.py")
    refused(checks, "unknown accelerator", "--on", "8xmi300x,8xmi300y", "--", PYTHON, "train.py")
    refused(checks, "every setting failed", "--on", "8xmi300x", "--vary", "code=3,4", "--", "bash", "-c", "exit {code}")
    processes(checks)
    refused(checks, "/nowhere/at.all", "--on", "1xh100-sxm", "--price", "/nowhere/at.all")
    refused(checks, "nothing runs where records are priced", "--on", "1xh100-sxm", "--price", "/nowhere/at.all", "--", "true")
    help_ = run("rehearse", "--help")
    checks.check(help_.code == 0 and "--until-peak" in help_.out and "torchrun" in help_.out, "rehearse --help")
    interrupted(checks)
    settings_interrupted(checks)
    records(checks)
    checks.finish()


main()
