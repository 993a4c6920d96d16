"""The rendezvous: answered, in a store in which every key is present, so that one process can be any rank of any world; or kept, in a real one
that all ranks share, where they run together."""

import os

import torch.distributed as dist

from . import device

_kept = []  # a Python store must outlive the process groups, whose C++ side calls its methods
_members = {}  # group name -> global ranks


def remember_group(name, ranks):
    _members[str(name)] = list(ranks)


class RehearsedStore(dist.Store):
    """Tells the collective library who is in a communicator: its id is exchanged under the group's name right before it is made."""

    def __init__(self, rank):
        super().__init__()
        self._rank = rank
        _kept.append(self)

    def _announce(self, key):
        for name in key.split("/"):  # "default_pg/GROUP//cuda//0"
            if name in _members:
                device.next_communicator(_members[name], self._rank)
                return

    @property
    def host(self):
        return "127.0.0.1"

    @property
    def port(self):
        return int(os.environ.get("MASTER_PORT", "29500"))

    def clone(self):
        return self

    def has_extended_api(self):
        return False

    def multi_get(self, keys):
        return [self.get(key) for key in keys]

    def multi_set(self, keys, values):
        for key, value in zip(keys, values):
            self.set(key, value)


class AnsweredStore(RehearsedStore):
    """Keeps what is set; a key that no peer will ever set reads as zeros."""

    def __init__(self, rank=0):
        super().__init__(rank)
        self._values = {}

    def set(self, key, value):
        self._values[key] = value if isinstance(value, bytes) else value.encode()
        self._announce(key)

    def get(self, key):
        self._announce(key)
        return self._values.get(key, bytes(128))

    def add(self, key, amount):
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        return total

    def append(self, key, value):
        self._values[key] = self._values.get(key, b"") + (value if isinstance(value, bytes) else value.encode())

    def compare_set(self, key, expected, desired):
        self._values[key] = desired.encode() if isinstance(desired, str) else desired
        return self._values[key]

    def delete_key(self, key):
        return self._values.pop(key, None) is not None

    def wait(self, *arguments):
        pass

    def barrier(self, *arguments):
        pass

    def check(self, keys):
        """Asked by watchdogs for the sign that another rank has failed: there is what was set."""
        return all(key in self._values for key in keys)

    def num_keys(self):
        return len(self._values)

    get_num_keys = num_keys

    def list_keys(self):
        return list(self._values)

    def set_timeout(self, timeout):
        pass


class SharedStore(RehearsedStore):
    """What all ranks share, which run together."""

    def __init__(self, rank, real):
        super().__init__(rank)
        self._real = real

    def set(self, key, value):
        self._real.set(key, value)
        self._announce(key)

    def get(self, key):
        self._announce(key)
        return self._real.get(key)


def _of_real(name):
    """A function of Python: C++ calls no other in the place of its own."""

    def called(self, *arguments):
        return getattr(self._real, name)(*arguments)

    return called


for _name in ("add", "append", "compare_set", "delete_key", "wait", "check", "num_keys", "set_timeout"):
    setattr(SharedStore, _name, _of_real(_name))
