"""What makes a training program run on a device that computes nothing: one file per framework, loaded when the program imports it."""

import faulthandler
import signal
import sys

from . import imports, journal

# framework as imported -> file of this package that knows it
FRAMEWORKS = ("torch", "transformers", "accelerate", "deepspeed", "megatron", "torchtitan", "datasets")


def install():
    """Watches for the frameworks' imports, and notes how the program ends."""
    faulthandler.enable()
    # `plimsoll rehearse --timeout` asks for the stacks of all threads with this signal
    faulthandler.register(signal.SIGRTMIN + 7, all_threads=True, file=sys.__stderr__)
    journal.install()
    for framework in FRAMEWORKS:
        imports.watch(framework)
