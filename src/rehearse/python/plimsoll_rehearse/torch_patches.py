"""PyTorch: the rendezvous, the marks of steps and phases, and what reads values that no device computed."""

import functools
import os
import sys

from . import journal, launchers, line_search, passes, ranks, steps, toolkit  # noqa: F401 (launchers and line_search watch for their imports)
from .imports import after

toolkit.load()  # this file is imported right before PyTorch


@after("torch")
def patch_torch(torch):
    journal.version("torch", torch.__version__)
    if not torch.cuda.is_available():
        raise SystemExit(
            "plimsoll rehearse: this PyTorch sees no device: it was built for the CPU alone, or for another runtime than the stand-in has"
        )
    choose_cudnn(torch)
    note_memory(torch)
    from torch.utils import _device

    from . import flex_attention, host_memory, math_libraries, values

    passes.mark_passes(torch)

    _device._device_constructors()  # `with torch.device(…)` knows PyTorch's own functions, which are wrapped now: remembered before
    known = values.patch(torch)
    host_memory.patch(torch)
    math_libraries.patch(torch)
    flex_attention.patch(torch, known)
    after("torch.distributed.distributed_c10d")(lambda c10d: ranks.exchange_known_values(c10d, known))


def choose_cudnn(torch):
    """The stand-in's cuDNN knows attention, convolutions and normalisation; recurrent networks take PyTorch's own kernels."""
    if os.environ.get("PLIMSOLL_REHEARSE_CUDNN") != "1":
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch._C._set_sdp_use_cudnn = lambda enabled: None  # stays off, whichever backends a program names
        torch.backends.cudnn.enabled = False
        journal.note("cuDNN is switched off: convolutions and attention take PyTorch's own kernels")
        return
    torch.backends.cudnn.is_acceptable = lambda tensor: False  # asked by recurrent networks alone
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        setattr(torch._VF, name, without_cudnn(torch, getattr(torch._VF, name)))


def without_cudnn(torch, function):
    @functools.wraps(function)
    def wrapper(*arguments, **options):
        journal.note("recurrent networks take PyTorch's own kernels, not cuDNN's")
        with torch.backends.cudnn.flags(enabled=False):
            return function(*arguments, **options)

    return wrapper


# ---- memory ----------------------------------------------------------------------------------------------------------


def note_memory(torch):
    """What PyTorch's own statistics say at the end, and the stack of an allocation that failed."""

    def failed(index, requested, capacity, free):
        journal.out_of_memory(
            {
                "device": index,
                "requested_bytes": requested,
                "device_bytes": capacity,
                "device_free_bytes": free,
                "allocated_bytes": torch.cuda.memory_allocated(index),
                "reserved_bytes": torch.cuda.memory_reserved(index),
                "stack": journal.user_frames() or main_thread_frames(),
            }
        )

    def statistics(device):
        stats = torch.cuda.memory_stats(device)
        found = {
            name: stats.get(key, 0)
            for name, key in (
                ("peak_allocated_bytes", "allocated_bytes.all.peak"),
                ("peak_reserved_bytes", "reserved_bytes.all.peak"),
                ("allocated_bytes", "allocated_bytes.all.current"),
                ("reserved_bytes", "reserved_bytes.all.current"),
                ("alloc_retries", "num_alloc_retries"),
            )
        }
        return {name: max(number, forgotten.get((device, name), 0)) for name, number in found.items()}

    forgotten = {}  # peaks before the program began to count them anew
    reset = torch._C._cuda_resetPeakMemoryStats

    @functools.wraps(reset)
    def remember_and_reset(device):
        found = statistics(device)
        forgotten.update({(device, name): found[name] for name in ("peak_allocated_bytes", "peak_reserved_bytes")})
        return reset(device)

    torch._C._cuda_resetPeakMemoryStats = remember_and_reset

    def at_end():
        if not torch.cuda.is_initialized():
            return
        devices = {str(device): statistics(device) for device in range(torch.cuda.device_count())}
        journal.summary("memory", {**statistics(torch.cuda.current_device()), "devices": devices})
        if os.environ.get("PLIMSOLL_REHEARSE_SNAPSHOT"):
            torch.cuda.memory._dump_snapshot(os.environ["PLIMSOLL_REHEARSE_SNAPSHOT"])

    def attach():
        torch._C._cuda_attach_out_of_memory_observer(failed)
        if os.environ.get("PLIMSOLL_REHEARSE_SNAPSHOT"):
            torch.cuda.memory._record_memory_history(context="alloc", stacks="python")

    torch.cuda._lazy_call(attach)
    torch.cuda._lazy_call(steps.device_used)
    journal.before_end(at_end)


def main_thread_frames():
    """A backward pass allocates in a thread without Python frames: the program is where its main thread is."""
    import threading

    return journal.user_frames(frame=sys._current_frames().get(threading.main_thread().ident))
