class GenerationMixin:
    pass


class CompileConfig:
    pass
