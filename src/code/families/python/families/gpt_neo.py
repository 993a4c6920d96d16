# GPT-Neo: learned positions, an eager attention of its own whose scores are fp32 and unscaled, and a mask that every layer keeps.
import torch
from families.common import AnswerFinder, CausalLM, SequenceClassifier, TokenClassifier, causal_mask, positions_of
from families.gpt2_parts import Block, Body
from torch import nn
from torch.nn import functional as F


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


class GPTNeoBlock(Block):
    attention_class = GPTNeoAttention

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


class GPTNeoModel(Body):
    block_class = GPTNeoBlock

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


class OfGPTNeo:
    attentions = ("eager",)
    body_class, base = GPTNeoModel, "transformer"


class GPTNeoForCausalLM(OfGPTNeo, CausalLM):
    pass


class GPTNeoForSequenceClassification(OfGPTNeo, SequenceClassifier):
    pass


class GPTNeoForTokenClassification(OfGPTNeo, TokenClassifier):
    pass


class GPTNeoForQuestionAnswering(OfGPTNeo, AnswerFinder):
    pass
