"""A decoder of a config.json, on one device or fully sharded over the world; says what its steps took of the processor, in lengths of a loop of
plain Python that runs between them: what else the machine does slows both."""

import os
import statistics
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


def plain_loop():
    table = {}
    for i in range(1_000_000):
        table[i & 1023] = [i]


def of_the_processor(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def step():
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()


step()  # the first makes the optimizer's states
loops, steps = [], []
for number in range(1, 10):
    loops.append(of_the_processor(plain_loop))
    steps.append(of_the_processor(step))
    # the usual one: the step whose host's work is counted takes about twice as long
    usual = statistics.median(steps)
    print(f"step {number}: steps take {usual / statistics.mean(loops):.2f} loops of the processor, {usual:.3f} s", file=sys.stderr, flush=True)
