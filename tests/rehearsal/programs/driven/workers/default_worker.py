"""A worker in Ray's manner: a process of that name, which is told its rank in a call."""

import os
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import ray  # noqa: E402, F401 (as its workers do first of all)

os.environ.update(RANK=sys.argv[1], LOCAL_RANK=sys.argv[1], WORLD_SIZE=sys.argv[2], MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.distributed.init_process_group("nccl")
said = [None] * 2
torch.distributed.all_gather_object(said, torch.distributed.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda())
optimizer = torch.optim.AdamW(model.parameters())
while said == [0, 1]:
    model(torch.randn(16, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
