"""Runs the program and measures what a run costs. Used by the tests beside it."""
import os
import re
import resource
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "plimsoll"
SOURCE = os.environ.get("PLIMSOLL_SOURCE", os.path.join(os.path.dirname(__file__), "..", ".."))
SANITIZED = os.environ.get("PLIMSOLL_SANITIZED") == "1"
SLOWER = 20 if SANITIZED else 1   # how many times its time the program may take


class Result:
    def __init__(self, code, out, err, seconds, megabytes):
        self.code, self.out, self.err, self.seconds, self.megabytes = code, out, err, seconds, megabytes


def run(*arguments, folder=None, limit=60):
    """One run of the program, of `limit` seconds of a processor at most. Peak memory and seconds of a processor are those of the process alone, whatever else the machine does."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([PROGRAM, *arguments], stdout=out, stderr=err, cwd=folder, stdin=subprocess.DEVNULL,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit * SLOWER, limit * SLOWER)))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)   # reaped already
        seconds = usage.ru_utime + usage.ru_stime
        out.seek(0), err.seek(0)
        return Result(process.returncode, out.read().decode("utf-8", "surrogateescape"), err.read().decode("utf-8", "surrogateescape"), seconds,
                      usage.ru_maxrss / 1024)


class Checks:
    """Counts what was checked, prints what failed."""

    def __init__(self):
        self.done, self.failed = 0, 0

    def check(self, good, what):
        self.done += 1
        if not good:
            self.failed += 1
            print("FAILED: " + what)

    def finish(self):
        print(f"{self.done - self.failed} of {self.done} checks passed")
        sys.exit(1 if self.failed or not self.done else 0)


def complaints(err):
    """What was written to stderr beside how far a command is, which those say that take longer than a second."""
    return [line for line in err.splitlines() if not re.match(r"plimsoll: \d+ s, \w+: \d+ of \d+", line)]
