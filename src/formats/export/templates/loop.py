"""Trains a causal language model with a loop of its own: one device, DDP, FSDP, or DeepSpeed, as training_arguments.json says.

    torchrun --nproc-per-node 8 train.py training_arguments.json

Without weights beside the model's config.json it starts from scratch; --empty-weights leaves them unset: the shapes of training without its
numbers. The tokens are one and the same throughout: put your data in the place of `batches`.
"""

import argparse
import contextlib
import functools
import json
import os

import torch
import transformers

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def has_weights(path):
    return not os.path.isdir(path) or any(name.endswith((".safetensors", ".bin")) for name in os.listdir(path))


def half_of(said):
    return torch.bfloat16 if said.get("bf16") else torch.float16 if said.get("fp16") else None


def build(said, empty, dtype):
    path = said["model_name_or_path"]
    if has_weights(path) and not empty:
        return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype, attn_implementation=said["attn_implementation"])
    config = transformers.AutoConfig.from_pretrained(path)
    config._attn_implementation = said["attn_implementation"]
    kind = getattr(transformers, config.architectures[0])
    torch.set_default_dtype(dtype)
    with torch.device("meta") if empty else contextlib.nullcontext():
        network = kind(config)
    torch.set_default_dtype(torch.float32)
    return network


def prepare(network, said):
    network.config.use_cache = False
    recompute = said.get("activation_checkpointing") or said.get("gradient_checkpointing")
    if recompute:
        kwargs = said.get("activation_checkpointing_kwargs") or said.get("gradient_checkpointing_kwargs") or {"use_reentrant": False}
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)
    if said.get("use_peft"):
        import peft

        targets = said["lora_target_modules"]
        network = peft.get_peft_model(
            network,
            peft.LoraConfig(
                r=said["lora_r"],
                lora_alpha=said["lora_alpha"],
                lora_dropout=said["lora_dropout"],
                target_modules=targets[0] if targets == ["all-linear"] else targets,
                modules_to_save=said.get("lora_modules_to_save"),
                use_dora=said.get("use_dora", False),
                task_type="CAUSAL_LM",
            ),
        )
        if recompute:
            network.enable_input_require_grads()
    return network


def layer_classes(network, said):
    if said["fsdp_config"].get("auto_wrap_policy") == "NO_WRAP":
        return set()
    names = said["fsdp_config"].get("transformer_layer_cls_to_wrap") or network._no_split_modules
    names = names.split(",") if isinstance(names, str) else names
    return {type(module) for module in network.modules() if type(module).__name__ in names}


def fully_sharded(network, said, device):
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    half = half_of(said)
    options = {
        "mp_policy": MixedPrecisionPolicy(param_dtype=half, reduce_dtype=half),
        "reshard_after_forward": said["fsdp_config"].get("reshard_after_forward", True),
        "mesh": torch.distributed.device_mesh.init_device_mesh("cuda", (torch.distributed.get_world_size(),)),
        "offload_policy": CPUOffloadPolicy() if said["fsdp_config"].get("offload_params") else OffloadPolicy(),
    }
    kinds = tuple(layer_classes(network, said))
    for module in [module for module in network.modules() if isinstance(module, kinds)]:
        fully_shard(module, **options)
    return fully_shard(network, **options)


def first_policy(network, said):
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy, size_based_auto_wrap_policy

    config = said["fsdp_config"]
    if config.get("auto_wrap_policy") == "SIZE_BASED_WRAP":
        return functools.partial(size_based_auto_wrap_policy, min_num_params=int(config["min_num_params"]))
    classes = layer_classes(network, said)
    return ModuleWrapPolicy(classes) if classes else None


def first_fsdp(network, said, device, empty):
    from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, MixedPrecision, ShardingStrategy

    half, config = half_of(said), said["fsdp_config"]
    prefetch = config.get("backward_prefetch", "NO_PREFETCH")
    return FullyShardedDataParallel(
        network,
        sharding_strategy=ShardingStrategy[config.get("reshard_after_forward", "FULL_SHARD")],
        auto_wrap_policy=first_policy(network, said),
        backward_prefetch=None if prefetch == "NO_PREFETCH" else BackwardPrefetch[prefetch],
        forward_prefetch=bool(config.get("forward_prefetch", False)),
        mixed_precision=MixedPrecision(param_dtype=half, reduce_dtype=half, buffer_dtype=half) if half else None,
        use_orig_params=config.get("use_orig_params", True),
        device_id=device,
        param_init_fn=(lambda module: module.to_empty(device=device, recurse=False)) if empty else None,
    )


