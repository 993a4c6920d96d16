def lru_cache(maxsize=128, typed=False):
    if callable(maxsize):
        return maxsize
    return lambda function: function


def cache(function):
    return function


def reduce(function, iterable, *initial):
    items = list(iterable)
    if initial:
        value = initial[0]
    elif items:
        value = items.pop(0)
    else:
        raise TypeError("reduce() of empty iterable with no initial value")
    for item in items:
        value = function(value, item)
    return value
