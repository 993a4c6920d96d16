# What the texts of families share: the configuration, heads, masks.
from dataclasses import dataclass

import torch
from plimsoll import activate, answered_logits, causal_lm_loss, loss_begins, mask, model_mask
from torch import nn
from torch.nn import functional as F


class Configuration:
    """What config.json says, and over it what has been read of it, by names that all families share."""

    def __init__(self, said, **facts):
        for names in (said, facts):
            for name, value in names.items():
                setattr(self, name, value)


@dataclass
class ModelOutput:
    loss: object = None
    logits: object = None


@dataclass
class AnsweringOutput(ModelOutput):
    start_logits: object = None
    end_logits: object = None


class Activation(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, x):
        return activate(self.name, x)


def causal_mask(config, embeddings, positions=None):
    if positions is None:
        return mask("causal", config._attn_implementation, embeddings, None, None, True)
    return model_mask(embeddings, positions)


def bidirectional_mask(config, embeddings, window=None):
    """Of keys at most `window` away."""
    return mask("bidirectional", config._attn_implementation, embeddings, None, window, True)


def positions_of(embeddings):
    positions = torch.arange(embeddings.shape[1], device=embeddings.device) + 0
    return positions.unsqueeze(0)


def rotate_half(x):
    first = x[..., :x.shape[-1] // 2]
    second = x[..., x.shape[-1] // 2:]
    return torch.cat((-second, first), dim=-1)


class RotaryEmbedding(nn.Module):
    """Cosines and sines of so many of a head's numbers."""

    def __init__(self, width):
        super().__init__()
        half = width // 2
        self.inv_freq = nn.Buffer(torch.zeros(half), persistent=False)
        self.original_inv_freq = nn.Buffer(torch.zeros(half), persistent=False)

    @torch.no_grad()
    def forward(self, x, positions):
        angles = positions[..., None].float() * self.inv_freq.to(torch.float)
        table = torch.cat((angles, angles), dim=-1)
        cosines = table.cos() * 1.0
        sines = table.sin() * 1.0
        return cosines.to(dtype=x.dtype), sines.to(dtype=x.dtype)


class Network(nn.Module):
    """A body under a head. `body_class` is made as the attribute `base`."""

    attentions = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flash_attention_4")

    def __init__(self, config):
        super().__init__()
        self.config = config
        setattr(self, self.base, self.body_class(config))

    @property
    def body(self):
        return getattr(self, self.base)

    @property
    def head_width(self):
        return self.config.hidden_size

    def get_input_embeddings(self):
        return self.body.get_input_embeddings()

    def tie(self, head):
        if self.config.tie_word_embeddings:
            head.weight = self.get_input_embeddings().weight


class CausalLM(Network):
    head_bias = False

    def __init__(self, config):
        super().__init__(config)
        self.lm_head = nn.Linear(self.head_width, config.vocab_size, bias=self.head_bias)
        self.tie(self.lm_head)

    def forward(self, input_ids=None, inputs_embeds=None, labels=None, logits_to_keep=0):
        hidden = self.body(input_ids, inputs_embeds)
        logits = answered_logits(self.lm_head(hidden[:, -logits_to_keep:, :]))
        loss = None if labels is None else causal_lm_loss(logits, labels, hidden)
        return ModelOutput(loss, logits)


class SequenceClassifier(Network):
    """Every token's scores, of which each sequence's last token's count: the last that is no padding."""

    def __init__(self, config):
        super().__init__(config)
        self.score = nn.Linear(self.head_width, config.num_labels, bias=False)

    def forward(self, input_ids, labels=None):
        hidden = self.body(input_ids)
        scores = self.score(hidden)
        loss_begins()
        real = (input_ids != 0).to(torch.int32)
        places = torch.arange(input_ids.shape[-1], device=scores.device, dtype=torch.int32)
        last = (places * real).argmax(-1)
        logits = scores[torch.arange(input_ids.shape[0], device=scores.device), last]
        loss = None if labels is None else F.cross_entropy(logits.view(-1, self.config.num_labels), labels.view(-1))
        return ModelOutput(loss, logits)


class TokenClassifier(Network):
    library_loss = False  # loss_function of transformers, which takes the logits in fp32, not a loss of the class's own

    def __init__(self, config):
        super().__init__(config)
        self.dropout = nn.Dropout(config.head_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, input_ids, labels):
        hidden = self.body(input_ids)
        kept = self.dropout(hidden)
        logits = self.classifier(kept)
        loss_begins()
        flat = logits.view(-1, self.config.num_labels)
        loss = F.cross_entropy(flat.float() if self.library_loss else flat, labels.view(-1))
        return ModelOutput(loss, logits)


class AnswerFinder(Network):
    library_loss = False  # which begins before places are clamped

    def __init__(self, config):
        super().__init__(config)
        self.qa_outputs = nn.Linear(self.head_width, 2)

    def forward(self, input_ids, start_positions, end_positions):
        hidden = self.body(input_ids)
        logits = self.qa_outputs(hidden)
        return answers(logits, start_positions, end_positions, self.library_loss)


def labelled(logits, labels):
    """The loss of logits against their labels; of a single number each, the squared error."""
    loss_begins()
    if logits.size(-1) == 1:
        loss = F.mse_loss(logits.view(-1), labels.view(-1))
    else:
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))
    return ModelOutput(loss, logits)


def answers(logits, start_positions, end_positions, library_loss=False):
    """Where in a text an answer begins and ends; places beyond it are ignored."""
    start_logits, end_logits = logits.split(1, dim=-1)
    start_logits = start_logits.squeeze(-1).contiguous()
    end_logits = end_logits.squeeze(-1).contiguous()
    if library_loss:
        loss_begins()
    length = start_logits.size(1)
    start_positions = start_positions.clamp(0, length)
    end_positions = end_positions.clamp(0, length)
    start_loss = F.cross_entropy(start_logits, start_positions, ignore_index=length)
    end_loss = F.cross_entropy(end_logits, end_positions, ignore_index=length)
    loss = (start_loss + end_loss) / 2
    return AnsweringOutput(loss, None, start_logits, end_logits)
