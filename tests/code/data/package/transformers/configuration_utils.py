from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import ClassVar

import package_that_nobody_has
from huggingface_hub.dataclasses import strict

unreached = package_that_nobody_has.value  # runs where it is used, and it is not


@strict(accept_kwargs=True)
@dataclass(repr=False)
class PreTrainedConfig:
    model_type: ClassVar[str] = ""
    attribute_map: ClassVar[dict[str, str]] = {}
    sub_configs: ClassVar[dict] = {}
    architectures: list[str] | None = None
    tie_word_embeddings: bool = True

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls = dataclass(cls, repr=False, kw_only=True)

        def __init__(self, **kwargs):
            names = {field.name for field in fields(type(self))}
            for field in fields(type(self)):
                if field.name in kwargs:
                    value = kwargs[field.name]
                elif field.default is not MISSING:
                    value = field.default
                else:
                    value = field.default_factory()
                setattr(self, field.name, value)
            self.__post_init__(**{name: value for name, value in kwargs.items() if name not in names})

        cls.__init__ = __init__

    def __post_init__(self, **kwargs):
        self._attn_implementation_internal = kwargs.pop("attn_implementation", None)
        self._experts_implementation = None
        for name, value in kwargs.items():
            setattr(self, name, value)

    @property
    def name_or_path(self):
        return ""

    @property
    def _attn_implementation(self):
        return self._attn_implementation_internal

    @_attn_implementation.setter
    def _attn_implementation(self, value):
        self._attn_implementation_internal = value
