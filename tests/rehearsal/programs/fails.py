"""Fails on a value: a loss that the device never computed."""

import torch

weights = torch.nn.Linear(8, 8, device="cuda")
loss = weights(torch.ones(8, 8, device="cuda")).sum().item()
if loss < 1:
    raise ValueError("the loss vanished")
