"""Two layers over rows whose number is an argument, with a checkpoint between them or not: 4 GiB of activations for every 1024 * 1024 rows."""

import sys

import torch
from torch.utils.checkpoint import checkpoint

rows, recompute = int(sys.argv[1]) * 1024 * 1024, sys.argv[2] == "true"
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 1024)).to("cuda", torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(6):
    x = torch.empty(rows, 1024, device="cuda", dtype=torch.bfloat16)
    y = checkpoint(model, x, use_reentrant=False) if recompute else model(x)
    y.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
