from plimsoll import has_timm, refuse


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


def is_timm_available():
    return has_timm


# Images come from a processor, which no class runs itself.
def requires_backends(obj, backends):
    asked = [backends] if isinstance(backends, str) else list(backends)
    if has_timm and all(each in ("vision", "timm") for each in asked):
        return
    name = obj.__name__ if hasattr(obj, "__name__") else obj.__class__.__name__
    beside = " (its folder or wheel goes behind a comma: --code TRANSFORMERS,TIMM)" if "timm" in asked else ""
    refuse(name + ", a class over " + " and ".join(asked) + beside + ",")


def requires(*args, **options):
    return lambda of: of


def torch_compilable_check(condition, message=None, *args, **options):
    pass
