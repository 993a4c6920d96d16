"""A whole step, the optimizer's too, in a graph that is launched over and over."""

import torch

model = torch.nn.Linear(1024, 1024, device="cuda")
optimizer = torch.optim.Adam(model.parameters(), capturable=True)
rows = torch.ones(64, 1024, device="cuda")


def step():
    optimizer.zero_grad()
    model(rows).sum().backward()
    optimizer.step()


aside = torch.cuda.Stream()
with torch.cuda.stream(aside):
    step()
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad()
with torch.cuda.graph(graph):
    step()
for replay in range(20):
    graph.replay()
    print(f"replay {replay}", flush=True)
