"""Segments that are computed again stop by an exception that goes through frames of C++, beside another library's C++; and the count that PyTorch
reads from the device is that of the mask, whatever lay in its memory before."""

import triton._C.libtriton  # noqa: I001: its C++ comes first
import torch
from torch.utils.checkpoint import checkpoint

model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
mask = torch.arange(16, device="cuda") % 4 == 0
for step in range(5):
    output = checkpoint(model, torch.randn(16, 512, device="cuda"), use_reentrant=False)
    means = [output.detach().mean() for _ in range(16)]
    for mean in means:
        mean.item()  # assumed from here on
        torch.mean(output.detach().flatten(), 0, out=mean)  # and unknown again
    del means, mean
    assert mask.nonzero().shape == (4, 1) and output[mask].shape == (4, 512), mask.nonzero().shape
    output.pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
