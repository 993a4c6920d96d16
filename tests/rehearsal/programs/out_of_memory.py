"""Keeps what it allocates, until there is no more."""

import torch

held = []
weights = torch.nn.Linear(8192, 8192, device="cuda")
optimizer = torch.optim.SGD(weights.parameters(), lr=0.1)
while True:
    held.append(weights(torch.ones(65536, 8192, device="cuda")))  # 2 GiB each
    held[-1].sum().backward(retain_graph=True)
    optimizer.step()
