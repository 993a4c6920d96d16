"""A Python that has imported what a program imports, and forks for every run of it: what takes longest of a short rehearsal is done once.

    python -m plimsoll_rehearse.warm FD WORD…    FD: a listening socket; the words: a command behind its interpreter

Each connection brings one run (src/cli/warm_python.cpp): a line with the length of a JSON object {"words", "environment", "folder"} that follows,
and with it the file that the run writes to. It is answered with the run's process id in a line, and when that is over, and whatever it started
too, with its wait status and the most kilobytes it held. Where this Python cannot be forked safely (what was imported has used the device, or has
threads of Python running), it ends, and whoever waits runs the command as it is."""

import ast
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading

from . import device, journal, roles

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
# what is read while modules are imported: a run that is told otherwise is not one of this Python's
_READ_AT_IMPORT = [
    f"PLIMSOLL_REHEARSE_{name}" for name in ("ARCH", "STEPS", "UNTIL_PEAK", "UNTIL_EXIT", "MARK", "VALUES", "SYNTHETIC", "TOGETHER")
]
_MOST_FILES = 200  # of the program's own that are looked through for imports
_libc = ctypes.CDLL(None)


# ---- what a program imports ------------------------------------------------------------------------------------------------


def is_installed(place):
    return any(f"{os.sep}{folder}{os.sep}" in (place or "") for folder in ("site-packages", "dist-packages"))


def program_file(words):
    """The script or the module's file that a command behind its interpreter runs; None where that is no file of Python."""
    for index, word in enumerate(words):
        if word == "-m" and index + 1 < len(words) and not words[index + 1].startswith("plimsoll_rehearse."):
            return own_file(words[index + 1], os.getcwd()) or own_file(words[index + 1] + ".__main__", os.getcwd())
        if word.endswith(".py") and os.path.isfile(word):
            return os.path.abspath(word)
    return None


def own_file(module, folder):
    """The file of a module in a folder, found without importing what it lies in."""
    base = os.path.join(folder, *module.split("."))
    return next((path for path in (base + ".py", os.path.join(base, "__init__.py")) if os.path.isfile(path)), None)


def statements(body):
    """Those that run when a module is imported: also within conditions and attempts, not within functions and classes."""
    for each in body:
        yield each
        for inner in ("body", "orelse", "finalbody", "handlers"):
            if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from statements(getattr(each, inner, ()) if isinstance(getattr(each, inner, ()), list) else ())


def imports_of(path, folder, seen):
    """(module, name or None) in the order of the imports of a file, those of the program's own modules in their place."""
    if path in seen or len(seen) >= _MOST_FILES:
        return
    seen.add(path)
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return
    for statement in statements(tree.body):
        if isinstance(statement, ast.Import):
            found = [(each.name, None) for each in statement.names]
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            found = [(statement.module, each.name) for each in statement.names]
        else:
            continue
        for module, name in found:
            own = own_file(module, folder)
            if own:
                yield from imports_of(own, folder, seen)
            elif own_file(module.partition(".")[0], folder) is None:
                yield module, name


def import_ahead(words):
    """Imports what the program would, as far as it is installed; what fails here fails in its place."""
    path = program_file(words)
    if path is None:
        return
    sys.path[0] = os.path.dirname(path)  # as the program finds its modules
    for module, name in imports_of(path, sys.path[0], set()):
        try:
            spec = importlib.util.find_spec(module.partition(".")[0])
            if spec is None or not is_installed(spec.origin or next(iter(spec.submodule_search_locations or ()), "")):
                continue
            value = importlib.import_module(module)
            if name and name != "*":
                getattr(value, name, None)  # a name of a lazy package is imported when it is asked for
        except Exception:
            continue


def why_not():
    """Why no run may be forked from here; None where it may."""
    torch = sys.modules.get("torch")
    if torch is None:
        return "it imports no PyTorch"
    if torch.cuda.is_initialized():
        return "what it imports uses the device"
    if threading.active_count() > 1:
        return "what it imports has started threads"
    child = os.fork()
    if child == 0:
        journal._leave_process(1 if torch.cuda._is_in_bad_fork() else 0)
    return "what it imports has asked for the devices" if os.waitpid(child, 0)[1] != 0 else None


# ---- one run -----------------------------------------------------------------------------------------------------------------


def become(words, environment, folder):
    """In the forked process: all that differs from one that was started so."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if not device.begin_again():
        raise SystemExit("plimsoll rehearse: what the program imports has used the device")
    journal.begin_again()
    roles.take_told()
    if words[0] == "-m":
        sys.argv = ["-m", *words[2:]]
        sys.path[0] = folder
        runpy._run_module_as_main(words[1])
    else:
        sys.argv = words
        sys.path[0] = os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def children():
    """Of this process, those among them that lost their parent."""
    with open(f"/proc/self/task/{threading.get_native_id()}/children") as file:
        return [int(each) for each in file.read().split()]


def keep(connection, run):
    """In the process between: waits for the run, or for whoever asked to lose interest, and ends all that is left of it. Returns what is told."""
    over = os.pidfd_open(run)
    ready, _, _ = select.select([over, connection], [], [])
    if over not in ready:
        os.kill(run, signal.SIGKILL)
    _, status, usage = os.wait4(run, 0)
    while left := children():
        for each in left:
            os.kill(each, signal.SIGKILL)
            os.waitpid(each, 0)
    return f"{status} {usage.ru_maxrss}\n"


def take_request(connection):
    """The request and the file that came with it."""
    head, files, _, _ = socket.recv_fds(connection, 1, 1)
    with connection.makefile("rb") as file:
        length = int(head + file.readline())
        return json.loads(file.read(length)), files[0]


def serve(listener):
    """Never returns but in a run's own process, with what it is to be."""
    told = journal.told()
    own = {name: os.environ.get(name) for name in _READ_AT_IMPORT}
    while True:
        connection, _ = listener.accept()
        try:
            request, output = take_request(connection)
        except (OSError, ValueError, IndexError):
            connection.close()
            continue
        other = any(request["environment"].get(name) != value for name, value in own.items())
        if other or os.fork() != 0:
            connection.close()
            os.close(output)
            continue
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        go_on, begin = os.pipe()
        run = os.fork()
        if run == 0:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.setpgid(0, 0)
            os.read(go_on, 1)  # its number is known by then
            for each in (go_on, begin):
                os.close(each)
            connection.close()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            journal.tell_again(told)
            return request
        try:
            connection.sendall(f"{run}\n".encode())
            os.write(begin, b"!")
            connection.sendall(keep(connection, run).encode())
        except OSError:
            os.kill(run, signal.SIGKILL)
        journal._leave_process(0)


def main():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    listener = socket.socket(fileno=int(sys.argv[1]))
    import_ahead(sys.argv[2:])
    reason = why_not()
    if reason:
        print(f"plimsoll: every setting imports anew: {reason}", file=sys.stderr)
        journal._leave_process(0)
    gc.collect()
    gc.freeze()  # a collection in a run touches, and so copies, none of what they share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    request = serve(listener)
    become(request["words"], request["environment"], request["folder"])


if __name__ == "__main__":
    main()
