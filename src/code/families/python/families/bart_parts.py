# What BART, mBART and PEGASUS share: attention of self and across, layers with norms behind (BART) or before their branches, two stacks over
# one table of words. What a decoder's forward keeps alive is each family's own.
import math

import torch
from families.common import Activation, bidirectional_mask
from families.seq2seq import ConditionalGeneration
from plimsoll import attend
from torch import nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer


class LearnedPositions(nn.Embedding):
    """Positions stand two rows further down."""

    def __init__(self, positions, width):
        super().__init__(positions + 2, width)

    def forward(self, words, positions=None):
        if positions is None:
            batch, length = words.shape[:2]
            positions = torch.arange(length, device=words.device).expand(batch, -1)
        else:
            positions = positions.unsqueeze(0)
        return super().forward(positions + 2)


class FrozenPositions(nn.Embedding):
    """Sinusoids, the same for all samples."""

    def __init__(self, positions, width):
        super().__init__(positions, width)
        self.weight.requires_grad_(False)

    @torch.no_grad()
    def forward(self, words, positions=None):
        if positions is None:
            positions = torch.arange(words.shape[1], device=words.device)
        return super().forward(positions)


class ScaledWords(nn.Embedding):
    def __init__(self, config):
        super().__init__(config.vocab_size, config.hidden_size)
        self.scale = math.sqrt(config.hidden_size) if getattr(config, "scale_embedding", False) else 1.0

    def forward(self, ids):
        return super().forward(ids) * self.scale


class Attention(nn.Module):
    def __init__(self, config, heads, causal):
        super().__init__()
        width = config.hidden_size
        self.head_dim = width // heads
        self.rate = config.attention_dropout
        self.causal = causal
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.q_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, hidden, sources=None, mask=None):
        shape = hidden.shape[:-1]
        query = self.q_proj(hidden).view(*shape, -1, self.head_dim).transpose(1, 2)
        sources = hidden if sources is None else sources
        key = self.k_proj(sources)
        value = self.v_proj(sources)
        heads = (*sources.shape[:-1], -1, self.head_dim)
        key = key.view(heads).transpose(1, 2)
        value = value.view(heads).transpose(1, 2)
        output, weights = attend(query, key, value, mask, causal=self.causal, dropout=self.rate, softmax_in_fp32=False)
        output = output.reshape(*shape, -1).contiguous()
        output = self.out_proj(output)
        return output, weights


class Layer(GradientCheckpointingLayer):
    """Norms stand behind the branches, or before them (`norms_first`)."""

    norms_first = False

    def __init__(self, config, heads, inner, crosses):
        super().__init__()
        self.rate = config.hidden_dropout
        self.inner_rate = config.inner_dropout
        self.self_attn = Attention(config, heads, causal=crosses)
        self.activation_fn = Activation(config.hidden_act)
        self.self_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        if crosses:
            self.encoder_attn = Attention(config, heads, causal=False)
            self.encoder_attn_layer_norm = nn.LayerNorm(config.hidden_size)
        self.fc1 = nn.Linear(config.hidden_size, inner)
        self.fc2 = nn.Linear(inner, config.hidden_size)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)

    def before(self, norm, hidden):
        return norm(hidden) if self.norms_first else hidden

    def behind(self, norm, hidden):
        return hidden if self.norms_first else norm(hidden)

    def attended(self, hidden, mask):
        residual = hidden
        hidden = self.before(self.self_attn_layer_norm, hidden)
        hidden, weights = self.self_attn(hidden, mask=mask)
        hidden = F.dropout(hidden, p=self.rate, training=self.training)
        hidden = residual + hidden
        return self.behind(self.self_attn_layer_norm, hidden), weights

    def fed(self, hidden):
        residual = hidden
        hidden = self.before(self.final_layer_norm, hidden)
        hidden = self.activation_fn(self.fc1(hidden))
        hidden = F.dropout(hidden, p=self.inner_rate, training=self.training)
        hidden = self.fc2(hidden)
        hidden = F.dropout(hidden, p=self.rate, training=self.training)
        hidden = residual + hidden
        return self.behind(self.final_layer_norm, hidden)