def on_device(network, device, empty):
    return network.to_empty(device=device) if empty else network.to(device)


def distribute(network, said, device, empty):
    version = said["fsdp_config"].get("version", 2) if said.get("fsdp") else 0
    if version == 2:
        return on_device(fully_sharded(network, said, device), device, empty)
    if version == 1:
        return first_fsdp(network, said, device, empty)
    network = on_device(network, device, empty)
    if empty:
        network.tie_weights()
    if torch.distributed.is_initialized():
        options = {key[4:]: said[key] for key in ("ddp_bucket_cap_mb", "ddp_find_unused_parameters", "ddp_static_graph") if key in said}
        network = torch.nn.parallel.DistributedDataParallel(network, device_ids=[device.index], **options)
    return network


def optimizer_of(network, said):
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optim = said.get("optim", "adamw_torch_fused")  # what transformers takes where nothing is said
    if optim == "sgd":
        return torch.optim.SGD(parameters, lr=1e-4)
    if optim not in ("adamw_torch", "adamw_torch_fused"):
        raise SystemExit(f"this loop has no optimizer {optim}: export --to accelerate")
    return torch.optim.AdamW(parameters, lr=1e-4, **({"fused": True} if optim == "adamw_torch_fused" else {}))


def batches(said, device):
    ids, labels = (torch.zeros(said["per_device_train_batch_size"], said["block_size"], dtype=torch.long, device=device) for _ in range(2))
    while True:
        yield {"input_ids": ids, "labels": labels}


def synchronised(network, last):
    if last or not torch.distributed.is_initialized():
        return contextlib.nullcontext()
    if hasattr(network, "no_sync"):
        return network.no_sync()
    network.set_requires_gradient_sync(False)
    return contextlib.nullcontext()


def train(network, said, device, steps):
    half = half_of(said) if not said.get("fsdp") else None
    optimizer, data = optimizer_of(network, said), batches(said, device)
    for step in range(steps):
        for part in range(said["gradient_accumulation_steps"]):
            last = part + 1 == said["gradient_accumulation_steps"]
            with synchronised(network, last):
                if last and hasattr(network, "set_requires_gradient_sync"):
                    network.set_requires_gradient_sync(True)
                with torch.autocast("cuda", dtype=half) if half else contextlib.nullcontext():
                    loss = network(**next(data)).loss
                loss.backward()
                del loss
        if said["max_grad_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(network.parameters(), said["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()


def train_with_deepspeed(said, empty, steps):
    import deepspeed

    with open(said["deepspeed"]) as file:
        configuration = json.load(file)
    deepspeed.init_distributed()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    dtype = torch.bfloat16 if configuration["bf16"]["enabled"] else torch.float32
    if "fp16" in configuration and configuration["fp16"]["enabled"]:
        dtype = torch.float16
    if configuration["zero_optimization"]["stage"] == 3:
        from torch import _dynamo  # noqa: F401, before zero.Init, which puts a function of its own in the place of Tensor.__new__

        with deepspeed.zero.Init(config_dict_or_path=configuration):
            network = build(said, False, dtype)
    else:
        network = on_device(build(said, empty, dtype), device, empty)
        network.tie_weights()
    network = prepare(network, said)
    network.train()
    engine, *_ = deepspeed.initialize(model=network, config=configuration, model_parameters=[one for one in network.parameters() if one.requires_grad])
    data = batches(said, device)
    for _ in range(steps * said["gradient_accumulation_steps"]):
        loss = engine(**next(data)).loss
        engine.backward(loss)
        del loss
        engine.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("arguments")
    parser.add_argument("--empty-weights", action="store_true")
    parser.add_argument("--local_rank", type=int, default=0, help="DeepSpeed's launcher gives it")
    options = parser.parse_args()
    with open(options.arguments) as file:
        said = json.load(file)
    if said.get("deepspeed"):  # it stands beside the arguments
        said["deepspeed"] = os.path.join(os.path.dirname(options.arguments), said["deepspeed"])
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = said.get("tf32", False)
    if said.get("deepspeed"):
        return train_with_deepspeed(said, options.empty_weights, said["max_steps"])
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        torch.distributed.init_process_group("nccl")
    network = prepare(build(said, options.empty_weights, DTYPES[said["dtype"]]), said)
    network = distribute(network, said, device, options.empty_weights)
    network.train()
    train(network, said, device, said["max_steps"])


main()
