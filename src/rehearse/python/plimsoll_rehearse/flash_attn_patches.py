"""flash-attn 2.6.1 and later without its compiled part (FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE pip install flash-attn), which takes the vendor's
compiler: what its functions allocate is allocated, and their kernels are noted. PyTorch has the same forward kernel for sequences of one length,
and launches it."""

import functools
import importlib.machinery
import importlib.util
import math
import re
import sys
import types

from . import device, journal

COMPILED = "flash_attn_2_cuda"
FIRST, FIRST_WITHOUT_INPUTS = (2, 6, 1), (2, 7, 0)  # releases: whose arguments are these, whose answers leave the inputs out
BLOCK = 128  # of queries: rows of what the backward pass accumulates come in whole ones
TYPES = {"float16": 3, "bfloat16": 4}  # record::Type


def round_up(number, multiple):
    return -(-number // multiple) * multiple


def release():
    """Of the package that calls; the newest where another calls the compiled part by itself."""
    caller = sys.modules.get("flash_attn")
    return tuple(map(int, re.findall(r"\d+", caller.__version__)[:3])) if caller else FIRST_WITHOUT_INPUTS


def told(function):
    @functools.wraps(function)
    def wrapped(*arguments, **options):
        if release() < FIRST:
            raise NotImplementedError(f"plimsoll rehearse: {COMPILED} is not installed, and nothing stands for that of flash-attn before 2.6.1")
        journal.replaced(f"{COMPILED}, the compiled part of flash-attn, which is not installed")
        return function(*arguments, **options)

    return wrapped


def refuse(given, name):
    if given is not None:
        raise NotImplementedError(f"plimsoll rehearse: {COMPILED} is not installed, and what stands for it has no {name}")


@told
def fwd(q, k, v, out, alibi_slopes, dropout, scale, causal, left, right, softcap, return_softmax, generator):
    import torch

    refuse(out, "output that is given")
    out, lse, rng_state, _, probabilities = torch.ops.aten._flash_attention_forward(
        q, k, v, None, None, q.size(1), k.size(1), dropout, causal, return_softmax, scale=scale, alibi_slopes=alibi_slopes, **window(left, right)
    )
    return results(q, k, v, out, lse, probabilities, rng_state)


def results(q, k, v, out, *rest):
    """Until 2.6 the inputs came back too, and the output once more as it was before its padding was cut off."""
    return (out, *rest) if release() >= FIRST_WITHOUT_INPUTS else (out, q, k, v, out, *rest)


def window(left, right):
    """As PyTorch's function takes it: none is unbounded."""
    return {"window_size_left": left if left >= 0 else None, "window_size_right": right if right >= 0 else None}


@told
def varlen_fwd(
    q, k, v, out, cu_seqlens_q, cu_seqlens_k, seqused_k, leftpad_k, block_table, alibi_slopes, max_q, max_k, dropout, scale, zero_tensors, causal,
    left, right, softcap, return_softmax, generator
):  # fmt: skip
    import torch

    for name, given in (("output that is given", out), ("cache of keys and values", block_table), ("padding on the left", leftpad_k)):
        refuse(given, name)
    total, heads, head_dim = q.shape
    out = torch.empty_like(q)
    lse = torch.empty((heads, total), dtype=torch.float32, device=q.device)
    rounded = (cu_seqlens_q.numel() - 1, heads, round_up(max_q, BLOCK), round_up(max_k, BLOCK)) if return_softmax else (0,)
    probabilities = torch.empty(rounded, dtype=q.dtype, device=q.device)
    rng_state = torch.empty((2,), dtype=torch.int64, device=q.device)
    launch("forward", q, k, sequences(q, k, cu_seqlens_q, cu_seqlens_k, max_q, max_k), causal, dropout, left)
    return results(q, k, v, out, lse, probabilities, rng_state)


@told
def bwd(dout, q, k, v, out, lse, dq, dk, dv, alibi_slopes, dropout, scale, causal, left, right, softcap, deterministic, generator, rng_state):
    batch, queries = q.shape[:2]
    work = (batch, queries, k.size(1))
    softmax_d = backward(q, k, dq, dk, dv, (batch,), round_up(queries, BLOCK), work, batch, causal, dropout, left, deterministic)
    return dq, dk, dv, softmax_d


@told
def varlen_bwd(
    dout, q, k, v, out, lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, alibi_slopes, max_q, max_k, dropout, scale, zero_tensors, causal, left, right,
    softcap, deterministic, generator, rng_state
):  # fmt: skip
    count = cu_seqlens_q.numel() - 1
    rows = q.size(0) + BLOCK * count
    work = sequences(q, k, cu_seqlens_q, cu_seqlens_k, max_q, max_k)
    softmax_d = backward(q, k, dq, dk, dv, (), rows, work, count, causal, dropout, left, deterministic)
    return dq, dk, dv, softmax_d


def backward(q, k, dq, dk, dv, batch, rows, work, count, causal, dropout, left, deterministic):
    """The row sums, dQ in fp32, and, where query heads share a key head, the gradients of each before they are summed."""
    import torch

    heads, head_dim, kv_heads = q.size(-2), q.size(-1), k.size(-2)
    single = {"dtype": torch.float32, "device": q.device}
    softmax_d = torch.empty((*batch, heads, rows), **single)
    wide = round_up(head_dim, 32 if head_dim <= 128 else 64)
    if deterministic:
        processors = torch.cuda.get_device_properties(q.device).multi_processor_count
        parts = -(-processors // (count * heads))  # of `count` sequences
        accumulated = torch.zeros((parts, *batch, rows, heads, wide), **single)
    else:
        accumulated = torch.empty((*batch, rows, heads, wide), **single)
    given = [dk, dv]
    expanded = [torch.empty((*k.shape[:-2], heads, head_dim), dtype=q.dtype, device=q.device) for _ in given if heads != kv_heads]
    launch("backward", q, k, work, causal, dropout, left)
    for each, sums in zip(expanded, given):
        torch.sum(each.unflatten(-2, (kv_heads, heads // kv_heads)), -2, out=sums)
    del accumulated
    return softmax_d


def sequences(q, k, cu_seqlens_q, cu_seqlens_k, max_q, max_k):
    """(how many, queries, keys) of sequences of one length with as many pairs as these have; where their ends are not known, of the greatest."""
    from . import values

    if not values.are_known(cu_seqlens_q, cu_seqlens_k):
        journal.note("where packed sequences end is not known: flash-attn's kernels are taken to attend over sequences of the greatest length")
        batch = max(1, round(q.size(0) / max(1, max_q)))
        return batch, -(-q.size(0) // batch), -(-k.size(0) // batch)
    lengths, others = (values.host_view(each).diff().double() for each in (cu_seqlens_q, cu_seqlens_k))
    pairs = float((lengths * others).sum()) / max(1, len(lengths))
    ratio = float(others.sum()) / max(1.0, float(lengths.sum()))
    queries = math.sqrt(pairs / ratio) if ratio else 0
    return len(lengths), max(1, round(queries)), max(1, round(queries * ratio))


def launch(direction, q, k, work, causal, dropout, left):
    import torch

    batch, queries, keys = work
    heads, kv_heads, head_dim = q.size(-2), k.size(-2), q.size(-1)
    kind = str(q.dtype).split(".")[-1]
    if kind not in TYPES:
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")  # as the compiled part says it
    seen = 1 + (left + 1 if 0 <= left < keys else 0)
    numbers = (batch, heads, queries, head_dim, batch, kv_heads, keys, head_dim, head_dim, 1 + bool(causal) + 4 * (dropout > 0), seen)
    stream = torch.cuda.current_stream(q.device).cuda_stream
    device.library_call(f"flash_attn.attention_{direction}", stream, TYPES[kind], numbers)


def fwd_kvcache(*arguments, **options):
    refuse(arguments, "attention over a cache (flash_attn_with_kvcache)")


if importlib.util.find_spec(COMPILED) is None:
    module = types.ModuleType(COMPILED)
    module.__spec__ = importlib.machinery.ModuleSpec(COMPILED, None)
    for function in (fwd, varlen_fwd, bwd, varlen_bwd, fwd_kvcache):
        setattr(module, function.__name__, function)
    sys.modules[COMPILED] = module
