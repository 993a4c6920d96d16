from torch import nn
from transformers.modeling_outputs import LanguageModelOutput
from transformers.modeling_utils import PreTrainedModel

from .configuration_own import OwnConfig


class OwnForCausalLM(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.width)
        self.lm_head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids=None, labels=None):
        logits = self.lm_head(self.embed_tokens(input_ids))
        return LanguageModelOutput(loss=self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size), logits=logits)
