"""FlexAttention, compiled, under a causal mask, a window and no mask; it says what FLOPs its forward pass asks for."""

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

BATCH, HEADS, KV_HEADS, LENGTH, HEAD, WINDOW = 2, 8, 2, 4096, 128, 1024


def causal(batch, head, query, key):
    return query >= key


def window(batch, head, query, key):
    return (query >= key) & (query - key < WINDOW)


compiled_mask = torch.compile(create_block_mask)
masks = [create_block_mask(causal, None, None, LENGTH, LENGTH, device="cuda"), compiled_mask(window, None, None, LENGTH, LENGTH, device="cuda"), None]
pairs = LENGTH * LENGTH // 2 + (WINDOW * LENGTH - WINDOW * WINDOW // 2) + LENGTH * LENGTH
print("FLEX_ATTENTION asks for", pairs * 4 * BATCH * HEADS * HEAD, flush=True)
attend = torch.compile(flex_attention)
scale = torch.nn.Parameter(torch.ones(1, device="cuda", dtype=torch.bfloat16))
optimizer = torch.optim.SGD([scale], 0.1)
for _ in range(4):
    for mask in masks:
        sizes = ((BATCH, heads, LENGTH, HEAD) for heads in (HEADS, KV_HEADS, KV_HEADS))
        query, key, value = (torch.randn(size, device="cuda", dtype=torch.bfloat16) * scale for size in sizes)
        attend(query, key, value, block_mask=mask, enable_gqa=True).float().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
