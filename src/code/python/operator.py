def mul(a, b):
    return a * b


def add(a, b):
    return a + b


def or_(a, b):
    return a | b


def and_(a, b):
    return a & b


def itemgetter(*keys):
    return lambda of: of[keys[0]] if len(keys) == 1 else tuple(of[key] for key in keys)


def attrgetter(name):
    def get(of):
        for part in name.split("."):
            of = getattr(of, part)
        return of

    return get
