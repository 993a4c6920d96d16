"""The functions that the stand-in device library offers beyond CUDA's (src/rehearse/device/README.md)."""

import ctypes

# kinds of marks (src/rehearse/record.hpp, MarkKind)
STEP_END, PHASE_BEGIN, TEXT, WARNING = 2, 3, 5, 6

# what is known of values in device memory (control.h)
NONE, ASSUMED, CERTAIN = 0, 1, 2

_library = None


def load(path):
    """The stand-in's core, once a program is about to use PyTorch."""
    global _library
    _library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    for name, result, *types in (
        ("mark", None, ctypes.c_int, ctypes.c_char_p, ctypes.c_int64),
        ("note_values", None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int),
        ("known", ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t),
        ("finish", None),
        ("library_call", ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.c_uint32),
        ("begin_again", ctypes.c_int),
    ):
        function = getattr(_library, f"plimsoll_rehearse_{name}")
        function.argtypes, function.restype = types, result


def mark(kind, value=0, text=""):
    """An event of the program's own in the record, in order with the launches."""
    if _library:
        _library.plimsoll_rehearse_mark(kind, text.encode("utf-8", "replace"), value)


def finish():
    """Nothing more goes into the record."""
    if _library:
        _library.plimsoll_rehearse_finish()


def begin_again():
    """In a forked child with another environment: the device is what that says. False where it has been used before."""
    return _library is None or _library.plimsoll_rehearse_begin_again() == 1


def note_values(address, size, knowledge):
    _library.plimsoll_rehearse_note_values(address, size, knowledge)


def known(address, size):
    """The least that is known of any byte there."""
    return _library.plimsoll_rehearse_known(address, size)


def next_communicator(ranks, rank):
    """Tells who is in the communicator that is made next: the library itself knows only how many."""
    mark(TEXT, rank, "communicator " + " ".join(map(str, ranks)))


def host_step(kind, implementation, size):
    """An optimizer would step parameters of so many bytes on the host, which nobody runs: the planner knows what that moves."""
    mark(TEXT, size, f"host step {kind} {implementation}")


def host_traffic(size):
    """The host would read and write so many bytes of its memory, which nobody does."""
    mark(TEXT, size, "host traffic")


def library_call(name, stream, kind, numbers):
    """Work of a library that is not there, on a stream: what its numbers mean, its name says (src/rehearse/recorded_values.cpp)."""
    if _library.plimsoll_rehearse_library_call(name.encode(), stream, kind, (ctypes.c_int64 * len(numbers))(*numbers), len(numbers)) == 0:
        raise RuntimeError(f"plimsoll rehearse: {name} on a stream that is none")
