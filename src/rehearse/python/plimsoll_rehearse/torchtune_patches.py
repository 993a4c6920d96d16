"""torchtune: checkpoints whose values stay unset, and with --synthetic-data tokenizers and samples that are not there."""

import functools
import os

from . import journal
from .imports import after

SYNTHETIC = os.environ.get("PLIMSOLL_REHEARSE_SYNTHETIC") == "1"
ADAPTERS = ("lora_a", "lora_b", "magnitude")


class Unset(dict):
    """The weights of a checkpoint that is not there: whoever loads them learns the shapes from the model."""

    def of(self, model):
        import torch

        whole = {name: tensor for name, tensor in model.state_dict().items() if not any(part in name for part in ADAPTERS)}
        return {name: torch.empty(tuple(tensor.shape), dtype=tensor.dtype) for name, tensor in whole.items()}


class Checkpointer:
    def load_checkpoint(self, *arguments, **options):
        return {"model": Unset()}

    def save_checkpoint(self, *arguments, **options):
        pass


class Tokenizer:
    """Knows no words."""

    pad_id = eos_id = bos_id = 0

    def __init__(self, max_seq_len):
        self.max_seq_len = max_seq_len


@after("torchtune.config")
def stand_in(module):
    import importlib.metadata

    journal.version("torchtune", importlib.metadata.version("torchtune"))
    instantiate = module.instantiate

    @functools.wraps(instantiate)
    def instantiated(config, *arguments, **options):
        try:
            return instantiate(config, *arguments, **options)
        except Exception:  # whatever a builder raises where its files are not there
            component = str(config.get("_component_", "")) if config else ""
            if "heckpoint" in component:
                journal.replaced("torchtune's checkpoint: weights stay unset")
                return Checkpointer()
            if SYNTHETIC and "tokenizer" in component:
                journal.replaced("torchtune's tokenizer: its files are not there")
                return Tokenizer(config.get("max_seq_len"))
            raise

    module.instantiate = instantiated


@after("torchtune.training")
def load_nothing(module):
    import torch

    distribute, load = module.load_from_full_model_state_dict, torch.nn.Module.load_state_dict

    @functools.wraps(distribute)
    def distributed(model, full_sd, *arguments, **options):
        return distribute(model, full_sd.of(model) if isinstance(full_sd, Unset) else full_sd, *arguments, **options)

    @functools.wraps(load)
    def loaded(self, state_dict, *arguments, **options):
        return load(self, state_dict.of(self) if isinstance(state_dict, Unset) else state_dict, *arguments, **options)

    module.load_from_full_model_state_dict = distributed
    torch.nn.Module.load_state_dict = loaded


@after("torchtune.datasets._sft")
def make_up_samples(module):
    """Every sample has the length that the tokenizer allows."""
    if not SYNTHETIC:
        return
    item = module.SFTDataset.__getitem__

    def __getitem__(self, index):
        try:
            return item(self, index)
        except Exception:  # rows without the columns of the dataset that they stand for
            journal.replaced("torchtune's samples: sequences of the greatest length")
            length = self._model_transform.max_seq_len
            return {"tokens": [0] * length, "labels": [0] * length}

    module.SFTDataset.__getitem__ = __getitem__
