from dataclasses import dataclass

from .utils.generic import ModelOutput


@dataclass
class LanguageModelOutput(ModelOutput):
    loss: object = None
    logits: object = None
    hidden_states: object = None
