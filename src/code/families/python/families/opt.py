# OPT: positions counted over a mask of ones, norms before (350M: behind) the branches, tokens that may be narrower than the hidden state.
import torch
from families.common import Activation, AnswerFinder, CausalLM, SequenceClassifier, causal_mask
from plimsoll import attend
from torch import nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer

OFFSET = 2  # rows of the table that no position reads


class OPTLearnedPositionalEmbedding(nn.Embedding):
    def __init__(self, positions, width):
        super().__init__(positions + OFFSET, width)

    def forward(self, positions):
        return super().forward(positions + OFFSET)


class OPTAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, bias = config.hidden_size, config.attention_bias
        self.heads = config.num_attention_heads
        self.head_dim = width // self.heads
        self.rate = config.attention_dropout
        self.k_proj = nn.Linear(width, width, bias=bias)
        self.v_proj = nn.Linear(width, width, bias=bias)
        self.q_proj = nn.Linear(width, width, bias=bias)
        self.out_proj = nn.Linear(width, width, bias=bias)

    def forward(self, hidden, mask, positions):
        batch, length, _ = hidden.size()
        query = self.q_proj(hidden) * self.head_dim ** -0.5
        query = query.view(batch, -1, self.heads, self.head_dim).transpose(1, 2)
        key = self.k_proj(hidden)
        value = self.v_proj(hidden)
        key = key.view(batch, -1, self.heads, self.head_dim).transpose(1, 2)
        value = value.view(batch, -1, self.heads, self.head_dim).transpose(1, 2)
        output, weights = attend(query, key, value, mask, dropout=self.rate, positions=positions)
        output = output.reshape(batch, length, -1).contiguous()
        output = self.out_proj(output)
        return output, weights


def norm_of(config):
    return nn.LayerNorm(config.hidden_size, elementwise_affine=config.norm_bias)


def norms_before(config):
    return getattr(config, "do_layer_norm_before", True)


class OPTDecoderLayer(GradientCheckpointingLayer):
    def __init__(self, config):
        super().__init__()
        self.before = norms_before(config)
        self.rate = config.hidden_dropout
        self.self_attn = OPTAttention(config)
        self.activation_fn = Activation(config.hidden_act)
        self.self_attn_layer_norm = norm_of(config)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size, bias=config.mlp_bias)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)
        self.final_layer_norm = norm_of(config)

    def forward(self, hidden, mask, positions):
        residual = hidden
        if self.before:
            hidden = self.self_attn_layer_norm(hidden)
        hidden, weights = self.self_attn(hidden, positions=positions, mask=mask)
        hidden = F.dropout(hidden, p=self.rate, training=self.training)
        hidden = residual + hidden
        if not self.before:
            hidden = self.self_attn_layer_norm(hidden)
        shape = hidden.shape
        hidden = hidden.reshape(-1, hidden.size(-1))
        residual = hidden
        if self.before:
            hidden = self.final_layer_norm(hidden)
        hidden = self.fc1(hidden)
        hidden = self.activation_fn(hidden)
        hidden = self.fc2(hidden)
        hidden = F.dropout(hidden, p=self.rate, training=self.training)
        hidden = (residual + hidden).view(shape)
        if not self.before:
            hidden = self.final_layer_norm(hidden)
        return hidden


def token_width(config):
    return getattr(config, "word_embed_proj_dim", config.hidden_size)


class OPTDecoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        width, tokens = config.hidden_size, token_width(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, tokens)
        self.embed_positions = OPTLearnedPositionalEmbedding(config.max_position_embeddings, width)
        self.project_out = nn.Linear(width, tokens, bias=False) if tokens != width else None
        self.project_in = nn.Linear(tokens, width, bias=False) if tokens != width else None
        normed = norms_before(config) and not getattr(config, "_remove_final_layer_norm", False)
        self.final_layer_norm = norm_of(config) if normed else None
        self.layers = nn.ModuleList([OPTDecoderLayer(config) for _ in range(config.num_hidden_layers)])

    def get_input_embeddings(self):
        return self.embed_tokens

    def forward(self, input_ids, embeddings=None):
        if embeddings is None:
            embeddings = self.embed_tokens(input_ids)
        ones = torch.ones(embeddings.shape[0], embeddings.shape[1], device=embeddings.device)
        positions = torch.cumsum(ones, dim=1)
        positions = (positions * ones - 1).long()
        mask = causal_mask(self.config, embeddings)
        places = self.embed_positions(positions)
        if self.project_in is not None:
            embeddings = self.project_in(embeddings)
        hidden = embeddings + places
        for layer in self.layers:
            hidden = layer(hidden, mask=mask, positions=positions)
        if self.final_layer_norm is not None:
            hidden = self.final_layer_norm(hidden)
        if self.project_out is not None:
            hidden = self.project_out(hidden)
        return hidden


class OPTModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.decoder = OPTDecoder(config)

    def get_input_embeddings(self):
        return self.decoder.embed_tokens

    def forward(self, input_ids):
        return self.decoder(input_ids)


class OfOPT:
    body_class, base = OPTModel, "model"

    @property
    def head_width(self):
        return token_width(self.config)


class OPTForCausalLM(OfOPT, CausalLM):
    @property
    def body(self):
        return self.model.decoder


class OPTForSequenceClassification(OfOPT, SequenceClassifier):
    pass


class OPTForQuestionAnswering(OfOPT, AnswerFinder):
    pass
