"""A driver in Ray's manner: it starts its workers and calls them; one that has ended is a failure to it."""

import os
import subprocess
import sys
import time

import ray

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "workers", "default_worker.py")

ray.init()
workers = [subprocess.Popen([sys.executable, WORKER, str(rank), "2"]) for rank in range(2)]
while all(each.poll() is None for each in workers):
    time.sleep(0.05)
raise RuntimeError("a worker died unexpectedly")
