"""A small model under accelerate, as `accelerate launch` sets it up."""

import accelerate
import torch

accelerator = accelerate.Accelerator()
model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 1024))
optimizer = torch.optim.AdamW(model.parameters())
rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(512, 1024)), batch_size=8)
model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
assert accelerator.num_processes == 8 and accelerator.mixed_precision == "bf16", accelerator.state
for (batch,) in rows:
    accelerator.backward(model(batch).float().pow(2).mean())
    optimizer.step()
    optimizer.zero_grad()
