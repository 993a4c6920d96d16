"""The functions that the stand-in device library offers beyond CUDA's (src/rehearse/device/README.md)."""

import ctypes

# kinds of marks (src/rehearse/record.hpp, MarkKind)
STEP_END, PHASE_BEGIN, TEXT, WARNING = 2, 3, 5, 6

_process = ctypes.CDLL(None)


def _function(name, *types):
    try:
        function = getattr(_process, name)
    except AttributeError:  # the program runs without the stand-in's preloaded library
        return None
    function.argtypes, function.restype = types, None
    return function


_mark = _function("plimsoll_rehearse_mark", ctypes.c_int, ctypes.c_char_p, ctypes.c_int64)
_written = _function("plimsoll_rehearse_written", ctypes.c_void_p, ctypes.c_size_t)
_finish = _function("plimsoll_rehearse_finish")
_expect_split = _function("plimsoll_rehearse_expect_split", ctypes.c_int, ctypes.c_int, ctypes.c_int)


def mark(kind, value=0, text=""):
    """An event of the program's own in the record, in order with the launches."""
    if _mark:
        _mark(kind, text.encode("utf-8", "replace"), value)


def finish():
    """Nothing more goes into the record."""
    if _finish:
        _finish()


def written(address, size):
    """Values were put there: they are forgotten when the memory goes to another tensor."""
    if _written:
        _written(address, size)


def next_communicator(ranks, rank):
    """Tells who is in the communicator that is made next: the library itself knows only how many."""
    mark(TEXT, rank, "communicator " + " ".join(map(str, ranks)))
