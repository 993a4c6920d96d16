class PeftAdapterMixin:
    pass
