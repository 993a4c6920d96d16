# T5 and mT5: norms of root mean squares before the branches, scores that are not scaled and to which each distance adds a bias of its own, which
# the first layer of a stack computes for all.
import math

import torch
from families.common import Activation, causal_mask
from families.seq2seq import Seq2SeqOutput, shifted_right
from plimsoll import loss_begins, weight_type
from torch import nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer


class T5LayerNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden):
        variance = hidden.to(torch.float32).pow(2).mean(-1, keepdim=True)
        hidden = hidden * torch.rsqrt(variance + 1e-6)
        if self.weight.dtype in (torch.float16, torch.bfloat16):
            hidden = hidden.to(self.weight.dtype)
        return self.weight * hidden


class FeedForward(nn.Module):
    """DenseReluDense, whose last weight may be kept in another type."""

    def __init__(self, config, width):
        super().__init__()
        self.gated = config.mlp_gated
        if self.gated:
            self.wi_0 = nn.Linear(config.hidden_size, width, bias=False)
            self.wi_1 = nn.Linear(config.hidden_size, width, bias=False)
        else:
            self.wi = nn.Linear(config.hidden_size, width, bias=False)
        self.wo = nn.Linear(width, config.hidden_size, bias=False)
        self.dropout = nn.Dropout(config.inner_dropout)
        self.act = Activation(config.hidden_act)

    def forward(self, hidden):
        if self.gated:
            gate = self.act(self.wi_0(hidden))
            raised = self.wi_1(hidden)
            hidden = gate * raised
        else:
            hidden = self.wi(hidden)
            hidden = self.act(hidden)
        hidden = self.dropout(hidden)
        hidden = hidden.to(weight_type(self.wo))
        return self.wo(hidden)


class T5LayerFF(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.DenseReluDense = FeedForward(config, config.intermediate_size)
        self.layer_norm = T5LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden):
        forwarded = self.layer_norm(hidden)
        forwarded = self.DenseReluDense(forwarded)
        hidden = hidden + self.dropout(forwarded)
        return hidden


def bucket_of(distance, both_ways, count, farthest):
    """Buckets of distances: of the near ones each has its own, of the far ones ever more have one."""
    buckets = 0
    if both_ways:
        count //= 2
        buckets += (distance > 0).to(torch.long) * count
        distance = torch.abs(distance)
    else:
        distance = -torch.min(distance, torch.zeros_like(distance))
    exact = count // 2
    near = distance < exact
    far = exact + (torch.log(distance.float() / exact) / math.log(farthest / exact) * (count - exact)).to(torch.long)
    far = torch.min(far, torch.full_like(far, count - 1))
    buckets += torch.where(near, distance, far)
    return buckets


class T5Attention(nn.Module):
    def __init__(self, config, decodes, causal, has_table):
        super().__init__()
        inner = config.num_attention_heads * config.head_dim
        self.config = config
        self.decodes, self.causal, self.has_table = decodes, causal, has_table
        self.q = nn.Linear(config.hidden_size, inner, bias=False)
        self.k = nn.Linear(config.hidden_size, inner, bias=False)
        self.v = nn.Linear(config.hidden_size, inner, bias=False)
        self.o = nn.Linear(inner, config.hidden_size, bias=False)
        if has_table:
            self.relative_attention_bias = nn.Embedding(getattr(config, "relative_attention_num_buckets", 32), config.num_attention_heads)

    def bias_of(self, queries, keys, device):
        query_places = torch.arange(queries, dtype=torch.long, device=device)[:, None] + 0
        key_places = torch.arange(keys, dtype=torch.long, device=device)[None, :]
        distance = key_places - query_places
        buckets = bucket_of(distance, not self.decodes, getattr(self.config, "relative_attention_num_buckets", 32),
                            getattr(self.config, "relative_attention_max_distance", 128))
        values = self.relative_attention_bias(buckets)
        values = values.permute([2, 0, 1]).unsqueeze(0)
        return values

    def masked_bias(self, bias, queries, keys, device):
        """SDPA's mask: the bias, and the least number where a causal layer may not look."""
        if self.causal:
            allowed = torch.arange(queries, device=device)[:, None] >= torch.arange(keys, device=device)[None, :]
            allowed = allowed.view(1, 1, queries, keys)
            bias = torch.where(allowed, bias, torch.finfo(bias.dtype).min)
        return bias.contiguous() if self.config.packs_position_bias else bias

    def attend_fused(self, query, key, value, bias):
        mask = self.masked_bias(bias, query.shape[2], key.shape[2], key.device)
        output = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=self.config.attention_dropout, scale=1.0)
        return output.transpose(1, 2).contiguous(), None

    def attend(self, query, key, value, mask, bias):
        weights = torch.matmul(query, key.transpose(2, 3)) * 1.0
        weights = weights + bias
        if mask is not None:
            weights = weights + mask
        weights = F.softmax(weights, dim=-1)
        weights = F.dropout(weights, p=self.config.attention_dropout, training=self.training)
        output = torch.matmul(weights, value)
        return output.transpose(1, 2).contiguous(), weights

    def forward(self, hidden, mask=None, sources=None, bias=None, checkpointed=False):
        shape = hidden.shape[:-1]
        query = self.q(hidden).view(*shape, -1, self.config.head_dim).transpose(1, 2)
        sources = hidden if sources is None else sources
        heads = (*sources.shape[:-1], -1, self.config.head_dim)
        key = self.k(sources).view(heads).transpose(1, 2)
        value = self.v(sources).view(heads).transpose(1, 2)
        if self.decodes and not checkpointed:
            # The decoder's configuration keeps its cache: keys and values are joined to an empty one.
            key, value = torch.cat([key], dim=2), torch.cat([value], dim=2)
        if bias is None:
            if self.has_table:
                bias = self.bias_of(shape[1], key.shape[-2], query.device)
            else:
                bias = torch.zeros((1, self.config.num_attention_heads, shape[1], key.shape[-2]), device=query.device, dtype=query.dtype)
                if checkpointed:
                    bias.requires_grad = True
        if self.config._attn_implementation == "sdpa":
            output, weights = self.attend_fused(query, key, value, bias)
        else:
            output, weights = self.attend(query, key, value, mask, bias)
        output = output.reshape(*shape, -1).contiguous()
        output = self.o(output)
        return output, bias, weights


