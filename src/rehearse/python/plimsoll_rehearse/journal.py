"""What happened: replacements, reads of device values, steps, and how the program ended; written as JSON when it ends."""

import atexit
import json
import os
import sys
import threading
import time
import traceback

from . import device

_lock = threading.Lock()
_replaced, _read, _notes = {}, {}, {}
_summary = {"schema": "plimsoll/rehearsal/1", "steps": 0, "ended": None, "error": None, "out_of_memory": None, "versions": {}}
_before_end, _before_leaving, _at_phases = [], [], []
_ended = False
_leaving = None  # the failure with which the program asked to be ended, until it goes on


def replaced(what):
    """Something of the program or its framework was replaced by something that needs no device values, data or peers."""
    _count(_replaced, what)


def read(what):
    """The program read a value that the device never computed."""
    _count(_read, what)


def note(what):
    _count(_notes, what)


def _count(table, what):
    with _lock:
        table[what] = table.get(what, 0) + 1


def summary(name, value):
    _summary[name] = value


def has(name):
    return name in _summary


def has_failed():
    return _summary["error"] is not None


def version(name, text):
    _summary["versions"][name] = text


def out_of_memory(facts):
    """The first allocation that failed; later ones follow from it."""
    if _summary["out_of_memory"] is None:
        _summary["out_of_memory"] = facts


def boundary(number):
    """Perhaps the end of a step: which boundaries are is known when the program ends (steps.py)."""
    device.mark(device.STEP_END, number)
    return number


def phase(name):
    global _leaving
    _leaving = None
    device.mark(device.PHASE_BEGIN, 0, name)
    for function in _at_phases:
        function(name)


def at_phases(function):
    _at_phases.append(function)


def before_end(function):
    _before_end.append(function)


def before_leaving(function):
    _before_leaving.append(function)


def user_frames(frame=None, most=40):
    """The stack at a frame (the caller's) without this package, innermost last: 'file:line function'."""
    here = os.path.dirname(os.path.abspath(__file__))
    frames = [f for f in traceback.extract_stack(frame) if not os.path.abspath(f.filename).startswith(here)]
    return [f"{f.filename}:{f.lineno} {f.name}" for f in frames][-most:]


def user_line():
    """Where the program is: its own innermost line, and that of the framework below it."""
    here = os.path.dirname(os.path.abspath(__file__))
    frame, own, framework = sys._getframe(1), None, None
    while frame is not None and own is None:
        name = frame.f_code.co_filename
        if not name.startswith(here) and not name.startswith("<"):
            place = f"{name}:{frame.f_lineno}"
            installed = f"{os.sep}site-packages{os.sep}" in name or f"{os.sep}dist-packages{os.sep}" in name
            if not installed and f"{os.sep}lib{os.sep}python" not in name:
                own = place
            elif framework is None and f"{os.sep}torch{os.sep}" not in name:
                framework = place.split(f"-packages{os.sep}")[-1]
        frame = frame.f_back
    return " in ".join(each for each in (own, framework) if each) or "an unknown place"


def install():
    atexit.register(end, "the program ended")
    os._exit = _exit
    threading._shutdown = _ending(threading._shutdown)
    os.register_at_fork(after_in_child=_restart)
    previous = sys.excepthook

    def hook(kind, error, trace):
        failed(kind, error, trace)
        previous(kind, error, trace)

    sys.excepthook = hook


