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

    # Name(value): the member that has it, or is it.
    def __new__(cls, value):
        for member in cls.__dict__.values():
            if isinstance(member, _Member) and (member is value or member.value == value):
                return member
        raise ValueError(f"{value!r} is not a valid {cls.__name__}")


StrEnum = IntEnum = Enum
