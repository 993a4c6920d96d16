class Parameter:
    POSITIONAL_ONLY = 0
    POSITIONAL_OR_KEYWORD = 1
    VAR_POSITIONAL = 2
    KEYWORD_ONLY = 3
    VAR_KEYWORD = 4

    class empty:
        pass

    def __init__(self, name, kind, default):
        self.name = name
        self.kind = kind
        self.default = default


class Signature:
    def __init__(self, parameters):
        self.parameters = parameters


def signature(function):
    from plimsoll import parameters_of

    found = {}
    for name, kind, *default in parameters_of(function):
        found[name] = Parameter(name, kind, default[0] if default else Parameter.empty)
    return Signature(found)


def unwrap(function):
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def get_annotations(of):
    return {}
