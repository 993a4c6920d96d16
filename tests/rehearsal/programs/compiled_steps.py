"""Steps of compiled modules: each is compiled once, whether it was compiled in place, as a wrapper or as a function."""

import torch
import torch._dynamo

torch.set_default_device("cuda")
in_place, wrapped, plain = (torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU()) for _ in range(3))
in_place.compile(backend="aot_eager")
wrapped = torch.compile(wrapped, backend="aot_eager")


@torch.compile(backend="aot_eager")
def loss_of(rows):
    return plain(rows).pow(2).mean()


table = torch.nn.Embedding(16, 256)


@torch.compile(backend="aot_eager")
def looked_up(ids):
    """A break within a loop leaves the frame to Python, and PyTorch's own functions that it calls."""
    for part in ids.split(4):
        torch._dynamo.graph_break()
        rows = table(part).to("cuda")
    return rows


optimizer = torch.optim.AdamW([*in_place.parameters(), *wrapped.parameters(), *plain.parameters()])
for _ in range(6):
    loss_of(wrapped(in_place(torch.ones(8, 256) + looked_up(torch.arange(16)).sum()))).backward()
    optimizer.step()
    optimizer.zero_grad()
    compiled = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert compiled == 3, f"compiled {compiled} times"
