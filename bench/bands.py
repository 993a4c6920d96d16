"""Bands that hold on runs that nobody here had seen, by leaving whole sources out.

bands.py PROGRAM: for every source of measured rows in bench/corpus the constants that were fitted on its steps are fitted again without it, and
its rows predicted by these. What they miss by, in groups of runs of one kind, is hardware/residuals.json; how many rows of a source lie in the
bands that all other sources make is written to docs/validate.md, and for the README's tables to build/bands/left_out.json.

A constant of several sources moves by as much as its best value does when one of them is left out: steps are predicted at three values, and
between them log seconds are a parabola. A constant of one source falls back to what the program would have without it. Held, because a refit is
no matter of minutes or no row of bench/corpus tells them: laws of kernels (timed on an H100 and an H200; silicon-h100's rows are of the same
day, so they are in no band), collectives and bandwidths that were measured by themselves, and what rules of frameworks were read from."""
import collections
import glob
import hashlib
import json
import math
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
KEPT = "build/bands"
TIME, MEMORY = "step_seconds", "bytes"
QUANTITIES = (TIME, "reserved_bytes", "allocated_bytes", "device_bytes")

# Rows that the program was made from to the byte, or to the microsecond: their errors say nothing of others'.
IN_SAMPLE = ("allocator-", "silicon-h100.json", "traces-")
# What joins its devices is not told and seems to decide its steps: LoRA's 5.1 s on two RTX 3090 leave 4.3 for exchanges, which would be 3 GB/s.
WITHOUT_LINKS = ("fsdp-qlora",)
# Files of one hand: left out together.
ONE_SOURCE = {"llm-foundry-2023": "llm-foundry", "vtrain-multi": "vtrain-single", "bigscience-tr11-h14400": "bigscience-tr11"}


class Constant:
    """A number of hardware/ that was fitted on whole steps. `places` are keys within its files, elements of lists by their name; `fallback`
    is what stands where no source is left (None: it has always others)."""

    def __init__(self, name, sources, places, step=0.1, fallback=None):
        self.name, self.sources, self.places, self.step, self.fallback = name, sources, places, step, fallback


def power(device, *kernels):
    return [(f"accelerators/{device}.json", ("gemm", "kernels", kernel, "power", "value")) for kernel in kernels]


def hosts(*path):
    return ("hosts.json", path + ("value",))


CONSTANTS = [
    Constant("8-bit products at an H100's power", ["dgxc-benchmarking", "nemo-docs", "mlperf-training"], power("h100-sxm", "wgmma of 8 bits")),
    Constant("8-bit products at a B200's power", ["megatron-bridge", "nemo-docs", "torchtitan"], power("b200", "tcgen05", "tcgen05 in groups")),
    Constant("8-bit products at a GB200's power", ["dgxc-benchmarking", "megatron-bridge", "mlperf-training"], power("gb200", "tcgen05", "tcgen05 in groups")),
    Constant("products at a GB300's power", ["megatron-bridge"], power("gb300", "tcgen05", "tcgen05 of 4 bits", "tcgen05 in groups"), fallback=1.0),
    Constant("attention at 500 W", ["torchtitan"], [("accelerators/h100-sxm-96gb-hbm2e-500w.json", ("attention", "power", "value"))], fallback=1.2),
    Constant("spread of devices", ["dgxc-benchmarking", "torchtitan"], [hosts("fleet", "spread")], step=0.5),
    Constant("spread of A100s", ["narayanan2021", "korthikanti2022"], [hosts("fleet", "spread_of_family", "Ampere")], step=0.5),
    Constant("host of Megatron-LM before PyTorch 2.0", ["vtrain-single", "bigscience-tr11"], [hosts("software", "Megatron-LM before PyTorch 2.0", "slowdown")], step=0.3),
    Constant("host beside MI355X", ["amd-primus"], [hosts("processors", "EPYC 9575F under ROCm", "slowdown")], fallback=1.0),
    Constant("an optimizer on the host beside other ranks", ["ml-engineering"], [hosts("rank_bandwidth")], fallback="300 GB/s"),
    Constant("Mamba's scan", ["dgxc-benchmarking", "megatron-bridge"], [("kernels.json", ("generated_products", "value"))], step=0.3),
    Constant("columns to 4 bits", ["megatron-bridge"], [("kernels.json", ("row_wise", "quantization", "hadamard_columns"))], fallback=44),
    Constant("rows and columns to 4 bits", ["megatron-bridge"], [("kernels.json", ("row_wise", "quantization", "hadamard_both_ways"))], fallback=44),
    Constant("8-bit casts along columns", ["torchtitan"], [("kernels.json", ("pointwise", "fused_sector", "value"))], fallback="24 B"),
    Constant("nanotron's host at a collective", ["nanotron-sweep"], [hosts("paces", "nanotron", "collective")], fallback="25 us"),
    Constant("nanotron's hosts that meet", ["nanotron-sweep"],
             [hosts("nanotron", key) for key in ("meeting", "meeting_per_rank", "meeting_per_far_rank", "message")], fallback="0 us"),
    Constant("a tree's level over EFA", ["nanotron-sweep"], [("networks.json", ("networks", "EFA", "tree_hop", "value"))], fallback="0 us"),
]

