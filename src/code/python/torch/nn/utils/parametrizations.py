# torch.nn.utils.parametrizations.weight_norm: a weight as a direction and a length, which a module of its own multiplies where it is read.
import torch
from plimsoll import compute_attribute
from torch import nn


class _WeightNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, weight_g, weight_v):
        return torch._weight_norm(weight_v, weight_g, self.dim)


class ParametrizationList(nn.ModuleList):
    def __init__(self, modules, *originals):
        super().__init__(modules)
        for number, original in enumerate(originals):
            self.register_parameter("original" + str(number), original)

    def forward(self):
        return self[0](self.original0, self.original1)


def weight_norm(module, name="weight", dim=0):
    weight = getattr(module, name)
    sizes = [1] * weight.ndim
    sizes[dim] = weight.shape[dim]
    length = nn.Parameter(torch.empty(sizes, dtype=weight.dtype))
    delattr(module, name)
    if not hasattr(module, "parametrizations"):
        module.parametrizations = nn.ModuleDict()
    module.parametrizations[name] = ParametrizationList([_WeightNorm(dim)], length, weight)
    compute_attribute(module, name, module.parametrizations[name])
    return module
