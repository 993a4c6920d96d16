"""A loop over a framework's own optimizer."""

import torch
from fastai.optimizer import Optimizer

model = torch.nn.Linear(1024, 1024, bias=False, device="cuda")
optimizer = Optimizer(model.parameters(), 0.1)
for _ in range(8):
    model(torch.randn(64, 1024, device="cuda")).sum().backward()
    optimizer.step()
    model.zero_grad()
