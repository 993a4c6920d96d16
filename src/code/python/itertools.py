class chain:
    def __init__(self, *iterables):
        self._items = [item for iterable in iterables for item in iterable]

    def __iter__(self):
        return iter(self._items)

    @classmethod
    def from_iterable(cls, iterables):
        return cls(*iterables)


def accumulate(iterable, function=None, initial=None):
    sums = [] if initial is None else [initial]
    for item in iterable:
        if not sums:
            sums.append(item)
        else:
            sums.append(sums[-1] + item if function is None else function(sums[-1], item))
    return sums


def product(*iterables):
    made = [()]
    for iterable in iterables:
        items = list(iterable)
        made = [each + (item,) for each in made for item in items]
    return made


def groupby(iterable, key=None):
    groups = []
    for item in iterable:
        value = item if key is None else key(item)
        if groups and groups[-1][0] == value:
            groups[-1][1].append(item)
        else:
            groups.append((value, [item]))
    return groups


def islice(iterable, *bounds):
    return list(iterable)[slice(*bounds)]


def zip_longest(*iterables, fillvalue=None):
    lists = [list(each) for each in iterables]
    most = max(len(each) for each in lists)
    return [tuple(each[at] if at < len(each) else fillvalue for each in lists) for at in range(most)]


def pairwise(iterable):
    items = list(iterable)
    return list(zip(items, items[1:]))


def repeat(object, times=None):
    if times is None:
        from plimsoll import refuse

        refuse("itertools.repeat without an end")
    return iter([object] * times)
