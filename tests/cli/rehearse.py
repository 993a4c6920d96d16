"""plimsoll rehearse where it goes wrong before any training program runs: needs no PyTorch."""

import os
import subprocess
import sys
import tempfile

from driver import Checks, run

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
    refused(checks, "there is no such program on PATH", "--on", "8xmi300x", "--", "no-such-trainer", "train.py")
    if not has_torch():
        refused(checks, "PyTorch is not installed", "--on", "8xmi300x", "--", PYTHON, "train.py")
        refused(checks, "PyTorch is not installed", "--on", "8xmi300x", "--", PYTHON, "--help")  # the program's own --help
    help_ = run("rehearse", "--help")
    checks.check(help_.code == 0 and "--until-peak" in help_.out and "torchrun" in help_.out, "rehearse --help")
    records(checks)
    checks.finish()


main()
