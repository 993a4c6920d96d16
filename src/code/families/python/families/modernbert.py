# ModernBERT: norms before the branches, rotation in fp32, gated units; most layers attend within a window on either side.
import torch
from families.common import Activation, ModelOutput, Network, answers, bidirectional_mask, labelled, rotate_half
from plimsoll import attend, loss_begins
from torch import nn
from torch.nn import functional as F
from transformers.modeling_layers import GradientCheckpointingLayer

KINDS = ("full_attention", "sliding_attention")


def norm_of(config):
    return nn.LayerNorm(config.hidden_size, bias=config.norm_bias)


def rotated(query, key, cosines, sines):
    kind = query.dtype
    cosines = cosines.unsqueeze(1)
    sines = sines.unsqueeze(1)
    turned_query = (query.float() * cosines) + (rotate_half(query.float()) * sines)
    turned_key = (key.float() * cosines) + (rotate_half(key.float()) * sines)
    return turned_query.to(kind), turned_key.to(kind)


class ModernBertEmbeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.norm = norm_of(config)
        self.drop = nn.Dropout(config.embedding_dropout)

    def forward(self, input_ids):
        return self.drop(self.norm(self.tok_embeddings(input_ids)))


class ModernBertMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.Wi = nn.Linear(config.hidden_size, config.intermediate_size * 2, bias=config.mlp_bias)
        self.act = Activation(config.hidden_act)
        self.drop = nn.Dropout(config.inner_dropout)
        self.Wo = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, hidden):
        inner, gate = self.Wi(hidden).chunk(2, dim=-1)
        return self.Wo(self.drop(self.act(inner) * gate))


class ModernBertRotaryEmbedding(nn.Module):
    """A table for each kind of layer."""

    def __init__(self, config):
        super().__init__()
        half = config.hidden_size // config.num_attention_heads // 2
        for kind in KINDS:
            setattr(self, kind + "_inv_freq", nn.Buffer(torch.zeros(half), persistent=False))
            setattr(self, kind + "_original_inv_freq", nn.Buffer(torch.zeros(half), persistent=False))

    @torch.no_grad()
    def forward(self, x, positions, kind):
        frequencies = getattr(self, kind + "_inv_freq")
        angles = positions[..., None].float() * frequencies.to(torch.float)
        table = torch.cat((angles, angles), dim=-1)
        cosines = table.cos() * 1.0
        sines = table.sin() * 1.0
        return cosines.to(dtype=x.dtype), sines.to(dtype=x.dtype)


class ModernBertAttention(nn.Module):
    def __init__(self, config, window):
        super().__init__()
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.rate = config.attention_dropout
        self.window = window
        self.Wqkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.attention_bias)
        self.Wo = nn.Linear(config.hidden_size, config.hidden_size, bias=config.attention_bias)
        self.out_drop = nn.Dropout(self.rate) if self.rate > 0 else nn.Identity()

    def forward(self, hidden, tables, mask):
        shape = hidden.shape[:-1]
        fused = self.Wqkv(hidden)
        fused = fused.view(*shape, 3, -1, self.head_dim)
        query, key, value = fused.unbind(dim=-3)
        query = query.transpose(1, 2)
        key = key.transpose(1, 2)
        value = value.transpose(1, 2)
        cosines, sines = tables
        query, key = rotated(query, key, cosines, sines)
        output, weights = attend(query, key, value, mask, causal=False, dropout=self.rate, window=self.window)
        output = output.reshape(*shape, -1).contiguous()
        output = self.out_drop(self.Wo(output))
        return output, weights


class ModernBertEncoderLayer(GradientCheckpointingLayer):
    def __init__(self, config, index):
        super().__init__()
        window = config.layer_windows[index]
        self.kind = KINDS[0] if window is None else KINDS[1]
        self.attn_norm = nn.Identity() if index == 0 else norm_of(config)
        self.attn = ModernBertAttention(config, window)
        self.mlp_norm = norm_of(config)
        self.mlp = ModernBertMLP(config)

    def forward(self, hidden, mask, tables):
        attended, weights = self.attn(self.attn_norm(hidden), tables=tables, mask=mask)
        hidden = hidden + attended
        hidden = hidden + self.mlp(self.mlp_norm(hidden))
        return hidden


class ModernBertModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = ModernBertEmbeddings(config)
        self.layers = nn.ModuleList([ModernBertEncoderLayer(config, index) for index in range(config.num_hidden_layers)])
        self.final_norm = norm_of(config)
        self.rotary_emb = ModernBertRotaryEmbedding(config)

    def get_input_embeddings(self):
        return self.embeddings.tok_embeddings

    def forward(self, input_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device).unsqueeze(0)
        embeddings = self.embeddings(input_ids)  # which what the masks are made with holds until this returns
        hidden = embeddings
        masks = {"full_attention": bidirectional_mask(self.config, embeddings)}
        windows = [window for window in self.config.layer_windows if window is not None]
        if windows:
            masks["sliding_attention"] = bidirectional_mask(self.config, embeddings, windows[0] - 1)
        tables = {}
        for kind in masks:
            tables[kind] = self.rotary_emb(hidden, positions, kind)
        for layer in self.layers:
            hidden = layer(hidden, mask=masks[layer.kind], tables=tables[layer.kind])
        hidden = self.final_norm(hidden)
        return hidden


class ModernBertPredictionHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=getattr(config, "classifier_bias", False))
        self.act = Activation(getattr(config, "classifier_activation", "gelu"))
        self.norm = norm_of(config)

    def forward(self, hidden):
        return self.norm(self.act(self.dense(hidden)))


class ModernBertNetwork(Network):
    body_class, base = ModernBertModel, "model"

    def __init__(self, config):
        super().__init__(config)
        self.head = ModernBertPredictionHead(config)


class ModernBertForMaskedLM(ModernBertNetwork):
    def __init__(self, config):
        super().__init__(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=getattr(config, "decoder_bias", True))
        self.tie(self.decoder)

    def forward(self, input_ids, labels):
        hidden = self.model(input_ids=input_ids)
        logits = self.decoder(self.head(hidden))
        loss_begins()
        wide = logits.float()
        loss = F.cross_entropy(wide.view(-1, self.config.vocab_size), labels.view(-1))
        return ModelOutput(loss, logits)


class ModernBertClassifier(ModernBertNetwork):
    def __init__(self, config):
        super().__init__(config)
        self.drop = nn.Dropout(getattr(config, "classifier_dropout", 0.0))
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)


class ModernBertForSequenceClassification(ModernBertClassifier):
    def forward(self, input_ids, labels):
        hidden = self.model(input_ids=input_ids)
        hidden = hidden[:, 0]
        pooled = self.head(hidden)
        pooled = self.drop(pooled)
        logits = self.classifier(pooled)
        return labelled(logits, labels)


class ModernBertForTokenClassification(ModernBertClassifier):
    def forward(self, input_ids, labels):
        hidden = self.model(input_ids=input_ids)
        hidden = self.head(hidden)
        hidden = self.drop(hidden)
        logits = self.classifier(hidden)
        return labelled(logits, labels)


class ModernBertForQuestionAnswering(ModernBertClassifier):
    def forward(self, input_ids, start_positions, end_positions):
        hidden = self.model(input_ids)
        hidden = self.head(hidden)
        hidden = self.drop(hidden)
        logits = self.classifier(hidden)
        return answers(logits, start_positions, end_positions)
