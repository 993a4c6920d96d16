#!/usr/bin/env python3
"""Steps that `estimate` and `rehearse` both price, of one description each: the plans of the closed loop (tests/rehearsal/exports.py), which are
exported, rehearsed and compared. What comes out is kept in bench/step-pairs.json, in milliseconds, and its distribution printed.

    step_pairs.py PLIMSOLL ENVIRONMENTS [PATTERN…]    runs the groups, or the plans whose name contains a pattern, and keeps them
    step_pairs.py --read LOG…                         keeps those of logs that exports.py printed
    step_pairs.py                                     the distribution of what is kept

A rehearsed step is no measurement: both sides price kernels alike, and differ in the launches, the host's work and their order.
"""

import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = os.path.join(HERE, "step-pairs.json")
EXPORTS = os.path.join(HERE, "..", "tests", "rehearsal", "exports.py")
LINE = re.compile(r"^(?:equal  |UNEQUAL) (.+?): allocated .*step ([0-9.]+) ms estimated, ([0-9.]+) ms rehearsed", re.MULTILINE)
WITHIN = 0.1  # of the rehearsed step


def kept():
    if not os.path.exists(KEPT):
        return {}
    with open(KEPT, encoding="utf-8") as file:
        return {each["plan"]: each for each in json.load(file)["pairs"]}


def keep(text):
    """Puts the pairs of a text that exports.py printed among those that are kept, in place of older ones of the same plans."""
    pairs = kept()
    for plan, estimated, rehearsed in LINE.findall(text):
        pairs[plan] = {"plan": plan, "estimated_ms": float(estimated), "rehearsed_ms": float(rehearsed)}
    with open(KEPT, "w", encoding="utf-8") as file:
        json.dump({"pairs": [pairs[plan] for plan in sorted(pairs)]}, file, indent=1)
        file.write("\n")


def differences():
    """(estimate over rehearsal, less one; plan), the farthest first."""
    found = [(each["estimated_ms"] / each["rehearsed_ms"] - 1, plan) for plan, each in kept().items()]
    return sorted(found, key=lambda each: -abs(each[0]))


def tell():
    found = differences()
    if not found:
        sys.exit(f"nothing is kept in {KEPT}: run it with plimsoll and the environments of ./dev setup --rehearsal")
    sizes = sorted(abs(difference) for difference, _ in found)
    near = sum(size <= WITHIN for size in sizes)
    print(f"{near} of {len(sizes)} plans' steps are within {WITHIN:.0%}; half within {sizes[len(sizes) // 2]:.1%}, nine in ten within {sizes[int(0.9 * len(sizes))]:.1%}")
    for difference, plan in found:
        print(f"{difference:+7.1%}  {plan}")


def main():
    words = sys.argv[1:]
    if words[:1] == ["--read"]:
        for path in words[1:]:
            with open(path, encoding="utf-8") as file:
                keep(file.read())
    elif words:
        patterns = words[2:]
        groups = patterns or subprocess.run([sys.executable, EXPORTS, "--list"], capture_output=True, text=True, check=True).stdout.splitlines()
        for group in groups:
            done = subprocess.run([sys.executable, EXPORTS, *words[:2], group], stdout=subprocess.PIPE, text=True)
            print(done.stdout, end="", flush=True)
            keep(done.stdout)
    tell()


main()
