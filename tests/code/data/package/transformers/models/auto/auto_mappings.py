from collections import OrderedDict

CONFIG_MAPPING_NAMES = OrderedDict([("tiny", "TinyConfig")])
SPECIAL_MODEL_TYPE_TO_MODULE_NAME = OrderedDict()
