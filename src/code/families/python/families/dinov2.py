# DINOv2: ViT whose branches are scaled by learned vectors, its softmax in the scores' own type, perhaps with a gated feed-forward.
import torch
from families.common import Activation, Network, bidirectional_mask, labelled
from families.vit import Attention, Embeddings, FeedForward
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer


class Dinov2Embeddings(Embeddings):
    masked = True


class Dinov2Attention(Attention):
    softmax_in_fp32 = False


class LayerScale(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.lambda1 = nn.Parameter(torch.zeros(config.hidden_size))

    def forward(self, hidden):
        return hidden * self.lambda1


class GatedFeedForward(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size)
        self.act_fn = Activation(config.hidden_act)

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Dinov2Layer(GradientCheckpointingLayer):
    def __init__(self, config):
        super().__init__()
        self.norm1 = nn.LayerNorm(config.hidden_size)
        self.attention = Dinov2Attention(config)
        self.layer_scale1 = LayerScale(config)
        self.drop_path = nn.Identity()
        self.norm2 = nn.LayerNorm(config.hidden_size)
        self.mlp = GatedFeedForward(config) if config.mlp_gated else FeedForward(config)
        self.layer_scale2 = LayerScale(config)

    def forward(self, hidden, mask):
        residual = hidden
        hidden = self.norm1(hidden)
        hidden, weights = self.attention(hidden, mask=mask)
        hidden = self.layer_scale1(hidden)
        hidden = self.drop_path(hidden) + residual
        residual = hidden
        hidden = self.norm2(hidden)
        hidden = self.mlp(hidden)
        hidden = self.layer_scale2(hidden)
        hidden = self.drop_path(hidden) + residual
        return hidden


class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.layer = nn.ModuleList([Dinov2Layer(config) for _ in range(config.num_hidden_layers)])

    def forward(self, hidden, mask):
        for layer in self.layer:
            hidden = layer(hidden, mask)
        return hidden


class Dinov2Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embeddings = Dinov2Embeddings(config)
        self.encoder = Encoder(config)
        self.layernorm = nn.LayerNorm(config.hidden_size)

    def get_input_embeddings(self):
        return self.embeddings.patch_embeddings

    def forward(self, pixels):
        embeddings = self.embeddings(pixels)
        mask = bidirectional_mask(self.config, embeddings)
        hidden = self.encoder(embeddings, mask=mask)
        hidden = self.layernorm(hidden)
        return hidden


class Dinov2ForImageClassification(Network):
    """Reads the class token beside the mean of the patches."""

    body_class, base = Dinov2Model, "dinov2"

    def __init__(self, config):
        super().__init__(config)
        self.classifier = nn.Linear(config.hidden_size * 2, config.num_labels)

    def forward(self, pixel_values, labels):
        hidden = self.body(pixel_values)
        first = hidden[:, 0]
        patches = hidden[:, 1:]
        both = torch.cat([first, patches.mean(dim=1)], dim=1)
        logits = self.classifier(both)
        return labelled(logits, labels)