# ---- hardware files with other constants ---------------------------------------------------------------------------------------------


def element(tree, key):
    """A member, or of a list the element of that name (of paces: of that framework)."""
    if isinstance(tree, dict):
        return tree[key]
    return next(one for one in tree if key in (one.get("name"), one.get("framework")))


def changed(value, scale):
    if isinstance(value, str):
        number, unit = re.fullmatch(r"([0-9.]+)(.*)", value).groups()
        return f"{float(number) * scale:.6g}{unit}"
    return value * scale


def hardware_with(changes):
    """A folder of hardware files: `changes` are (constant, what becomes of its values)."""
    files = {}
    for constant, change in changes:
        for path, keys in constant.places:
            if path not in files:
                with open(f"hardware/{path}", encoding="utf-8") as file:
                    files[path] = json.load(file)
            tree = files[path]
            for key in keys[:-1]:
                tree = element(tree, key)
            tree[keys[-1]] = change(tree[keys[-1]])
    texts = {path: json.dumps(tree) for path, tree in files.items()}
    folder = f"{KEPT}/hardware-" + hashlib.sha1(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:12]
    for path, text in texts.items():
        os.makedirs(os.path.dirname(f"{folder}/{path}"), exist_ok=True)
        with open(f"{folder}/{path}", "w", encoding="utf-8") as file:
            file.write(text)
    return folder


# ---- predictions ----------------------------------------------------------------------------------------------------------------------


def contents(path):
    with open(path, "rb") as file:
        return file.read()


class Program:
    """Predicts files of rows, and keeps what it said for as long as program, rows and hardware stay."""

    def __init__(self, path):
        self.path = path
        self.digest = hashlib.sha1(contents(path)).hexdigest()

    def rows(self, name, folder=None):
        path = f"bench/corpus/{name}.json"
        key = hashlib.sha1(contents(path) + self.digest.encode() + str(folder).encode()).hexdigest()[:16]
        kept = f"{KEPT}/{name}-{key}.json"
        if not os.path.exists(kept):
            command = [self.path, "validate", path, "--json"] + (["--hardware-files", folder] if folder else [])
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode != 0:
                sys.exit(f"{' '.join(command)}: {result.stderr}")
            with open(kept, "w", encoding="utf-8") as file:
                file.write(result.stdout)
        with open(kept, encoding="utf-8") as file:
            answer = json.load(file)
        return [row for row in answer["rows"] if row["quantity"] in QUANTITIES and not row.get("lower_bound") and row["measured"] > 0 and row["predicted"] > 0]


def names():
    found = [os.path.basename(path)[: -len(".json")] for path in sorted(glob.glob("bench/corpus/*.json"))]
    return [name for name in found if not f"{name}.json".startswith(IN_SAMPLE + WITHOUT_LINKS)]


def source_of(name):
    return ONE_SOURCE.get(name, name)


# ---- constants without a source -------------------------------------------------------------------------------------------------------


def best_scale(rows_by_source, step):
    """The scale of a constant at which sources, each counting once, are predicted best: rows hold log seconds at 1 - step, 1 and 1 + step."""

    def miss(scale):
        x, total = (scale - 1) / step, 0
        for rows in rows_by_source.values():
            off = [abs(middle + x * (above - below) / 2 + x * x * ((above + below) / 2 - middle) - measured) for below, middle, above, measured in rows]
            total += sum(off) / len(off)
        return total

    return min((1 + step * (i / 20 - 1) for i in range(41)), key=miss)


