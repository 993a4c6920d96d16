# Rotary positions, grouped keys and values, gated feed-forward, RMS norms written out: our own wording.
import torch
from torch import nn
from torch.nn import functional as F


class RootMeanSquare(nn.Module):
    def __init__(self, width: int, epsilon: float = 1e-6):
        super().__init__()
        self.epsilon = epsilon
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * wide.to(x.dtype)


def tables(length: int, width: int, base: float = 10000.0):
    frequencies = 1.0 / (base ** (torch.arange(0, width, 2).float() / width))
    angles = torch.outer(torch.arange(length).float(), frequencies)
    return torch.cos(angles), torch.sin(angles)


def rotated(x, cosine, sine):
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Attention(nn.Module):
    def __init__(self, width, heads, kv_heads):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.query = nn.Linear(width, heads * self.size, bias=False)
        self.key = nn.Linear(width, kv_heads * self.size, bias=False)
        self.value = nn.Linear(width, kv_heads * self.size, bias=False)
        self.output = nn.Linear(heads * self.size, width, bias=False)

    def forward(self, x, cosine, sine):
        batch, length, _ = x.shape
        query = self.query(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        key = self.key(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        value = self.value(x).view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        query, key = rotated(query, cosine, sine), rotated(key, cosine, sine)
        query, key = query.type_as(value), key.type_as(value)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.output(mixed.transpose(1, 2).contiguous().view(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, width, heads, kv_heads, inner):
        super().__init__()
        self.attention_norm = RootMeanSquare(width)
        self.attention = Attention(width, heads, kv_heads)
        self.feed_norm = RootMeanSquare(width)
        self.feed_forward = FeedForward(width, inner)

    def forward(self, x, *positions):
        x = x + self.attention(self.attention_norm(x), *positions)
        x = x + self.feed_forward(self.feed_norm(x))
        return x


class Llama(nn.Module):
    def __init__(self, vocabulary=1024, width=256, layers=2, heads=4, kv_heads=2, inner=704, context=512):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleDict({str(index): Layer(width, heads, kv_heads, inner) for index in range(layers)})
        self.norm = RootMeanSquare(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        cosine, sine = tables(context, width // heads)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)

    def forward(self, ids, targets):
        length = ids.size(1)
        positions = self.cosine[:length], self.sine[:length]
        x = self.embedding(ids)
        for layer in self.layers.values():
            x = layer(x, *positions)
        logits = self.head(self.norm(x)).float()
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
        return logits, loss
