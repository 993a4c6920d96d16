# GPT-J: parallel branches behind one norm, rotation by a table of sines and cosines that every layer keeps, an eager attention of its own whose
# scores are fp32.
import math

import torch
from families.common import Activation, AnswerFinder, CausalLM, SequenceClassifier, causal_mask, positions_of
from torch import nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer


def rotate_every_two(x):
    even = x[:, :, :, ::2]
    odd = x[:, :, :, 1::2]
    x = torch.stack((-odd, even), dim=-1)
    return x.flatten(-2)


def turned(x, sines, cosines):
    sines = torch.repeat_interleave(sines[:, :, None, :], 2, 3)
    cosines = torch.repeat_interleave(cosines[:, :, None, :], 2, 3)
    return (x * cosines) + (rotate_every_two(x) * sines)


class RotaryAttention(nn.Module):
    """The part of a head that turns, and the product: what GPT-J and CodeGen have in common."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.head_dim = config.hidden_size // self.heads
        self.rotary_dim = config.rotary_dim
        self.attn_dropout = nn.Dropout(config.attention_dropout)
        self.resid_dropout = nn.Dropout(config.hidden_dropout)
        self.embed_positions = nn.Buffer(torch.zeros(config.max_position_embeddings, config.rotary_dim), persistent=False)

    def merged(self, output):
        output = output.permute(0, 2, 1, 3).contiguous()
        return output.view(output.size()[:-2] + (-1,))


class GPTJAttention(RotaryAttention):
    def __init__(self, config):
        super().__init__(config)
        width = config.hidden_size
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.out_proj = nn.Linear(width, width, bias=False)

    def attend(self, query, key, value, mask):
        query = query.to(torch.float32)
        key = key.to(torch.float32)
        weights = torch.matmul(query, key.transpose(-1, -2))
        weights = weights / math.sqrt(self.head_dim)
        weights = weights + mask
        weights = F.softmax(weights, dim=-1)
        weights = weights.to(value.dtype)
        weights = self.attn_dropout(weights)
        return torch.matmul(weights, value), weights

    def forward(self, hidden, mask, positions):
        query = self.q_proj(hidden)
        key = self.k_proj(hidden)
        value = self.v_proj(hidden)
        split = query.size()[:-1] + (self.heads, self.head_dim)
        query = query.view(split)
        key = key.view(split)
        value = value.view(split).permute(0, 2, 1, 3)
        table = self.embed_positions.repeat(positions.shape[0], 1, 1)
        places = positions.unsqueeze(-1).repeat(1, 1, table.shape[-1])
        both = torch.gather(table, 1, places).to(key.dtype)
        sines, cosines = torch.split(both, both.shape[-1] // 2, dim=-1)
        key_part = key[:, :, :, :self.rotary_dim]
        key_rest = key[:, :, :, self.rotary_dim:]
        query_part = query[:, :, :, :self.rotary_dim]
        query_rest = query[:, :, :, self.rotary_dim:]
        key_part = turned(key_part, sines, cosines)
        query_part = turned(query_part, sines, cosines)
        key = torch.cat([key_part, key_rest], dim=-1)
        query = torch.cat([query_part, query_rest], dim=-1)
        key = key.permute(0, 2, 1, 3)
        query = query.permute(0, 2, 1, 3)
        output, weights = self.attend(query, key, value, mask)
        output = self.merged(output)
        output = self.out_proj(output)
        output = self.resid_dropout(output)
        return output, weights


class GPTJMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.fc_in = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc_out = nn.Linear(config.intermediate_size, config.hidden_size)
        self.act = Activation(config.hidden_act)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden):
        hidden = self.fc_in(hidden)
        hidden = self.act(hidden)
        hidden = self.fc_out(hidden)
        hidden = self.dropout(hidden)
        return hidden


class GPTJBlock(GradientCheckpointingLayer):
    attention_class = GPTJAttention

    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.hidden_size)
        self.attn = self.attention_class(config)
        self.mlp = GPTJMLP(config)

    def forward(self, hidden, mask, positions):
        residual = hidden
        hidden = self.ln_1(hidden)
        attended, weights = self.attn(hidden, mask=mask, positions=positions)
        fed = self.mlp(hidden)
        hidden = attended + fed + residual
        return hidden, weights


class GPTJModel(nn.Module):
    block_class = GPTJBlock

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.drop = nn.Dropout(config.embedding_dropout)
        self.h = nn.ModuleList([self.block_class(config) for _ in range(config.num_hidden_layers)])
        self.ln_f = nn.LayerNorm(config.hidden_size)

    def get_input_embeddings(self):
        return self.wte

    def forward(self, input_ids, embeddings=None):
        if embeddings is None:
            embeddings = self.wte(input_ids)
        positions = positions_of(embeddings)
        mask = causal_mask(self.config, embeddings, positions)
        hidden = embeddings
        hidden = self.drop(hidden)
        for block in self.h:
            outputs = block(hidden, mask=mask, positions=positions)
            hidden = outputs[0]
        hidden = self.ln_f(hidden)
        hidden = hidden.view(-1, embeddings.shape[1], hidden.size(-1))
        return hidden


class OfGPTJ:
    attentions = ("eager",)
    body_class, base = GPTJModel, "transformer"


class GPTJForCausalLM(OfGPTJ, CausalLM):
    head_bias = True


class GPTJForSequenceClassification(OfGPTJ, SequenceClassifier):
    pass


class GPTJForQuestionAnswering(OfGPTJ, AnswerFinder):
    pass