def sensitive_rows(program, constant):
    """Of each source the rows whose step the constant changes: log seconds at three values, and measured."""
    folders = [hardware_with([(constant, lambda value, scale=scale: changed(value, scale))]) for scale in (1 - constant.step, 1 + constant.step)]
    found = {}
    for source in constant.sources:
        three = [{row["id"]: row for row in program.rows(source, folder) if row["quantity"] == TIME} for folder in (folders[0], None, folders[1])]
        rows = []
        for identity, middle in three[1].items():
            if identity in three[0] and identity in three[2]:
                below, at, above = (math.log(side[identity]["predicted"]) for side in three)
                if abs(above - below) > 1e-3:
                    rows.append((below, at, above, math.log(middle["measured"])))
        if rows:
            found[source] = rows
    return found


def changes_without(program, source):
    """What becomes of the constants that were fitted on the source's steps, and that in words."""
    changes, said = [], []
    for constant in CONSTANTS:
        if source not in [source_of(one) for one in constant.sources]:
            continue
        rows = sensitive_rows(program, constant) if len(constant.sources) > 1 else {}
        others = {one: rows[one] for one in rows if source_of(one) != source}
        if others:
            scale = best_scale(others, constant.step) / best_scale(rows, constant.step)
            changes.append((constant, lambda value, scale=scale: changed(value, scale)))
            said.append(f"{constant.name} x {scale:.3f}")
        elif constant.fallback is not None:
            changes.append((constant, lambda value, fallback=constant.fallback: fallback))
            said.append(f"{constant.name}: {constant.fallback}")
    return changes, said


# ---- bands ----------------------------------------------------------------------------------------------------------------------------

# Words by which runs are told apart, from the narrowest kinds to all; a kind that too few sources tell of, or whose sources do not hold each
# other, takes the next one's band. Memory is one quantity: what the allocator gave out, kept and what the device showed.
NARROWING = {
    TIME: [("basis", "host", "network", "framework"), ("basis", "host", "network", "place"), ("basis", "host", "place"), ("basis", "host"), ("basis",), ()],
    MEMORY: [("basis", "software", "training", "place"), ("basis", "software", "training"), ("basis", "software"), ("basis",), ()],
}
FEWEST_SOURCES, FEWEST_ROWS = 4, 12
MOST_OF_A_SOURCE = 40  # errors that tell a source's spread: quantiles, where it has more rows
# What a kind's own sources are to hold of each other, so that nine in ten lie inside of a source that had no part in any of it.
WANTED = 0.94
TAILS = (0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01, 0.0)  # shares of errors that are cut off at each end


class Residual:
    def __init__(self, source, name, row):
        self.source, self.name = source, name
        self.quantity, self.error, self.kind = row["quantity"], row["predicted"] / row["measured"] - 1, row["kind"]
        self.group = TIME if self.quantity == TIME else MEMORY


def middle(values, share):
    """Of values in order, linear between neighbours."""
    at = share * (len(values) - 1)
    low = int(at)
    return values[low] + (values[min(low + 1, len(values) - 1)] - values[low]) * (at - low)


def errors_by_source(residuals):
    """Of each source its errors in order, and what it counts for: the root of its rows, so that no sweep of a thousand runs decides alone."""
    errors = collections.defaultdict(list)
    for one in residuals:
        errors[one.source].append(one.error)
    told = {}
    for source, list_ in errors.items():
        list_.sort()
        thinned = list_ if len(list_) <= MOST_OF_A_SOURCE else [middle(list_, (i + 0.5) / MOST_OF_A_SOURCE) for i in range(MOST_OF_A_SOURCE)]
        told[source] = (thinned, math.sqrt(len(list_)))
    return told


def quantile(weighted, share):
    """Of (value, weight) in order, linear between the middles of neighbours' weights."""
    total, at = sum(weight for _, weight in weighted), 0
    places = []
    for value, weight in weighted:
        places.append(((at + weight / 2) / total, value))
        at += weight
    if share <= places[0][0]:
        return places[0][1]
    for (left, low), (right, high) in zip(places, places[1:]):
        if share <= right:
            return low + (high - low) * (share - left) / (right - left)
    return places[-1][1]


def spread(by_source, tail):
    """Between which errors all but two tails lie."""
    weighted = sorted((error, weight / len(errors)) for errors, weight in by_source.values() for error in errors)
    return min(0.0, quantile(weighted, tail)), max(0.0, quantile(weighted, 1 - tail))


