# One small network per group of operators, so that each is held against what PyTorch allocates.
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Unit(nn.RMSNorm):
    """A class derived from one of torch's, whose forward it calls."""

    def forward(self, x):
        return super().forward(x) * 0.5


class TanhGate(nn.Module):
    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def tanh_gate(net, x):
    return net.gate(net.second(x))


def scalars(net, x):
    return (1.0 - x) / 2 + 3 * x - 0.5


def powers(net, x):
    return torch.exp(-x.square()) + x.abs().sqrt() + torch.log(x ** 2 + 1.0)


def inverses(net, x):
    return 1.0 / (1.0 + torch.exp(-x))


def norms(net, x):
    return net.unit(F.rms_norm(x, (x.size(-1),))) + F.layer_norm(x, x.shape[-1:])


def relu_squared(net, x):
    return F.relu(net.second(x)).square()


def shapes(net, x):
    batch, length, width = x.size()
    halves = x.view(batch, length, 2, -1).permute(0, 2, 1, 3)
    first, second = halves.unbind(1)
    joined = torch.stack((first, second), dim=2).flatten(2)
    return joined.unsqueeze(1).expand(-1, 1, -1, -1).squeeze(1).transpose(0, 1).contiguous().transpose(0, 1).reshape(batch, length, width)


def slices(net, x):
    left, right = x[..., : x.size(-1) // 2], x[..., x.size(-1) // 2 :]
    shifted = torch.cat((-right, left), dim=-1)
    first = x[:, :1]
    return shifted + first + x[:, -1, :].unsqueeze(1) + x[:, [0], :]


def splits(net, x):
    query, rest = net.wide(x).split([x.size(-1), 2 * x.size(-1)], dim=-1)
    key, value = rest.chunk(2, dim=-1)
    return torch.sigmoid(query) * F.silu(key) + torch.tanh(value)


def masks(net, x):
    length = x.size(1)
    mask = torch.triu(torch.ones(length, length, device=x.device, dtype=torch.bool), diagonal=1)
    scores = torch.matmul(x, x.transpose(1, 2)) * x.size(-1) ** -0.5
    weights = scores.masked_fill(mask, -math.inf).softmax(dim=-1)
    return net.dropout(weights) @ x


def masked_attention(net, x):
    batch, length, width = x.shape
    heads = x.view(batch, length, 4, width // 4).transpose(1, 2)
    mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
    return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask).transpose(1, 2).flatten(2)


def in_place(net, x):
    total = net.second(x)
    total += x
    total /= 2
    return total


def reductions(net, x):
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = (centred * centred).mean((-1,), keepdim=True)
    return centred * torch.rsqrt(variance + 1e-5) + x.sum(dim=1, keepdim=True)


def recomputed_without_grad(net, x):
    with torch.no_grad():
        scale = net.second(x).mean(-1, keepdim=True)
    with torch.autocast(device_type="cuda", enabled=False):
        wide = x.float() * scale.float().detach()
    return wide.to(x.dtype)


def several_linears(net, x):
    for layer in net.stack[:2]:
        x = layer(x) + x
    return net.stack[-1](x)


GROUPS = {function.__name__: function for function in (
    tanh_gate, scalars, powers, inverses, norms, relu_squared, shapes, slices, splits, masks, masked_attention, in_place, reductions,
    recomputed_without_grad, several_linears)}


class Operators(nn.Module):
    def __init__(self, group, width=256, vocabulary=512, loss="entropy"):
        super().__init__()
        self.group, self.kind = GROUPS[group], loss
        self.embedding = nn.Embedding(vocabulary, width)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.wide = nn.Linear(width, 3 * width, bias=False)
        self.stack = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.unit = Unit(width)
        self.gate = TanhGate()
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids, targets):
        x = self.first(self.embedding(ids))
        x = self.group(self, x)
        if self.kind == "square":
            return ((self.head(x) - 1.0) ** 2).mean()
        return {"loss": nn.CrossEntropyLoss()(self.head(x).view(-1, self.head.out_features), targets.view(-1))}
