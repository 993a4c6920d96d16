class _Member:
    def __init__(self, name, value):
        self.name = name
        self.value = value

    def __eq__(self, other):
        return self is other or self.value == other


class Enum:
    def __init_subclass__(cls, **kwargs):
        for name, value in list(cls.__dict__.items()):
            if not name.startswith("_") and not callable(value):
                setattr(cls, name, _Member(name, value))


StrEnum = IntEnum = Enum
