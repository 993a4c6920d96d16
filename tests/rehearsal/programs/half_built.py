"""A module whose construction fails before it is one, when the device was used already."""

import torch


class Model(torch.nn.Module):
    def __init__(self, path):
        self.settings = open(path).read()
        super().__init__()


torch.zeros(1, device="cuda")
Model("/no/such/file")
