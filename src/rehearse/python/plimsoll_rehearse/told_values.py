"""Whole numbers that one rank sends another in a tensor of the device, as stages of DeepSpeed's pipelines tell each other shapes. Where ranks run
together, who receives them knows them; alone, the program is noted to need its peers, and is run again so where it fails for want of them."""

import functools
import threading

from . import device, journal, together
from .device import NONE

MOST_ELEMENTS = 1024  # that are looked at one by one, of a tensor of which a part is known: a buffer of greatest length


class Told:
    def __init__(self, c10d, values):
        self._c10d, self._values = c10d, values
        self._post = together.Post(c10d) if together.TOGETHER else None

    def tells(self, tensor):
        return tensor.is_cuda and self._values.is_whole(tensor) and self._values.is_small(tensor)

    def known_elements(self, tensor):
        """What is known of each element, or of all."""
        known = self._values.knowledge(tensor)
        if known or not tensor.is_contiguous() or tensor.numel() > MOST_ELEMENTS:
            return [known]
        return [device.known(tensor.data_ptr() + each * tensor.element_size(), tensor.element_size()) for each in range(tensor.numel())]

    def sent(self, tensor, peer):
        if self._post is None or not self.tells(tensor):
            return
        from .values import host_view

        known = self.known_elements(tensor)
        self._post.put(self._post.key("values", self._c10d.get_rank(), peer), (known, host_view(tensor).clone() if any(known) else None))

    def received(self, tensor, peer, waits):
        """A host that does not wait for what comes does not read it either."""
        if not tensor.is_cuda:
            return
        self._values.note(tensor, NONE)
        if not self.tells(tensor):
            return
        if self._post is None:
            journal.summary("needs_peers", True)
            return
        name = self._post.key("values", peer, self._c10d.get_rank())
        known, value = self._post.take(name) if waits else ([NONE], None)
        if value is None:
            return
        self._values.set(tensor, value, known[0])
        if len(known) > 1:
            for index, each in enumerate(known):
                device.note_values(tensor.data_ptr() + index * tensor.element_size(), tensor.element_size(), each)


def patch(c10d, values, everywhere):
    told, within = Told(c10d, values), threading.local()

    def outermost(function, then):
        """The synchronous functions of some releases call the others."""

        @functools.wraps(function)
        def called(tensor, rank=None, group=None, tag=0, **options):
            rank = options.pop("dst", options.pop("src", rank))
            if getattr(within, "call", False):
                return function(tensor, rank, group, tag, **options)
            within.call = True
            try:
                result = function(tensor, rank, group, tag, **options)
            finally:
                within.call = False
            of_group = options.get("group_dst", options.get("group_src"))
            peer = rank if of_group is None else c10d.get_global_rank(group or c10d._get_default_group(), of_group)
            if peer is not None and result != -1:  # from anyone, or of another group
                then(tensor, peer)
            return result

        return called

    everywhere(
        c10d,
        send=outermost(c10d.send, told.sent),
        isend=outermost(c10d.isend, told.sent),
        recv=outermost(c10d.recv, functools.partial(told.received, waits=True)),
        irecv=outermost(c10d.irecv, functools.partial(told.received, waits=False)),
    )
