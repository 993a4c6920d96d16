"""DeepSpeed as its launcher starts it: the local rank as an argument, everything else in a file."""

import argparse

import deepspeed
import torch

parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
parser.add_argument("--local_rank", type=int, required=True)
options = parser.parse_args()
deepspeed.init_distributed()
model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU()) for _ in range(4)))
engine, _, _, _ = deepspeed.initialize(args=options, model=model, model_parameters=model.parameters())
assert engine.world_size == 8 and options.local_rank == engine.local_rank
for _ in range(4):
    loss = engine(torch.zeros(4, 2048, dtype=torch.bfloat16, device=engine.device)).float().pow(2).mean()
    engine.backward(loss)
    engine.step()
