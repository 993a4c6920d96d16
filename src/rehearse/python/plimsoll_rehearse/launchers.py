"""Launchers that a program starts itself, in a shell script or by a function of its own."""

import functools

from . import journal, roles
from .imports import after


@after("torch.distributed.launcher.api")
def start_asked_ranks(module):
    """What torchrun starts its processes by, and whatever calls it: accelerate's launcher, Lightning's fabric."""
    launch = module.elastic_launch.__call__

    @functools.wraps(launch)
    def launch_asked_ranks(self, *arguments):
        if not isinstance(self._entrypoint, str):
            return launch(self, *arguments)
        roles.run_ranks([self._entrypoint, *arguments], self._config.max_nodes, self._config.nproc_per_node)
        return {}

    module.elastic_launch.__call__ = launch_asked_ranks


@after("torch.multiprocessing.spawn")
def tell_failures(module):
    """A child tells its parent of an exception, and ends without one."""
    wrap = module._wrap

    @functools.wraps(wrap)
    def telling(function, index, arguments, *error):
        return wrap(journal.wrap_failures(function), index, arguments, *error)

    module._wrap = telling
