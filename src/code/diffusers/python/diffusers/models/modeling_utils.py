# ModelMixin without loading and saving.
import torch
from torch import nn


class ModelMixin(nn.Module):
    _no_split_modules = None
    _keep_in_fp32_modules = None
    _supports_gradient_checkpointing = False
    _gradient_checkpointing_func = None

    @property
    def dtype(self):
        return next(self.parameters()).dtype

    @property
    def device(self):
        return next(self.parameters()).device
