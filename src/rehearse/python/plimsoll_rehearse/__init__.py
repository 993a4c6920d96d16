"""What makes a training program run on a device that computes nothing: one file per framework, loaded when the program imports it."""

import faulthandler
import os
import signal
import sys

from . import exits, imports, journal, roles

# framework as imported -> file of this package that knows it
FRAMEWORKS = (
    "torch",
    "transformers",
    "accelerate",
    "deepspeed",
    "megatron",
    "torchtitan",
    "torchtune",
    "datasets",
    "triton",
    "huggingface_hub",
    "modelscope",
    "streaming",
    "composer",
    "ray",
    "flash_attn",
)


def install():
    """Watches for the frameworks' imports, and notes how the program ends."""
    faulthandler.enable()
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler says on stderr when it starts and ends (host_work.py)
    # `plimsoll rehearse --timeout` asks with this signal for the stacks of all threads, and for what is known so far
    asked = signal.SIGRTMIN + 7
    signal.signal(asked, lambda *_: journal.stop("it was stopped (--timeout)"))
    faulthandler.register(asked, all_threads=True, file=sys.__stderr__, chain=True)
    journal.install()
    exits.watch()
    roles.take_told()
    for framework in FRAMEWORKS:
        imports.watch(framework)


def step():
    """For programs that step without an optimizer of torch.optim: a step of the program's own loop is over."""
    from . import steps

    steps.step()
