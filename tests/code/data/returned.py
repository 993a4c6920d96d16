"""Names of what max and topk give, types by name, products with a bias, tensors by their sizes: what transformers' models write of torch."""
import torch
from torch import nn
import torch.nn.functional as F


class Returned(nn.Module):
    def __init__(self, vocab=1000, width=256):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(512, width, _freeze=True)
        self.scale = nn.Parameter(torch.Tensor(width))
        self.weight = nn.Parameter(torch.empty(width, width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids, targets):
        x = self.embedding(ids) + self.positions(torch.arange(ids.size(1), device=ids.device))
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(x.size())
        x = x * self.scale
        best = torch.topk(x, 4, dim=-1)
        largest = x.max(dim=-1)
        x = x + best.values.sum(-1, keepdim=True).type(x.dtype) + largest.values.unsqueeze(-1)
        logits = self.head(x)
        return F.cross_entropy(logits.view(-1, logits.size(-1)).type(torch.float32), targets.view(-1))
