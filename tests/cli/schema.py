"""Real output of `estimate --json` against docs/schema/estimate-1.schema.json, by the subset of JSON Schema that it uses."""
import copy
import json
import os

from driver import SOURCE, Checks, run

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float)}
KNOWN = {"$schema", "title", "$defs", "$ref", "const", "enum", "type", "minimum", "required", "properties", "additionalProperties", "items", "minItems", "oneOf"}


def of_type(value, name):
    return isinstance(value, TYPES[name]) and not isinstance(value, bool)


def faults(value, schema, root, at="#"):
    """Everything in which the value breaks the schema."""
    assert set(schema) <= KNOWN, f"the test does not know {set(schema) - KNOWN}"
    if "$ref" in schema:
        target = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return faults(value, target, root, at)
    found = []
    if "const" in schema and value != schema["const"]:
        found.append(f"{at}: is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is none of {schema['enum']}")
    if "oneOf" in schema and sum(not faults(value, option, root, at) for option in schema["oneOf"]) != 1:
        found.append(f"{at}: matches not exactly one of the options")
    if "type" in schema and not of_type(value, schema["type"]):
        return found + [f"{at}: is no {schema['type']}"]
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{at}: {value} is less than {schema['minimum']}")
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            found.append(f"{at}: too few")
        for i, item in enumerate(value):
            found += faults(item, schema.get("items", {}), root, f"{at}/{i}")
    if isinstance(value, dict):
        found += [f"{at}: {key} is missing" for key in schema.get("required", []) if key not in value]
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
            found += [f"{at}/{key}: is not allowed"] if inner is False else faults(item, inner, root, f"{at}/{key}")
    return found


def expected(quantity):
    return quantity["expected"] if isinstance(quantity, dict) else quantity


RUNS = [
    ["llama-3.1-8b", "--on", "8xmi300x", "--fsdp", "full", "--micro-batch", "2", "--seq", "8192"],
    ["llama-3.1-8b", "--on", "1xh100-sxm", "--micro-batch", "8", "--seq", "8192"],
    ["llama-3.1-405b", "--on", "2048x8xh100-sxm", "--framework", "megatron", "--tp", "8", "--pp", "16", "--micro-batch", "1", "--global-batch", "2048",
     "--seq", "8192"],
    ["gpt2", "--on", "1xh100-sxm", "--micro-batch", "8", "--seq", "1024"],
]


def main():
    checks = Checks()
    with open(os.path.join(SOURCE, "docs", "schema", "estimate-1.schema.json"), encoding="utf-8") as file:
        schema = json.load(file)
    report = None
    for arguments in RUNS:
        told = " ".join(arguments)
        result = run("estimate", *arguments, "--json")
        checks.check(result.code in (0, 1), f"{told}: exit {result.code}: {result.err[:300]}")
        if result.code not in (0, 1):
            continue
        report = json.loads(result.out)
        found = faults(report, schema, schema)
        checks.check(not found, f"{told}: {found[:5]}")
        checks.check((report["verdict"] == "does_not_fit") == (result.code == 1), f"{told}: {report['verdict']} but exit {result.code}")
        for rank in report["ranks"]:
            memory = rank["memory"]
            total = sum(memory["categories"].values())
            checks.check(abs(total - expected(memory["device_bytes"])) <= 1, f"{told}: categories add up to {total}, not {memory['device_bytes']}")
            checks.check(expected(memory["allocated_bytes"]) <= expected(memory["reserved_bytes"]) <= expected(memory["device_bytes"]),
                         f"{told}: allocated, reserved and device are not in order")
        parts, step = sum(report["time"]["breakdown"].values()), expected(report["time"]["step_seconds"])
        checks.check(abs(parts - step) < 1e-6 * step, f"{told}: the breakdown adds up to {parts}, the step is {step}")
    if report:
        # The validator itself can fail: each of these breaks the schema in one place.
        for key, value in [("verdict", "perhaps"), ("ranks", []), ("notes", [3]), ("memory", {}), ("extra", 1)]:
            broken = copy.deepcopy(report)
            broken[key] = value
            checks.check(bool(faults(broken, schema, schema)), f"a report with {key} = {value!r} passes the schema")
    checks.finish()


main()
