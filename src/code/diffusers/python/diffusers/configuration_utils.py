# What @register_to_config does by inspect: the arguments of __init__ and its defaults are self.config's attributes and items.
import inspect


class FrozenDict:
    def __init__(self, items):
        for name, value in items.items():
            setattr(self, name, value)

    def __getitem__(self, name):
        return getattr(self, name)

    def __contains__(self, name):
        return hasattr(self, name)

    def get(self, name, default=None):
        return getattr(self, name, default)


class ConfigMixin:
    @property
    def config(self):
        return self._internal_dict


def register_to_config(init):
    def inner(self, *args, **kwargs):
        named = list(inspect.signature(init).parameters.items())[1:]
        told = {name: parameter.default for name, parameter in named}
        told.update({named[at][0]: value for at, value in enumerate(args)})
        told.update({name: value for name, value in kwargs.items() if not name.startswith("_")})
        self._internal_dict = FrozenDict(told)
        init(self, *args, **{name: value for name, value in kwargs.items() if not name.startswith("_")})

    return inner
