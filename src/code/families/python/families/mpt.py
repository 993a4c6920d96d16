# MPT: ALiBi in fp32 over all positions of the configuration, an eager attention of its own under a mask of booleans, no biases.
import math

import torch
from families.common import AnswerFinder, CausalLM, SequenceClassifier, TokenClassifier, causal_mask
from torch import nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer


def alibi_of(heads, positions, device):
    """What every head adds for a distance: a power of two of the distance to the end, [heads, 1, positions]."""
    distances = torch.arange(1 - positions, 1, dtype=torch.int32, device=device).view(1, 1, 1, positions)
    powers = 2 ** math.ceil(math.log2(heads))
    exponents = torch.arange(1, powers + 1, dtype=torch.int64, device=device).float()
    exponents = exponents * (8 / powers)
    slopes = 1.0 / torch.pow(2, exponents)
    slopes = slopes.view(1, powers, 1, 1)
    if powers != heads:  # every second one, then those between
        slopes = torch.concat([slopes[:, 1::2, ...], slopes[:, ::2, ...]], dim=1)[:, :heads, ...]
    distances = distances * slopes
    return distances.squeeze(0)


class MptAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.heads = config.num_attention_heads
        self.head_dim = config.hidden_size // self.heads
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, hidden, alibi, mask):
        batch, length = hidden.shape[:2]
        fused = self.Wqkv(hidden)
        if self.config.clip_qkv > 0:
            fused = fused.clamp(min=-self.config.clip_qkv, max=self.config.clip_qkv)
        query, key, value = fused.chunk(3, dim=2)
        query = query.reshape(batch, length, self.heads, self.head_dim).transpose(1, 2)
        key = key.reshape(batch, length, self.heads, self.head_dim).transpose(1, 2)
        value = value.reshape(batch, length, self.heads, self.head_dim).transpose(1, 2)
        scores = torch.matmul(query, key.transpose(-1, -2)) * (1 / math.sqrt(self.head_dim))
        alibi = alibi[:, max(0, alibi.size(1) - length):, max(0, alibi.size(2) - length):]
        scores = scores + alibi
        scores = scores.masked_fill(mask, torch.finfo(query.dtype).min)
        weights = F.softmax(scores.float(), dim=-1).to(value.dtype)
        weights = F.dropout(weights, p=self.config.attention_dropout, training=self.training)
        context = torch.matmul(weights, value)
        context = context.permute(0, 2, 1, 3).contiguous().view(batch, length, -1)
        return self.out_proj(context), weights


class MptMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, 4 * config.hidden_size, bias=False)
        self.act = nn.GELU()
        self.down_proj = nn.Linear(4 * config.hidden_size, config.hidden_size, bias=False)
        self.dropout = config.hidden_dropout

    def forward(self, hidden, residual):
        hidden = self.act(self.up_proj(hidden))
        inner = self.down_proj(hidden)
        output = F.dropout(inner, p=self.dropout, training=self.training)
        output = output + residual
        return output


class MptBlock(GradientCheckpointingLayer):
    def __init__(self, config):
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.hidden_size, bias=False)
        self.attn = MptAttention(config)
        self.norm_2 = nn.LayerNorm(config.hidden_size, bias=False)
        self.ffn = MptMLP(config)
        self.resid_attn_dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden, alibi, mask):
        normed = self.norm_1(hidden)
        residual = hidden
        attended, weights = self.attn(normed, alibi=alibi, mask=mask)
        hidden = self.resid_attn_dropout(attended) + residual
        normed = self.norm_2(hidden)
        residual = hidden
        output = self.ffn(normed, residual)
        return output, weights


class MptModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.blocks = nn.ModuleList([MptBlock(config) for _ in range(config.num_hidden_layers)])
        self.norm_f = nn.LayerNorm(config.hidden_size, bias=False)

    def get_input_embeddings(self):
        return self.wte

    def forward(self, input_ids, embeddings=None):
        if embeddings is None:
            embeddings = self.wte(input_ids)
        hidden = embeddings
        alibi = alibi_of(self.config.num_attention_heads, self.config.max_position_embeddings, hidden.device)
        mask = causal_mask(self.config, embeddings).to(torch.bool)
        for block in self.blocks:
            outputs = block(hidden, alibi=alibi, mask=mask)
            hidden = outputs[0]
        hidden = self.norm_f(hidden)
        return hidden


class OfMpt:
    attentions = ("eager",)
    body_class, base = MptModel, "transformer"


class MptForCausalLM(OfMpt, CausalLM):
    pass


class MptForSequenceClassification(OfMpt, SequenceClassifier):
    pass


class MptForTokenClassification(OfMpt, TokenClassifier):
    pass


class MptForQuestionAnswering(OfMpt, AnswerFinder):
    pass
