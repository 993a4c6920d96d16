"""A physics-informed network under L-BFGS: how often it is evaluated in a step hangs on values, and is as often as it may be."""

import torch

network = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).cuda()
points = torch.rand(1000, 2, device="cuda", requires_grad=True)
MOST = 12
evaluations = 0


def residual():
    global evaluations
    evaluations += 1
    optimizer.zero_grad()
    value = network(points)
    slope = torch.autograd.grad(value.sum(), points, create_graph=True)[0]
    loss = (slope[:, :1] + value * slope[:, 1:]).square().mean()
    loss.backward()
    return loss


optimizer = torch.optim.LBFGS(network.parameters(), max_iter=MOST, history_size=5, line_search_fn="strong_wolfe")
for step in range(1, 6):
    optimizer.step(residual)
    assert evaluations == step * (1 + MOST), evaluations  # one to begin with, and one for each iteration's length
    assert optimizer.param_groups[0]["tolerance_change"] == 1e-9
