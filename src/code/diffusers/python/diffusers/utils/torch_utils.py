def maybe_allow_in_graph(cls):
    return cls


def maybe_adjust_dtype_for_device(dtype, device):
    return dtype


def is_torch_version(operation, version):
    return operation in (">", ">=", "!=")


def lru_cache_unless_export(maxsize=128, typed=False):
    """Of one batch's shapes all answers are kept: no more of them are asked for than a cache holds."""

    def decorator(function):
        known = {}

        def cached(*args):
            key = (id(args[0]),) + tuple(str(each) for each in args[1:])
            if key not in known:
                known[key] = function(*args)
            return known[key]

        return cached

    return decorator
