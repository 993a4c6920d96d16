#!/usr/bin/env python3
"""Measured kernels of NVIDIA's aiconfigurator as samples of `plimsoll calibrate`.

    pip download --no-deps aiconfigurator-core==0.12.0 && unzip -d core aiconfigurator_core-*.whl
    bench/aiconfigurator.py core/aiconfigurator_core/systems/data/b200_sxm >samples.jsonl
    plimsoll calibrate --fit samples.jsonl --base b200 -o b200.json

Needs pyarrow. Of its tables those that a training step runs as they were timed: products of bf16 by cuBLAS (SGLang's rows, whose operands are
random) and of fp8 by cuBLASLt (TensorRT-LLM's, without the quantisation that is in them), and NCCL's collectives on one node. Attention is forward
alone, by kernels made for serving, into a paged cache: left out. Clocks were not locked: products that run for long were slowed down by their power
limit and are left out (--longest).
"""
import argparse
import collections
import glob
import json
import os
import re
import statistics
import sys

import pyarrow.parquet as parquet

KINDS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter", "alltoall": "all_to_all"}
# What of each engine's table is a library's product alone: (engine, their type) to (our type, what of the row's time is its operand's quantisation)
PRODUCTS = {("sglang", "bfloat16"): "bf16", ("trtllm", "fp8"): "fp8"}


def natural(path):
    """Versions in order: 2.9 before 2.10."""
    return [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", path)]


def tables(system, operation, engine, name):
    """Paths of one table, oldest version first."""
    return sorted(glob.glob(os.path.join(system, operation, engine, "*", name + ".parquet")), key=natural)


def largest(system, operation, engine, name):
    """The rows of the version that has most, the newest among equals; of a system without that table none."""
    best = []
    for path in tables(system, operation, engine, name):
        rows = parquet.read_table(path).to_pylist()
        if len(rows) >= len(best):
            best = rows
    return best


def quantisation(system):
    """Microseconds that turning an m x k operand to fp8 takes TensorRT-LLM: finding the scale and applying it."""
    parts = [{(row["m"], row["k"]): row["latency"] * 1e3 for row in largest(system, "quantize", "trtllm", name)} for name in ("computescale_perf", "scale_matrix_perf")]
    return {shape: sum(part[shape] for part in parts) for shape in parts[0] if all(shape in part for part in parts)}


def products(system, longest):
    """y[m, n] = x[m, k] W[n, k]^T in columns, as BLAS has it."""
    quantised = quantisation(system)
    for (engine, theirs), ours in PRODUCTS.items():
        for row in largest(system, "gemm", engine, "gemm_perf"):
            if row["gemm_dtype"] != theirs:
                continue
            microseconds = row["latency"] * 1e3
            if ours == "fp8":
                if (row["m"], row["k"]) not in quantised:
                    continue
                microseconds -= quantised[row["m"], row["k"]]
            if microseconds <= 0 or microseconds > longest or min(row["m"], row["n"], row["k"]) < 128:
                continue
            yield {"sample": "gemm", "kernel": "cublas" if ours == "bf16" else "cublaslt", "type": ours, "m": row["n"], "n": row["m"], "k": row["k"], "layout": "TN",
                   "flops": 2.0 * row["m"] * row["n"] * row["k"], "seconds": microseconds * 1e-6, "tool": "aiconfigurator"}


def collectives(system):
    """Of each kind, group and size the median of the newest release's runs; a release may have been run several times."""
    runs = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in tables(system, "comm", "nccl", "nccl_perf"):
        folder = path.split(os.sep)[-2]  # older than what some of its rows were run with
        for row in parquet.read_table(path).to_pylist():
            if row["nccl_dtype"] == "half":
                key = KINDS[row["op_name"]], row["num_gpus"], row["message_size"] * 2  # their sizes are elements
                runs[key][row.get("version") or folder].append(row["latency"])
    for (kind, ranks, size), by_version in sorted(runs.items()):
        newest = max(by_version, key=natural)
        yield {"sample": "collective", "kernel": kind, "group": kind, "type": "fp16", "bytes": size, "ranks": ranks, "nodes": 1,
               "seconds": statistics.median(by_version[newest]) * 1e-3, "tool": "nccl-tests " + newest}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("system", help="a folder of systems/data in the wheel aiconfigurator-core")
    arguments.add_argument("--longest", type=float, default=400, help="microseconds of the longest product that is kept (400)")
    options = arguments.parse_args()
    rows = [*products(options.system, options.longest), *collectives(options.system)]
    if not rows:
        sys.exit(f"{options.system}: no table of products or collectives that this script reads")
    device = largest(options.system, "gemm", "sglang", "gemm_perf") or largest(options.system, "comm", "nccl", "nccl_perf")
    print(json.dumps({"schema": "plimsoll/samples/1", "backend": "cuda", "name": device[0]["device"], "library": "aiconfigurator-core"}))
    for row in rows:
        row.setdefault("fastest", row["seconds"])
        row.setdefault("runs", 1)
        print(json.dumps(row))


if __name__ == "__main__":
    main()
