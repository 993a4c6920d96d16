"""MosaicML's streaming: the ranks of a node share its files and their order through memory, and the first one's first worker leads. A rank that
runs alone leads itself, and waits for its own workers."""

import functools
import os

from . import journal, together
from .imports import after


@after("streaming.base.world")
def lead(module):
    if together.TOGETHER:
        return
    made = module.World.__init__

    @functools.wraps(made)
    def alone(self, *arguments, **options):
        made(self, *arguments, **options)
        self.is_local_leader = not self.worker_of_rank
        if self.ranks_per_node > 1:
            journal.replaced("what streaming's ranks of a node share: this rank leads, and waits for its own workers")

    module.World.__init__ = alone


@after("streaming.base.shared.barrier")
def wait_for_own_workers(module):
    if together.TOGETHER:
        return
    wait = module.SharedBarrier.__call__

    @functools.wraps(wait)
    def alone(self, workers_of_node):
        return wait(self, max(1, workers_of_node // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))

    module.SharedBarrier.__call__ = alone
