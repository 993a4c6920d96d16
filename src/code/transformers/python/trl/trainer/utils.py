# What TRL's trainers ask of a model's forward.
from plimsoll import refuse, token_scores


def check_routers(model):
    """Since 1.8 the trainers ask a mixture for its routers' logits and add their auxiliary loss."""
    config = model.config.get_text_config()
    if hasattr(config, "output_router_logits") and getattr(config, "router_aux_loss_coef", 0.0) != 0.0:
        refuse("the routers' auxiliary loss beside a trainer's own")


def fused_forward(self, input_ids, labels):
    """add_fused_lm_head's: as far as the last hidden states, then how likely the head finds the labels, without logits."""
    outputs = self.base_model(input_ids=input_ids, use_cache=False)
    return token_scores(outputs.last_hidden_state, self.get_output_embeddings(), labels)
