#!/usr/bin/env python3
"""Which model types of transformers play by its own code, from the defaults of their configurations.

    python3 bench/code_types.py build/default/plimsoll transformers-5.24.0-py3-none-any.whl [--types FILE] [--json OUT] [TYPE ...]

Without TYPE: every type with a class for one of the tasks that --code models, read from the wheel's own tables. Prints how many play and
which names the others are refused by, the commonest first.
"""
import argparse
import ast
import collections
import concurrent.futures
import json
import os
import re
import subprocess
import zipfile

TABLES = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
          "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES", "MODEL_FOR_CTC_MAPPING_NAMES",
          "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES")


def types_of(package):
    """The keys of the tables, read as text."""
    if os.path.isdir(package):
        with open(os.path.join(package, "models/auto/modeling_auto.py"), encoding="utf-8") as file:
            text = file.read()
    else:
        text = zipfile.ZipFile(package).read("transformers/models/auto/modeling_auto.py").decode()
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in TABLES:
            for pair in ast.walk(node.value):
                is_pair = isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and isinstance(pair.elts[0], ast.Constant)
                if is_pair and not pair.elts[0].value[0].isupper():  # of two classes of one type
                    found.setdefault(pair.elts[0].value, None)
    return list(found)


def played(program, package, model_type, seconds, extra):
    """The refusal of one type, or None. Longer texts are tried where a type asks for one length, a second of sound where 64 samples are shorter
    than an encoder's windows."""
    for length in ("64", "2048", "4096", "16000"):
        line = [program, "estimate", model_type, "--code", package, "--on", "1xh200", "--seq", length, "--micro-batch", "1", "--precision", "pure-bf16", "--optimizer", "sgd", *extra]
        try:
            done = subprocess.run(line, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return "more than %d seconds" % seconds
        if done.returncode in (0, 1):
            return None
        error = (done.stderr.strip() or "exit code %d" % done.returncode).splitlines()[0]
        if not re.search(r"Kernel size can't be greater|has to be smaller than `sequence_length`|to match target batch_size|multiply to sequence length|read by the host", error):
            break
    return error


def name_of(error):
    """The refusal without its place."""
    text = re.sub(r"^plimsoll: ", "", error)
    text = re.sub(r"^\S+?\.py:\d+:\d+: |^plimsoll:\S+?:\d+:\d+: |^\S+\.(whl|json|py)\S*: ", "", text)
    return text[:110]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("package")
    parser.add_argument("types", nargs="*")
    parser.add_argument("--json", help="writes each type's outcome")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    options, extra = parser.parse_known_args()
    types = options.types or types_of(options.package.split(",")[0])  # others are beside transformers
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        outcomes = dict(zip(types, pool.map(lambda t: played(options.program, options.package, t, options.seconds, extra), types)))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(outcomes, file, indent=1)
    groups = collections.defaultdict(list)
    for model_type, error in outcomes.items():
        if error is not None:
            groups[name_of(error)].append(model_type)
    print("%d of %d types play" % (sum(error is None for error in outcomes.values()), len(types)))
    for name, of in sorted(groups.items(), key=lambda group: -len(group[1])):
        print("%4d  %s   (%s)" % (len(of), name, ", ".join(of[:4])))


if __name__ == "__main__":
    main()
