def wrap(function):
    return function
