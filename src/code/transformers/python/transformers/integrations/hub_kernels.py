# Kernels of the hub are not installed: what is decorated stays.
def use_kernel_forward_from_hub(name=None, *args, **options):
    return lambda of: of


def use_kernelized_func(function=None, *args, **options):
    return lambda of: of


def use_kernel_func_from_hub(name=None, *args, **options):
    return lambda of: of


# Packages whose functions would stand in the place of those that a model reaches.
ABSENT = []


def use_kernel_func_from_hub_with_fallback(func_name=None, package=None, internal_path=None):
    if package is not None and package not in ABSENT:
        ABSENT.append(package)
    return lambda fallback: fallback


def lazy_load_kernel(*args, **options):
    return None


def is_kernel(name):
    return False


ALLOW_ALL_KERNELS = False
