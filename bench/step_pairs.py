#!/usr/bin/env python3
"""Steps that `estimate` and `rehearse` both price, of one description each: plans that are exported, rehearsed by their own framework and compared
(those of the closed loop, tests/rehearsal/exports.py, and of step_plans.py). What comes out is kept in bench/step-pairs.json, in milliseconds, and
its distribution printed.

    step_pairs.py PLIMSOLL ENVIRONMENTS [PATTERN…]    runs the plans of that name, or whose names contain a pattern, and keeps their pairs
    step_pairs.py --list                              the plans' names
    step_pairs.py                                     the distribution of what is kept

A rehearsed step is no measurement: both sides price kernels alike, and differ in the launches, the host's work and their order.
"""

import json
import os
import subprocess
import sys
import tempfile

import step_plans
from step_plans import exports

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = os.path.join(HERE, "step-pairs.json")
WITHIN = 0.1  # of the rehearsed step


def kept():
    if not os.path.exists(KEPT):
        return {}
    with open(KEPT, encoding="utf-8") as file:
        return {each["plan"]: each for each in json.load(file)["pairs"]}


def keep(pair):
    """Puts a pair among those that are kept, in place of an older one of the same plan."""
    pairs = {**kept(), pair["plan"]: pair}
    with open(KEPT, "w", encoding="utf-8") as file:
        json.dump({"pairs": [pairs[plan] for plan in sorted(pairs)]}, file, indent=1)
        file.write("\n")


def pair_of(plimsoll, environments, plan):
    """Both prices of a plan's step; the ranks of a world that is all stages are rehearsed together, of other worlds the first is."""
    with tempfile.TemporaryDirectory() as folder:
        estimate = exports.exported(plimsoll, plan, folder)
        report = exports.rehearsed(plimsoll, environments, plan, folder, ["--together"] if plan.stages > 1 else ["--rank", "0"])
    if report["ranks"][0]["work"]["launches"] == 0:
        raise RuntimeError(f"no launches are in the step of {plan.name}")
    times = {"estimated_ms": exports.seconds(estimate), "rehearsed_ms": exports.seconds(report)}
    return {"plan": plan.name, **{key: round(1e3 * time, 1) for key, time in times.items()}}


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


def run(plimsoll, environments, patterns):
    """Runs what is named, or contains a pattern where nothing has its name; whether each came to its end."""
    plans = step_plans.plans()
    chosen = [plan for plan in plans if plan.name in patterns] or [plan for plan in plans if not patterns or any(each in plan.name for each in patterns)]
    failed = 0
    for plan in chosen:
        try:
            pair = pair_of(plimsoll, environments, plan)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            failed += 1
            print(f"{plan.name}: {error}", flush=True)
            continue
        keep(pair)
        print(f"{plan.name}: {pair['estimated_ms']} ms estimated, {pair['rehearsed_ms']} ms rehearsed", flush=True)
    return not failed


def main():
    words = sys.argv[1:]
    if words == ["--list"]:
        print("\n".join(plan.name for plan in step_plans.plans()))
        return
    whole = not words or run(*map(os.path.abspath, words[:2]), words[2:])
    tell()
    sys.exit(not whole)


main()
