"""The C function of libplimsoll (docs/c-api.md). ctypes gives other threads their turn while it works."""
from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

from ._errors import InternalError, raise_for

_HERE = Path(__file__).resolve().parent


def prefix_folders() -> list[Path]:
    """Where the program and its libraries may lie: PLIMSOLL_PREFIX (a build folder), or inside the package."""
    said = os.environ.get("PLIMSOLL_PREFIX")
    return [Path(said)] if said else [_HERE / "_prefix"]


def _library() -> ctypes.CDLL:
    names = [folder / part / name for folder in prefix_folders() for part in ("lib", "lib64", "lib/x86_64-linux-gnu", ".") for name in ("libplimsoll.so.0", "libplimsoll.so")]
    for name in names:
        if name.exists():
            library = ctypes.CDLL(str(name))
            library.plimsoll_call.argtypes, library.plimsoll_call.restype = [ctypes.c_char_p], ctypes.c_void_p
            library.plimsoll_free.argtypes, library.plimsoll_free.restype = [ctypes.c_void_p], None
            return library
    raise ImportError(f"libplimsoll.so.0 is not in {', '.join(map(str, prefix_folders()))}: pip install . builds it; PLIMSOLL_PREFIX names a build folder")


_LIBRARY = _library()


def call(request: dict[str, Any]) -> dict[str, Any]:
    """Answers one request. Raises PlimsollError."""
    text = json.dumps(request, default=str).encode()
    if b"\0" in text:
        raise InternalError("a request holds a zero byte")
    address = _LIBRARY.plimsoll_call(text)
    if not address:
        raise MemoryError("plimsoll has no memory for its answer")
    try:
        answer = json.loads(ctypes.string_at(address))
    finally:
        _LIBRARY.plimsoll_free(address)
    raise_for(answer)
    return answer
