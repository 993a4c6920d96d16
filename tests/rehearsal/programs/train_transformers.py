"""Trains a transformers model as a measured row says (bench/corpus/allocator-transformers.json): one device, DDP or FSDP2, with or without
LoRA. An ordinary training program: it knows nothing of a rehearsal."""

import argparse
import contextlib
import json
import os

import torch
import transformers
from torch.distributed.device_mesh import init_device_mesh

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--row", required=True, help="the row's JSON: model and training")
    parser.add_argument("--wrap", default="LlamaDecoderLayer", help="class of the block")
    parser.add_argument("--steps", type=int, default=4)
    return parser.parse_args()


def build(model, training):
    config = transformers.AutoConfig.for_model(model["model_type"], **model["config"])
    config._attn_implementation = training["attention"].split()[0]
    kind = getattr(transformers, model["class"])
    with torch.device("meta"):
        torch.set_default_dtype(DTYPES[training["param_dtype"]])
        network = kind(config)
        torch.set_default_dtype(torch.float32)
    network.config.use_cache = False
    return network


def shard(network, blocks, training, mesh):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=DTYPES[training["fsdp"]["reduce_dtype"]])
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(network, mesh=mesh, mp_policy=policy)


def adapt(network, training):
    import peft

    lora = training["lora"]
    network = peft.get_peft_model(
        network,
        peft.LoraConfig(
            r=lora["r"],
            lora_alpha=2 * lora["r"],
            lora_dropout=lora.get("dropout", 0.0),
            target_modules=lora["target_modules"],
            task_type="CAUSAL_LM",
        ),
    )
    if training.get("recompute") == "full":
        network.enable_input_require_grads()
    return network


def blocks_of(network, options):
    return [module for module in network.modules() if type(module).__name__ == options.wrap]


def distribute(network, options, training, device):
    kind = training.get("data_parallel", "none")
    if kind == "fsdp2":
        network = shard(network, blocks_of(network, options), training, init_device_mesh("cuda", (training["dp"],)))
    network = network.to_empty(device=device)
    if kind != "fsdp2":
        network.tie_weights()
    if kind == "ddp":
        network = torch.nn.parallel.DistributedDataParallel(network, device_ids=[device.index])
    return network


def main():
    options = arguments()
    row = json.loads(options.row)
    model, training = row["model"], row["training"]
    if training.get("compile") != "model":  # the rows were measured without cuDNN, but for those of whole compiled models
        torch.backends.cuda.enable_cudnn_sdp(False)
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    if training.get("dp", 1) > 1:
        torch.distributed.init_process_group("nccl")
    network = build(model, training)
    if training.get("recompute") == "full":
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": training.get("recompute_reentrant", False)})
    if "lora" in training:
        network = adapt(network, training)
    network = distribute(network, options, training, device)
    network.train()
    if training.get("compile") == "model":
        network.compile()
    elif training.get("compile"):
        for block in blocks_of(network, options):
            block.compile()
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    implementation = training.get("optimizer_impl", "foreach")
    optimizer = torch.optim.AdamW(
        parameters, lr=1e-4, **({} if implementation == "foreach" else {"fused": True} if implementation == "fused" else {"foreach": False})
    )
    shape = (training["micro_batch"], training["seq_len"])
    ids, labels = (torch.zeros(shape, dtype=torch.long, device=device) for _ in range(2))
    for step in range(options.steps):
        cast = torch.autocast("cuda", dtype=DTYPES[training["autocast"]]) if training.get("autocast") else contextlib.nullcontext()
        with cast:
            loss = network(input_ids=ids, labels=labels).loss
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad()


main()
