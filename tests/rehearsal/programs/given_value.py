"""Takes another path where its loss is large: on a value that no device computes, or that follows from one which was assumed."""

import torch

model = torch.nn.Linear(4096, 4096, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    loss = model(torch.ones(8, 4096, device="cuda")).pow(2).mean()
    if loss.item() > 2:
        raise ValueError("a large loss")
    bits = loss.log2()
    read = bits.item()
    if read > 2:
        raise ValueError(f"{read} bits")
    loss.backward()
    optimizer.step()
