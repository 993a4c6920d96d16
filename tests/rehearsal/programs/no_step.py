"""Uses the device, and no optimizer."""

import torch

torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")
