# What asks the machine, and what prints.
from diffusers.utils.import_utils import *
from diffusers.utils import logging

USE_PEFT_BACKEND = True


class BaseOutput:
    pass


def deprecate(*args, **kwargs):
    pass


def apply_lora_scale(kwargs_name="joint_attention_kwargs"):
    """With adapters of scale 1 the layers stay as they are."""

    def decorator(forward):
        def wrapper(self, *args, **kwargs):
            result = forward(self, *args, **kwargs)
            return result

        return wrapper

    return decorator


def get_logger(name=None):
    return logging.get_logger(name)
