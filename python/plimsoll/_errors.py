"""What went wrong, in the planner's own words."""
from __future__ import annotations


class PlimsollError(Exception):
    """message: what is wrong; where: file and place, or empty; hint: what to do, or the nearest valid name."""

    def __init__(self, message: str, where: str = "", hint: str = "") -> None:
        super().__init__(": ".join(part for part in (where, message) if part) + (f" ({hint})" if hint else ""))
        self.message, self.where, self.hint = message, where, hint


class BadInput(PlimsollError, ValueError):
    """A name, a key or a value is wrong, or settings contradict each other."""


class Refused(PlimsollError, NotImplementedError):
    """Understood, but not modelled: named, never approximated."""


class InternalError(PlimsollError, RuntimeError):
    """A defect of plimsoll."""


def raise_for(answer: dict) -> None:
    """Raises what an answer of schema plimsoll/error/1 says."""
    if answer.get("schema") != "plimsoll/error/1":
        return
    error = answer["error"]
    kind = {"bad_input": BadInput, "refused": Refused}.get(error["code"], InternalError)
    raise kind(error["message"], error["where"], error["hint"])
