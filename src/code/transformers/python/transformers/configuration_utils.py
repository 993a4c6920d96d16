# Configurations are text; that they rename attributes is the evaluator's.
from plimsoll import class_property, renames_attributes
from upstream.transformers.configuration_utils import PreTrainedConfig, wrap_init_to_accept_kwargs


classproperty = class_property
PreTrainedConfig._renames = renames_attributes(PreTrainedConfig)


def made_by_fields(self, **kwargs):
    wrap_init_to_accept_kwargs(PreTrainedConfig)
    PreTrainedConfig.__init__(self, **kwargs)


# huggingface_hub's strict(accept_kwargs=True) gives the base an __init__, which classes with one of their own call; releases before
# configurations were dataclasses have it in their text.
if "__init__" not in PreTrainedConfig.__dict__:
    PreTrainedConfig.__init__ = made_by_fields
PretrainedConfig = PreTrainedConfig
