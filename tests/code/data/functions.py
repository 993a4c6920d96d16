# Elementwise functions and arithmetic: one small network per group, so that each is held against what PyTorch allocates.
import torch
import torch.nn as nn
import torch.nn.functional as F


def circular(net, x):
    return torch.sin(x) + x.cos() * 0.5


def inverse_circular(net, x):
    return torch.atan(x) + torch.tan(x)


def error_function(net, x):
    return x * 0.5 * (1.0 + torch.erf(x / 1.4142))


def exponentials(net, x):
    return torch.expm1(x) + torch.log1p(x.abs())


def softened(net, x):
    return F.softplus(x) + F.logsigmoid(x) + x * torch.tanh(F.softplus(x))


def rectified(net, x):
    return F.leaky_relu(x, 0.1) + F.elu(x) + F.relu6(x) + F.mish(x)


def hard(net, x):
    return F.hardswish(x) + F.hardsigmoid(x)


def in_place_activations(net, x):
    y = F.silu(net.second(x), inplace=True)
    return F.relu(net.third(y), inplace=True)


def gates(net, x):
    return F.glu(net.wide(x), dim=-1)


def powers(net, x):
    return x ** 3 + x.abs() ** 0.5 + torch.pow(x, 2)


def rounded(net, x):
    return x - torch.floor(x) + torch.sign(x) * torch.round(x)


def in_place(net, x):
    y = net.second(x)
    y *= 2
    y -= x
    y *= x
    return y.add_(x).mul_(0.5)


def logic(net, x):
    mask = (x > 0) & (x < 2) | ~(x.abs() >= 1)
    return torch.where(mask, x, -x) * mask.to(x.dtype)


def mixed(net, x):
    return torch.lerp(x, net.second(x), 0.3) + torch.addcmul(x, x, net.third(x))


def stochastic_depth(net, x):
    kept = x.new_empty((x.shape[0], 1, 1)).bernoulli_(0.9)
    kept.div_(0.9)
    noise = torch.rand(x.shape[0], 1, 1, dtype=x.dtype, device=x.device) + 0.9
    return x * kept + net.second(x).div(0.9) * noise.floor()


GROUPS = {function.__name__: function for function in (
    circular, inverse_circular, error_function, exponentials, softened, rectified, hard, in_place_activations, gates, powers, rounded, in_place,
    logic, mixed, stochastic_depth)}


class Functions(nn.Module):
    def __init__(self, group, width=256, vocabulary=512):
        super().__init__()
        self.group = GROUPS[group]
        self.embedding = nn.Embedding(vocabulary, width)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, width)
        self.wide = nn.Linear(width, 2 * width)
        self.head = nn.Linear(width, 64)

    def forward(self, ids, targets):
        x = self.group(self, self.first(self.embedding(ids)))
        return ((self.head(x) - 1.0) ** 2).mean()
