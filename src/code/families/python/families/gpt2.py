# GPT-2: fused projections whose weights lie as [in, out], learned positions, an eager attention of its own in the scores' type.
import torch
from families.common import AnswerFinder, CausalLM, SequenceClassifier, TokenClassifier, causal_mask, positions_of
from families.gpt2_parts import Block, Body, FeedForward
from plimsoll import attend
from torch import nn
from torch.nn import functional as F


class TransposedLinear(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.outputs = outputs
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        shape = x.size()[:-1] + (self.outputs,)
        x = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        x = x.view(shape)
        return x


def attend_eagerly(query, key, value, mask, rate, training):
    weights = torch.matmul(query, key.transpose(-1, -2)) * query.size(-1) ** -0.5
    if mask is not None:
        weights = weights + mask
    weights = F.softmax(weights, dim=-1)
    weights = weights.to(value.dtype)
    weights = F.dropout(weights, p=rate, training=training)
    output = torch.matmul(weights, value)
    output = output.transpose(1, 2)
    return output, weights


class GPT2Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.width = config.hidden_size
        self.head_dim = self.width // config.num_attention_heads
        self.c_attn = TransposedLinear(self.width, 3 * self.width)
        self.c_proj = TransposedLinear(self.width, self.width)
        self.attn_dropout = nn.Dropout(config.attention_dropout)
        self.resid_dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden, mask, positions):
        query, key, value = self.c_attn(hidden).split(self.width, dim=2)
        heads = (*key.shape[:-1], -1, self.head_dim)
        key = key.view(heads).transpose(1, 2)
        value = value.view(heads).transpose(1, 2)
        query = query.view(heads).transpose(1, 2)
        if self.config._attn_implementation == "eager":
            output, weights = attend_eagerly(query, key, value, mask, self.config.attention_dropout, self.training)
        else:
            output, weights = attend(query, key, value, mask, dropout=self.config.attention_dropout, positions=positions)
        output = output.reshape(*output.shape[:-2], -1).contiguous()
        output = self.c_proj(output)
        output = self.resid_dropout(output)
        return output, weights


class GPT2MLP(FeedForward):
    linear = TransposedLinear


class GPT2Block(Block):
    attention_class, mlp_class = GPT2Attention, GPT2MLP

    def forward(self, hidden, mask, positions):
        residual = hidden
        hidden = self.ln_1(hidden)
        attended, weights = self.attn(hidden, mask=mask, positions=positions)
        hidden = attended + residual
        residual = hidden
        hidden = self.ln_2(hidden)
        fed = self.mlp(hidden)
        hidden = residual + fed
        return hidden


class GPT2Model(Body):
    block_class = GPT2Block

    def forward(self, input_ids, embeddings=None):
        if embeddings is None:
            embeddings = self.wte(input_ids)
        positions = positions_of(embeddings)
        places = self.wpe(positions)
        hidden = embeddings + places
        mask = causal_mask(self.config, embeddings, positions)
        hidden = self.drop(hidden)
        shape = (-1,) + embeddings.shape[1:-1] + (hidden.size(-1),)
        for block in self.h:
            hidden = block(hidden, mask, positions=positions)
        hidden = self.ln_f(hidden)
        hidden = hidden.view(shape)
        return hidden


class OfGPT2:
    body_class, base = GPT2Model, "transformer"


class GPT2LMHeadModel(OfGPT2, CausalLM):
    pass


class GPT2ForSequenceClassification(OfGPT2, SequenceClassifier):
    pass


class GPT2ForTokenClassification(OfGPT2, TokenClassifier):
    pass


class GPT2ForQuestionAnswering(OfGPT2, AnswerFinder):
    pass
