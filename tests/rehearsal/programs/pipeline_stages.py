"""Equal stages under a schedule of torch.distributed.pipelining; `given`: their shapes are, so that no stage asks another for them."""

import os
import sys

import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

schedule, micro_batches, given = sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3
torch.distributed.init_process_group("nccl")
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
network = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096, bias=False) for _ in range(4))).to(device)
example = torch.zeros(512, 4096, device=device, requires_grad=rank > 0)
shapes = {"input_args": (example,), "output_args": (network(example),)} if given else {}
stage = PipelineStage(network, rank, world, device, **shapes)
made = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}[schedule](stage, micro_batches, loss_fn=lambda output, target: (output - target).pow(2).mean())
optimizer = torch.optim.SGD(network.parameters(), 0.1)
for _ in range(4):
    batch = torch.zeros(512 * micro_batches, 4096, device=device)
    made.step(*([batch] if rank == 0 else []), **({"target": batch} if rank == world - 1 else {}))
    optimizer.step()
    optimizer.zero_grad()
