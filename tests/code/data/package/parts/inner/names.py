from . import depth

try:
    import a_package_that_is_not_there
except ImportError:
    a_package_that_is_not_there = None

FOUND = [depth, a_package_that_is_not_there]
FOUND.append("changed by a later line")
_HIDDEN = 1
