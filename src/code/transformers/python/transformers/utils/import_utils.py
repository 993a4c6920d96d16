from plimsoll import refuse


def is_torch_available():
    return True


def is_torch_greater_or_equal(version, accept_dev=False):
    return True


def is_torch_less_or_equal(version, accept_dev=False):
    return False


def is_torch_flex_attn_available():
    return True


def get_torch_version():
    return "2.15.0"


def is_tracing(*tensors):
    return False


def is_torchdynamo_compiling():
    return False


def is_torchdynamo_exporting():
    return False


def is_jit_tracing():
    return False


def is_cuda_stream_capturing():
    return False


def is_torch_fx_proxy(x):
    return False


def requires_backends(obj, backends):
    name = obj.__name__ if hasattr(obj, "__name__") else obj.__class__.__name__
    refuse(name + ", a class over " + " and ".join([backends] if isinstance(backends, str) else list(backends)) + ",")


def requires(*args, **options):
    return lambda of: of


def torch_compilable_check(condition, message=None, *args, **options):
    pass
