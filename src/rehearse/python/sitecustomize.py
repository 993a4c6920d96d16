"""Python imports this module by itself when its folder is on PYTHONPATH; it does nothing unless `plimsoll rehearse` started the program."""

import importlib.machinery
import os
import sys


def _run_hidden_sitecustomize():
    """The environment's own sitecustomize, which ours hides by coming first."""
    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [folder for folder in sys.path if os.path.abspath(folder) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec and spec.loader and spec.origin and os.path.abspath(spec.origin) != os.path.abspath(__file__):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


import importlib.util

_run_hidden_sitecustomize()
if os.environ.get("PLIMSOLL_REHEARSE") == "1":
    import plimsoll_rehearse

    plimsoll_rehearse.install()
