"""Ranks that need each other and really run together: their host's objects go through the store that they share, gloo is gloo; values on the
device stay uncomputed. As a command, it starts the ranks of a launcher's line: together.py NODES PER_NODE COMMAND…"""

import os
import pickle
import sys
import time

from . import journal, roles

TOGETHER = os.environ.get("PLIMSOLL_REHEARSE_TOGETHER") == "1"
MOST_SECONDS = 120  # that the first rank waits for the last


def wait_for_all(store, rank, world):
    """The first rank keeps the store that the others may still need: it leaves last."""
    store.add("rehearsed/done", 1)
    until = time.monotonic() + MOST_SECONDS
    while rank == 0 and store.add("rehearsed/done", 0) < world and time.monotonic() < until:
        time.sleep(0.05)


class Post:
    """What ranks put into their store for each other; both sides count what goes from whom to whom."""

    def __init__(self, c10d):
        self._c10d, self._calls = c10d, {}

    def key(self, kind, *about):
        self._calls[kind, about] = number = self._calls.get((kind, about), 0) + 1
        return "/".join(map(str, ("rehearsed", kind, *about, number)))

    def put(self, name, value):
        self._c10d._get_default_store().set(name, pickle.dumps(value))

    def take(self, name):
        return pickle.loads(self._c10d._get_default_store().get(name))


def share_objects(c10d, everywhere):
    """Collectives of Python objects: PyTorch sends them through tensors, whose values a device would not keep."""
    post = Post(c10d)
    key, put, take = post.key, post.put, post.take

    def ranks_of(group):
        return tuple(c10d.get_process_group_ranks(c10d._get_default_group() if group is None else group))

    def global_rank(rank, group, group_rank, ranks):
        return ranks[group_rank] if group_rank is not None else rank

    def all_gather_object(object_list, obj, group=None, weights_only=False):
        ranks = ranks_of(group)
        name = key("gather", *ranks)
        put(f"{name}/{c10d.get_rank()}", obj)
        for index, rank in enumerate(ranks):
            object_list[index] = take(f"{name}/{rank}")

    def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None, weights_only=False):
        everyone = [None] * len(ranks_of(group))
        all_gather_object(everyone, obj, group)
        if object_gather_list is not None:
            object_gather_list[:] = everyone

    def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None, weights_only=False):
        ranks = ranks_of(group)
        source = global_rank(ranks[0] if src is None else src, group, group_src, ranks)
        name = key("broadcast", *ranks)
        if c10d.get_rank() == source:
            put(name, list(object_list))
        object_list[:] = take(name)

    def scatter_object_list(
        scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None, weights_only=False
    ):
        ranks = ranks_of(group)
        source = global_rank(ranks[0] if src is None else src, group, group_src, ranks)
        name = key("scatter", *ranks)
        if c10d.get_rank() == source:
            put(name, list(scatter_object_input_list))
        scatter_object_output_list[0] = take(name)[ranks.index(c10d.get_rank())]

    def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False, weights_only=False):
        target = global_rank(dst, group, group_dst, ranks_of(group))
        put(key("send", c10d.get_rank(), target), list(object_list))

    def recv_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False, weights_only=False):
        source = global_rank(src, group, group_src, ranks_of(group))
        object_list[:] = take(key("send", source, c10d.get_rank()))
        return source

    everywhere(
        c10d,
        all_gather_object=all_gather_object,
        gather_object=gather_object,
        broadcast_object_list=broadcast_object_list,
        scatter_object_list=scatter_object_list,
        send_object_list=send_object_list,
        recv_object_list=recv_object_list,
    )


if __name__ == "__main__":
    journal.replaced("the launcher: its ranks run together")
    roles.run_ranks(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2]))
