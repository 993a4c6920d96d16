# Falcon: of the RW kind (ALiBi, a head of keys for each of queries, one branch behind the other), of the 7B kind (one head of keys, one norm for
# both branches) and of the 40B kind (grouped heads, a norm for each).
import math

import torch
from families.bloom import added_behind_dropout, slopes_of
from families.common import (Activation, AnswerFinder, CausalLM, RotaryEmbedding, SequenceClassifier, TokenClassifier, positions_of,
                             rotate_half)
from plimsoll import mask
from torch import nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer


class FalconLinear(nn.Linear):
    """The bias is an addition of its own."""

    def forward(self, x):
        hidden = x @ self.weight.T
        if self.bias is None:
            return hidden
        return hidden + self.bias


class Kind:
    """Which of them a configuration is."""

    def __init__(self, config):
        self.grouped = getattr(config, "new_decoder_architecture", False)
        self.single = getattr(config, "multi_query", True) and not self.grouped
        self.parallel = getattr(config, "parallel_attn", True)
        norms = getattr(config, "num_ln_in_parallel_attn", None)
        self.two_norms = self.grouped and self.parallel and (norms is None or norms == 2)
        self.alibi = getattr(config, "alibi", False)
        self.bias = getattr(config, "bias", False)


def rotated(query, key, cosines, sines):
    cosines = cosines.unsqueeze(1)
    sines = sines.unsqueeze(1)
    turned_query = (query * cosines) + (rotate_half(query) * sines)
    turned_key = (key * cosines) + (rotate_half(key) * sines)
    return turned_query, turned_key


class FalconAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        kind = Kind(config)
        self.kind = kind
        self.config = config
        self.width = config.hidden_size
        self.heads = config.num_attention_heads
        self.key_heads = config.num_key_value_heads
        self.head_dim = self.width // self.heads
        fused = (self.key_heads * 2 + self.heads) * self.head_dim
        self.query_key_value = FalconLinear(self.width, fused, bias=kind.bias)
        self.dense = FalconLinear(self.width, self.width, bias=kind.bias)
        self.attention_dropout = nn.Dropout(config.attention_dropout)

    def split(self, fused):
        batch, length, _ = fused.shape
        if self.kind.grouped:
            parts = fused.view(batch, length, -1, self.heads // self.key_heads + 2, self.head_dim)
            query = parts[:, :, :, :-2]
            key = parts[:, :, :, [-2]]
            value = parts[:, :, :, [-1]]
            key = torch.broadcast_to(key, query.shape)
            value = torch.broadcast_to(value, query.shape)
            query, key, value = [x.flatten(2, 3) for x in (query, key, value)]
            return query, key, value
        if not self.kind.single:
            fused = fused.view(batch, length, self.heads, 3, self.head_dim)
            return fused[..., 0, :], fused[..., 1, :], fused[..., 2, :]
        fused = fused.view(batch, length, self.heads + 2, self.head_dim)
        return fused[..., :-2, :], fused[..., [-2], :], fused[..., [-1], :]

    def forward(self, hidden, alibi, mask, tables):
        fused = self.query_key_value(hidden)
        key_heads = self.heads if self.kind.grouped else self.key_heads
        (query, key, value) = self.split(fused)
        batch, length, _, _ = query.shape
        query = query.transpose(1, 2).reshape(batch, self.heads, length, self.head_dim)
        key = key.transpose(1, 2).reshape(batch, key_heads, length, self.head_dim)
        value = value.transpose(1, 2).reshape(batch, key_heads, length, self.head_dim)
        if alibi is None:
            cosines, sines = tables
            query, key = rotated(query, key, cosines, sines)
        if self.config._attn_implementation == "sdpa":
            rate = self.config.attention_dropout if alibi is not None else 0.0
            output = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=rate, is_causal=mask is None and length > 1)
            output = output.permute(0, 2, 1, 3)
            output = output.reshape(batch, length, self.width)
            output = self.dense(output)
            return output, None
        if alibi is None:
            scores = query @ key.transpose(-1, -2)
            scores /= math.sqrt(self.head_dim)
            scores = F.softmax(scores + mask, dim=-1, dtype=hidden.dtype)
            output = scores @ value
            output = output.view(batch, self.heads, length, self.head_dim)
            output = output.permute(0, 2, 1, 3)
            output = output.reshape(batch, length, self.width)
            output = self.dense(output)
            return output, scores
        product = query @ key.transpose(-1, -2)
        scores = product.view(batch, self.heads, length, length)
        if scores.dtype == torch.float16 or scores.dtype == torch.bfloat16:
            scores = scores.to(torch.float32)
        logits = scores + alibi.view(batch, self.heads, 1, -1)
        logits *= 1.0 / math.sqrt(self.head_dim)
        shares = F.softmax(logits + mask, dim=-1, dtype=hidden.dtype)
        shares = self.attention_dropout(shares)
        flat = shares.view(batch, self.heads, length, length)
        output = (flat @ value).flatten(0, 1)
        output = self.merged(output)
        output = self.dense(output)
        return output, shares

    def merged(self, x):
        batch, length = x.shape[0] // self.heads, x.shape[1]
        x = x.view(batch, self.heads, length, self.head_dim)
        x = x.permute(0, 2, 1, 3)
        return x.reshape(batch, length, self.width)


class FalconMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        bias = Kind(config).bias
        self.dense_h_to_4h = FalconLinear(config.hidden_size, config.intermediate_size, bias=bias)
        self.act = Activation(config.hidden_act)
        self.dense_4h_to_h = FalconLinear(config.intermediate_size, config.hidden_size, bias=bias)

    def forward(self, x):
        x = self.act(self.dense_h_to_4h(x))
        x = self.dense_4h_to_h(x)
        return x


class FalconDecoderLayer(GradientCheckpointingLayer):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.kind = Kind(config)
        self.self_attention = FalconAttention(config)
        self.mlp = FalconMLP(config)
        if not self.kind.parallel:
            self.post_attention_layernorm = nn.LayerNorm(config.hidden_size)
            self.input_layernorm = nn.LayerNorm(config.hidden_size)
        elif self.kind.two_norms:
            self.ln_attn = nn.LayerNorm(config.hidden_size)
            self.ln_mlp = nn.LayerNorm(config.hidden_size)
        else:
            self.input_layernorm = nn.LayerNorm(config.hidden_size)

    def forward(self, hidden, alibi, mask, positions, tables):
        residual = hidden
        if self.kind.two_norms:
            attention_input = self.ln_attn(hidden)
            mlp_input = self.ln_mlp(hidden)
        else:
            attention_input = self.input_layernorm(hidden)
        attended, weights = self.self_attention(attention_input, mask=mask, alibi=alibi, tables=tables)
        if not self.kind.parallel:
            residual = added_behind_dropout(attended, residual, self.config.attention_dropout, self.training)
            mlp_input = self.post_attention_layernorm(residual)
        elif not self.kind.two_norms:
            mlp_input = attention_input
        fed = self.mlp(mlp_input)
        if self.kind.parallel:
            fed += attended
        output = added_behind_dropout(fed, residual, self.config.hidden_dropout, self.training)
        return output, weights


def alibi_of(real, heads, dtype):
    """Slopes in bf16 times the positions of what is no padding, [batch * heads, 1, length]."""
    batch, length = real.shape
    slopes, parts = slopes_of(heads, real.device)  # which live as long as this runs
    places = ((real.cumsum(dim=-1) - 1) * real)[:, None, :]
    alibi = slopes[..., None].bfloat16() * places
    return alibi.reshape(batch * heads, 1, length).to(dtype)


class FalconModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.kind = Kind(config)
        self.heads = config.num_attention_heads
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.h = nn.ModuleList([FalconDecoderLayer(config) for _ in range(config.num_hidden_layers)])
        self.ln_f = nn.LayerNorm(config.hidden_size)
        self.rotary_emb = RotaryEmbedding(config.hidden_size // config.num_attention_heads)

    def get_input_embeddings(self):
        return self.word_embeddings

    def forward(self, input_ids, embeddings=None):
        if embeddings is None:
            embeddings = self.word_embeddings(input_ids)
        alibi = None
        batch, length, _ = embeddings.shape
        if self.kind.alibi:
            real = torch.ones((batch, length), device=embeddings.device, dtype=torch.long)
            alibi = alibi_of(real, self.heads, embeddings.dtype)
        positions = positions_of(embeddings)
        seen = mask("causal", self.config._attn_implementation, embeddings, None, None, False)
        if alibi is not None:
            least = torch.finfo(embeddings.dtype).min
            if seen.dtype == torch.bool:
                seen = torch.where(seen, torch.full((), 0.0, device=seen.device, dtype=embeddings.dtype), least)
            alibi = alibi.reshape(batch, -1, *alibi.shape[1:])
            seen = torch.masked_fill(alibi / math.sqrt(self.config.hidden_size // self.heads), seen < -1, least)
        hidden = embeddings
        tables = self.rotary_emb(hidden, positions)
        for block in self.h:
            outputs = block(hidden, mask=seen, positions=positions, alibi=alibi, tables=tables)  # a checkpoint holds what a layer is given
            hidden = outputs[0]
        hidden = self.ln_f(hidden)
        return hidden


class OfFalcon:
    attentions = ("eager", "sdpa")
    body_class, base = FalconModel, "transformer"


class FalconForCausalLM(OfFalcon, CausalLM):
    pass


class FalconForSequenceClassification(OfFalcon, SequenceClassifier):
    pass


class FalconForTokenClassification(OfFalcon, TokenClassifier):
    pass


class FalconForQuestionAnswering(OfFalcon, AnswerFinder):
    pass
