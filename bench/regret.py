"""Of measured runs that differ in their strategy alone, which would have been picked, and what that costs.

python3 bench/regret.py build/default/plimsoll bench/corpus/nanotron-sweep.json …   (or the JSON that plimsoll validate --json printed)

A group is two or more runs of the same model, device, number of GPUs, framework and release, global batch, sequence and precision. The pick is the run with the
least predicted step; regret is its measured step over the shortest measured one, less 1. `better` counts groups whose pick is the best.
"""
import collections
import json
import os
import subprocess
import sys

# What two runs must share to be the same question; all other keys of `training` are the strategy.
SHARED = ("framework", "framework_version", "torch", "transformers", "global_batch", "seq_len", "precision", "fp8_recipe", "optimizer", "task")


def question(row):
    model = {key: value for key, value in row["model"].items() if key != "name"}
    hardware, training = row["hardware"], row["training"]
    return json.dumps([model, hardware.get("gpu"), hardware.get("gpus"), [training.get(key) for key in SHARED]], sort_keys=True)


def rows_of(path):
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    return content["rows"] if isinstance(content, dict) else content


def predictions(program, path):
    """Predicted and measured seconds by the row's id."""
    result = subprocess.run([program, "validate", path, "--json"], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{path}: {result.stderr}")
    return {row["id"]: (row["predicted"], row["measured"]) for row in json.loads(result.stdout)["rows"] if row["quantity"] == "step_seconds"}


def regrets(program, path):
    """(regret, runs of the group, picked row, best row) per group, worst first."""
    times = predictions(program, path)
    groups = collections.defaultdict(list)
    for row in rows_of(path):
        if row["id"] in times:
            groups[question(row)].append(row["id"])
    found = []
    for ids in groups.values():
        if len(ids) < 2:
            continue
        pick = min(ids, key=lambda each: (times[each][0], each))
        best = min(ids, key=lambda each: (times[each][1], each))
        found.append((times[pick][1] / times[best][1] - 1, len(ids), pick, best))
    return sorted(found, reverse=True)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program = sys.argv[1]
    for path in sys.argv[2:]:
        found = regrets(program, path)
        if not found:
            print(f"{os.path.basename(path)}: no two runs differ in their strategy alone")
            continue
        values = [regret for regret, *_ in found]
        runs = sum(count for _, count, *_ in found)
        print(f"{os.path.basename(path)}: {len(found)} groups of {runs} runs, mean regret {100 * sum(values) / len(values):.1f} %, "
              f"median {100 * values[len(values) // 2]:.1f} %, worst {100 * values[0]:.1f} %, "
              f"best picked in {sum(value == 0 for value in values)}, within 2 % in {sum(value <= 0.02 for value in values)}")
        for regret, count, pick, best in found[:5]:
            print(f"  {100 * regret:6.1f} %  of {count:3d}  picked {pick}, best {best}")


if __name__ == "__main__":
    main()
