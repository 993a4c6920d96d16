"""Attention of several shapes, masks and head sizes by each of PyTorch's backends, and convolutions; says what FLOPs the program's own arguments
ask for: of attention 2 · pairs · (head dimension + value dimension), of a causal one half the pairs, and backward 2.5 times that; of a
convolution 2 · results · window · channels of a group, and as much for each gradient."""

import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

CUDNN, FLASH, EFFICIENT = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION
# batch, query heads, key heads, queries, keys, head dimension, causal, mask, dropout
ATTENTIONS = {
    CUDNN: (
        (2, 32, 8, 2048, 2048, 128, True, False, 0.0),
        (1, 16, 16, 1024, 4096, 64, False, False, 0.0),
        (1, 12, 12, 1536, 1536, 80, False, True, 0.0),
        (3, 8, 8, 1000, 1000, 96, True, False, 0.125),
    ),
    FLASH: ((2, 32, 8, 2048, 2048, 128, True, False, 0.0), (1, 16, 16, 1024, 4096, 64, False, False, 0.0)),
    EFFICIENT: ((2, 16, 16, 2048, 2048, 128, True, False, 0.0), (1, 12, 12, 1536, 1536, 80, False, True, 0.0)),
}
# images, channels, image's side, results' channels, window's side, stride, groups
CONVOLUTIONS = ((8, 3, 224, 64, 7, 2, 1), (16, 64, 56, 128, 3, 1, 1), (4, 96, 28, 96, 3, 1, 4))


class Operands(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1, device="cuda", dtype=torch.bfloat16))

    def forward(self, *sizes):
        return [torch.randn(size, device="cuda", dtype=torch.bfloat16) * self.scale for size in sizes]


def attention(batch, heads, kv_heads, queries, keys, dim, causal, masked, dropout):
    q, k, v = operands((batch, heads, queries, dim), (batch, kv_heads, keys, dim), (batch, kv_heads, keys, dim))
    mask = torch.zeros(1, heads, queries, keys, device="cuda", dtype=torch.bfloat16) if masked else None
    F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal=causal, enable_gqa=heads != kv_heads).sum().backward()
    return 4 * batch * heads * queries * keys * (0.5 if causal else 1) * dim


def convolution(images, channels, side, out, window, stride, groups):
    x, w = operands((images, channels, side, side), (out, channels // groups, window, window))
    y = F.conv2d(x, w, stride=stride, padding=window // 2, groups=groups)
    y.sum().backward()
    return 2 * y.numel() * w[0].numel()


operands = Operands()
optimizer = torch.optim.SGD(operands.parameters(), 0.1)
for step in range(4):
    asked = {}
    for backend, cases in ATTENTIONS.items():
        with sdpa_kernel(backend):
            asked[backend.name] = sum(attention(*case) for case in cases)
    asked["CONVOLUTION"] = sum(convolution(*case) for case in CONVOLUTIONS)
    optimizer.step()
    optimizer.zero_grad()
for name, flops in asked.items():
    print(f"{name} asks for {flops:.0f}", file=sys.stderr)
