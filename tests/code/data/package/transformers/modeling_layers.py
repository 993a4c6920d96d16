from functools import partial, wraps

import torch
from torch import nn


class GradientCheckpointingLayer(nn.Module):
    gradient_checkpointing = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        forward = cls.forward

        @wraps(forward)
        def checkpointed(self, *args, **kwargs):
            if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
                return self._gradient_checkpointing_func(partial(forward, self, **kwargs), *args)
            return forward(self, *args, **kwargs)

        cls.forward = checkpointed
