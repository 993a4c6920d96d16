"""Two stages of a network under torch.distributed.pipelining, 1F1B, four micro-batches."""

import os

import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

rank, device = int(os.environ["RANK"]), torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.distributed.init_process_group("nccl")
network = torch.nn.Sequential(
    *(torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.ReLU()) for _ in range(4 if rank == 0 else 2))
).to(device)
given = torch.zeros(8, 2048, device=device, requires_grad=rank > 0)
stage = PipelineStage(network, rank, 2, device, input_args=(given,), output_args=(network(given),))
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=lambda output, target: (output - target).pow(2).mean())
optimizer = torch.optim.AdamW(network.parameters())
for _ in range(4):
    whole = torch.zeros(32, 2048, device=device)
    schedule.step(whole) if rank == 0 else schedule.step(target=whole)
    optimizer.step()
    optimizer.zero_grad()
