"""volume.py BUILD KEPT SECONDS: many runs of every fuzzer that the preset fuzz-volume built in BUILD/bench/fuzz, two at a time and each as long.

KEPT/corpus/READER: inputs that reached something new, which the next call begins with, and the fuzzers under the sanitizers should read;
KEPT/found/READER: what broke the reader; KEPT/counts.txt: a line a run, with its executions. Prints the sums of all calls.
"""
import collections
import concurrent.futures
import pathlib
import re
import subprocess
import sys

_SLICE = 120  # seconds of a run: what one finds, the next begins with
_SOURCES = pathlib.Path(__file__).resolve().parent
_LENGTHS = {"texts": 256, "cluster_text": 256, "strategy": 512, "syntax": 1024, "json": 1024}  # bytes; a short input is a fast one


def run(build, kept, name, seconds):
    """Runs one fuzzer; its line of counts.txt."""
    corpora, corpus, found = build / "corpora", kept / "corpus" / name, kept / "found" / name
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    begin = [path for path in (corpora / name, _SOURCES / "seeds" / name, _SOURCES / "regressions" / name) if path.exists()]
    dictionary = corpora / f"{name}.dict"
    # The time limit is of the clock: on a machine that does something else a run of a millisecond may take seconds.
    command = [build / f"fuzz_{name}", f"-max_total_time={seconds}", f"-max_len={_LENGTHS.get(name, 2048)}", "-timeout=300", "-rss_limit_mb=1024",
               "-print_final_stats=1", "-reload=0", f"-artifact_prefix={found}/", *([f"-dict={dictionary}"] if dictionary.exists() else []), corpus, *begin]
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    counted = re.search(r"number_of_executed_units: (\d+)", ended.stderr)
    return f"{name} {counted.group(1) if counted else 0} exit {ended.returncode}"


def main():
    build, kept, seconds = pathlib.Path(sys.argv[1]) / "bench" / "fuzz", pathlib.Path(sys.argv[2]), int(sys.argv[3])
    names = sorted(path.name[len("fuzz_"):] for path in build.glob("fuzz_*"))
    if not names:
        sys.exit(f"{build}: no fuzzers (cmake --preset fuzz-volume; cmake --build --preset fuzz-volume --target fuzzers)")
    kept.mkdir(parents=True, exist_ok=True)
    counts = kept / "counts.txt"
    rounds = max(1, round(2 * seconds / (_SLICE * len(names))))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for line in pool.map(lambda name: run(build, kept, name, _SLICE), names * rounds):
            with counts.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
    sums, broken = collections.Counter(), set()
    for line in counts.read_text(encoding="utf-8").splitlines():
        name, executions, _, status = line.split()
        sums[name] += int(executions)
        broken |= {name} if status != "0" else set()
    for name, executions in sorted(sums.items()):
        print(f"{executions:>12,}  {name}{'  (see found/' + name + ')' if name in broken else ''}")
    print(f"{sum(sums.values()):>12,}  in all")


if __name__ == "__main__":
    main()
