# CodeGen: GPT-J with one projection for queries, values and keys in four parts, whose tables are indexed and not cast.
import math

import torch
from families.common import CausalLM
from families.gptj import GPTJBlock, GPTJModel, RotaryAttention, turned
from torch import nn

PARTS = 4


class CodeGenAttention(RotaryAttention):
    def __init__(self, config):
        super().__init__(config)
        self.qkv_proj = nn.Linear(config.hidden_size, config.hidden_size * 3, bias=False)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def split_heads(self, x):
        split = x.reshape(x.shape[:-1] + (self.heads // PARTS, self.head_dim))
        return split.reshape(x.shape[:-2] + (-1,) + split.shape[-1:])

    def attend(self, query, key, value, mask):
        query = query.to(torch.float32)
        key = key.to(torch.float32)
        weights = torch.matmul(query, key.transpose(-1, -2))
        weights = weights + mask
        weights = weights / math.sqrt(self.head_dim)
        weights = nn.Softmax(dim=-1)(weights)
        weights = weights.to(value.dtype)
        weights = self.attn_dropout(weights)
        return torch.matmul(weights, value), weights

    def forward(self, hidden, mask, positions):
        fused = self.qkv_proj(hidden)
        parts = fused.reshape(fused.shape[:-1] + (PARTS, -1))
        query, value, key = torch.split(parts, self.head_dim * self.heads // PARTS, dim=-1)
        query = self.split_heads(query)
        key = self.split_heads(key)
        value = self.split_heads(value)
        value = value.permute(0, 2, 1, 3)
        table = self.embed_positions
        both = table[positions]
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


class CodeGenBlock(GPTJBlock):
    attention_class = CodeGenAttention


class CodeGenModel(GPTJModel):
    block_class = CodeGenBlock


class CodeGenForCausalLM(CausalLM):
    attentions, head_bias = ("eager",), True
    body_class, base = CodeGenModel, "transformer"
