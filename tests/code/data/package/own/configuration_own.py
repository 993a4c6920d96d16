from transformers.configuration_utils import PreTrainedConfig


class OwnConfig(PreTrainedConfig):
    model_type = "own"
    vocab_size: int = 50
    width: int = 16
    tie_word_embeddings: bool = False
