# Losses: one small network per group, so that each is held against what PyTorch allocates.
import torch
import torch.nn as nn
import torch.nn.functional as F


def smoothed(net, x, y, targets):
    return F.cross_entropy(x.flatten(0, 1), targets.flatten(), label_smoothing=0.1)


def summed(net, x, y, targets):
    return F.cross_entropy(x.flatten(0, 1), targets.flatten(), reduction="sum") / targets.numel()


def weighted(net, x, y, targets):
    return F.cross_entropy(x.flatten(0, 1), targets.flatten(), weight=net.weights, reduction="none").mean()


def mapped(net, x, y, targets):
    return F.cross_entropy(x.transpose(1, 2), targets)


def likelihood(net, x, y, targets):
    return F.nll_loss(F.log_softmax(x.flatten(0, 1), dim=-1), targets.flatten())


def binary(net, x, y, targets):
    return F.binary_cross_entropy_with_logits(x, F.one_hot(targets, x.shape[-1]).to(x.dtype))


def binary_weighted(net, x, y, targets):
    return nn.BCEWithLogitsLoss(reduction="none", pos_weight=net.weights)(x, torch.sigmoid(y).detach()).mean()


def pairs(net, x, y, targets):
    return F.smooth_l1_loss(x, y) + F.mse_loss(x, y)


def absolute(net, x, y, targets):
    return F.l1_loss(x, y) + F.huber_loss(x, y.detach())


def unreduced(net, x, y, targets):
    return F.mse_loss(x, y, reduction="none").mean(dim=-1).mean()


def divergence(net, x, y, targets):
    return F.kl_div(F.log_softmax(x, dim=-1), F.softmax(y, dim=-1).detach(), reduction="batchmean")


def log_divergence(net, x, y, targets):
    return nn.KLDivLoss(log_target=True)(F.log_softmax(x, dim=-1), F.log_softmax(y, dim=-1))


GROUPS = {function.__name__: function for function in (
    smoothed, summed, weighted, mapped, likelihood, binary, binary_weighted, pairs, absolute, unreduced, divergence, log_divergence)}


class Losses(nn.Module):
    def __init__(self, group, width=128, vocabulary=512):
        super().__init__()
        self.group = GROUPS[group]
        self.embedding = nn.Embedding(vocabulary, width)
        self.first = nn.Linear(width, vocabulary)
        self.second = nn.Linear(width, vocabulary)
        self.register_buffer("weights", torch.ones(vocabulary))

    def forward(self, ids, targets):
        x = self.embedding(ids)
        return {"loss": self.group(self, self.first(x), self.second(x), targets)}
