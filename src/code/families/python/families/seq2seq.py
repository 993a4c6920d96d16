# What encoder-decoders share: the decoder's inputs, the mask of ones that it makes, the head of a language model over both stacks.
from dataclasses import dataclass

import torch
from families.common import ModelOutput, Network
from plimsoll import ask_whether_all, loss_begins
from torch import nn
from torch.nn import functional as F

IGNORED = -100


@dataclass
class Seq2SeqOutput(ModelOutput):
    encoder_last_hidden_state: object = None


def shifted_right(labels, start, padding):
    shifted = labels.new_zeros(labels.shape)
    shifted[:, 1:] = labels[:, :-1].clone()
    shifted[:, 0] = start
    shifted.masked_fill_(shifted == IGNORED, padding)
    return shifted


def wrapped_right(labels, padding):
    """The last token that is no padding comes first."""
    shifted = labels.clone()
    shifted.masked_fill_(shifted == IGNORED, padding)
    last = (shifted.ne(padding).sum(dim=1) - 1).unsqueeze(-1)
    first = shifted.gather(1, last).squeeze()
    shifted[:, 1:] = shifted[:, :-1].clone()
    shifted[:, 0] = first
    return shifted


def causal_and_real(batch, queries, keys, padding):
    allowed = queries.new_ones((), dtype=torch.bool)
    allowed = allowed & (keys <= queries)
    allowed = allowed & padding[batch, keys]
    return allowed


def allowed_keys(embeddings, padding):
    batch = torch.arange(embeddings.shape[0], device=embeddings.device)
    heads = torch.arange(1, device=embeddings.device)
    queries = torch.arange(embeddings.shape[1], device=embeddings.device) + 0
    keys = torch.arange(embeddings.shape[1], device=embeddings.device) + 0
    return causal_and_real(batch[:, None, None, None], queries[None, None, :, None], keys[None, None, None, :], padding)


def padded_causal_mask(config, embeddings, ones):
    """Causal, of keys that a mask of ones does not call padding. Whether it is all ones is asked of the device; the mask is taken to stay,
    as with padding in the batch."""
    padding = ones.to(device=embeddings.device, dtype=torch.bool)
    if config._attn_implementation == "sdpa":
        ask_whether_all(padding)
        ask_whether_all(padding[:, :embeddings.shape[1]])
        return allowed_keys(embeddings, padding)
    allowed = allowed_keys(embeddings, padding)
    least = torch.finfo(embeddings.dtype).min
    return torch.where(allowed, torch.zeros((), device=embeddings.device, dtype=embeddings.dtype), least)


class ConditionalGeneration(Network):
    """Both stacks under a head with a bias that nothing trains. `decoder_inputs(labels)` is each family's own."""

    base = "model"

    def __init__(self, config):
        super().__init__(config)
        self.final_logits_bias = nn.Buffer(torch.zeros((1, config.vocab_size)))
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.tie(self.lm_head)

    def forward(self, input_ids, labels):
        decoder_input_ids = self.decoder_inputs(labels)
        hidden, encoded = self.model(input_ids, decoder_input_ids)
        logits = self.lm_head(hidden)
        logits = logits + self.final_logits_bias
        loss_begins()
        loss = F.cross_entropy(logits.view(-1, self.config.vocab_size), labels.view(-1))
        return Seq2SeqOutput(loss, logits, encoded)
