import torch
from torch import nn

from ...masking_utils import create_causal_mask
from ...modeling_layers import GradientCheckpointingLayer
from ...modeling_outputs import LanguageModelOutput
from ...modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel, slice_logits_to_keep
from ...utils import auto_docstring, logging
from .configuration_tiny import TinyConfig

logger = logging.get_logger(__name__)
TABLE = {"known": nn.Linear, "not known": nn.LayerThatNobodyKnows}


def eager_attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=1.0, **kwargs):
    weights = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        weights = weights + attention_mask
    weights = nn.functional.softmax(weights, dim=-1)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


class TinyLayer(GradientCheckpointingLayer):
    def __init__(self, config: TinyConfig, index: int):
        super().__init__()
        self.config = config
        self.heads = config.num_attention_heads
        self.attends = config.layer_types[index] == "full_attention"
        self.norm = nn.LayerNorm(config.n_embd)
        self.mix = TABLE["known"](config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states, attention_mask=None, **kwargs):
        batch, length, width = hidden_states.shape
        query, key, value = self.mix(self.norm(hidden_states)).chunk(3, dim=-1)
        if self.attends:
            query, key, value = (x.view(batch, length, self.heads, -1).transpose(1, 2) for x in (query, key, value))
            attention = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
            value, _ = attention(self, query, key, value, attention_mask, scaling=(width // self.heads) ** -0.5, **kwargs)
            value = value.reshape(batch, length, -1)
        return hidden_states + self.out(value)


@auto_docstring
class TinyPreTrainedModel(PreTrainedModel):
    config: TinyConfig
    _supports_sdpa = True


class TinyModel(TinyPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([TinyLayer(config, index) for index in range(config.num_hidden_layers)])
        self.post_init()

    def forward(self, input_ids):
        hidden_states = self.embed_tokens(input_ids)
        mask = create_causal_mask(config=self.config, inputs_embeds=hidden_states, attention_mask=None, cache=None)
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask=mask)
        return hidden_states


class TinyForCausalLM(TinyPreTrainedModel):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = TinyModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids=None, labels=None, logits_to_keep=0, **kwargs):
        hidden_states = slice_logits_to_keep(self.model(input_ids), logits_to_keep)
        logits = self.lm_head(hidden_states)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        return LanguageModelOutput(loss=loss, logits=logits)


__all__ = ["TinyForCausalLM", "TinyModel"]
