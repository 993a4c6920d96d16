"""One process on two devices: 23 GiB of weights on each by hand, and a DataParallel of which the first device holds more."""

import sys

import torch


def by_hand():
    first = torch.nn.Linear(65536, 188416, bias=False, device="cuda:0", dtype=torch.bfloat16)
    second = torch.nn.Linear(188416, 65536, bias=False, device="cuda:1", dtype=torch.bfloat16)
    x = torch.randn(16, 65536, device="cuda:0", dtype=torch.bfloat16)
    return torch.nn.ModuleList((first, second)), lambda: second(first(x).to("cuda:1"))


def replicated():
    model = torch.nn.DataParallel(torch.nn.Sequential(*(torch.nn.Linear(8192, 8192) for _ in range(2))).cuda())
    x = torch.randn(1024, 8192, device="cuda")
    return model, lambda: model(x)


model, forward = by_hand() if sys.argv[1] == "hand" else replicated()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(6):
    forward().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
