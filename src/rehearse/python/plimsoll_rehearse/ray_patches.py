"""Ray: a driver calls its workers and waits for all of them, so none can be left out and none may end before the driver: all ranks run, together,
and the driver is ended once those of a world have done their steps."""

import functools
import glob
import json
import os
import sys
import threading
import time

from . import device, journal
from .imports import after

WORKER = os.path.join("workers", "default_worker.py")


@after("ray")
def run_together(ray):
    if sys.argv[0].endswith(WORKER):
        journal.replaced("the end of Ray's driver: it comes when its workers have done the steps that were asked for")
        journal.before_leaving(wait_for_the_end)
        return
    init = ray.init

    @functools.wraps(init)
    def init_for_all(*arguments, **options):
        os.environ.update(PLIMSOLL_REHEARSE_TOGETHER="1", PLIMSOLL_REHEARSE_RANKS="all")  # of the workers, which inherit it
        threading.Thread(target=end_with_workers, args=(os.environ["PLIMSOLL_REHEARSE_FOLDER"],), daemon=True).start()
        return init(*arguments, **options)

    ray.init = init_for_all


def wait_for_the_end():
    """Until the daemon that started the worker is gone, which ends with the driver."""
    device.finish()
    daemon = os.getppid()
    while os.getppid() == daemon:
        time.sleep(0.1)


def end_with_workers(folder):
    while not any_world_is_done(folder):
        time.sleep(0.2)
    journal.stop("its workers did their steps")


def any_world_is_done(folder):
    """Whether all ranks of a world have told how they ended; worlds of one size (trials side by side) are not told apart, and pass for one."""
    done = {}
    for path in glob.glob(os.path.join(folder, "*.summary")):
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
        if told["steps"] > 0:
            done.setdefault(told["world"], set()).add(told["rank"])
    return any(len(ranks) == world for world, ranks in done.items())
