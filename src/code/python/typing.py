def cast(type, value):
    return value


def overload(function):
    return function


def override(function):
    return function


def TypeVar(name, *bounds, **options):
    return None


def get_type_hints(of):
    return {}
