# Numbers of the host.
import math

newaxis = None
pi = math.pi
inf = math.inf


def log(x):
    return math.log(x)


def exp(x):
    return math.exp(x)


def sqrt(x):
    return math.sqrt(x)


def ceil(x):
    return float(math.ceil(x))


def floor(x):
    return float(math.floor(x))


def prod(a):
    return a if isinstance(a, (int, float)) else math.prod(a)


def lcm(a, b):
    return abs(a * b) // math.gcd(a, b)


def linspace(start, stop, num=50):
    step = (stop - start) / max(num - 1, 1)
    return [start + step * at for at in range(num)]
