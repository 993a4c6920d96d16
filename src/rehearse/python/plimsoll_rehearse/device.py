"""The functions that the stand-in device library offers beyond CUDA's (src/rehearse/device/README.md)."""
import ctypes

_process = ctypes.CDLL(None)


def _function(name, *types):
    try:
        function = getattr(_process, name)
    except AttributeError:  # the program runs without the stand-in's preloaded library
        return None
    function.argtypes, function.restype = types, None
    return function


_mark = _function("plimsoll_rehearse_mark", ctypes.c_uint32, ctypes.c_uint64, ctypes.c_char_p)
_flush = _function("plimsoll_rehearse_flush")
_next_communicator = _function("plimsoll_rehearse_next_communicator", ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int))


def mark(kind, value=0, text=""):
    """An event of the program's own in the record, in order with the launches."""
    if _mark:
        _mark(kind, value, text.encode("utf-8", "replace"))


def flush():
    if _flush:
        _flush()


def next_communicator(ranks, rank):
    """Tells who is in the communicator that is made next: a split names no members."""
    if _next_communicator:
        _next_communicator(len(ranks), ranks.index(rank), (ctypes.c_int * len(ranks))(*ranks))
