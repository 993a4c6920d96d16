from transformers.generation.utils import CompileConfig, GenerationConfig, GenerationMixin
