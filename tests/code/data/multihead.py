# nn.MultiheadAttention, as code of one's own asks for it, so that each way is held against what PyTorch allocates.
import torch
import torch.nn as nn


def plain(net, x):
    return net.attention(x, x, x, need_weights=False)[0]


def masked(net, x):
    mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device), diagonal=1)
    return net.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


def causal(net, x):
    mask = torch.triu(torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device), diagonal=1)
    return net.attention(x, x, x, attn_mask=mask, need_weights=False, is_causal=True)[0]


def padded(net, x):
    padding = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
    return net.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]


def weighed(net, x):
    out, weights = net.attention(x, x, x)
    return out + weights.mean(-1, keepdim=True)


def crossed(net, x):
    memory = net.second(x[:, : x.shape[1] // 2])
    return net.attention(x, memory, memory, need_weights=False)[0]


def apart(net, x):
    return net.attention(x, net.second(x), x * 2, need_weights=False)[0]


def pooled(net, x):
    y = nn.functional.avg_pool1d(x.transpose(1, 2).contiguous(), 2)
    y = nn.functional.max_pool1d(y, 2) + nn.functional.adaptive_avg_pool1d(y, x.shape[1] // 4)
    return y.transpose(1, 2)


def windowed(net, x):
    """Attention of five dimensions, which is written out."""
    batch, length, width = x.shape
    parted = [y.view(batch, 4, length // 4, 4, width // 4).transpose(2, 3) for y in (x, net.second(x), x)]
    return nn.functional.scaled_dot_product_attention(*parted).transpose(2, 3).reshape(batch, length, width)


def of_three(net, x):
    """Attention of three dimensions, the first of them heads."""
    y = nn.functional.scaled_dot_product_attention(x, net.second(x), x)
    return y + nn.functional.scaled_dot_product_attention(y, x, y, is_causal=True)


def of_three_masked(net, x):
    mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
    return nn.functional.scaled_dot_product_attention(x, net.second(x), x, attn_mask=mask)


GROUPS = {function.__name__: function for function in (plain, masked, causal, padded, weighed, crossed, apart, pooled, windowed, of_three, of_three_masked)}


class Multihead(nn.Module):
    def __init__(self, group, width=256, vocabulary=512, dropout=0.0, batch_first=True):
        super().__init__()
        self.group = GROUPS[group]
        self.embedding = nn.Embedding(vocabulary, width)
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)
        self.attention = nn.MultiheadAttention(width, 4, dropout=dropout, batch_first=batch_first)
        self.head = nn.Linear(width, 64)

    def forward(self, ids, targets):
        x = self.group(self, self.first(self.embedding(ids)))
        return ((self.head(x) - 1.0) ** 2).mean()
