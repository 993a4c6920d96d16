"""Fully sharded, saves a distributed checkpoint between steps."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).cuda()
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(6):
    model(torch.randn(8, 256, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 1:
        dcp.save({"model": model.state_dict()}, checkpoint_id=tempfile.mkdtemp())
