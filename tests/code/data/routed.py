# What older layers ask for: reductions by place, attention as one function, softmax's own gradient, dropout of channels. One small network per group, so that each is held against what PyTorch allocates.
import torch
import torch.nn as nn
import torch.nn.functional as F


def function_attention(net, x):
    turned = x.transpose(0, 1)
    biases = torch.cat((net.first.bias, net.second.bias, net.third.bias))
    y, weights = F.multi_head_attention_forward(
        turned, turned, turned, 256, 4, torch.empty([0]), biases, None, None, False, 0.1, net.fourth.weight, net.fourth.bias, True,
        use_separate_proj_weight=True, q_proj_weight=net.first.weight, k_proj_weight=net.second.weight, v_proj_weight=net.third.weight)
    return y.transpose(0, 1)


class Normalized(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, dim):
        ctx.dim = dim
        y = torch.softmax(scores, dim)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return torch._softmax_backward_data(gradient, y, ctx.dim, y.dtype), None


def own_softmax(net, x):
    return Normalized.apply(net.second(x), -1)


def reduced_places(net, x):
    places = torch.zeros(x.shape[0] * x.shape[1], dtype=torch.long, device=x.device)
    least = torch.zeros(512, device=x.device).scatter_reduce(0, places, x.detach().float().sum(-1).flatten(), reduce="amin", include_self=False)
    return x + least[:256]


def dropped_channels(net, x):
    return F.dropout2d(x.view(x.shape[0], x.shape[1], 16, 16), 0.1, training=True).view(x.shape)


GROUPS = {function.__name__: function for function in (function_attention, own_softmax, reduced_places, dropped_channels)}


class Routed(nn.Module):
    def __init__(self, group, width=256, vocabulary=512):
        super().__init__()
        self.group = GROUPS[group]
        self.embedding = nn.Embedding(vocabulary, width)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.third = nn.Linear(width, width)
        self.fourth = nn.Linear(width, width)
        self.head = nn.Linear(width, 64)

    def forward(self, ids, targets):
        x = self.group(self, self.first(self.embedding(ids)))
        return ((self.head(x) - 1.0) ** 2).mean()
