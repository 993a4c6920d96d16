"""Trains a transformers model under DeepSpeed as a measured row says (bench/corpus/allocator-deepspeed.json), or adapters of it
(allocator-deepspeed-lora.json)."""

import argparse
import json

import deepspeed
import torch
import transformers


torch.backends.cuda.enable_cudnn_sdp(False)  # the rows were measured without cuDNN


def adapt(network, training):
    import peft

    lora = training["lora"]
    network = peft.get_peft_model(
        network,
        peft.LoraConfig(
            r=lora["r"],
            lora_alpha=lora["alpha"],
            lora_dropout=lora["dropout"],
            target_modules=lora["target_modules"],
            modules_to_save=lora.get("modules_to_save"),
            use_dora=lora.get("use_dora", False),
            task_type="CAUSAL_LM",
        ),
        autocast_adapter_dtype=not training["zero_init"] or lora["adapter_dtype"] == "fp32",
    )
    if training.get("recompute") == "full":
        network.enable_input_require_grads()
    return network


def build(row, configuration):
    model, training = row["model"], row["training"]
    config = transformers.AutoConfig.for_model(model["model_type"], **model["config"])
    config._attn_implementation = training["attention"].split()[0]
    dtype = (
        torch.bfloat16
        if configuration.get("bf16", {}).get("enabled")
        else torch.float16 if configuration.get("fp16", {}).get("enabled") else torch.float32
    )
    network = getattr(transformers, model["class"])
    torch.set_default_dtype(dtype)
    if training.get("zero_init", configuration["zero_optimization"]["stage"] == 3):
        with deepspeed.zero.Init(config_dict_or_path=configuration):
            network = network(config)
    elif "lora" in training:
        network = network(config)  # on the host, which deepspeed.initialize moves
    else:
        with torch.device("meta"):
            network = network(config)
        network = network.to_empty(device="cuda")
        network.tie_weights()
    torch.set_default_dtype(torch.float32)
    network.config.use_cache = False
    return network


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--row", required=True)
    parser.add_argument("--local_rank", type=int, default=0)
    options = parser.parse_args()
    row = json.loads(options.row)
    training = row["training"]
    configuration = dict(training["deepspeed"])
    micro, accumulate = training["micro_batch"], training.get("grad_accum", 1)
    torch.cuda.set_device(options.local_rank)
    deepspeed.init_distributed()
    world = torch.distributed.get_world_size()
    configuration.update(
        train_micro_batch_size_per_gpu=micro,
        gradient_accumulation_steps=accumulate,
        train_batch_size=micro * accumulate * world,
        steps_per_print=10**9,
    )
    network = build(row, configuration)
    if training.get("recompute") == "full":
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": training.get("recompute_reentrant", False)})
    if "lora" in training:
        network = adapt(network, training)
    network.train()
    implementation = {"fused": {"fused": True}, "foreach": {}}.get(training.get("optimizer_impl"), {"foreach": False})
    client = None if "optimizer" in configuration else lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, **implementation)
    engine, *_ = deepspeed.initialize(model=network, config=configuration, optimizer=client, model_parameters=[parameter for parameter in network.parameters() if parameter.requires_grad])
    ids = torch.zeros(micro, training["seq_len"], dtype=torch.long, device="cuda")
    for _ in range(4):
        for _ in range(accumulate):
            loss = engine(input_ids=ids, labels=ids).loss
            engine.backward(loss)
            del loss
            engine.step()


main()
