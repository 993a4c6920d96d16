"""An optimizer for every parameter, which steps as soon as its gradient has come, and layers that run again within the backward pass."""

import torch
from torch.utils.checkpoint import checkpoint

layers = [torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU()).cuda() for _ in range(20)]
optimizers = {}


def step(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for layer in layers:
    for parameter in layer.parameters():
        optimizers[parameter] = torch.optim.AdamW([parameter])
        parameter.register_post_accumulate_grad_hook(step)
for _ in range(4):
    rows = torch.ones(64, 1024, device="cuda")
    for layer in layers:
        rows = checkpoint(layer, rows, use_reentrant=False)
    rows.pow(2).mean().backward()
