"""Programs that ask to be ended with a failure: what they say and where, also where a launcher or a script above them ends as if all were well."""

import functools
import sys

from . import journal
from .imports import after

_said = []  # by the parser of arguments that is about to leave


def watch():
    leave = sys.exit

    @functools.wraps(leave)
    def told(status=None, *more):
        if status not in (None, 0, False):
            number = isinstance(status, int)
            journal.leaves(status if number else 1, (_said[-1] if _said else "sys.exit was called") if number else str(status))
        leave(status, *more)

    sys.exit = told


@after("argparse")
def tell_errors(argparse):
    leave = argparse.ArgumentParser.exit

    @functools.wraps(leave)
    def told(self, status=0, message=None):
        _said.append((message or "sys.exit was called").strip())
        try:
            leave(self, status, message)
        finally:
            _said.pop()

    argparse.ArgumentParser.exit = told
