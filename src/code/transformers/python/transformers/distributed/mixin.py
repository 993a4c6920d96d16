class DistributedMixin:
    pass
