# flash_attention_forward where nothing is padded: the package's kernels.
from plimsoll import flash_attention


def flash_attention_forward(
    module,
    query,
    key,
    value,
    attention_mask,
    dropout=0.0,
    scaling=None,
    sliding_window=None,
    softcap=None,
    is_causal=None,
    s_aux=None,
    **kwargs,
):
    if attention_mask is not None:
        raise NotImplementedError("flash attention with a mask")
    if s_aux is not None:
        raise NotImplementedError("flash attention with sinks")
    is_causal = is_causal if is_causal is not None else module.is_causal
    name = module.config._attn_implementation
    return flash_attention(name, query, key, value, is_causal, dropout, sliding_window, kwargs.get("position_ids")), None
