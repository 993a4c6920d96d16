"""Takes another path where its loss is large: on a value that no device computes."""

import torch

model = torch.nn.Linear(4096, 4096, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    loss = model(torch.ones(8, 4096, device="cuda")).pow(2).mean()
    if loss.item() > 2:
        raise ValueError(f"a loss of {loss.item()}")
    loss.backward()
    optimizer.step()
