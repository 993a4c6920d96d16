from transformers.models.auto.auto_factory import CONFIG_MAPPING, AutoConfig
