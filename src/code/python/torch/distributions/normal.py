# torch.distributions.normal of numbers: its own are tensors of the host.
import math

import torch


class Normal:
    def __init__(self, loc, scale, validate_args=None):
        self.loc = torch.tensor(float(loc))
        self.scale = torch.tensor(float(scale))

    def icdf(self, value):
        return self.loc + self.scale * torch.erfinv(2 * value - 1) * math.sqrt(2)
