"""Where a step begins and ends: a step is over when, after an optimizer has stepped, the next forward or backward pass begins."""

import os

from . import journal

_wanted = int(os.environ.get("PLIMSOLL_REHEARSE_STEPS", "4"))
_until_peak = os.environ.get("PLIMSOLL_REHEARSE_UNTIL_PEAK") == "1"
_optimizer_stepped = False
_peaks = []
_after_step = []


def after_step(function):
    _after_step.append(function)


def optimizer_begins():
    journal.phase("optimizer")


def optimizer_stepped():
    global _optimizer_stepped
    _optimizer_stepped = True


def pass_begins(name):
    """A forward or backward pass starts, or something that only follows steps (a checkpoint is saved)."""
    boundary()
    journal.phase(name)


def boundary():
    global _optimizer_stepped
    if not _optimizer_stepped:
        return
    _optimizer_stepped = False
    done = journal.step_finished()
    for function in _after_step:
        function()
    if _until_peak and _wanted < float("inf") and _peak_recurs():
        journal.stop(f"the peak recurred in step {done}")
    if done >= _wanted:
        journal.stop(f"{done} steps were done")


def last_boundary():
    """The program ends after an optimizer step: that step is whole."""
    global _wanted
    _wanted = float("inf")
    boundary()


def _peak_recurs():
    """Whether the last two steps, the first apart, reached the same allocated and reserved bytes."""
    import torch

    stats = torch.cuda.memory_stats()
    torch.cuda.reset_peak_memory_stats()
    _peaks.append((stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]))
    return len(_peaks) >= 3 and _peaks[-1] == _peaks[-2]


journal.before_end(last_boundary)
