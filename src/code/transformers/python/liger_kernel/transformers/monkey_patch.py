# A method bound to one module: what the text does by the module's own dictionary.
from types import MethodType

PEFT_AVAILABLE = False
IS_TRANSFORMERS_V5_OR_LATER = True


def _bind_method_to_module(module, method_name, new_method):
    if method_name == "forward":
        module.forward = MethodType(new_method, module)
