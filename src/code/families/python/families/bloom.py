# BLOOM: ALiBi added by baddbmm, an eager attention of its own, a GELU with a backward of its own.
import math

import torch
from families.common import AnswerFinder, CausalLM, SequenceClassifier, TokenClassifier, causal_mask
from torch import nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer


def added_behind_dropout(x, residual, rate, training):
    kept = F.dropout(x, p=rate, training=training)
    kept = residual + kept
    return kept


def gelu_forward(x):
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


def gelu_backward(gradient, x):
    x = x[0]
    curve = torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
    slope = 0.5 * x * ((1 - curve * curve) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + curve)
    return slope * gradient


class GeLUFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return gelu_forward(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors
        made = gelu_backward(gradient, x)
        return made


class BloomGelu(nn.Module):
    def forward(self, x):
        return GeLUFunction.apply(x)


class BloomAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.width = config.hidden_size
        self.head_dim = self.width // self.heads
        self.rate = config.hidden_dropout
        self.query_key_value = nn.Linear(self.width, 3 * self.width)
        self.dense = nn.Linear(self.width, self.width)
        self.attention_dropout = nn.Dropout(config.attention_dropout)

    def forward(self, hidden, residual, alibi, mask):
        batch, length, _ = hidden.shape
        fused = self.query_key_value(hidden)
        query, key, value = self.split(fused)
        query = query.reshape(batch * self.heads, -1, self.head_dim)
        key = key.reshape(batch * self.heads, -1, self.head_dim).transpose(-1, -2)
        value = value.reshape(batch * self.heads, -1, self.head_dim)
        scores = alibi.baddbmm(batch1=query, batch2=key, beta=1.0, alpha=1.0 / math.sqrt(self.head_dim))
        weights = scores.view(batch, self.heads, length, -1)
        weights = weights + mask
        shares = F.softmax(weights, dim=-1, dtype=torch.float32).to(query.dtype)
        shares = self.attention_dropout(shares)
        flat = shares.view(batch * self.heads, length, -1)
        context = torch.bmm(flat, value)
        context = self.merged(context)
        output = self.dense(context)
        output = added_behind_dropout(output, residual, self.rate, self.training)
        return output, shares

    def split(self, fused):
        batch, length, _ = fused.shape
        fused = fused.view(batch, length, self.heads, 3, self.head_dim)
        query = fused[..., 0, :].transpose(1, 2)
        key = fused[..., 1, :].transpose(1, 2)
        value = fused[..., 2, :].transpose(1, 2)
        return query, key, value

    def merged(self, x):
        batch, length = x.shape[0] // self.heads, x.shape[1]
        x = x.view(batch, self.heads, length, self.head_dim)
        x = x.permute(0, 2, 1, 3)
        return x.reshape(batch, length, self.heads * self.head_dim)


class BloomMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense_h_to_4h = nn.Linear(config.hidden_size, 4 * config.hidden_size)
        self.gelu_impl = BloomGelu()
        self.dense_4h_to_h = nn.Linear(4 * config.hidden_size, config.hidden_size)
        self.rate = config.hidden_dropout

    def forward(self, hidden, residual):
        hidden = self.gelu_impl(self.dense_h_to_4h(hidden))
        inner = self.dense_4h_to_h(hidden)
        output = added_behind_dropout(inner, residual, self.rate, self.training)
        return output


class BloomBlock(GradientCheckpointingLayer):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(config.hidden_size)
        self.self_attention = BloomAttention(config)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size)
        self.mlp = BloomMLP(config)

    def forward(self, hidden, alibi, mask):
        normed = self.input_layernorm(hidden)
        residual = hidden
        attended, weights = self.self_attention(normed, residual, mask=mask, alibi=alibi)
        normed = self.post_attention_layernorm(attended)
        residual = attended
        output = self.mlp(normed, residual)
        return output, weights


def slopes_of(heads, device):
    """A power for every head, of heads that are no power of two the others from between; and what they were computed of."""
    whole = 2 ** math.floor(math.log2(heads))
    base = torch.full((), 2 ** (-(2 ** -(math.log2(whole) - 3))), device=device, dtype=torch.float32)
    powers = torch.arange(1, 1 + whole, device=device, dtype=torch.int32)
    slopes = torch.pow(base, powers)
    if whole == heads:
        return slopes, (base, powers)
    base_between = torch.full((), 2 ** (-(2 ** -(math.log2(2 * whole) - 3))), device=device, dtype=torch.float32)
    rest = min(whole, heads - whole)
    powers_between = torch.arange(1, 1 + 2 * rest, 2, device=device, dtype=torch.int32)
    slopes = torch.cat([slopes, torch.pow(base_between, powers_between)], dim=0)
    return slopes, (base, powers, base_between, powers_between)


class BloomModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.word_embeddings_layernorm = nn.LayerNorm(config.hidden_size)
        self.h = nn.ModuleList([BloomBlock(config) for _ in range(config.num_hidden_layers)])
        self.ln_f = nn.LayerNorm(config.hidden_size)

    def get_input_embeddings(self):
        return self.word_embeddings

    def forward(self, input_ids, embeddings=None):
        if embeddings is None:
            embeddings = self.word_embeddings(input_ids)
        batch, length, _ = embeddings.shape
        hidden = self.word_embeddings_layernorm(embeddings)
        slopes = slopes_of(self.config.num_attention_heads, hidden.device)[0]
        alibi = slopes[:, None, None] * torch.arange(length, device=hidden.device)
        alibi = alibi.repeat(batch, 1, 1).to(hidden.dtype)
        mask = causal_mask(self.config, embeddings)
        for block in self.h:
            outputs = block(hidden, mask=mask, alibi=alibi)
            hidden = outputs[0]
        hidden = self.ln_f(hidden)
        return hidden


class OfBloom:
    attentions = ("eager",)
    body_class, base = BloomModel, "transformer"


class BloomForCausalLM(OfBloom, CausalLM):
    pass


class BloomForSequenceClassification(OfBloom, SequenceClassifier):
    pass


class BloomForTokenClassification(OfBloom, TokenClassifier):
    pass


class BloomForQuestionAnswering(OfBloom, AnswerFinder):
    pass
