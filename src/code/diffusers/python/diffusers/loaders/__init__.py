# Loading and saving, which a step does not do.
class PeftAdapterMixin:
    pass


class FromOriginalModelMixin:
    pass


class FluxTransformer2DLoadersMixin:
    pass


class SD3Transformer2DLoadersMixin:
    pass


class QwenImageLoraLoaderMixin:
    pass
