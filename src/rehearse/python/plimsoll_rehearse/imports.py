"""Runs a function right after a module was imported, whoever imports it."""

import importlib
import importlib.abc
import importlib.util
import sys

_after = {}  # module name -> functions that are called with the module
_frameworks = {}  # top-level name -> name of our file, until it is imported


def after(module_name):
    """Decorator: call the function with the module once that is imported (at once if it is already)."""

    def register(function):
        if module_name in sys.modules:
            function(sys.modules[module_name])
        else:
            _after.setdefault(module_name, []).append(function)
        return function

    return register


def in_torchs_place(function):
    """Decorator of what stands in for a function of PyTorch's: a frame that torch.compile leaves to Python, as it does all of PyTorch's own, and
    traces through where it is called from code that it compiles."""
    after("torch._dynamo.eval_frame")(lambda eval_frame: eval_frame.skip_code(function.__code__))
    return function


def watch(framework):
    """Loads plimsoll_rehearse/FRAMEWORK_patches.py when the framework is first imported."""
    _frameworks[framework] = f"{__package__}.{framework}_patches"
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds nothing itself: lets the others find, and wraps the loader of a module that somebody waits for."""

    def __init__(self):
        self._busy = set()

    def find_spec(self, name, path=None, target=None):
        if name in _frameworks and name not in self._busy:
            importlib.import_module(_frameworks.pop(name))
        if name not in _after or name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy.discard(name)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec.loader, name)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader, name):
        self._loader, self._name = loader, name

    def __getattr__(self, attribute):  # what a resource reader or pickle asks of the real loader
        return getattr(self._loader, attribute)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        for function in _after.pop(self._name, ()):
            function(module)
