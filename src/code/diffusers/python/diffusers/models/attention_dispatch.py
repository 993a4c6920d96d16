# The native backend: torch's scaled_dot_product_attention on [batch, length, heads, width].
import torch


class AttentionBackendName:
    NATIVE = "native"


def dispatch_attention_fn(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False,
                          attention_kwargs=None, *, backend=None, parallel_config=None):
    query, key, value = (x.permute(0, 2, 1, 3) for x in (query, key, value))
    out = torch.nn.functional.scaled_dot_product_attention(
        query=query, key=key, value=value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )
    out = out.permute(0, 2, 1, 3)
    return out