def _ending(shutdown):
    """What the interpreter calls when the main thread is through, to wait for the other threads: those that only sleep are not waited for."""
    over = threading.Event()

    def ending():
        others = [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
        if others:
            threading.Thread(target=_end_when_idle, args=(others, over), daemon=True).start()
        shutdown()
        over.set()

    return ending


def _end_when_idle(others, over, patience=10.0, least=0.05):
    """Ends the program when its threads use less than `least` seconds of processor in `patience` seconds: they wait for what never comes."""
    used = time.process_time()
    while not over.wait(patience):
        before, used = used, time.process_time()
        if used - before < least:
            note(f"its main thread ended and '{', '.join(others)}' only waited: the program was ended there")
            stop("the program ended")


def _restart():
    """A forked child tells its own story."""
    global _pid, _ended, _leaving
    _pid, _ended, _leaving = os.getpid(), False, None
    for table in (_replaced, _read, _notes):
        table.clear()
    for name in ("error", "out_of_memory", "model", "parameters", "tokens", "rank", "world"):
        _summary.pop(name, None)
    _summary.update(steps=0, ended=None, error=None, out_of_memory=None)


def told():
    """What was said so far: of imports, where a process only imports (warm.py)."""
    return [dict(table) for table in (_replaced, _read, _notes)]


def tell_again(before):
    """In a forked child that goes on where its parent is: what that said is its own."""
    for table, said in zip((_replaced, _read, _notes), before):
        table.update(said)


def begin_again():
    """In a forked child that is given an environment of its own."""
    global _folder
    _folder = os.environ.get("PLIMSOLL_REHEARSE_FOLDER")


def wrap_failures(function):
    """A process's main function whose exception another process is told of, and this one's end is not (torch.multiprocessing's children)."""

    def wrapped(*arguments):
        try:
            return function(*arguments)
        except SystemExit:
            raise
        except BaseException as error:
            failed(type(error), error, error.__traceback__)
            raise
        finally:
            end("the process ended")

    return wrapped


def failed(kind, error, trace):
    """The exception that ended the program."""
    stack = [f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(trace)]
    if isinstance(error, SyntaxError):
        stack.append(f"{error.filename}:{error.lineno}")
    _summary["error"] = {"type": kind.__name__, "message": str(error)[:2000], "stack": stack[-40:]}


def leaves(code, said):
    """The program asks to be ended with that exit code, and may have said why."""
    global _leaving
    _leaving = {"type": f"exit code {code}", "message": said[:2000], "stack": user_frames(sys._getframe(1))}


def end(reason):
    """Writes the summary; the first reason counts."""
    global _ended
    if _ended or os.getpid() != _pid:
        return
    _ended = True
    _summary["error"] = _summary["error"] or _leaving
    for function in _before_end:
        try:
            function()
        except Exception as mishap:  # of what is told about the program: its own end and its failure are told all the same
            note(f"what {function.__name__} tells is missing: {type(mishap).__name__}: {mishap}")
    _summary["ended"] = reason
    text = _text()
    device.mark(device.TEXT, 0, "summary " + text)
    if _summary["versions"] or _summary["error"]:
        _leave_behind("summary", text)


def progress():
    """What is known so far, for the case that the process is killed."""
    if _summary["versions"]:
        _leave_behind("progress", _text())


def _text():
    _summary.setdefault("rank", int(os.environ.get("RANK", "0")))
    _summary.setdefault("world", int(os.environ.get("WORLD_SIZE", "1")))
    for name, table in (("replaced", _replaced), ("read", _read), ("notes", _notes)):
        _summary[name] = [{"what": what, "times": times} for what, times in table.items()]
    return json.dumps(_summary)


def _leave_behind(kind, text):
    if _folder:
        path = os.path.join(_folder, f"{_pid}.{kind}")
        with open(f"{path}.part", "w") as file:  # another process may look for it
            file.write(text)
        os.replace(f"{path}.part", path)


def stop(reason):
    """Ends the program here: enough was seen."""
    end(reason)
    for function in _before_leaving:
        function()
    leave()


def leave():
    """Ends the process as one that was not needed any further."""
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:  # as multiprocessing's tracker of resources leaves it
            stream.flush()
    device.finish()
    _leave_process(0)


def _exit(code):
    """os._exit, by which forked children end: one that used the device has its story to tell."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized() and not torch.cuda._is_in_bad_fork():
        end("the process ended")
    _leave_process(code)


_pid = os.getpid()
_leave_process = os._exit
_folder = os.environ.get("PLIMSOLL_REHEARSE_FOLDER")  # where each process leaves its summary
