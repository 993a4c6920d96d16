# Layers that are computed again in backward, as a model of one's own asks for it.
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Layer(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.rate = dropout

    def forward(self, x, scale=None):
        y = F.gelu(self.up(self.norm(x)))
        y = F.dropout(self.down(y), self.rate, self.training)
        return x + (y if scale is None else y * scale)

    def both(self, x, other):
        return self(x), self(other)


class Recomputed(nn.Module):
    def __init__(self, width=256, layers=4, vocabulary=512, reentrant=False, every=1, dropout=0.1, pairs=False):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([Layer(width, dropout) for _ in range(layers)])
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.reentrant, self.every, self.pairs = reentrant, every, pairs

    def forward(self, ids, targets):
        x = self.embedding(ids)
        for index, layer in enumerate(self.layers):
            if self.pairs:
                x, other = checkpoint(layer.both, x, x * 0.5, use_reentrant=self.reentrant)
                x = x + other
            elif index % self.every == 0:
                if self.reentrant:
                    x = checkpoint(layer, x, None, use_reentrant=True)
                else:
                    x = checkpoint(layer, x, scale=0.5, use_reentrant=False)
            else:
                x = layer(x)
        return F.cross_entropy(self.head(x).view(-1, self.head.out_features), targets.view(-1))
