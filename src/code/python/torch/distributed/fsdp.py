# A class that no module is of: what wraps modules acts on them from outside.
class FullyShardedDataParallel:
    pass