class EncoderLayer(Layer):
    def __init__(self, config):
        super().__init__(config, config.num_attention_heads, config.intermediate_size, crosses=False)

    def forward(self, hidden, mask):
        hidden, weights = self.attended(hidden, mask)
        hidden = self.fed(hidden)
        if hidden.dtype == torch.float16 and (self.norms_first or not torch.isfinite(hidden).all()):
            largest = torch.finfo(hidden.dtype).max - 1000
            hidden = torch.clamp(hidden, min=-largest, max=largest)
        return hidden


class DecoderLayer(Layer):
    def __init__(self, config):
        super().__init__(config, config.decoder_attention_heads, config.decoder_intermediate_size, crosses=True)

    def forward(self, hidden, mask, encoded):
        hidden, weights = self.attended(hidden, mask)
        residual = hidden
        hidden = self.before(self.encoder_attn_layer_norm, hidden)
        hidden, weights = self.encoder_attn(hidden, encoded)
        hidden = F.dropout(hidden, p=self.rate, training=self.training)
        hidden = residual + hidden
        hidden = self.behind(self.encoder_attn_layer_norm, hidden)
        residual = hidden  # the branch lets go of what came into the one before
        return self.fed(residual)


class NormsFirstEncoderLayer(EncoderLayer):
    norms_first = True


class NormsFirstDecoderLayer(DecoderLayer):
    norms_first = True


class Stack(nn.Module):
    """Words, positions of `positions_class`, layers of `layer_class`, a norm behind the embeddings (`norms_embeddings`) and one behind layers
    whose norms come first."""

    norms_embeddings = True
    positions_class = LearnedPositions

    def __init__(self, config, layers):
        super().__init__()
        self.config = config
        self.embed_tokens = ScaledWords(config)
        self.embed_positions = self.positions_class(config.max_position_embeddings, config.hidden_size)
        self.layers = nn.ModuleList([self.layer_class(config) for _ in range(layers)])
        if self.norms_embeddings:
            self.layernorm_embedding = nn.LayerNorm(config.hidden_size)
        if self.layer_class.norms_first:
            self.layer_norm = nn.LayerNorm(config.hidden_size)

    def get_input_embeddings(self):
        return self.embed_tokens

    def begun(self, words, places):
        hidden = words + places
        if self.norms_embeddings:
            hidden = self.layernorm_embedding(hidden)
        return F.dropout(hidden, p=self.config.embedding_dropout, training=self.training)

    def ended(self, hidden):
        return self.layer_norm(hidden) if self.layer_class.norms_first else hidden


class Encoder(Stack):
    layer_class = EncoderLayer

    def __init__(self, config):
        super().__init__(config, config.num_hidden_layers)

    def forward(self, ids):
        words = self.embed_tokens(ids)
        places = self.embed_positions(words[:, :, -1])
        hidden = self.begun(words, places)
        mask = bidirectional_mask(self.config, words)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.ended(hidden)


class Decoder(Stack):
    layer_class = DecoderLayer

    def __init__(self, config):
        super().__init__(config, config.num_decoder_layers)


class Body(nn.Module):
    """Stacks of `encoder_class` and `decoder_class`."""

    def __init__(self, config):
        super().__init__()
        self.shared = ScaledWords(config)
        self.encoder = self.encoder_class(config)
        self.decoder = self.decoder_class(config)
        if config.tie_word_embeddings:
            self.encoder.embed_tokens.weight = self.shared.weight
            self.decoder.embed_tokens.weight = self.shared.weight

    def get_input_embeddings(self):
        return self.shared

    def forward(self, ids, decoder_ids):
        encoded = self.encoder(ids)
        hidden = self.decoder(decoder_ids, encoded)
        return hidden, encoded


class ForConditionalGeneration(ConditionalGeneration):
    attentions = ("eager", "sdpa")
