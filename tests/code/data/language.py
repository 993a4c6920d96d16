# What the evaluator must answer as CPython does: language.json holds repr() of what each function returns under CPython 3.11.
import functools
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Optional


def arithmetic():
    return [7 // 2, -7 // 2, 7 % -3, -7 % 3, 2 ** 10, 2 ** -1, 7 / 2, 1e3, 5e-5, -2 ** 2, 0x1F, 1_000, 7.5 // 2, -7.5 % 2, 3 & 5 | 8 ^ 1, ~5, 1 << 4, 256 >> 3]


def comparisons():
    return [1 < 2 < 3, 1 < 3 < 2, 1 == 1.0, "a" < "b", [1, 2] < [1, 3], (1, 2) == (1, 2), [1] == (1,), 3 in [1, 2, 3], "ab" in "cabd", not 0, None is None, 2 not in range(0, 10, 3)]


def booleans():
    return [0 or "a", 1 and 2, [] or {}, 1 if [] else 2, bool([0]), True + True, not "", any([0, 0, 3]), all([]), isinstance(True, int)]


def texts():
    name, number = "w", 3.14159
    return [f"{name}.{number:.2f}", f"{name!r:>5}", f"{12345:,}", "%.2fM %d %s" % (1.5, 7, "x"), "a,b,,c".split(","), " x ".strip(), "-".join(["a", "b"]),
            "{} {x:03d}".format("p", x=7), "Abc".lower().upper(), "model.h.0.c_proj.weight".endswith("c_proj.weight"), "abc"[::-1], "abcdef"[1:-1:2], f"{{{1 + 1}}}", f"{0.000012345}", f"{1e20}", f"{'a' 'b'}"]


def lists():
    a = [3, 1, 2]
    a.append(5)
    a += [4]
    a.insert(0, 9)
    b = a[:]
    del b[0]
    b[-1] = 7
    return [a, b, a.pop(), a[1:3], a[::-1], sorted(a), sorted(a, key=lambda v: -v), sorted("hello", reverse=True), [0] * 3, list(range(5, 0, -2)), a.index(1), max(a), min(a, key=lambda v: (v % 3, v)), sum(a), list(zip("ab", (1, 2))), list(enumerate("ab", 1)), [*a, *b]]


def dictionaries():
    d = dict(a=1, b=2)
    d["c"] = 3
    e = {**d, "a": 7}
    d.pop("b")
    d.setdefault("z", []).append(1)
    d.update(y=4)
    return [d, e, list(d), list(d.items()), d.get("q"), d.get("q", 5), {k: v for k, v in e.items() if v > 2}, "a" in d, len(d), {1, 2} | {3}, OrderedDict([("x", 1)])["x"], {1: "a", 1.0: "b"}, e | {"n": 0}]


def unpacking():
    a, (b, *c), d = 1, (2, 3, 4), 5
    x = y = [0]
    y[0] = 6
    first, *rest = range(4)
    a, d = d, a
    return [a, b, c, d, x, first, rest]


def loops():
    found = []
    for i in range(10):
        if i == 2:
            continue
        if i == 5:
            break
        found.append(i)
    else:
        found.append("never")
    while len(found) < 6:
        found.append(-1)
    else:
        found.append("else")
    for i, j in [(1, 2), (3, 4)]:
        found.append(i * j)
    return found, i


def closures():
    count = 0

    def bump(by=1):
        nonlocal count
        count += by
        return count

    adders = [lambda x, n=n: x + n for n in range(3)]
    late = [lambda: n for n in range(3)]
    bump()
    return [bump(5), count, [f(10) for f in adders], [f() for f in late], (lambda *a, **k: (a, k))(1, 2, z=3)]


def arguments():
    def f(a, b=2, *rest, c, d=4, **others):
        return a, b, rest, c, d, others

    pair = (1, 2)
    return [f(1, c=3), f(*pair, 5, 6, c=0, **{"x": 1}), f(c=1, a=0, d=9)]


def walrus():
    return [y for x in range(5) if (y := x * x) > 3], (n := 4) + n


class Base:
    kind = "base"
    made = 0

    def __init__(self, value):
        self.value = value
        type(self).made += 1

    def describe(self):
        return f"{self.kind}:{self.value}"

    @property
    def double(self):
        return self.value * 2

    @double.setter
    def double(self, value):
        self.value = value // 2

    @staticmethod
    def plain(x):
        return x + 1

    @classmethod
    def of(cls, value):
        return cls(value)

    def __len__(self):
        return self.value

    def __getitem__(self, index):
        return index * 10

    def __add__(self, other):
        return type(self)(self.value + (other.value if isinstance(other, Base) else other))

    def __eq__(self, other):
        return isinstance(other, Base) and self.value == other.value

    def __repr__(self):
        return f"{type(self).__name__}({self.value})"

    def __call__(self, x):
        return x + self.value


class Left(Base):
    kind = "left"

    def describe(self):
        return "L" + super().describe()


class Right(Base):
    def describe(self):
        return "R" + super().describe()


class Both(Left, Right):
    pass


def classes():
    both = Both.of(3)
    both.double = 20
    return [both.describe(), both.double, Both.plain(1), len(both), both[4], both + 1, both + both, both == Base(10), both(1), [c.__name__ for c in (Both, Left)],
            hasattr(both, "value"), getattr(both, "nothing", None), issubclass(Both, Right), isinstance(both, (int, Left)), bool(Base(0)), list(zip(both, range(2)))]


@dataclass
class Settings:
    width: int
    heads: int = 4
    names: list = field(default_factory=list)
    rate: Optional[float] = None

    def __post_init__(self):
        self.size = self.width // self.heads


@dataclass
class MoreSettings(Settings):
    depth: int = 2


def dataclasses():
    a, b = Settings(64), MoreSettings(width=32, heads=2, depth=5)
    a.names.append("x")
    return [a, b, a.size, Settings(64).names, a == Settings(64, 4, ["x"]), b.depth]


def exceptions():
    seen = []

    def risky(kind):
        try:
            if kind == 0:
                raise ValueError("bad")
            if kind == 1:
                return {}["k"]
            if kind == 2:
                return 1 / 0
            return "fine"
        except ValueError as error:
            return f"value {error}"
        except (KeyError, ZeroDivisionError) as error:
            return type(error).__name__
        else:
            return "else"
        finally:
            seen.append(kind)

    class Own(RuntimeError):
        pass

    try:
        try:
            raise Own("inner", 2)
        except Own:
            raise
    except RuntimeError as error:
        last = error.args
    return [risky(k) for k in range(4)], seen, last


def generators():
    total = sum(x * y for x in range(4) for y in range(x) if (x + y) % 2)
    walked = (x for x in [1, 2, 3])
    return [total, next(walked), list(walked), next(iter([]), "none"), tuple(x for x in "ab"), [[j for j in range(i)] for i in range(3)], list(map(str, [1, 2])), list(filter(None, [0, 1])), list(reversed([1, 2]))]


def library():
    power = functools.partial(pow_of, exponent=3)
    return [math.sqrt(16), math.ceil(1.2), math.floor(-1.2), math.log(math.e), math.prod([2, 3]), math.inf > 1, power(2), round(2.5), round(1.25, 1), abs(-3), int(3.9), int("12"), float("1.5"), str(1.0), divmod_of(7, 2), math.pi]


def pow_of(base, exponent):
    return base ** exponent


def divmod_of(a, b):
    return a // b, a % b


def scopes():
    values = [x for x in range(3)]
    x = "outer"
    inner = [x for x in values]

    class Local:
        y = x
        both = [x, y]

        def method(self):
            return x

    return inner, x, Local.both, Local().method()


def conditions():
    out = []
    for value in (0, 5, -5, None, "text"):
        if value is None:
            out.append("none")
        elif isinstance(value, str):
            out.append("text")
        elif value > 0:
            out.append("positive")
        elif not value:
            out.append("zero")
        else:
            out.append("negative")
    assert len(out) == 5, "all"
    return out


def expressions():
    import re

    found = re.search(r"^(\w+)_k(?P<size>\d+)(?:_s(\d))?", "ir_r2_k3_s2")
    parts = [re.split(r"(\d.*)", op) for op in "ir_r2_k3_e0.25".split("_")]
    return [found.groups(), found["size"], found.span(3), found.groupdict(), parts, re.sub(r"\.(\d+)\.", r"[\1].", "layers.0.mlp", count=1), re.findall(r"a|b+", "abbac"),
            re.match(r"x", "yx"), re.fullmatch(r"[a-c]{2,3}", "abc") is not None, re.split(r",\s*", "a, b,c"), [m.start() for m in re.finditer(r"\bfo+", "foo xfo fo")], re.sub("[^a]", "", "banana"),
            re.search(r"(x+?)(x*)y", "z" * 300 + "xxxy").groups(), len(re.match(r".*z", "z" * 900).group())]


def made_anew():
    from enum import Enum

    class Format(str, Enum):
        NCHW = "NCHW"
        NHWC = "NHWC"

    class Pair:
        def __new__(cls, first, second):
            if first == second:
                return first
            return super().__new__(cls)

        def __init__(self, first, second):
            self.both = (first, second)

    return [Format("NHWC").name, Format(Format.NCHW).value, Format("NCHW") is Format.NCHW, Pair(1, 1), Pair(1, 2).both]


def partials():
    def area(width, height=2, depth=1):
        return width * height * depth

    inner = functools.partial(area, height=3)
    outer = functools.partial(inner, 4, depth=5)
    return [outer(), outer.func is area, outer.args, outer.keywords, isinstance(outer, functools.partial), isinstance(area, functools.partial), inner.keywords]


def kinds():
    import numbers
    import types
    from typing import Callable, Sequence, Tuple

    return [isinstance(3, numbers.Integral), isinstance(2.5, numbers.Number), isinstance("x", numbers.Number), isinstance((1,), Sequence), isinstance(3, Sequence),
            isinstance([1], Tuple), isinstance((1,), Tuple), isinstance(len, Callable), isinstance(kinds, types.FunctionType), isinstance(functools.partial(len), types.FunctionType)]


def replaced():
    import dataclasses
    from itertools import repeat

    @dataclass
    class Settings:
        size: int = 3
        names: list = field(default_factory=list)

    a = Settings(names=["x"])
    b = dataclasses.replace(a, size=5)
    c = [1, 2, 3, 4]
    c[1:3] = ["p", "q", "r"]
    c[-1:-1] = [0]
    return [a.size, b.size, b.names is a.names, c, tuple(repeat("z", 3)), math.comb(5, 2), math.comb(3, 4), "size" in dir(a), "silu" in dir(a)]
