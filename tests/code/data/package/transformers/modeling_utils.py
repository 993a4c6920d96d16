import torch
from another_package import nothing
from torch import nn

from .configuration_utils import PreTrainedConfig


class PreTrainedModel(nn.Module):
    config_class = None
    base_model_prefix = ""
    main_input_name = "input_ids"
    _supports_sdpa = False
    _tied_weights_keys = None

    def __init__(self, config):
        raise RuntimeError("what is put over this class makes it")


def slice_logits_to_keep(hidden_states, logits_to_keep):
    return hidden_states[:, slice(-logits_to_keep, None), :]


if nothing:
    torch.never()
