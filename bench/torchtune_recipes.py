#!/usr/bin/env python3
"""Reads the recipes that torchtune ships, which `tune run` takes by name, into models/torchtune-recipes.json.

    pip install --no-deps torchtune pyyaml && python3 bench/torchtune_recipes.py SITE-PACKAGES models/torchtune-recipes.json

Kept are the keys that decide a step, of those that docs/formats/torchtune.md lists; paths, data sets, loggers and profilers are left out."""
import importlib.metadata
import json
import pathlib
import sys

import yaml

KEPT = ("model", "tokenizer", "dataset", "batch_size", "gradient_accumulation_steps", "optimizer", "optimizer_in_bwd", "loss", "clip_grad_norm", "compile",
        "dtype", "device", "enable_activation_checkpointing", "enable_activation_offloading", "ac_mode", "ac_option", "custom_sharded_layers", "fsdp_cpu_offload",
        "fsdp_reshard_after_forward", "tensor_parallel_dim", "data_parallel_replicate_dim", "data_parallel_shard_dim", "context_parallel_dim",
        "enable_fp8_training", "quantizer", "fake_quant_after_n_steps", "tasks", "prompt", "teacher_model", "kd_loss", "kd_ratio", "ppo_epochs", "policy_model",
        "reward_and_value_model", "max_generated_tokens", "checkpointer", "ref_checkpointer")
INNER = {"tokenizer": ("_component_", "max_seq_len"), "dataset": ("_component_", "packed"), "checkpointer": ("_component_",), "ref_checkpointer": ("_component_",),
         "optimizer": ("_component_", "fused")}


def kept(recipe):
    found = {}
    for key in KEPT:
        if key not in recipe:
            continue
        value = recipe[key]
        if key in INNER and isinstance(value, dict):
            value = {inner: value[inner] for inner in INNER[key] if inner in value}
        found[key] = value
    return found


def main():
    packages, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    (distribution,) = importlib.metadata.distributions(name="torchtune", path=[str(packages)])
    folder = packages / "recipes" / "configs"
    recipes = {}
    for path in sorted(folder.rglob("*.yaml")):
        recipe = yaml.safe_load(path.read_text())
        if isinstance(recipe, dict) and "model" in recipe and "optimizer" in recipe:
            recipes[str(path.relative_to(folder).with_suffix(""))] = kept(recipe)
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(recipe)}" for name, recipe in recipes.items())
    source = "the wheel's recipes/configs (BSD-3-Clause); read by bench/torchtune_recipes.py"
    out.write_text(f'{{"release": "torchtune {distribution.version}", "source": {json.dumps(source)}, "recipes": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
