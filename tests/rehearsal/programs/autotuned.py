"""A kernel of Triton's with 24 configurations, and a product that is compiled with max-autotune."""

import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 1 << power}, num_warps=warps) for power in range(4, 10) for warps in (1, 2, 4, 8)], key=["count"])
@triton.jit
def add(left, right, out, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    tl.store(out + places, tl.load(left + places, mask=inside) + tl.load(right + places, mask=inside), mask=inside)


model = torch.nn.Linear(4096, 4096, bias=False, device="cuda", dtype=torch.bfloat16)
compiled = torch.compile(model, mode="max-autotune-no-cudagraphs")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(6):
    x = compiled(torch.randn(2048, 4096, device="cuda", dtype=torch.bfloat16))
    total = torch.empty_like(x)
    add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x.detach(), x.detach(), total, x.numel())
    if step == 0:
        finite = sum(timings[0] < float("inf") for timings in add.configs_timings.values())
        print("tried", finite, "of", len(add.configs), "configurations", flush=True)
    (x * total).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
