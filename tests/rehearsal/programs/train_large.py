"""A decoder of a config.json, on one device or fully sharded over the world; says what each step took on the host."""

import os
import sys
import time

import torch
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

world = int(os.environ.get("WORLD_SIZE", "1"))
with torch.device("meta"):
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(sys.argv[1]), dtype=torch.bfloat16)
if world > 1:
    model.gradient_checkpointing_enable()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (world,))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
model.to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters())
ids = torch.zeros(1, 2048, dtype=torch.long, device="cuda")
best = float("inf")
for step in range(6):
    wall, cpu = time.perf_counter(), time.process_time()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step > 0:
        best = min(best, time.process_time() - cpu)
    print(f"step {step}: {time.perf_counter() - wall:.3f} s; of the processor at least {best:.3f} s", file=sys.stderr, flush=True)
