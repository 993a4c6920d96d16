from transformers.generation.utils import CompileConfig, GenerationMixin
