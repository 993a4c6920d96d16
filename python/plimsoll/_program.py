"""The command line inside the package."""
from __future__ import annotations

import os
import sys
from pathlib import Path

from ._native import prefix_folders


def program() -> Path:
    """The plimsoll program. Raises FileNotFoundError where the package holds none."""
    for folder in prefix_folders():
        for name in (folder / "bin" / "plimsoll", folder / "plimsoll"):
            if name.is_file():
                return name
    raise FileNotFoundError(f"the plimsoll program is not in {', '.join(map(str, prefix_folders()))}")


def main() -> None:
    name = str(program())
    os.execv(name, ["plimsoll", *sys.argv[1:]])
