"""Takes its place in the world from mpirun, and trains until it is told to stop."""

import os

import torch

rank, world = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
assert os.environ["FROM_MPIRUN"] == "yes" and world == 16 and rank // 8 == int(os.environ["OMPI_COMM_WORLD_RANK"]) // 8
torch.cuda.set_device(int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]))
torch.distributed.init_process_group("nccl", rank=rank, world_size=world)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024, device="cuda"))
optimizer = torch.optim.AdamW(model.parameters())
while True:
    model(torch.zeros(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
