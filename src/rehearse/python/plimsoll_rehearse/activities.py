"""What a program does beside the steps that it trains by: passes without gradients (validation, generation, frozen encoders), and saving. The
record is told when each begins and ends, for the peak of each."""

import functools

from . import device
from .imports import after

WITHOUT_GRADIENTS, SAVING = "passes without gradients", "saving"
_running = []  # of what is going on, innermost last


def begin(name):
    _running.append(name)
    device.mark(device.TEXT, 0, "activity " + name)


def end():
    _running.pop()
    device.mark(device.TEXT, 0, "activity " + (_running[-1] if _running else ""))


def pass_begins(torch):
    """The outermost module of a pass is called."""
    if not _running and not torch.is_grad_enabled():
        begin(WITHOUT_GRADIENTS)


def backward_begins():
    if _running == [WITHOUT_GRADIENTS]:
        end()


def watch_gradients(torch, on_end):
    """A pass without gradients is over when they are on again: at the end of the context that switched them off."""

    def leaving(exit_context):
        @functools.wraps(exit_context)
        def left(self, *error):
            result = exit_context(self, *error)
            if _running == [WITHOUT_GRADIENTS] and torch.is_grad_enabled():
                end()
                on_end()
            return result

        return left

    for kind in (torch.no_grad, torch.inference_mode, torch.set_grad_enabled):
        kind.__exit__ = leaving(kind.__exit__)


def saves(function):
    @functools.wraps(function)
    def saving(*arguments, **options):
        if SAVING in _running:
            return function(*arguments, **options)
        begin(SAVING)
        try:
            return function(*arguments, **options)
        finally:
            end()

    return saving


def watch_saving(torch):
    """Collecting a state is part of it: there shards are gathered."""
    torch.nn.Module.state_dict = saves(torch.nn.Module.state_dict)
    for module, names in (
        ("torch.distributed.checkpoint.state_dict", ("get_state_dict", "get_model_state_dict", "get_optimizer_state_dict")),
        ("torch.distributed.checkpoint.state_dict_saver", ("save", "async_save")),
    ):
        after(module)(functools.partial(_wrap, names))


def _wrap(names, module):
    for name in names:
        if hasattr(module, name):
            setattr(module, name, saves(getattr(module, name)))
