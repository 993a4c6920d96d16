from collections import OrderedDict

from .auto_mappings import CONFIG_MAPPING_NAMES, SPECIAL_MODEL_TYPE_TO_MODULE_NAME

CONFIG_MAPPING_NAMES.update({"tiny-sister": "TinyConfig"})
SPECIAL_MODEL_TYPE_TO_MODULE_NAME["tiny-sister"] = "tiny"


def model_type_to_module_name(key):
    return SPECIAL_MODEL_TYPE_TO_MODULE_NAME.get(key, key.replace("-", "_"))
