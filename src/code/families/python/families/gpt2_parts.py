# What GPT-2's relatives have of its: the feed-forward, a block's parts, and the tables and layers of a body.
from families.common import Activation
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer


class FeedForward(nn.Module):
    linear = nn.Linear

    def __init__(self, config):
        super().__init__()
        self.c_fc = self.linear(config.hidden_size, config.intermediate_size)
        self.c_proj = self.linear(config.intermediate_size, config.hidden_size)
        self.act = Activation(config.hidden_act)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden):
        hidden = self.c_fc(hidden)
        hidden = self.act(hidden)
        hidden = self.c_proj(hidden)
        hidden = self.dropout(hidden)
        return hidden


class Block(GradientCheckpointingLayer):
    """Attention, made of `attention_class`, and feed-forward, of `mlp_class`, each behind a norm. What forward keeps alive is each family's own."""

    mlp_class = FeedForward

    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.hidden_size)
        self.attn = self.attention_class(config)
        self.ln_2 = nn.LayerNorm(config.hidden_size)
        self.mlp = self.mlp_class(config)


class Body(nn.Module):
    """Tables of tokens and positions, layers of `block_class`, the last norm. What forward keeps alive is each family's own."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.wpe = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.drop = nn.Dropout(config.embedding_dropout)
        self.h = nn.ModuleList([self.block_class(config) for _ in range(config.num_hidden_layers)])
        self.ln_f = nn.LayerNorm(config.hidden_size)

    def get_input_embeddings(self):
        return self.wte
