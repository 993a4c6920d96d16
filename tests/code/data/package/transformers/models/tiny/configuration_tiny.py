from huggingface_hub.dataclasses import strict

from ...configuration_utils import PreTrainedConfig
from ...utils import auto_docstring


@auto_docstring(checkpoint="nobody/tiny")
@strict
class TinyConfig(PreTrainedConfig):
    model_type = "tiny"
    attribute_map = {"n_embd": "hidden_size"}

    vocab_size: int = 300
    hidden_size: int = 64
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    layer_types: list[str] | None = None

    def __post_init__(self, **kwargs):
        if self.layer_types is None:
            self.layer_types = ["full_attention" if i % 2 else "plain" for i in range(self.num_hidden_layers)]
        super().__post_init__(**kwargs)