def share_held(by_source, tail):
    """How much of a source lies in the spread of all others, in the mean."""
    held = total = 0
    for source, (errors, weight) in by_source.items():
        low, high = spread({other: told for other, told in by_source.items() if other != source}, tail)
        held += weight * sum(low <= error <= high for error in errors) / len(errors)
        total += weight
    return held / total


def narrowest_that_holds(by_source):
    """The spread by which a kind's sources hold enough of each other, or None."""
    return next((spread(by_source, tail) for tail in TAILS if share_held(by_source, tail) >= WANTED), None)


def entries(residuals):
    """Bands by kind, the narrowest kinds first."""
    found = []
    for group in (TIME, MEMORY):
        for words in NARROWING[group]:
            kinds = collections.defaultdict(list)
            for one in residuals:
                if one.group == group and all(word in one.kind for word in words):
                    kinds[tuple(one.kind[word] for word in words)].append(one)
            for values, members in sorted(kinds.items()):
                by_source = errors_by_source(members)
                few = len(by_source) < FEWEST_SOURCES or len(members) < FEWEST_ROWS
                band = None if few else narrowest_that_holds(by_source)
                if words and not band:
                    continue
                low, high = band or spread(by_source, 0.0)
                found.append({"quantity": group, "when": dict(zip(words, values)), "sources": len(by_source), "rows": len(members), "low": low, "high": high})
    return found


def band_of(residual, bands):
    return next(band for band in bands if band["quantity"] == residual.group and all(residual.kind.get(word) == value for word, value in band["when"].items()))


def inside(residual, bands):
    band = band_of(residual, bands)
    return band["low"] <= residual.error <= band["high"]


def held_by_others(residuals):
    """Every residual, and whether it lies in the bands that all other sources make."""
    held = []
    for source in sorted({one.source for one in residuals}):
        bands = entries([one for one in residuals if one.source != source])
        held += [(one, inside(one, bands)) for one in residuals if one.source == source]
    return held


def counted(held, key):
    """By key: rows, and those inside."""
    count = {}
    for one, lies_inside in held:
        rows = count.setdefault(key(one), [0, 0])
        rows[0] += 1
        rows[1] += lies_inside
    return count


# ---- the difference between two plans -------------------------------------------------------------------------------------------------

NEAR, FEWEST_PAIRS = 0.2, 20  # logarithm of two predictions that a search compares; pairs that tell a percentile


