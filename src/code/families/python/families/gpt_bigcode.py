# GPT-BigCode (SantaCoder, StarCoder): GPT-2's blocks of linears, one head of keys and values for all queries.
import torch
from families.common import Activation, CausalLM, SequenceClassifier, causal_mask, positions_of
from plimsoll import attend
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer


class GPTBigCodeAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.width = config.hidden_size
        self.heads = config.num_attention_heads
        self.head_dim = self.width // self.heads
        self.single = config.num_key_value_heads == 1 and self.heads > 1
        self.rate = config.attention_dropout
        self.c_attn = nn.Linear(self.width, self.width + 2 * config.num_key_value_heads * self.head_dim)
        self.c_proj = nn.Linear(self.width, self.width)
        self.resid_dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden, mask):
        shape = hidden.shape[:-1]
        if self.single:
            query, key, value = self.c_attn(hidden).unsqueeze(1).split((self.width, self.head_dim, self.head_dim), dim=3)
            query = query.view(*shape, -1, self.head_dim).transpose(1, 2)
        else:
            split = (*shape, self.heads, 3 * self.head_dim)
            query, key, value = self.c_attn(hidden).view(*split).transpose(1, 2).split(3 * [self.head_dim], dim=3)
        output, weights = attend(query, key, value, mask, dropout=self.rate)
        output = output.reshape(*shape, -1).contiguous()
        output = self.c_proj(output)
        output = self.resid_dropout(output)
        return output, weights


class GPTBigCodeMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.hidden_size, config.intermediate_size)
        self.c_proj = nn.Linear(config.intermediate_size, config.hidden_size)
        self.act = Activation(config.hidden_act)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden):
        hidden = self.c_fc(hidden)
        hidden = self.act(hidden)
        hidden = self.c_proj(hidden)
        hidden = self.dropout(hidden)
        return hidden


class GPTBigCodeBlock(GradientCheckpointingLayer):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.hidden_size)
        self.attn = GPTBigCodeAttention(config)
        self.ln_2 = nn.LayerNorm(config.hidden_size)
        self.mlp = GPTBigCodeMLP(config)

    def forward(self, hidden, mask):
        residual = hidden
        hidden = self.ln_1(hidden)
        attended, weights = self.attn(hidden, mask=mask)
        hidden = attended + residual
        residual = hidden
        hidden = self.ln_2(hidden)
        fed = self.mlp(hidden)
        hidden = residual + fed
        return hidden


class GPTBigCodeModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.wpe = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.drop = nn.Dropout(config.embedding_dropout)
        self.h = nn.ModuleList([GPTBigCodeBlock(config) for _ in range(config.num_hidden_layers)])
        self.ln_f = nn.LayerNorm(config.hidden_size)
        self.bias = nn.Buffer(torch.ones((config.max_position_embeddings, config.max_position_embeddings), dtype=torch.bool), persistent=False)

    def get_input_embeddings(self):
        return self.wte

    def forward(self, input_ids, embeddings=None):
        if embeddings is None:
            embeddings = self.wte(input_ids)
        positions = positions_of(embeddings)
        mask = causal_mask(self.config, embeddings, positions)
        places = self.wpe(positions)
        hidden = embeddings + places
        hidden = self.drop(hidden)
        shape = embeddings.shape[:-1] + (hidden.size(-1),)
        for block in self.h:
            hidden = block(hidden, mask=mask)
        hidden = self.ln_f(hidden)
        hidden = hidden.view(shape)
        return hidden


class GPTBigCodeForCausalLM(CausalLM):
    body_class, base = GPTBigCodeModel, "transformer"


class GPTBigCodeForSequenceClassification(SequenceClassifier):
    body_class, base = GPTBigCodeModel, "transformer"
