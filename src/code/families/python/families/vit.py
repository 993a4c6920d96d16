# ViT: an encoder of an image's patches, norms before the branches; what DeiT and DINOv2 have of it, too.
import torch
from families.common import Activation, Network, bidirectional_mask, labelled
from plimsoll import attend, weight_type
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer


class PatchEmbeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        size = config.patch_size
        self.projection = nn.Conv2d(config.num_channels, config.hidden_size, kernel_size=size, stride=size)

    def forward(self, pixels):
        return self.projection(pixels).flatten(2).transpose(1, 2)


class Embeddings(nn.Module):
    """Tokens that are learned before the patches, positions added to all."""

    masked = distilled = False

    def __init__(self, config):
        super().__init__()
        width = config.hidden_size
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        if getattr(config, "use_mask_token", self.masked):
            self.mask_token = nn.Parameter(torch.zeros(1, width))
        self.patch_embeddings = PatchEmbeddings(config)
        self.position_embeddings = nn.Parameter(torch.zeros(1, config.max_position_embeddings, width))
        if self.distilled:
            self.distillation_token = nn.Parameter(torch.zeros(1, 1, width))
        self.dropout = nn.Dropout(config.embedding_dropout)

    def forward(self, pixels):
        embeddings = self.patch_embeddings(pixels)
        batch = embeddings.size(0)
        cls_tokens = self.cls_token.expand(batch, -1, -1)
        if self.distilled:
            distillation_tokens = self.distillation_token.expand(batch, -1, -1)
            embeddings = torch.cat((cls_tokens, distillation_tokens, embeddings), dim=1)
        else:
            embeddings = torch.cat((cls_tokens, embeddings), dim=1)
        embeddings = embeddings + self.position_embeddings
        embeddings = self.dropout(embeddings)
        return embeddings


class Attention(nn.Module):
    softmax_in_fp32 = True

    def __init__(self, config):
        super().__init__()
        width, bias = config.hidden_size, config.attention_bias
        self.head_dim = width // config.num_attention_heads
        self.rate = config.attention_dropout
        self.q_proj = nn.Linear(width, width, bias=bias)
        self.k_proj = nn.Linear(width, width, bias=bias)
        self.v_proj = nn.Linear(width, width, bias=bias)
        self.o_proj = nn.Linear(width, width)

    def forward(self, hidden, mask):
        shape = hidden.shape[:-1]
        heads = (*shape, -1, self.head_dim)
        query = self.q_proj(hidden).view(heads).transpose(1, 2)
        key = self.k_proj(hidden).view(heads).transpose(1, 2)
        value = self.v_proj(hidden).view(heads).transpose(1, 2)
        output, weights = attend(query, key, value, mask, causal=False, dropout=self.rate, softmax_in_fp32=self.softmax_in_fp32)
        output = output.reshape(*shape, -1).contiguous()
        output = self.o_proj(output)
        return output, weights


class FeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.activation_fn = Activation(config.hidden_act)
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden):
        hidden = self.fc1(hidden)
        hidden = self.activation_fn(hidden)
        hidden = self.fc2(hidden)
        return hidden


class Layer(GradientCheckpointingLayer):
    def __init__(self, config):
        super().__init__()
        self.attention = Attention(config)
        self.layernorm_before = nn.LayerNorm(config.hidden_size)
        self.layernorm_after = nn.LayerNorm(config.hidden_size)
        self.mlp = FeedForward(config)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, hidden, mask):
        residual = hidden
        hidden = self.layernorm_before(hidden)
        hidden, weights = self.attention(hidden, mask)
        hidden = self.dropout(hidden)
        hidden = hidden + residual
        residual = hidden
        hidden = self.layernorm_after(hidden)
        hidden = self.mlp(hidden)
        hidden = self.dropout(hidden)
        hidden = hidden + residual
        return hidden


class Body(nn.Module):
    embeddings_class = Embeddings

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = self.embeddings_class(config)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.num_hidden_layers)])
        self.layernorm = nn.LayerNorm(config.hidden_size)

    def get_input_embeddings(self):
        return self.embeddings.patch_embeddings

    def forward(self, pixels):
        embeddings = self.embeddings(pixels.to(weight_type(self.embeddings.patch_embeddings.projection)))
        mask = bidirectional_mask(self.config, embeddings)
        hidden = embeddings
        for layer in self.layers:
            hidden = layer(hidden, mask)
        hidden = self.layernorm(hidden)
        return hidden


class ImageClassifier(Network):
    """Reads the class token."""

    def __init__(self, config):
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, pixel_values, labels):
        hidden = self.body(pixel_values)
        pooled = hidden[:, 0, :]
        logits = self.classifier(pooled)
        return labelled(logits, labels)


class ViTForImageClassification(ImageClassifier):
    body_class, base = Body, "vit"