class T5LayerSelfAttention(nn.Module):
    def __init__(self, config, decodes, has_table):
        super().__init__()
        self.SelfAttention = T5Attention(config, decodes, decodes, has_table)
        self.layer_norm = T5LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden, mask, bias, checkpointed):
        normed = self.layer_norm(hidden)
        attended, bias, weights = self.SelfAttention(normed, mask=mask, bias=bias, checkpointed=checkpointed)
        attended = hidden + self.dropout(attended)
        return attended, bias, weights


class T5LayerCrossAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.EncDecAttention = T5Attention(config, True, False, False)
        self.layer_norm = T5LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden, encoded, bias, checkpointed):
        normed = self.layer_norm(hidden)
        attended, bias, weights = self.EncDecAttention(normed, sources=encoded, bias=bias, checkpointed=checkpointed)
        summed = hidden + self.dropout(attended)
        return summed, bias, weights


def without_infinities(hidden):
    if hidden.dtype == torch.float16:
        most = torch.finfo(hidden.dtype).max
        limit = torch.where(torch.isinf(hidden).any(), most - 1000, most)
        hidden = torch.clamp(hidden, min=-limit, max=limit)
    return hidden


class T5Block(GradientCheckpointingLayer):
    def __init__(self, config, decodes, has_table):
        super().__init__()
        self.layer = nn.ModuleList([T5LayerSelfAttention(config, decodes, has_table)])
        if decodes:
            self.layer.append(T5LayerCrossAttention(config))
        self.layer.append(T5LayerFF(config))

    def forward(self, hidden, mask, bias, encoded, crossed_mask, crossed_bias):
        hidden, bias, weights = self.layer[0](hidden, mask, bias, self.gradient_checkpointing)
        hidden = without_infinities(hidden)
        if encoded is not None:
            hidden, crossed_bias, weights = self.layer[1](hidden, encoded, crossed_bias, self.gradient_checkpointing)
            hidden = without_infinities(hidden)
        hidden = self.layer[-1](hidden)
        hidden = without_infinities(hidden)
        return hidden, bias, crossed_bias


class T5Stack(nn.Module):
    def __init__(self, config, decodes, layers):
        super().__init__()
        self.config = config
        self.decodes = decodes
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.block = nn.ModuleList([T5Block(config, decodes, at == 0) for at in range(layers)])
        self.final_layer_norm = T5LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.embedding_dropout)

    def get_input_embeddings(self):
        return self.embed_tokens

    def forward(self, ids, encoded=None):
        embeddings = self.embed_tokens(ids)
        mask = causal_mask(self.config, embeddings) if self.decodes else None
        bias = crossed_bias = None
        hidden = self.dropout(embeddings)
        for block in self.block:
            hidden, self_bias, cross_bias = block(hidden, mask, bias, encoded, None, crossed_bias)
            bias = self_bias
            crossed_bias = cross_bias
        hidden = self.final_layer_norm(hidden)
        hidden = self.dropout(hidden)
        return hidden


class T5Network(nn.Module):
    attentions = ("eager", "sdpa")

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.shared = nn.Embedding(config.vocab_size, config.hidden_size)
        self.encoder = T5Stack(config, False, config.num_hidden_layers)
        self.encoder.embed_tokens.weight = self.shared.weight

    def get_input_embeddings(self):
        return self.shared


class T5EncoderModel(T5Network):
    def forward(self, input_ids):
        return self.encoder(input_ids)


class T5ForConditionalGeneration(T5Network):
    def __init__(self, config):
        super().__init__(config)
        self.decoder = T5Stack(config, True, config.num_decoder_layers)
        self.decoder.embed_tokens.weight = self.shared.weight
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.shared.weight

    def forward(self, input_ids, labels):
        encoded = self.encoder(input_ids)
        decoder_ids = shifted_right(labels, 0, 0)
        hidden = self.decoder(decoder_ids, encoded)
        decoded = hidden
        if self.config.scale_decoder_outputs:
            decoded = decoded * self.config.hidden_size ** -0.5
        logits = self.lm_head(decoded)
        loss_begins()
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))
        return Seq2SeqOutput(loss, logits, encoded)
