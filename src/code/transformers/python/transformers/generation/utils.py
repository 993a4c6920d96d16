class GenerationMixin:
    pass


class CompileConfig:
    pass


class GenerationConfig:
    @classmethod
    def from_model_config(cls, config):
        return cls()
