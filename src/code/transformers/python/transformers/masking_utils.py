# Masks without padding, positions or functions of a model's own are the tape's; others are read as upstream's code has them. What they
# ask the device for (is there padding, does a new sequence begin) is read and waited for; where it is not known, padding is taken to be there,
# packing not. A cache is handed on by its place, whose name is not that of all releases.
from plimsoll import ask_all, ask_whether_all, find_packed, mask
from upstream.transformers.masking_utils import create_bidirectional_mask as bidirectional_as_read
from upstream.transformers.masking_utils import create_bidirectional_sliding_window_mask as bidirectional_window_as_read
from upstream.transformers.masking_utils import create_causal_mask as causal_as_read
from upstream.transformers.masking_utils import create_chunked_causal_mask as chunked_as_read
from upstream.transformers.masking_utils import create_sliding_window_causal_mask as window_as_read
from upstream.transformers.masking_utils import _non_vmap_expansion_sdpa, eager_mask, sdpa_mask


class _MaskFunctions:
    _global_mapping = {"sdpa": sdpa_mask, "eager": eager_mask}

    def __getitem__(self, name):
        return self._global_mapping[name]

    def __contains__(self, name):
        return name in self._global_mapping


ALL_MASK_ATTENTION_FUNCTIONS = _MaskFunctions()


class TransformGetItemToIndex:
    def __enter__(self):
        pass

    def __exit__(self, *args):
        return False


def _vmap_expansion_sdpa(mask_function):
    """What torch.vmap computes of batches of numbers is computed of tensors that broadcast."""

    def expanded(batch_arange, head_arange, q_arange, kv_arange):
        mask = mask_function(*_non_vmap_expansion_sdpa(batch_arange, head_arange, q_arange, kv_arange))
        return mask.expand(batch_arange.shape[0], head_arange.shape[0], q_arange.shape[0], kv_arange.shape[0])

    return expanded


class PagedAttentionCache:
    pass


class BlockMask:
    pass


def fast_all(tensor):
    return ask_whether_all(tensor)


def find_packed_sequence_indices(position_ids):
    find_packed(position_ids)
    return None


def _ignore_bidirectional_mask_sdpa(padding_mask, kv_length, local_attention_size=None):
    if padding_mask is not None and not ask_all(padding_mask):
        return False
    return local_attention_size is None or kv_length < local_attention_size


def _is_plain(inputs_embeds, attention_mask, *functions):
    return attention_mask is None and all(each is None for each in functions)


def create_causal_mask(config, inputs_embeds=None, attention_mask=None, cache=None, position_ids=None, or_mask_function=None,
                       and_mask_function=None, block_sequence_ids=None, layer_idx=None, allow_is_causal_skip=True, **kwargs):
    if getattr(config, "is_causal", True) and _is_plain(inputs_embeds, attention_mask, or_mask_function, and_mask_function,
                                                        block_sequence_ids):
        return mask("causal", config._attn_implementation, inputs_embeds, position_ids, None, allow_is_causal_skip)
    return causal_as_read(config, inputs_embeds, attention_mask, cache, position_ids, or_mask_function=or_mask_function,
                          and_mask_function=and_mask_function, block_sequence_ids=block_sequence_ids, layer_idx=layer_idx,
                          allow_is_causal_skip=allow_is_causal_skip)


def create_bidirectional_mask(config, inputs_embeds=None, attention_mask=None, encoder_hidden_states=None, or_mask_function=None,
                              and_mask_function=None, cache=None, allow_is_bidirectional_skip=True, **kwargs):
    if allow_is_bidirectional_skip and _is_plain(inputs_embeds, attention_mask, or_mask_function, and_mask_function):
        return mask("bidirectional", config._attn_implementation, inputs_embeds, None, None, True)
    return bidirectional_as_read(config, inputs_embeds, attention_mask, encoder_hidden_states, cache, or_mask_function=or_mask_function,
                                 and_mask_function=and_mask_function, allow_is_bidirectional_skip=allow_is_bidirectional_skip)


def create_sliding_window_causal_mask(config, inputs_embeds=None, attention_mask=None, cache=None, position_ids=None,
                                      or_mask_function=None, and_mask_function=None, block_sequence_ids=None, layer_idx=None,
                                      allow_is_causal_skip=True, **kwargs):
    window = getattr(config, "sliding_window", None)
    plain = getattr(config, "is_causal", True) and _is_plain(inputs_embeds, attention_mask, or_mask_function, and_mask_function,
                                                             block_sequence_ids)
    if window is not None and plain and allow_is_causal_skip:
        return mask("causal", config._attn_implementation, inputs_embeds, position_ids, window, True)
    kept = {} if allow_is_causal_skip else {"allow_is_causal_skip": False}
    return window_as_read(config, inputs_embeds, attention_mask, cache, position_ids, or_mask_function=or_mask_function,
                          and_mask_function=and_mask_function, block_sequence_ids=block_sequence_ids, layer_idx=layer_idx, **kept)


def create_bidirectional_sliding_window_mask(config, inputs_embeds=None, attention_mask=None, or_mask_function=None,
                                             and_mask_function=None, **kwargs):
    window = getattr(config, "sliding_window", None)
    if window is not None and _is_plain(inputs_embeds, attention_mask, or_mask_function, and_mask_function):
        return mask("bidirectional", config._attn_implementation, inputs_embeds, None, window, True)
    return bidirectional_window_as_read(config, inputs_embeds, attention_mask, or_mask_function, and_mask_function)


def create_chunked_causal_mask(config, inputs_embeds=None, attention_mask=None, cache=None, position_ids=None,
                               or_mask_function=None, and_mask_function=None, **kwargs):
    chunk = getattr(config, "attention_chunk_size", None)
    if chunk is not None and _is_plain(inputs_embeds, attention_mask, or_mask_function, and_mask_function):
        return mask("chunked", config._attn_implementation, inputs_embeds, position_ids, chunk, True)
    return chunked_as_read(config, inputs_embeds, attention_mask, cache, position_ids, or_mask_function, and_mask_function)


LAYER_PATTERN_TO_MASK_FUNCTION_MAPPING = {
    "full_attention": create_causal_mask,
    "sliding_attention": create_sliding_window_causal_mask,
    "chunked_attention": create_chunked_causal_mask,
}
