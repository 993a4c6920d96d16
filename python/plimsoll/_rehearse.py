"""A real training command on a GPU that is not there."""
from __future__ import annotations

import json
import os
import subprocess
from typing import Optional, Sequence

from ._errors import InternalError, raise_for
from ._program import program
from ._results import Estimate


def rehearse(command: Sequence[str], *, on: str, rank: Optional[int] = None, world: Optional[int] = None, steps: Optional[int] = None, timeout: Optional[float] = None,
             synthetic_data: bool = False, env: Optional[dict[str, str]] = None) -> Estimate:
    """Runs `["torchrun", "--nproc-per-node", "8", "train.py"]` on the stand-in device (docs/rehearse.md). What the program prints goes to
    standard error. Raises PlimsollError."""
    line = [str(program()), "rehearse", "--on", on, "--json"]
    for flag, value in (("--rank", rank), ("--world", world), ("--steps", steps), ("--timeout", timeout)):
        line += [] if value is None else [flag, str(value)]
    line += ["--synthetic-data"] if synthetic_data else []
    done = subprocess.run([*line, "--", *map(str, command)], stdout=subprocess.PIPE, env={**os.environ, **env} if env else None, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise InternalError(f"plimsoll rehearse ended with {done.returncode} and no answer") from None
    raise_for(answer)
    return Estimate.of(answer)
