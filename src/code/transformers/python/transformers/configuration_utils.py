# Configurations are text; that they rename attributes is the evaluator's.
from plimsoll import class_property, renames_attributes
from upstream.transformers.configuration_utils import PreTrainedConfig


classproperty = class_property
PreTrainedConfig._renames = renames_attributes(PreTrainedConfig)
PretrainedConfig = PreTrainedConfig
