# A small decoder of our own wording: what a training file of one's own usually holds.
import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class DecoderConfig:
    vocabulary: int = 1024
    context: int = 256
    layers: int = 2
    heads: int = 4
    width: int = 256
    dropout: float = 0.0
    bias: bool = True
    fused_attention: bool = True


class Norm(nn.Module):
    """nn.LayerNorm whose bias may be left out."""

    def __init__(self, width, bias):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, hidden):
        return F.layer_norm(hidden, self.scale.shape, self.scale, self.shift, eps=1e-5)


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.width % config.heads == 0, "heads must divide the width"
        self.config = config
        self.projection = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.output = nn.Linear(config.width, config.width, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)
        if not config.fused_attention:
            mask = torch.tril(torch.ones(config.context, config.context))
            self.register_buffer("mask", mask[None, None])

    def split_heads(self, hidden):
        batch, length, width = hidden.shape
        return hidden.view(batch, length, self.config.heads, width // self.config.heads).transpose(1, 2)

    def forward(self, hidden):
        batch, length, width = hidden.shape
        query, key, value = [self.split_heads(part) for part in self.projection(hidden).chunk(3, dim=-1)]
        if self.config.fused_attention:
            rate = self.config.dropout if self.training else 0.0
            mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        else:
            scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
            scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
            mixed = self.dropout(F.softmax(scores, dim=-1)) @ value
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        return self.dropout(self.output(mixed))


class Layer(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.norms = nn.ModuleList(Norm(config.width, config.bias) for _ in range(2))
        self.attention = Attention(config)
        self.feed_forward = nn.Sequential(
            nn.Linear(config.width, 4 * config.width, bias=config.bias),
            nn.GELU(),
            nn.Linear(4 * config.width, config.width, bias=config.bias),
            nn.Dropout(config.dropout),
        )

    def forward(self, hidden):
        hidden = hidden + self.attention(self.norms[0](hidden))
        return hidden + self.feed_forward(self.norms[1](hidden))


class Decoder(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.layers)])
        self.norm = Norm(config.width, config.bias)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.apply(self.initialise)
        print(f"{self.count():,} parameters")

    @staticmethod
    def initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)

    def count(self):
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(self, ids, targets=None):
        batch, length = ids.shape
        if length > self.config.context:
            raise ValueError(f"{length} tokens are more than the context of {self.config.context}")
        hidden = self.tokens(ids) + self.positions(torch.arange(length, device=ids.device))
        for layer in self.layers:
            hidden = layer(hidden)
        logits = self.head(self.norm(hidden))
        if targets is None:
            return {"logits": logits}
        return {"logits": logits, "loss": F.cross_entropy(logits.flatten(0, 1), targets.flatten())}

    @torch.no_grad()
    def generate(self, ids, count):
        for _ in range(count):
            logits = self(ids)["logits"][:, -1]
            ids = torch.cat((ids, torch.multinomial(torch.softmax(logits, -1), 1)), dim=1)
        return ids
