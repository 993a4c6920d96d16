import parts.inner

base = 1
broken = open("never run").read()


def later():
    from .inner.names import FOUND as found

    return found + [parts.inner.depth]
