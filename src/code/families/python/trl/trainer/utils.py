# What TRL's trainers ask of a family's forward.
from plimsoll import token_scores


def check_routers(model):
    """No family here has routers."""


def fused_forward(self, input_ids, labels):
    """As far as the last hidden states, then how likely the head finds the labels, without logits."""
    return token_scores(self.body(input_ids), self.lm_head, labels)
