# An output is what of its fields is not None.
from dataclasses import fields


class ModelOutput:
    _renamed_fields = {"past_key_values": "cache", "cache_params": "cache"}

    def _known(self):
        known = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                known[field.name] = value
        return known

    def keys(self):
        return self._known().keys()

    def values(self):
        return self._known().values()

    def items(self):
        return self._known().items()

    def to_tuple(self):
        return tuple(self._known().values())

    def get(self, name, default=None):
        return self._known().get("cache" if name in ("past_key_values", "cache_params") else name, default)

    def pop(self, name, default=None):
        value = getattr(self, name)
        setattr(self, name, None)
        return value if value is not None else default

    def __getitem__(self, key):
        if isinstance(key, str):
            return self._known()[key]
        return self.to_tuple()[key]

    def __setitem__(self, key, value):
        setattr(self, key, value)

    def __contains__(self, name):
        return name in self._known()

    def __iter__(self):
        return iter(self._known())

    def __len__(self):
        return len(self._known())

    @property
    def past_key_values(self):
        return getattr(self, "cache", None)


class GeneralInterface:
    pass


def is_flash_attention_requested(config=None, requested_attention_implementation=None, version=None):
    name = requested_attention_implementation
    if name is None:
        name = config._attn_implementation
    return name is not None and "flash" in name


def check_model_inputs(func=None, **options):
    from transformers.utils.generic import merge_with_config_defaults
    from transformers.utils.output_capturing import capture_outputs

    def decorator(function):
        return merge_with_config_defaults(capture_outputs(function))

    return decorator(func) if func is not None else decorator
