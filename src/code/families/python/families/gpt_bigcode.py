# GPT-BigCode (SantaCoder, StarCoder): GPT-2's blocks of linears, one head of keys and values for all queries.
import torch
from families.common import CausalLM, SequenceClassifier, TokenClassifier, causal_mask, positions_of
from families.gpt2_parts import Block, Body
from plimsoll import attend
from torch import nn


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


class GPTBigCodeBlock(Block):
    attention_class = GPTBigCodeAttention

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


class GPTBigCodeModel(Body):
    block_class = GPTBigCodeBlock

    def __init__(self, config):
        super().__init__(config)
        self.bias = nn.Buffer(torch.ones((config.max_position_embeddings, config.max_position_embeddings), dtype=torch.bool), persistent=False)

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


class OfGPTBigCode:
    body_class, base = GPTBigCodeModel, "transformer"


class GPTBigCodeForCausalLM(OfGPTBigCode, CausalLM):
    pass


class GPTBigCodeForSequenceClassification(OfGPTBigCode, SequenceClassifier):
    pass


class GPTBigCodeForTokenClassification(OfGPTBigCode, TokenClassifier):
    pass
