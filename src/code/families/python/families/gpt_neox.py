# GPT-NeoX and Pythia: heads whose queries, keys and values lie side by side, a rotation of their first part, branches in parallel.
import torch
from families.common import (Activation, AnswerFinder, CausalLM, RotaryEmbedding, SequenceClassifier, TokenClassifier, causal_mask,
                             positions_of, rotate_half)
from plimsoll import attend
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer


class GPTNeoXMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense_h_to_4h = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dense_4h_to_h = nn.Linear(config.intermediate_size, config.hidden_size)
        self.act = Activation(config.hidden_act)

    def forward(self, hidden):
        hidden = self.dense_h_to_4h(hidden)
        hidden = self.act(hidden)
        hidden = self.dense_4h_to_h(hidden)
        return hidden


def rotated(query, key, cosines, sines):
    cosines = cosines.unsqueeze(1)
    sines = sines.unsqueeze(1)
    width = cosines.shape[-1]
    query_part, query_rest = query[..., :width], query[..., width:]
    key_part, key_rest = key[..., :width], key[..., width:]
    turned_query = (query_part * cosines) + (rotate_half(query_part) * sines)
    turned_key = (key_part * cosines) + (rotate_half(key_part) * sines)
    turned_query = torch.cat([turned_query, query_rest], dim=-1)
    turned_key = torch.cat([turned_key, key_rest], dim=-1)
    return turned_query, turned_key


class GPTNeoXAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.head_dim = width // config.num_attention_heads
        self.rate = config.attention_dropout
        self.query_key_value = nn.Linear(width, 3 * width, bias=config.attention_bias)
        self.dense = nn.Linear(width, width, bias=config.attention_bias)

    def forward(self, hidden, mask, positions, tables):
        shape = hidden.shape[:-1]
        fused = self.query_key_value(hidden).view((*shape, -1, 3 * self.head_dim)).transpose(1, 2)
        query, key, value = fused.chunk(3, dim=-1)
        cosines, sines = tables
        query, key = rotated(query, key, cosines, sines)
        output, weights = attend(query, key, value, mask, dropout=self.rate, positions=positions)
        output = output.reshape(*shape, -1).contiguous()
        output = self.dense(output)
        return output, weights


class GPTNeoXLayer(GradientCheckpointingLayer):
    def __init__(self, config):
        super().__init__()
        self.parallel = getattr(config, "use_parallel_residual", True)
        self.input_layernorm = nn.LayerNorm(config.hidden_size)
        self.post_attention_layernorm = nn.LayerNorm(config.hidden_size)
        self.post_attention_dropout = nn.Dropout(config.hidden_dropout)
        self.post_mlp_dropout = nn.Dropout(config.hidden_dropout)
        self.attention = GPTNeoXAttention(config)
        self.mlp = GPTNeoXMLP(config)

    def forward(self, hidden, mask, positions, tables):
        attended, weights = self.attention(self.input_layernorm(hidden), mask=mask, positions=positions, tables=tables)
        attended = self.post_attention_dropout(attended)
        if self.parallel:
            fed = self.mlp(self.post_attention_layernorm(hidden))
            fed = self.post_mlp_dropout(fed)
            hidden = fed + attended + hidden
        else:
            attended = attended + hidden
            fed = self.mlp(self.post_attention_layernorm(attended))
            fed = self.post_mlp_dropout(fed)
            hidden = fed + attended
        return hidden


class GPTNeoXModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_in = nn.Embedding(config.vocab_size, config.hidden_size)
        self.emb_dropout = nn.Dropout(config.embedding_dropout)
        self.layers = nn.ModuleList([GPTNeoXLayer(config) for _ in range(config.num_hidden_layers)])
        self.final_layer_norm = nn.LayerNorm(config.hidden_size)
        self.rotary_emb = RotaryEmbedding(config.rotary_dim)

    def get_input_embeddings(self):
        return self.embed_in

    def forward(self, input_ids, embeddings=None):
        if embeddings is None:
            embeddings = self.embed_in(input_ids)
        positions = positions_of(embeddings)
        mask = causal_mask(self.config, embeddings, positions)
        hidden = self.emb_dropout(embeddings)
        tables = self.rotary_emb(hidden, positions)
        for layer in self.layers:
            hidden = layer(hidden, mask=mask, positions=positions, tables=tables)
        hidden = self.final_layer_norm(hidden)
        return hidden


class OfGPTNeoX:
    body_class, base = GPTNeoXModel, "gpt_neox"


class GPTNeoXForCausalLM(OfGPTNeoX, CausalLM):
    pass


class GPTNeoXForSequenceClassification(OfGPTNeoX, SequenceClassifier):
    pass


class GPTNeoXForTokenClassification(OfGPTNeoX, TokenClassifier):
    library_loss = True


class GPTNeoXForQuestionAnswering(OfGPTNeoX, AnswerFinder):
    library_loss = True
