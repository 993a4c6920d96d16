from torch import nn


def ForCausalLMLoss(logits, labels, vocab_size, **kwargs):
    logits = logits.float()
    labels = nn.functional.pad(labels, (0, 1), value=-100)
    labels = labels[..., 1:].contiguous()
    return nn.functional.cross_entropy(logits.view(-1, vocab_size), labels.view(-1))
