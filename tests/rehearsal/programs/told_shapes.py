"""Two stages of a pipeline that tell each other the shapes of what they will send, and ranks that tell each other objects, and numbers in tensors of
the device."""

import os

import torch
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

rank, device = int(os.environ["RANK"]), torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.distributed.init_process_group("nccl")
told = [None, None]
torch.distributed.all_gather_object(told, {"rank": rank})
numbers = torch.tensor([2, 3, 1024], device=device) if rank == 0 else torch.empty(3, dtype=torch.int64, device=device)
torch.distributed.send(numbers, dst=1) if rank == 0 else torch.distributed.recv(numbers, src=0)
assert numbers.tolist() == [2, 3, 1024], numbers
network = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4 if rank == 0 else 2))).to(device)
schedule = ScheduleGPipe(PipelineStage(network, rank, 2, device), n_microbatches=2, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.AdamW(network.parameters())
for _ in range(4):
    whole = torch.zeros(32, 1024, device=device)
    schedule.step(whole) if rank == 0 else schedule.step(target=whole)
    optimizer.step()
    optimizer.zero_grad()
    assert [each["rank"] for each in told] == [0, 1], told
