# Hooks that gather hidden states stand where those are asked for; a training step asks for none.
from functools import wraps


class OutputRecorder:
    def __init__(self, target_class, index=0, layer_name=None, class_name=None, **options):
        self.target_class = target_class
        self.index = index
        self.layer_name = layer_name
        self.class_name = class_name


def maybe_install_capturing_hooks(model):
    pass


def capture_outputs(func=None, *, tie_last_hidden_states=True):
    def wrapped_fn(func):
        @wraps(func)
        def wrapper(self, *args, **kwargs):
            return_dict = kwargs.pop("return_dict", getattr(self.config, "return_dict", True))
            for name in ("output_hidden_states", "output_attentions"):
                if kwargs.get(name, getattr(self.config, name, False)):
                    from plimsoll import refuse

                    refuse(name)
            outputs = func(self, *args, **kwargs)
            if return_dict is False:
                outputs = outputs.to_tuple()
            return outputs

        return wrapper

    if func is not None:
        return wrapped_fn(func)
    return wrapped_fn


def select_hidden_states(*args, **options):
    return lambda function: function
