import torch.nn as nn
from shared import base  # beside this file, as a program that is started here finds it
from torch.nn import functional as F

from parts import FOUND
from parts.shared import later

from .inner import depth


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        assert base == 1 and depth == 2 and FOUND == [2, None, "changed by a later line"]
        assert later() == [2, None, "changed by a later line", 2]
        self.layer = nn.Linear(width, width)

    def forward(self, x, y):
        return F.mse_loss(self.layer(x), y)
