# GPT-Neo: learned positions, an eager attention of its own whose scores are fp32 and unscaled, and a mask that every layer keeps.
import torch
from families.common import Activation, CausalLM, SequenceClassifier, causal_mask, positions_of
from torch import nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer


class GPTNeoSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        positions, width = config.max_position_embeddings, config.hidden_size
        # Of a local layer all but the last so many keys are left out as well; the table is as large.
        self.bias = nn.Buffer(torch.ones((1, 1, positions, positions), dtype=torch.bool), persistent=False)
        self.attn_dropout = nn.Dropout(config.attention_dropout)
        self.resid_dropout = nn.Dropout(config.hidden_dropout)
        self.head_dim = width // config.num_attention_heads
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.out_proj = nn.Linear(width, width)

    def heads(self, x):
        return x.view(x.size()[:-1] + (-1, self.head_dim)).permute(0, 2, 1, 3)

    def attend(self, query, key, value, mask):
        query = query.to(torch.float32)
        key = key.to(torch.float32)
        weights = torch.matmul(query, key.transpose(-1, -2))
        length, keys = query.size(-2), key.size(-2)
        allowed = self.bias[:, :, keys - length:keys, :keys]
        least = torch.tensor(torch.finfo(weights.dtype).min, dtype=weights.dtype, device=weights.device)
        weights = torch.where(allowed, weights, least)
        weights = weights + mask
        weights = F.softmax(weights, dim=-1)
        weights = weights.to(value.dtype)
        weights = self.attn_dropout(weights)
        return torch.matmul(weights, value), weights

    def forward(self, hidden, mask):
        query = self.q_proj(hidden)
        key = self.k_proj(hidden)
        value = self.v_proj(hidden)
        query = self.heads(query)
        key = self.heads(key)
        value = self.heads(value)
        output, weights = self.attend(query, key, value, mask)
        output = output.permute(0, 2, 1, 3).contiguous()
        output = output.view(output.size()[:-2] + (-1,))
        output = self.out_proj(output)
        output = self.resid_dropout(output)
        return output, weights


class GPTNeoAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = GPTNeoSelfAttention(config)

    def forward(self, hidden, mask):
        return self.attention(hidden, mask=mask)


class GPTNeoMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.hidden_size, config.intermediate_size)
        self.c_proj = nn.Linear(config.intermediate_size, config.hidden_size)
        self.act = Activation(config.hidden_act)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden):
        hidden = self.c_fc(hidden)
        hidden = self.act(hidden)
        hidden = self.c_proj(hidden)
        hidden = self.dropout(hidden)
        return hidden


class GPTNeoBlock(GradientCheckpointingLayer):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.hidden_size)
        self.attn = GPTNeoAttention(config)
        self.ln_2 = nn.LayerNorm(config.hidden_size)
        self.mlp = GPTNeoMLP(config)

    def forward(self, hidden, mask):
        residual = hidden
        hidden = self.ln_1(hidden)
        attended, weights = self.attn(hidden, mask=mask)
        hidden = attended + residual
        residual = hidden
        hidden = self.ln_2(hidden)
        fed = self.mlp(hidden)
        hidden = residual + fed
        return hidden, weights


class GPTNeoModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.wpe = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.drop = nn.Dropout(config.embedding_dropout)
        self.h = nn.ModuleList([GPTNeoBlock(config) for _ in range(config.num_hidden_layers)])
        self.ln_f = nn.LayerNorm(config.hidden_size)

    def get_input_embeddings(self):
        return self.wte

    def forward(self, input_ids, embeddings=None):
        if embeddings is None:
            embeddings = self.wte(input_ids)
        positions = positions_of(embeddings)
        mask = causal_mask(self.config, embeddings, positions)
        places = self.wpe(positions)
        hidden = embeddings + places
        hidden = self.drop(hidden)
        for block in self.h:
            outputs = block(hidden, mask=mask)
            hidden = outputs[0]
        hidden = self.ln_f(hidden)
        hidden = hidden.view(-1, embeddings.shape[1], hidden.size(-1))
        return hidden


class GPTNeoForCausalLM(CausalLM):
    attentions = ("eager",)
    body_class, base = GPTNeoModel, "transformer"


class GPTNeoForSequenceClassification(SequenceClassifier):
    attentions = ("eager",)
    body_class, base = GPTNeoModel, "transformer"
