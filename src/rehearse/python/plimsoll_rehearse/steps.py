"""Where a step begins and ends. A pass that begins after an optimizer has stepped is a boundary; a step is a whole turn of the program's
loop, so of a loop with several optimizers (a generator's and a discriminator's) it ends at every second boundary, or wherever the pattern of
who stepped recurs. The record holds every boundary; which of them end steps is in the summary, known best when the program ends.

A program says it itself with plimsoll_rehearse.step(), or the command line does with --mark FUNCTION; with --until-exit the whole run is one."""

import os
import sys
import threading
import weakref

from . import device, journal

_wanted = int(os.environ.get("PLIMSOLL_REHEARSE_STEPS", "4"))
_until_peak = os.environ.get("PLIMSOLL_REHEARSE_UNTIL_PEAK") == "1"
_whole_run = os.environ.get("PLIMSOLL_REHEARSE_UNTIL_EXIT") == "1"
_marked = os.environ.get("PLIMSOLL_REHEARSE_MARK", "")
_PATIENCE = 4  # times the wanted steps that are waited for an optimizer that exists and has not stepped

_explicit = _whole_run or bool(_marked)  # then optimizers end no steps
_first_said = 0  # boundaries before the program first said itself where a step ends
_numbers = weakref.WeakKeyDictionary()  # optimizer -> in order of creation
_stepped = set()  # numbers of those that stepped since the last boundary
_boundaries = []  # for each, who had stepped
_peaks = []  # for each, allocated and reserved bytes at most since the one before
captured = []  # optimizers that step in the graph that is being captured
_after = []  # functions called at each boundary
_ending = False


def at_boundaries(function):
    _after.append(function)


# ---- the loop ----------------------------------------------------------------------------------------------------------


def ends(boundaries):
    """Numbers (from 1) of the boundaries that end steps: every `period`-th, of the shortest period that recurs; where none does from the first,
    of those behind what does not recur, if they have had it twice. Before anything recurs, all are one step."""
    count = len(boundaries)
    for start in range(count // 2 + 1):
        most = (count - start) // 2 if start else count - 1
        for period in range(1, most + 1):
            if all(boundaries[i] == boundaries[i - period] for i in range(start + period, count)):
                return [start] * (start > 0) + list(range(start + period, count + 1, period))
    return [count] * (count > 0)


def cycles():
    return list(range(_first_said + 1, len(_boundaries) + 1)) if _explicit else ends(_boundaries)


def last_step():
    """From which boundary to which it went."""
    found = [0, *cycles()]
    return found[-2:] if len(found) > 1 else (0, 0)


def pending():
    """Whether an optimizer has stepped since the last boundary."""
    return bool(_stepped)


def capturing():
    torch = sys.modules["torch"]
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def optimizer_made(optimizer):
    _numbers.setdefault(optimizer, len(_numbers))


def optimizer_begins():
    journal.phase("optimizer")


def optimizer_stepped(optimizer):
    if capturing():
        captured.append(optimizer)
        return
    device.mark(device.TEXT, 0, "optimizer stepped")  # what comes now is the next step's
    _stepped.add(_numbers.setdefault(optimizer, len(_numbers)))


def device_used():
    """The device is about to be used: with --until-exit the one step begins."""
    if _whole_run:
        journal.phase("forward")


def pass_begins(name):
    """A forward or backward pass starts, or something that only follows steps (a checkpoint is saved)."""
    if capturing():
        return
    boundary()
    journal.phase(name)


def boundary():
    if _explicit or not _stepped:
        return
    _boundaries.append(tuple(sorted(_stepped)))
    _stepped.clear()
    _ended()


def _ended():
    number = journal.boundary(len(_boundaries))
    _peaks.append(_peak())
    for function in _after:
        function()
    done = len(cycles())
    journal.summary("steps", done)
    journal.summary("step_ends", cycles())
    journal.progress()
    if _ending or _whole_run:
        return
    if _until_peak and _peak_recurs():
        journal.stop(f"the peak recurred in step {done}")
    if done >= _wanted and (_all_have_stepped() or number >= _PATIENCE * _wanted):
        journal.stop(f"{done} steps were done")


def _all_have_stepped():
    seen = {number for boundary in _boundaries for number in boundary}
    return _explicit or all(number in seen for number in _numbers.values())


def _peak():
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    stats = torch.cuda.memory_stats()
    if _until_peak:
        torch.cuda.reset_peak_memory_stats()
    return stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"]


def _peak_recurs():
    """Whether the last two steps, the first apart, reached the same allocated and reserved bytes."""
    found = cycles()
    if len(found) < 3 or found[-1] != len(_boundaries):
        return False
    last, before = (max(_peaks[start:end]) for start, end in ((found[-2], found[-1]), (found[-3], found[-2])))
    return last == before


# ---- said by the program or the command line --------------------------------------------------------------------------------


def step():
    """A step of the program's own loop is over."""
    global _explicit, _first_said
    if not _explicit:
        _explicit, _first_said = True, len(_boundaries)
    _boundaries.append(("said",))
    _ended()
    journal.phase("forward")


def watch_function():
    """--mark FUNCTION: a step is a call of any function of that name, or of a method, its class before it and a point between."""
    depth = [0]

    def matches(code):
        qualified = getattr(code, "co_qualname", code.co_name)
        return code.co_name == _marked.rpartition(".")[2] and (qualified == _marked or qualified.endswith("." + _marked) or not hasattr(code, "co_qualname"))

    def begins(code):
        if matches(code):
            depth[0] += 1
            if depth[0] == 1:
                journal.phase("forward")

    def returns(code):
        if matches(code) and depth[0]:
            depth[0] -= 1
            if depth[0] == 0:
                step()

    if hasattr(sys, "monitoring"):
        _monitor(sys.monitoring, matches, begins, returns)
        return

    def profile(frame, event, argument):
        if event == "call":
            begins(frame.f_code)
        elif event == "return":
            returns(frame.f_code)

    sys.setprofile(profile)
    threading.setprofile(profile)


def _monitor(monitoring, matches, begins, returns):
    """Code of another name is looked at once and never again."""
    events, tool = monitoring.events, monitoring.PROFILER_ID
    monitoring.use_tool_id(tool, "plimsoll")

    def started(code, offset):
        if not matches(code):
            return monitoring.DISABLE
        begins(code)

    def returned(code, offset, value):
        if not matches(code):
            return monitoring.DISABLE
        returns(code)

    monitoring.register_callback(tool, events.PY_START, started)
    monitoring.register_callback(tool, events.PY_RETURN, returned)
    monitoring.register_callback(tool, events.PY_UNWIND, lambda code, offset, error: returns(code))
    monitoring.set_events(tool, events.PY_START | events.PY_RETURN | events.PY_UNWIND)


# ---- the end ------------------------------------------------------------------------------------------------------------


def last_boundary():
    """The program ends: after an optimizer step, that step is whole; with --until-exit, what was run is one."""
    global _ending
    _ending = True
    if _whole_run and not journal.has_failed():
        _boundaries.append(("run",))
        _ended()
    boundary()
    journal.summary("steps", len(cycles()))
    journal.summary("step_ends", cycles())


def restart():
    """In a forked child: what the parent did is not its own."""
    _stepped.clear()
    _boundaries.clear()
    _peaks.clear()


journal.before_end(last_boundary)
os.register_at_fork(after_in_child=restart)
if _marked:
    watch_function()
