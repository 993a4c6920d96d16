"""Trains as the rank that its launcher names; with an argument, the rank of that number fails."""

import os
import sys

import torch

rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
assert torch.cuda.device_count() == 8 and int(os.environ["WORLD_SIZE"]) == 8
torch.cuda.set_device(local)
torch.distributed.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda(), device_ids=[local])
optimizer = torch.optim.AdamW(model.parameters())
for step in range(8):
    if len(sys.argv) > 1 and rank == int(sys.argv[1]) and step == 1:
        raise ValueError(f"rank {rank} is ill")
    model(torch.ones(4, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
