"""Predicts every measured row of bench/corpus and writes the README's table of errors between its markers."""
import glob
import json
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
BEGIN, END = "<!-- accuracy: written by ./dev accuracy -->", "<!-- accuracy: end -->"


def validated(program, path):
    """The summary of one corpus file."""
    result = subprocess.run([program, "validate", path, "--json"], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{path}: {result.stderr}")
    return json.loads(result.stdout)


def percent(value):
    digits = 2 if value < 0.01 else 1 if value < 0.1 else 0
    return f"{100 * value:.{digits}f} %"


def errors(summary, quantity):
    for entry in summary["quantities"]:
        if entry["quantity"] == quantity:
            return f"{percent(entry['median'])}, {percent(entry['ninetieth'])}", entry
    return "not stated", None


def verdicts(summary):
    if not summary["fits"]:
        return "not stated"
    fits = summary["fits"][0]
    right = sum(value for key, value in fits.items() if key.endswith("_right"))
    wrong = sum(value for key, value in fits.items() if key.endswith("_wrong"))
    return "all right" if wrong == 0 else f"{right} of {right + wrong} right"


def played(entry):
    """How many of the rows were played through the allocator; the others are closed forms."""
    if entry is None:
        return "-"
    closed = entry["closed_form"]
    return "all" if closed == 0 else "none" if closed == entry["rows"] else f"{entry['rows'] - closed} of {entry['rows']}"


def row_of(program, path):
    found = validated(program, path)
    summary = found["summary"]
    source = summary["sources"][0]
    allocated, first = errors(summary, "allocated_bytes")
    reserved, second = errors(summary, "reserved_bytes")
    if first is None and second is None:
        return None
    rows = f"{source['predicted']} of {source['rows']}" if source["predicted"] != source["rows"] else str(source["rows"])
    name = os.path.basename(path)[: -len(".json")]
    return f"| {name} | {rows} | {played(first or second)} | {allocated} | {reserved} | {verdicts(summary)} |"


def main():
    program = os.path.abspath(sys.argv[1])
    lines = ["| rows of bench/corpus | predicted | played | allocated: median, nine in ten | reserved: median, nine in ten | fits or not |",
             "| --- | --- | --- | --- | --- | --- |"]
    os.chdir(ROOT)
    for path in sorted(glob.glob("bench/corpus/*.json")):
        row = row_of(program, path)
        if row:
            lines.append(row)
            print(row, flush=True)
    with open("README.md", encoding="utf-8") as file:
        readme = file.read()
    if BEGIN not in readme or END not in readme:
        sys.exit("README.md has no place for the table: " + BEGIN)
    head, rest = readme.split(BEGIN, 1)
    with open("README.md", "w", encoding="utf-8") as file:
        file.write(head + BEGIN + "\n" + "\n".join(lines) + "\n" + END + rest.split(END, 1)[1])


if __name__ == "__main__":
    main()
