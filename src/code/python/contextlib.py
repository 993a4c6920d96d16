def contextmanager(function):  # a generator, which is refused where it runs
    return function


def suppress(*types):
    from contextlib import nullcontext

    return nullcontext()
