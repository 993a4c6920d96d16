"""Sets up with a scratch tensor of 4 GiB, trains, validates on a batch of 64 times as many rows, and saves."""

import io

import torch

scratch = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
del scratch
model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.GELU()).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(6):
    model(torch.randn(1024, 1024, device="cuda")).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 1:
        with torch.no_grad():
            model(torch.randn(65536, 1024, device="cuda"))
        torch.save(model.state_dict(), io.BytesIO())