def differences(rows):
    """Two runs of one model on one cluster err alike: by how much the logarithm of their predicted ratio overstates the measured one, one
    time in ten, every run counting once."""
    questions = collections.defaultdict(list)
    for row in rows:
        if row.get("question") and row["kind"]["basis"] == "played":
            questions[(row["kind"]["framework"], row["question"])].append(row)
    pairs = collections.defaultdict(list)
    for (framework, _), runs in sorted(questions.items()):
        for i, one in enumerate(runs):
            for other in runs[i + 1:]:
                predicted = math.log(other["predicted"] / one["predicted"])
                measured = math.log(other["measured"] / one["measured"])
                if abs(predicted) < NEAR:
                    pairs[framework].append((measured - predicted if predicted < 0 else predicted - measured, 2 / len(runs)))
    found = []
    for framework, list_ in sorted(pairs.items()):
        if len(list_) < FEWEST_PAIRS:
            continue
        total, below, ninetieth = sum(weight for _, weight in list_), 0, 0
        for overstated, weight in sorted(list_):
            below += weight
            if below >= 0.9 * total:
                ninetieth = max(0.0, overstated)
                break
        found.append({"framework": framework, "pairs": len(list_), "p90": ninetieth})
    if found:
        middle = sorted(one["p90"] for one in found)
        found.append({"framework": "all", "pairs": sum(one["pairs"] for one in found), "p90": (middle[(len(middle) - 1) // 2] + middle[len(middle) // 2]) / 2})
    return found


# ---- what is written ------------------------------------------------------------------------------------------------------------------


def written(rows):
    return ",\n".join("    " + json.dumps({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}) for row in rows)


def closed_forms():
    """The entries of the file that no source tells: see its note."""
    with open("hardware/residuals.json", encoding="utf-8") as file:
        return [entry for entry in json.load(file)["residuals"] if entry["when"].get("basis") == "closed form"]


def write_residuals(bands, apart):
    with open("hardware/residuals.json", "w", encoding="utf-8") as file:
        file.write(
            '{\n  "schema": "plimsoll/residuals/2",\n'
            '  "note": "predicted / measured - 1 of published runs, each predicted without what was fitted on its own source: between low and high lie nine in ten '
            'of a source that had no part in the band. The first entry of a quantity whose words are all the run\'s is its own; bench/bands.py makes it",\n'
            '  "note_on_closed_forms": "a closed form is the uncompiled step in the place of the compiled one: its entries are those of compiled rows that have a '
            'lowering, predicted without it (silicon-h100, allocator-compiled, allocator-compiled-model); bench/bands.py keeps them",\n'
            '  "residuals": [\n' + written(bands) + "\n  ],\n"
            '  "note_on_differences": "of two runs that differ in their strategy alone and are predicted less than 22 % apart: by how much the predicted logarithm of '
            'their ratio overstates the measured one, 90th percentile",\n'
            '  "differences": [\n' + written(apart) + "\n  ]\n}\n")


def percent(share):
    return f"{100 * share:.0f} %"


def coverage_table(covered, residuals):
    names_of = {TIME: "step", "reserved_bytes": "reserved", "allocated_bytes": "allocated", "device_bytes": "device"}
    lines = ["| source | quantity | rows | left out: median, nine in ten, bias | inside |", "| --- | --- | --- | --- | --- |"]
    for (source, quantity), (rows, held) in sorted(covered.items(), key=lambda one: (QUANTITIES.index(one[0][1]), one[0][0])):
        errors = sorted(one.error for one in residuals if one.source == source and one.quantity == quantity)
        off = sorted(abs(error) for error in errors)
        lines.append(f"| {source} | {names_of[quantity]} | {rows:,} | {percent(middle(off, 0.5))}, {percent(middle(off, 0.9))}, {100 * middle(errors, 0.5):+.0f} % | {held:,} ({percent(held / rows)}) |")
    return lines


def mean_of_sources(held):
    count = counted(held, lambda one: one.source)
    return sum(inside_ / rows for rows, inside_ in count.values()) / len(count)


def write_between(path, marker, lines):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    begin, end = f"<!-- {marker}: written by ./dev bands -->", f"<!-- {marker}: end -->"
    if begin not in text:
        sys.exit(f"{path} has no place for {marker}")
    head, rest = text.split(begin, 1)
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + "\n".join([begin, *lines, end]) + rest.split(end, 1)[1])


def left_out_errors(held):
    """For the README: of every file and quantity what predictions missed by without its source, and how many the others' bands hold."""
    files = {}
    for one, lies_inside in held:
        files.setdefault(one.name, {}).setdefault(one.quantity, []).append((abs(one.error), lies_inside))

    def told(rows):
        errors = sorted(error for error, _ in rows)
        return {"median": middle(errors, 0.5), "ninetieth": middle(errors, 0.9), "rows": len(rows), "inside": sum(lies_inside for _, lies_inside in rows)}

    return {name: {quantity: told(rows) for quantity, rows in of_name.items()} for name, of_name in files.items()}


def predicted_without(program):
    """Every row as it is predicted without what was fitted on its source; and all steps as they are predicted with it."""
    residuals, in_sample = [], []
    for name in names():
        in_sample += [row for row in program.rows(name) if row["quantity"] == TIME]
        changes, said = changes_without(program, source_of(name))
        rows = program.rows(name, hardware_with(changes) if changes else None)
        residuals += [Residual(source_of(name), name, row) for row in rows]
        print(f"{name}: {len(rows)} quantities" + (f"; without it {', '.join(said)}" if said else ""), flush=True)
    return residuals, in_sample


def main():
    os.chdir(ROOT)
    os.makedirs(KEPT, exist_ok=True)
    residuals, in_sample = predicted_without(Program(os.path.abspath(sys.argv[1])))
    bands, held = entries(residuals), held_by_others(residuals)
    for what, of_these in (("time", [one for one in held if one[0].quantity == TIME]), ("memory", [one for one in held if one[0].quantity != TIME])):
        print(f"{what}: {sum(one for _, one in of_these)} of {len(of_these)} rows of sources left out inside, {percent(mean_of_sources(of_these))} in the mean of sources")
    write_residuals(closed_forms() + bands, differences(in_sample))
    write_between("docs/validate.md", "coverage", coverage_table(counted(held, lambda one: (one.source, one.quantity)), residuals))
    with open(f"{KEPT}/left_out.json", "w", encoding="utf-8") as file:
        json.dump(left_out_errors(held), file, indent=1)


if __name__ == "__main__":
    main()
